"""A WebSocket client that sends and receives GraphQL messages."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from support.memory_http import KEY
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.python.failure import Failure

PATIENCE = 60.0
"""Seconds to wait for an expected message, even on a slow machine."""

SUBPROTOCOL = "graphql-transport-ws"
SWITCHING_PROTOCOLS = 101


class SocketClient(Protocol):
    """A WebSocket connection.

    :ivar status: status of the response to the handshake.
    :ivar received: messages that have not been read.
    :ivar frames: number of frames in each received message.
    :ivar pings: number of received pings.
    :ivar closed: code and reason of the close frame, or None.
    """

    transport: Any

    def __init__(self, reactor: Any, protocol: ClientProtocol) -> None:
        self.reactor = reactor
        self.received: deque[Any] = deque()
        self.frames: list[int] = []
        self.pings = 0
        self.status = 0
        self.response: Response | None = None
        self.closed: tuple[int, str] | None = None
        self.has_ended = False
        self._protocol = protocol
        self._parts: list[bytes] = []
        self._waiting: Deferred[None] | None = None

    def begin(self, headers: Sequence[tuple[str, str]]) -> None:
        """Send the handshake. The headers replace default headers of the same names."""
        request = self._protocol.connect()
        for name, value in headers:
            request.headers.pop(name, None)
            request.headers[name] = value
        self._protocol.send_request(request)
        self.flush()

    def flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self.transport.write(data)
            else:
                self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        self._protocol.receive_data(data)
        self.flush()
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self.response, self.status = event, event.status_code
            elif isinstance(event, Frame):
                self._take(event)
        self._wake()

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PING:
            self.pings += 1
        elif frame.opcode is Opcode.CLOSE:
            assert self._protocol.close_rcvd is not None
            self.closed = self._protocol.close_rcvd.code, self._protocol.close_rcvd.reason
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._parts.append(bytes(frame.data))
            if frame.fin:
                self.frames.append(len(self._parts))
                self.received.append(json.loads(b"".join(self._parts)))
                self._parts.clear()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        self.has_ended = True
        if not self.status:
            self._protocol.receive_eof()
            for event in self._protocol.events_received():
                if isinstance(event, Response):
                    self.response, self.status = event, event.status_code
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    async def change(self) -> None:
        self._waiting = Deferred()
        await self._waiting.addTimeout(PATIENCE, self.reactor)

    async def accepted(self) -> SocketClient:
        while not self.status:
            assert not self.has_ended, "disconnected before the handshake"
            await self.change()
        return self

    async def next(self) -> Any:
        while not self.received:
            assert not self.has_ended, f"the connection has ended: {self.closed}"
            await self.change()
        return self.received.popleft()

    async def end(self) -> tuple[int, str] | None:
        """Wait for the end of the connection, and return the code and the reason of the close frame.

        If the handshake was rejected, the client ends the connection.
        """
        if self.status != SWITCHING_PROTOCOLS:
            self.abort()
        while not self.has_ended:
            await self.change()
        return self.closed

    def send(self, kind: str, **members: Any) -> None:
        self.send_text(json.dumps({"type": kind, **members}))

    def send_text(self, text: str) -> None:
        self._protocol.send_text(text.encode())
        self.flush()

    def send_binary(self, data: bytes) -> None:
        self._protocol.send_binary(data)
        self.flush()

    def send_raw(self, data: bytes) -> None:
        self.transport.write(data)

    def send_frame(self, opcode: Opcode, data: bytes, *, fin: bool) -> None:
        self.send_raw(Frame(opcode, data, fin).serialize(mask=True))

    def subscribe(self, identifier: str, query: str, **members: Any) -> None:
        self.send("subscribe", id=identifier, payload={"query": query, **members})

    async def initialise(self, **payload: Any) -> SocketClient:
        """Send ``connection_init`` and wait for its confirmation."""
        self.send("connection_init", payload={"apikey": KEY, **payload})
        assert await self.next() == {"type": "connection_ack"}
        return self

    def close(self) -> None:
        """Close the connection normally."""
        if not self.has_ended:
            self._protocol.send_close(1000)
            self.flush()

    def abort(self) -> None:
        """Disconnect without closing."""
        if not self.has_ended:
            self.transport.abortConnection()


async def connect(
    reactor: Any,
    url: str,
    *headers: tuple[str, str],
    subprotocol: str | None = SUBPROTOCOL,
    target: str = "/graphql/v1",
    early: bytes = b"",
) -> SocketClient:
    """Connect and wait for the response to the handshake.

    :param url: http URL of the service, without a path.
    :param headers: headers that are added to those of the handshake, or replace them.
    :param early: data to send before the response.
    """
    address = urlsplit(url)
    offered = None if subprotocol is None else [Subprotocol(subprotocol)]
    uri = parse_uri(f"ws://{address.netloc}{target}")
    protocol = ClientProtocol(uri, subprotocols=offered, max_size=None)
    client = SocketClient(reactor, protocol)
    assert address.hostname is not None
    assert address.port is not None
    await connectProtocol(HostnameEndpoint(reactor, address.hostname, address.port), client)
    client.begin(headers)
    client.send_raw(early)
    return await client.accepted()
