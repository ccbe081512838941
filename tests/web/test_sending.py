"""Responses arrive complete and in order, however slowly the client reads."""

from __future__ import annotations

import random
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.http.messages import Reply
from dataapi.web.app import make_site
from support.memory_http import Web, raw
from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ClientCreator, Protocol, connectionDone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataapi.http.messages import Request
    from twisted.python.failure import Failure

LARGE = random.Random(1).randbytes(6_000_000)
"""Data larger than a socket buffer."""
HUGE = LARGE * 5
"""Data larger than all buffers of a connection."""
TIMEOUT = 1.5
"""Timeout of idle connections, in seconds."""


class Reader(Protocol):
    """A client that stores received data."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        self.received += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        self.ended.callback(bytes(self.received))


async def exchange(reactor: Any, web: Web, *requests: bytes, pause: float = 0) -> bytes:
    """Pipeline requests, begin to read after ``pause`` seconds, and return the received data."""
    site = make_site(web.backends, reactor, web.served.append)
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    try:
        client = await ClientCreator(reactor, Reader).connectTCP("127.0.0.1", port.getHost().port)
        client.transport.pauseProducing()
        reactor.callLater(pause, client.transport.resumeProducing)
        client.transport.write(b"".join(requests))
        received: bytes = await client.ended
        return received
    finally:
        await port.stopListening()
        await site.drain(5)


async def large(request: Request, _caller: Any) -> Reply:
    """Respond with a large or a small body."""
    return Reply(200, (), {"large": LARGE, "huge": HUGE}.get(request.query, b"small"))


async def test_late_reader_gets_a_complete_large_response(reactor: Any) -> None:
    last = raw("GET", "/rest/v1/blog?large", headers=[("Connection", "close")])
    response = await exchange(reactor, Web(rest=large), last, pause=0.05)
    assert response.partition(b"\r\n\r\n")[2] == LARGE


async def test_pipelined_responses_stay_in_order(reactor: Any) -> None:
    requests = [
        raw("GET", "/rest/v1/blog?large"),
        raw("GET", "/rest/v1/blog?small"),
        raw("GET", "/rest/v1/blog?large"),
        raw("GET", "/rest/v1/blog?small", headers=[("Connection", "close")]),
    ]
    response = await exchange(reactor, Web(rest=large), *requests, pause=0.05)
    bodies = []
    while response:
        head, _, rest = response.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        bodies.append(rest[:length])
        response = rest[length:]
    assert bodies == [LARGE, b"small", LARGE, b"small"]


async def test_late_reader_that_half_closes_gets_all_responses(reactor: Any) -> None:
    web = Web(rest=large)
    site = make_site(web.backends, reactor, web.served.append)
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    client = await connected(reactor, port, Reader())
    client.transport.pauseProducing()
    client.transport.write(raw("GET", "/rest/v1/blog?huge") + raw("GET", "/rest/v1/blog?small"))
    client.transport.loseWriteConnection()
    await task.deferLater(reactor, 0.05)
    client.transport.resumeProducing()
    response = await client.ended
    assert response.endswith(b"small")
    assert response.count(HUGE) == 1
    await port.stopListening()
    await site.drain(5)


class SlowReader(Reader):
    """A client that reads a little every few milliseconds, for twice the idle timeout."""

    def __init__(self, reactor: Any) -> None:
        super().__init__()
        self._reactor = reactor
        self._slow_until = reactor.seconds() + 2 * TIMEOUT

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Store data, then pause."""
        super().dataReceived(data)
        if self._reactor.seconds() < self._slow_until:
            transport: Any = self.transport
            transport.pauseProducing()
            self._reactor.callLater(0.006, transport.resumeProducing)


@pytest.fixture
def impatient(reactor: Any) -> Iterator[tuple[Web, Any]]:
    """Serve on a site with a short idle timeout."""
    web = Web(rest=large)
    site: Any = make_site(web.backends, reactor, web.served.append)
    site.timeout = site.header_timeout = site.keep_alive_timeout = TIMEOUT
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    yield web, port
    port.stopListening()


async def connected(reactor: Any, port: Any, reader: Protocol) -> Any:
    """Connect a client with a small receive buffer."""
    client = await ClientCreator(reactor, lambda: reader).connectTCP("127.0.0.1", port.getHost().port)
    client.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    return client


async def test_pipelined_requests_wait_until_responses_are_read(
    impatient: tuple[Web, Any], reactor: Any
) -> None:
    """A client that pipelines hundreds of requests without reading would otherwise fill the memory."""
    web, port = impatient
    client = await connected(reactor, port, Reader())
    client.transport.pauseProducing()
    last = raw("GET", "/rest/v1/blog?small", headers=[("Connection", "close")])
    client.transport.write(raw("GET", "/rest/v1/blog?huge") * 3 + last)
    await task.deferLater(reactor, 0.1)
    assert len(web.rest.received) == 1
    client.transport.resumeProducing()
    response = await client.ended
    assert response.count(b"HTTP/1.1 200 OK") == 4
    assert response.endswith(b"small")
    assert response.count(HUGE) == 3


async def test_slow_reader_gets_a_complete_large_response(impatient: tuple[Web, Any], reactor: Any) -> None:
    _, port = impatient
    client = await connected(reactor, port, SlowReader(reactor))
    client.transport.write(raw("GET", "/rest/v1/blog?huge"))
    began = time.monotonic()
    while len(client.received) < len(HUGE):
        assert not client.ended.called, f"disconnected after {len(client.received)} bytes"
        await task.deferLater(reactor, 0.05)
    assert client.received.endswith(HUGE)
    assert time.monotonic() - began > 2
    await client.ended


@pytest.mark.parametrize("headers", [[], [("Connection", "close")]])
async def test_client_that_does_not_read_is_disconnected(
    impatient: tuple[Web, Any], reactor: Any, headers: list[tuple[str, str]]
) -> None:
    """The unread response would otherwise stay in memory indefinitely."""
    _, port = impatient
    client = await connected(reactor, port, Reader())
    client.transport.pauseProducing()
    client.transport.write(raw("GET", "/rest/v1/blog?huge", headers=headers))
    site = port.factory
    while not site.connections:
        await task.deferLater(reactor, 0.01)
    while site.connections:
        await task.deferLater(reactor, 0.05)
    client.transport.resumeProducing()
    assert len(await client.ended) < len(HUGE)
