"""One request while it is received within its limits and answered, at once or by a stream.

Answers are written as far as the socket takes them at once, and the rest as the client reads it.
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
"""Bytes of each body that are not counted: small requests are served while large ones hold all there is."""

_LAST_CHUNK = b"0\r\n\r\n"


class Budget:
    """Bytes that all requests together may hold in memory, and how many of them are free."""

    def __init__(self, size: int) -> None:
        self.free = self._size = size

    def resize(self, size: int) -> None:
        """Change the size. Bytes that are reserved stay reserved."""
        self.free += size - self._size
        self._size = size

    def take(self, count: int) -> bool:
        """Reserve bytes if enough are free, and return whether they were."""
        if count > self.free:
            return False
        self.free -= count
        return True

    def give_back(self, count: int) -> None:
        """Return bytes that were taken."""
        self.free += count


class SiteState(Protocol):
    """What a request needs of the site."""

    reactor: Any
    bodies: Budget
    proxies: TrustedProxies
    in_flight: int
    draining: bool

    @property
    def connections(self) -> Sized:
        """The open connections."""

    def settle(self) -> None:
        """Pause, and end a drain, if no client is connected and no request is answered."""


class RequestConnection(Protocol):
    """What a request needs of its connection."""

    sender: OutgoingData
    crowded: bool
    peer: str
    persistent: bool
    progressed: float

    @property
    def site(self) -> SiteState:
        """The state that all connections share."""

    def begin_feed(self, feed: Feed) -> bool:
        """Begin a response that lasts as long as the client stays, if there is room, and return whether."""

    def finished(self) -> None:
        """Continue with the next request."""

    def linger(self) -> None:
        """Close after a refusal."""

    def abort(self) -> None:
        """Close without waiting for unwritten bytes."""


class ServerRequest:
    """A request while it is received and answered; the pipeline makes a frozen ``Request`` of it.

    :ivar limit: bytes that the body may have.
    :ivar received: bytes of the body so far.
    :ivar answered: whether the answer was begun.
    :ivar gone: whether the client closed the connection.
    :ivar routed: the routed head, if it was judged before the body was received.
    :ivar answering: the handler's Deferred, cancelled when the client disconnects.
    """

    __slots__ = (
        *("_body", "_budgeted", "answered", "answering", "connection", "gone", "head", "limit", "received"),
        *("routed", "site"),
    )

    def __init__(self, connection: RequestConnection, head: Head) -> None:
        self.connection = connection
        self.site = connection.site
        self.head = head
        self.limit = head.length or 0
        self.received = 0
        self.answered = self.gone = False
        self.routed: RoutedRequest | None = None
        self.answering: Deferred[Any] | None = None
        self._body: list[bytes] = []
        self._budgeted = 0

    def add(self, piece: bytes) -> None:
        """Add to the body; raises ``ApiError``, 413 or 503, if it or all bodies together are too large."""
        self.received += len(piece)
        if self.received > self.limit:
            raise body_too_large(self.limit)
        more = self.received - self._budgeted - UNCOUNTED
        if more > 0:
            if not self.site.bodies.take(more):
                raise _too_many_bodies()
            self._budgeted += more
        self._body.append(piece)

    def take_body(self) -> bytes:
        """Return the complete body, which counts until the request is answered."""
        body, self._body = b"".join(self._body), []
        return body

    def _forget_body(self) -> None:
        self._body.clear()
        if self._budgeted:
            self.site.bodies.give_back(self._budgeted)
            self._budgeted = 0

    def send(self, reply: Reply, headers: tuple[tuple[str, str], ...]) -> None:
        """Write an answer with further headers; ``finish`` follows."""
        asks_head = self.head.method == "HEAD"
        # An answer to HEAD has the length of GET's answer, which is unknown if no body was made.
        head = self._head(reply, headers, None if asks_head and not reply.body else len(reply.body))
        sends_body = not asks_head and reply.status not in BODILESS
        self.connection.sender.send(head + reply.body if sends_body else head)

    def reject(self, reply: Reply, headers: tuple[tuple[str, str], ...]) -> None:
        """Write the answer to a request that is still being sent, the last one on its connection."""
        self._forget_body()
        self.connection.persistent = False
        self.send(reply, headers)
        self.connection.linger()

    def finish(self) -> None:
        """End the request, now that its answer is written."""
        if self._budgeted:
            self._forget_body()
        self.connection.finished()

    async def send_stream(self, reply: Reply, stream: Stream, headers: tuple[tuple[str, str], ...]) -> int:
        """Write an answer whose body is made meanwhile, as fast as the client reads; return the body's size.

        The caller closes the stream, and finishes the request.  After an error the body has no end, by which
        the client sees that something is missing.
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
        """Write an answer whose body goes on until its feed ends, the last one on its connection.

        The caller finishes the request.
        """
        self.connection.persistent = False
        self._begin_body(reply, headers)
        await feed.write_to(self)
        self._end_body()

    def _begin_body(self, reply: Reply, headers: tuple[tuple[str, str], ...]) -> None:
        """Write the head and the beginning of a body whose length is not known."""
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
        """Whether the client has not taken everything that was written."""
        return self.connection.sender.waits

    @property
    def progressed(self) -> float:
        """When the client last took a part of what was waiting, by the reactor's clock."""
        return self.connection.progressed

    def write(self, piece: Chunk) -> None:
        """Send a piece of the body, or the rest of it when the client takes more."""
        self.connection.sender.send(piece.framed if self._chunked else piece.plain)

    def abort(self) -> None:
        """Close the connection without sending what is waiting."""
        self.connection.abort()

    def _head(self, reply: Reply, headers: tuple[tuple[str, str], ...], length: int | None) -> bytes:
        if self.site.draining:
            self.connection.persistent = False
        if not self.connection.persistent:
            headers = (*headers, ("Connection", "close"))
        self.answered = True
        return response_head(reply.status, (*headers, *reply.headers), length, reply.reason)

    def lost(self) -> None:
        """Drop the body of a client that disconnected, and cancel the work for it."""
        self.gone = True
        self._forget_body()
        if self.answering is not None:
            self.answering.cancel()


