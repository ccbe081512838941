"""A request while it is received and handled, and the outgoing half of its connection.

Responses are written immediately until the socket's buffer is full. Remaining data is written as the client
reads.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sized
from http import HTTPStatus
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPullProducer, IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Connection
from zope.interface import implementer

from dataapi.http.client_address import TrustedProxies
from dataapi.http.errors import ApiError
from dataapi.http.messages import Chunk, Feed, Reply, Stream
from dataapi.web.routing import RoutedRequest
from dataapi.web.server.parser import Head

UNCOUNTED = 16_384
"""Bytes of each body that do not count toward the budget.

Small requests therefore succeed while large requests use the whole budget.
"""

_SWITCHING_PROTOCOLS = 101
_LAST_CHUNK = b"0\r\n\r\n"


class Budget:
    """Limits the memory for request bodies, in bytes."""

    def __init__(self, size: int) -> None:
        self.free = self._size = size

    def resize(self, size: int) -> None:
        self.free += size - self._size
        self._size = size

    def reserve(self, count: int) -> bool:
        if count > self.free:
            return False
        self.free -= count
        return True

    def release(self, count: int) -> None:
        self.free += count


class SiteState(Protocol):
    """The interface that the site provides to requests."""

    reactor: Any
    bodies: Budget
    proxies: TrustedProxies
    in_flight: int
    draining: bool

    @property
    def connections(self) -> Sized: ...

    def handle(self, received: ServerRequest, body: bytes, /) -> None: ...

    def add_feed(self) -> bool: ...

    def remove_feed(self) -> None: ...

    def settle(self) -> None: ...


class RequestConnection(Protocol):
    """The interface that a connection provides to its requests."""

    sender: OutgoingData
    crowded: bool
    peer: str
    secure: bool
    persistent: bool
    progressed: float

    @property
    def site(self) -> SiteState: ...

    def begin_feed(self, feed: Feed) -> bool: ...

    def upgrade(self, receive: Callable[[bytes], None]) -> None: ...

    def pause(self, *, paused: bool) -> None: ...

    def finished(self) -> None: ...

    def linger(self) -> None: ...

    def abort(self) -> None: ...


class ServerRequest:
    """A request while it is received and handled. The pipeline creates an immutable ``Request`` from it.

    :ivar limit: maximum size of the body in bytes.
    :ivar routed: result of routing, if the request was routed before its body was received.
    :ivar handling: Deferred of the handler, cancelled when the client disconnects.
    """

    __slots__ = (
        *("_body", "_budgeted", "connection", "gone", "handling", "head", "limit", "received"),
        *("response_started", "routed", "site"),
    )

    def __init__(self, connection: RequestConnection, head: Head) -> None:
        self.connection = connection
        self.site = connection.site
        self.head = head
        self.limit = head.length or 0
        self.received = 0
        self.response_started = self.gone = False
        self.routed: RoutedRequest | None = None
        self.handling: Deferred[Any] | None = None
        self._body: list[bytes] = []
        self._budgeted = 0

    def add(self, piece: bytes) -> None:
        """Add a piece of the body. Raises ``ApiError`` (413, or 503 if all bodies together are too large)."""
        self.received += len(piece)
        if self.received > self.limit:
            raise body_too_large(self.limit)
        more = self.received - self._budgeted - UNCOUNTED
        if more > 0:
            if not self.site.bodies.reserve(more):
                raise _too_many_bodies()
            self._budgeted += more
        self._body.append(piece)

    def pop_body(self) -> bytes:
        """Return the complete body. The body counts towards the budget until the request is finished."""
        body, self._body = b"".join(self._body), []
        return body

    def _forget_body(self) -> None:
        self._body.clear()
        if self._budgeted:
            self.site.bodies.release(self._budgeted)
            self._budgeted = 0

    def send(self, reply: Reply, headers: tuple[tuple[str, str], ...]) -> None:
        """Write a response with additional headers. ``finish`` must follow."""
        is_head = self.head.method == "HEAD"
        # The response to HEAD has the length of the response to GET. If the handler returned no body, the
        # length is unknown.
        head = self._head(reply, headers, None if is_head and not reply.body else len(reply.body))
        has_body = not is_head and reply.status not in BODILESS
        self.connection.sender.send(head + reply.body if has_body else head)

    def reject(self, reply: Reply, headers: tuple[tuple[str, str], ...]) -> None:
        """Respond to a request that is still being received. The connection is closed afterwards."""
        self._forget_body()
        self.connection.persistent = False
        self.send(reply, headers)
        self.connection.linger()

    def finish(self) -> None:
        if self._budgeted:
            self._forget_body()
        self.connection.finished()

    async def send_stream(self, reply: Reply, stream: Stream, headers: tuple[tuple[str, str], ...]) -> int:
        """Write a streamed response as fast as the client reads, and return the size of its body.

        The caller closes the stream and finishes the request. After an error, the body is not terminated, so
        that the client sees that it is incomplete.
        """
        sender = self.connection.sender
        self._begin_body(reply, headers)
        if self.head.method == "HEAD":
            return 0
        size = len(reply.body)
        await sender.room()
        async for piece in stream:
            if piece:
                size += len(piece)
                sender.send(Chunk(piece).framed if self._chunked else piece)
                await sender.room()
        self._end_body()
        return size

    async def send_feed(self, reply: Reply, feed: Feed, headers: tuple[tuple[str, str], ...]) -> None:
        """Write an open-ended response until its feed ends. The connection is closed afterwards.

        After the status 101, the feed also receives data from the client. The caller finishes the request.
        """
        self.connection.persistent = False
        if reply.status == _SWITCHING_PROTOCOLS:
            self.response_started = True
            self.connection.sender.send(response_head(reply.status, (*headers, *reply.headers), None))
            await feed.write_to(self)
            return
        self._begin_body(reply, headers)
        await feed.write_to(self)
        self._end_body()

    def _begin_body(self, reply: Reply, headers: tuple[tuple[str, str], ...]) -> None:
        if self._chunked:
            headers = (*headers, ("Transfer-Encoding", "chunked"))
        else:
            self.connection.persistent = False
        head, body = self._head(reply, headers, None), reply.body
        if self.head.method != "HEAD" and body:
            head += Chunk(body).framed if self._chunked else body
        self.connection.sender.send(head)

    def _end_body(self) -> None:
        if self._chunked:
            self.connection.sender.send(_LAST_CHUNK)

    @property
    def _chunked(self) -> bool:
        return self.head.minor > 0

    @property
    def waits(self) -> bool:
        return self.connection.sender.waits

    @property
    def progressed(self) -> float:
        return self.connection.progressed

    def write(self, piece: Chunk) -> None:
        self.connection.sender.send(piece.framed if self._chunked else piece.plain)

    def abort(self) -> None:
        self.connection.abort()

    def _head(self, reply: Reply, headers: tuple[tuple[str, str], ...], length: int | None) -> bytes:
        if self.site.draining:
            self.connection.persistent = False
        if not self.connection.persistent:
            headers = (*headers, ("Connection", "close"))
        self.response_started = True
        return response_head(reply.status, (*headers, *reply.headers), length, reply.reason)

    def lost(self) -> None:
        self.gone = True
        self._forget_body()
        if self.handling is not None:
            self.handling.cancel()


def body_too_large(limit: int) -> ApiError:
    return ApiError(413, "CONTENT_TOO_LARGE", f"The request body is larger than {limit} bytes")


def _too_many_bodies() -> ApiError:
    return ApiError(
        503,
        "TOO_MANY_BODIES",
        "Too many large request bodies are being received",
        hint="Retry later, or split the request into smaller requests.",
        headers=(("Retry-After", "1"),),
    )


def too_many_connections() -> ApiError:
    hint = "Retry later, and reuse connections for further requests."
    headers = (("Retry-After", "1"),)
    return ApiError(503, "TOO_MANY_CONNECTIONS", "There are too many connections", hint=hint, headers=headers)


def too_many_subscriptions() -> ApiError:
    headers = (("Retry-After", "10"),)
    return ApiError(503, "TOO_MANY_SUBSCRIPTIONS", "There are too many subscriptions", headers=headers)


_MAX_WRITE = 65_536
"""Maximum number of bytes to pass to the transport at a time. Smaller pieces make progress visible."""

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus} | {
    413: "HTTP/1.1 413 Content Too Large",
    414: "HTTP/1.1 414 URI Too Long",
    499: "HTTP/1.1 499 Client Closed Request",
}

BODILESS = frozenset((204, 304))
_FORBIDDEN = re.compile(r"[\r\n\0]")
_HEADER = "%s: %s".__mod__


def response_head(
    status: int, headers: Iterable[tuple[str, str]], length: int | None, reason: str | None = None
) -> bytes:
    """Return the status line and headers, with ``Content-Length`` if the status allows a body.

    A newline in a value would start another header, so it is replaced with a space.
    """
    if reason is None:
        lines = [_STATUS_LINES.get(status) or f"HTTP/1.1 {status} Unknown Status"]
    else:
        lines = [f"HTTP/1.1 {status} {reason}"]
    lines.extend(map(_HEADER, headers))
    if length is not None and status not in BODILESS:
        lines.append(f"Content-Length: {length}")
    text = "\r\n".join(lines)
    if "\0" in text or not text.count("\r") == text.count("\n") == len(lines) - 1:
        text = "\r\n".join([_FORBIDDEN.sub(" ", line) for line in lines])
    return f"{text}\r\n\r\n".encode("utf-8", "replace")


@implementer(IPullProducer, IPushProducer)
class OutgoingData:
    """The outgoing half of a connection.

    :ivar socket: the connection, or None if it uses TLS.
    :param progress: called after a part of the pending data has been sent.
    """

    def __init__(self, transport: Any, progress: Callable[[], object], sent: Callable[[], object]) -> None:
        plain = isinstance(transport, Connection) and not transport.TLS
        self.socket: Connection | None = transport if plain else None
        self.waits = False
        self._transport = transport
        self._progress = progress
        self._sent = sent
        self._unsent: deque[memoryview] = deque()
        self._full = False
        self._room: Deferred[None] | None = None
        self._end: Callable[[], object] | None = None
        if not plain:
            transport.registerProducer(self, True)

    def send(self, data: bytes | memoryview) -> None:
        """Write as much as the socket accepts, and leave the rest to the reactor without copying it.

        Waiting until the reactor reports a writable socket would cost an iteration and two system calls.
        """
        if self.socket is None:
            self._unsent.append(memoryview(data))
            self.waits = True
            self._write()
            return
        rest = memoryview(data)
        if not self.waits:
            sent = self.socket.writeSomeData(data)  # type: ignore[arg-type]  # a memoryview will do
            if sent == len(data):
                return
            if isinstance(sent, int):  # otherwise the reactor will detect that the connection is lost
                rest = rest[sent:]
        self._unsent.append(rest)
        if not self.waits:
            self.waits = True
            self.socket.registerProducer(self, False)  # calls resumeProducing

    async def room(self) -> None:
        if self.waits:
            self._room = Deferred()
            await self._room

    def resumeProducing(self) -> None:  # noqa: N802 - twisted's name
        self._full = False
        self._progress()
        self._write()

    def _write(self) -> None:
        while self._unsent and not self._full:
            piece = self._unsent.popleft()
            if len(piece) > _MAX_WRITE:
                self._unsent.appendleft(piece[_MAX_WRITE:])
            self._transport.write(bytes(piece[:_MAX_WRITE]))
            if self.socket is not None:
                return  # a plain connection calls resumeProducing after each write
        if self.waits and not self._full:
            self.waits = False
            if self.socket is not None:
                self.socket.unregisterProducer()
            room, self._room = self._room, None
            if self._end is not None:
                self._end()
            elif room is not None:
                room.callback(None)
            else:
                self._sent()

    def close(self) -> None:
        self._end = self._close
        if not self.waits:
            self._close()

    def _close(self) -> None:
        if self.socket is None:
            self._transport.unregisterProducer()
        self._transport.loseConnection()

    def close_now(self) -> None:
        """Close the connection now. The kernel still sends the bytes that have been written.

        ``loseConnection`` waits until the socket is writable, which the client may delay forever, and
        ``abortConnection`` discards a response that is being sent.
        """
        if self.socket is None:
            self._transport.abortConnection()
        else:
            self.socket.stopReading()
            self.socket.stopWriting()
            self.socket.connectionLost(connectionDone)

    def half_close(self) -> None:
        """Shut down the output after all data has been sent. TLS has no half-closed state."""
        if self.socket is not None:
            self._end = self.socket.loseWriteConnection
            if not self.waits:
                self._end()

    def drop(self) -> None:
        self.waits = False
        self._unsent.clear()
        self._progress = self._sent = self._end = lambda: None

    def pauseProducing(self) -> None:  # noqa: N802 - twisted's name
        self._full = True

    def stopProducing(self) -> None:  # noqa: N802 - twisted's name
        """Do nothing, because ``connectionLost`` handles the loss of the connection."""
