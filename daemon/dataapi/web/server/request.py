"""One request on twisted.web: its body read within the limits, its answer written at once or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.interfaces import IPushProducer
from twisted.python.failure import Failure
from twisted.web import http
from zope.interface import implementer

from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Stream
from dataapi.web.server import head

if TYPE_CHECKING:
    from dataapi.web.pipeline import RoutedRequest
    from dataapi.web.server.connection import ClientConnection
    from dataapi.web.server.site import ApiSite

_DISCARDED = 16 * 1024 * 1024
"""Bytes of a refused body that are read and discarded, so that the client gets to read the refusal."""

_UNCOUNTED = 16_384
"""Bytes of each body that are not counted: small requests are served while large ones hold all there is."""

STALL_LIMIT = 60.0
"""Seconds within which a client must read what was sent: its request occupies a database connection."""

LAST_CHUNK = b"0\r\n\r\n"


class ServerRequest(http.Request):
    """A request while it is received and answered; the pipeline makes a frozen ``Request`` of it.

    :ivar routed: the routed head, if it was judged before the body was received.
    :ivar answering: the handler's Deferred, cancelled when the client disconnects.
    """

    channel: ClientConnection
    site: ApiSite

    def __init__(self, channel: ClientConnection, queued: object = False) -> None:
        super().__init__(channel, queued, parsePOSTFormSubmission=False)
        self.site = channel.site
        self.limit = 0
        self.received = 0
        self._budgeted = 0
        self._body: list[bytes] = []
        self.routed: RoutedRequest | None = None
        self.answering: Deferred[Any] | None = None

    def parseCookies(self) -> None:  # noqa: N802 - twisted.web's name
        """Parse no cookies: they are passed on as a header."""

    def gotLength(self, length: int | None) -> None:  # noqa: N802 - twisted.web's name
        """Prepare for a body of this many bytes, or of an unknown number.

        A body that arrived together with the head is read before the request is judged.
        """
        if length is None or length > self.channel.unread:
            self.method, self.uri, self.clientproto = self.channel.request_line()
            self.site.expect(self, length)
        else:
            self.limit = length

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - twisted.web's name
        """Add a piece of the body, or discard it once the request is refused."""
        self.received += len(data)
        if self.startedWriting:
            if self.received > self.limit + _DISCARDED:
                self.channel.abort()
        elif self.received > self.limit:
            self._refuse(body_too_large(self.limit))
        elif not self._reserve():
            self._refuse(_too_many_bodies())
        else:
            self._body.append(data)

    def _reserve(self) -> bool:
        """Take from the budget of all bodies what exceeds the small part that each has for free."""
        more = self.received - self._budgeted - _UNCOUNTED
        if more > 0:
            if not self.site.bodies.take(more):
                return False
            self._budgeted += more
        return True

    def _refuse(self, error: ApiError) -> None:
        self.method, self.uri, self.clientproto = self.channel.request_line()
        self.site.refuse(self, error)

    def discard_body(self) -> None:
        """Drop the body, and read on only as far as a refusal needs to arrive."""
        self._forget_body()
        self.requestHeaders.removeHeader(b"expect")  # no "100 Continue" after the refusal
        self.channel.persistent = False

    def _forget_body(self) -> None:
        self._body.clear()
        self.site.bodies.give_back(self._budgeted)
        self._budgeted = 0

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:  # noqa: N802
        """Answer the request, now that all of it is there."""
        if self.startedWriting:
            self.finish()
            return
        self.method, self.uri, self.clientproto = command, path, version
        body, self._body = b"".join(self._body), []
        self.site.handle(self, body)

    def finish(self) -> None:
        """End the request, now that its answer is written."""
        if self._budgeted:
            self._forget_body()
        super().finish()

    def send(self, reply: Reply, headers: tuple[tuple[str, str], ...]) -> None:
        """Write an answer with further headers; ``finish`` follows once the request was read."""
        if self._disconnected:
            return
        if self.site.draining:
            self.channel.persistent = False
        if not self.channel.persistent:
            headers = (*headers, ("Connection", "close"))
        asks_head = self.method == b"HEAD"
        # An answer to HEAD has the length of GET's answer, which is unknown if no body was made.
        length = None if asks_head and not reply.body else len(reply.body)
        head_bytes = head.response_head(reply.status, (*headers, *reply.headers), length, reply.reason)
        self.code = reply.status
        self.startedWriting = 1
        sends_body = not asks_head and head.has_body(reply.status)
        self.channel.send(head_bytes + reply.body if sends_body else head_bytes)

    async def send_stream(self, reply: Reply, stream: Stream, headers: tuple[tuple[str, str], ...]) -> int:
        """Write an answer whose body is made meanwhile, as fast as the client reads; return the body's size.

        Raises what the stream raises, and ``Stalled`` for a client that does not read.
        """
        chunked = self.clientproto != b"HTTP/1.0"
        if not chunked or self.site.draining:
            self.channel.persistent = False
        if chunked:
            headers = (*headers, ("Transfer-Encoding", "chunked"))
        if not self.channel.persistent:
            headers = (*headers, ("Connection", "close"))
        head_bytes = head.response_head(reply.status, (*headers, *reply.headers), None, reply.reason)
        self.code = reply.status
        self.startedWriting = 1
        if self.method == b"HEAD":
            self.channel.send(head_bytes)
            return 0
        first = chunk(reply.body) if chunked and reply.body else reply.body
        self.channel.send(head_bytes + first)
        clock = self.site.reactor
        return len(reply.body) + await send_stream(self.channel, stream, chunked=chunked, clock=clock)

    @property
    def gone(self) -> bool:
        """Whether the client closed the connection."""
        return self._disconnected

    def connectionLost(self, reason: Failure) -> None:  # noqa: N802 - twisted.web's name
        """Drop the body of a client that disconnected, and cancel the work for it."""
        self._forget_body()
        super().connectionLost(reason)
        if self.answering is not None:
            self.answering.cancel()


def body_too_large(limit: int) -> ApiError:
    """Return the error for a body beyond its limit."""
    return ApiError(413, "CONTENT_TOO_LARGE", f"The request body is larger than {limit} bytes")


def _too_many_bodies() -> ApiError:
    return ApiError(
        503,
        "TOO_MANY_BODIES",
        "The request bodies that are being received are too large together",
        hint="Send the request again later, or in smaller parts.",
        headers=(("Retry-After", "1"),),
    )


class Stalled(Exception):
    """The client does not read its answer."""


@implementer(IPushProducer)
class Backpressure:
    """Whether the client takes more at the moment; twisted's side of back-pressure."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._waiting: Deferred[None] | None = None
        # The head, or an earlier answer on the connection, may have filled the send buffer.
        self._paused = bool(channel._waitingForTransport)
        channel.registerProducer(self, True)

    async def room(self, clock: Any) -> None:
        """Wait until the client takes more.

        :raises Stalled: it has taken too little for ``STALL_LIMIT`` seconds.
        """
        if self._paused:
            self._waiting = Deferred()
            try:
                await self._waiting.addTimeout(STALL_LIMIT, clock)
            except TimedOut:
                raise Stalled(f"nothing was read for {STALL_LIMIT:.0f} seconds") from None

    def pauseProducing(self) -> None:  # noqa: N802 - twisted's name
        """Pause: enough waits to be sent."""
        self._paused = True

    def resumeProducing(self) -> None:  # noqa: N802 - twisted's name
        """Resume: more may be sent."""
        self._paused = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def stopProducing(self) -> None:  # noqa: N802 - twisted's name
        """Do nothing: the request hears of the end too."""

    def remove(self) -> None:
        """Unregister."""
        self._channel.unregisterProducer()


def chunk(piece: bytes) -> bytes:
    """Frame a piece of a body as RFC 9112 section 7.1 says."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


async def send_stream(channel: Any, stream: Stream, *, chunked: bool, clock: Any) -> int:
    """Send the stream's pieces as the client takes them, and the end of the body; return the size.

    The caller closes the stream, which an error leaves open.

    Raises what the stream raises, and ``Stalled`` for a client that does not read; the body
    then has no end, by which the client sees that something is missing.
    """
    size = 0
    pressure = Backpressure(channel)
    try:
        await pressure.room(clock)
        async for piece in stream:
            if piece:
                size += len(piece)
                channel.send(chunk(piece) if chunked else piece)
                await pressure.room(clock)
    finally:
        pressure.remove()
    if chunked:
        channel.send(LAST_CHUNK)
    return size