def body_too_large(limit: int) -> ApiError:
    return ApiError(413, "CONTENT_TOO_LARGE", f"The request body is larger than {limit} bytes")


def _too_many_bodies() -> ApiError:
    return ApiError(
        503,
        "TOO_MANY_BODIES",
        "The request bodies that are being received are too large together",
        hint="Send the request again later, or in smaller parts.",
        headers=(("Retry-After", "1"),),
    )


def too_many_connections() -> ApiError:
    hint = "Send the request again later, over a connection that stays open for further ones."
    headers = (("Retry-After", "1"),)
    return ApiError(503, "TOO_MANY_CONNECTIONS", "There are too many connections", hint=hint, headers=headers)


def too_many_subscriptions() -> ApiError:
    headers = (("Retry-After", "10"),)
    return ApiError(503, "TOO_MANY_SUBSCRIPTIONS", "There are too many subscriptions", headers=headers)


_AT_ONCE = 65_536
"""Bytes that the transport gets at a time; the rest stays here, so that progress can be seen."""

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus} | {
    413: "HTTP/1.1 413 Content Too Large",
    414: "HTTP/1.1 414 URI Too Long",
    499: "HTTP/1.1 499 Client Closed Request",
}

BODILESS = frozenset((204, 304))
"""Statuses of answers that carry no body."""
_FORBIDDEN = re.compile(r"[\r\n\0]")
_HEADER = "%s: %s".__mod__


def response_head(
    status: int, headers: Iterable[tuple[str, str]], length: int | None, reason: str | None = None
) -> bytes:
    """Write the status line and the headers, with ``Content-Length`` where the status has a body.

    A line end within a value would begin another header, so it becomes a space.

    :param length: of the body; None when it is not known yet.
    :param reason: the reason phrase, None for the standard one.
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

    :ivar socket: the connection itself where it is a plain one, None behind TLS.
    :ivar waits: whether something was not taken yet.
    :param progress: called when the client has taken a part of what waited.
    :param sent: called when it has taken all.
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
        """Write as much as the socket accepts, and leave the rest to the reactor, without copying it.

        Waiting until the reactor finds the socket writable would cost another turn of it and
        two system calls.
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
            if isinstance(sent, int):  # else the connection is lost, as the reactor will find out
                rest = rest[sent:]
        self._unsent.append(rest)
        if not self.waits:
            self.waits = True
            self.socket.registerProducer(self, False)  # which calls resumeProducing

    async def room(self) -> None:
        """Wait until everything was sent."""
        if self.waits:
            self._room = Deferred()
            await self._room

    def resumeProducing(self) -> None:  # noqa: N802 - twisted's name
        """Write more of the rest, now that the transport sent all it had."""
        self._full = False
        self._progress()
        self._write()

    def _write(self) -> None:
        while self._unsent and not self._full:
            piece = self._unsent.popleft()
            if len(piece) > _AT_ONCE:
                self._unsent.appendleft(piece[_AT_ONCE:])
            self._transport.write(bytes(piece[:_AT_ONCE]))
            if self.socket is not None:
                return  # a plain connection calls when it has sent that
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
        """Close the connection once everything was sent."""
        self._end = self._close
        if not self.waits:
            self._close()

    def _close(self) -> None:
        if self.socket is None:
            self._transport.unregisterProducer()
        self._transport.loseConnection()

    def close_now(self) -> None:
        """Close the connection, and leave it to the kernel to send the bytes that it was given.

        ``loseConnection`` waits until the socket is writable, which may take as long as the client likes, and
        ``abortConnection`` destroys an answer that is on its way.
        """
        if self.socket is None:
            self._transport.abortConnection()
        else:
            self.socket.stopReading()
            self.socket.stopWriting()
            self.socket.connectionLost(connectionDone)

    def half_close(self) -> None:
        """End the output once everything was sent, unless it cannot end before the input."""
        if self.socket is not None:
            self._end = self.socket.loseWriteConnection
            if not self.waits:
                self._end()

    def drop(self) -> None:
        """Forget what waits: the connection is lost."""
        self.waits = False
        self._unsent.clear()
        self._progress = self._sent = self._end = lambda: None

    def pauseProducing(self) -> None:  # noqa: N802 - twisted's name
        """Write nothing more for now: the transport holds enough."""
        self._full = True

    def stopProducing(self) -> None:  # noqa: N802 - twisted's name
        """Do nothing: the connection hears of its end too."""
