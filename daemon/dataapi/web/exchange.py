"""One HTTP exchange on twisted.web: a request's body read within its limit, an answer written at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web import http

from dataapi.errors import ApiError
from dataapi.web import wire
from dataapi.web.messages import Reply, Stream
from dataapi.web.streaming import chunk, send_stream

if TYPE_CHECKING:
    from dataapi.web.channel import Channel
    from dataapi.web.front import Asked
    from dataapi.web.site import ApiSite

_DISCARDED = 16 * 1024 * 1024
"""Bytes of a refused body that are read and thrown away, so that the client gets to read the refusal."""

_UNCOUNTED = 16_384
"""Bytes of each body that are not counted: small requests are served while large ones hold all there is."""


class Exchange(http.Request):
    """A request while it is received and answered; what it asks becomes a frozen ``Request``.

    :ivar asked: what its head asks, where that was judged before the body came.
    :ivar answering: the handler's Deferred, cancelled when the client goes away.
    """

    channel: Channel
    site: ApiSite

    def __init__(self, channel: Channel, queued: object = False) -> None:
        super().__init__(channel, queued, parsePOSTFormSubmission=False)
        self.site = channel.site
        self.limit = 0
        self.received = 0
        self._held = 0
        self._body: list[bytes] = []
        self.asked: Asked | None = None
        self.answering: Deferred[Any] | None = None

    def parseCookies(self) -> None:  # noqa: N802 - twisted.web's name
        """Leave cookies to those who ask for them."""

    def gotLength(self, length: int | None) -> None:  # noqa: N802 - twisted.web's name
        """Prepare for a body of this many bytes, or of an unknown number.

        One that came together with the head needs no judgement before it was read.
        """
        if length is None or length > self.channel.unread:
            self.method, self.uri, self.clientproto = self.channel.request_line()
            self.site.expect(self, length)
        else:
            self.limit = length

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - twisted.web's name
        """Keep a piece of the body, or throw it away once the request is refused."""
        self.received += len(data)
        if self.startedWriting:
            if self.received > self.limit + _DISCARDED:
                self.channel.abort()
        elif self.received > self.limit:
            self._refuse(too_large(self.limit))
        elif not self._hold():
            self._refuse(_too_many())
        else:
            self._body.append(data)

    def _hold(self) -> bool:
        """Take from what all bodies may hold together, but for a small part of each."""
        more = self.received - self._held - _UNCOUNTED
        if more > 0:
            if not self.site.bodies.take(more):
                return False
            self._held += more
        return True

    def _refuse(self, error: ApiError) -> None:
        self.method, self.uri, self.clientproto = self.channel.request_line()
        self.site.refuse(self, error)

    def discard_body(self) -> None:
        """Keep nothing of the body, and read it no further than it takes for a refusal to arrive."""
        self._forget_body()
        self.requestHeaders.removeHeader(b"expect")  # no "100 Continue" after the refusal
        self.channel.persistent = False

    def _forget_body(self) -> None:
        self._body.clear()
        self.site.bodies.give_back(self._held)
        self._held = 0

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:  # noqa: N802
        """Answer the request, now that all of it is there."""
        if self.startedWriting:
            self.finish()
            return
        self.method, self.uri, self.clientproto = command, path, version
        body, self._body = b"".join(self._body), []
        self.site.handle(self, body)

    def finish(self) -> None:
        """End the exchange, now that its answer is written."""
        if self._held:
            self._forget_body()
        super().finish()

    def send(self, reply: Reply, headers: tuple[tuple[str, str], ...]) -> None:
        """Write an answer with further headers; the exchange is over when the request was all read."""
        if self._disconnected:
            return
        if self.site.draining:
            self.channel.persistent = False
        if not self.channel.persistent:
            headers = (*headers, ("Connection", "close"))
        asks_head = self.method == b"HEAD"
        # An answer to HEAD tells the length that GET's would have, which is not known where no body was made.
        length = None if asks_head and not reply.body else len(reply.body)
        head = wire.head(reply.status, (*headers, *reply.headers), length, reply.reason)
        self.code = reply.status
        self.startedWriting = 1
        sends_body = not asks_head and wire.has_body(reply.status)
        self.channel.send(head + reply.body if sends_body else head)

    async def send_stream(self, reply: Reply, stream: Stream, headers: tuple[tuple[str, str], ...]) -> int:
        """Write an answer whose body is made meanwhile, as the client takes it; return the body's bytes.

        Raises what the stream raises, and ``Stalled`` for a client that does not read.
        """
        chunked = self.clientproto != b"HTTP/1.0"
        if not chunked or self.site.draining:
            self.channel.persistent = False
        if chunked:
            headers = (*headers, ("Transfer-Encoding", "chunked"))
        if not self.channel.persistent:
            headers = (*headers, ("Connection", "close"))
        head = wire.head(reply.status, (*headers, *reply.headers), None, reply.reason)
        self.code = reply.status
        self.startedWriting = 1
        if self.method == b"HEAD":
            self.channel.send(head)
            return 0
        first = chunk(reply.body) if chunked and reply.body else reply.body
        self.channel.send(head + first)
        clock = self.site.reactor
        return len(reply.body) + await send_stream(self.channel, stream, chunked=chunked, clock=clock)

    @property
    def gone(self) -> bool:
        """Whether the client closed the connection."""
        return self._disconnected

    def connectionLost(self, reason: Failure) -> None:  # noqa: N802 - twisted.web's name
        """Drop the body of a client that went away, and cancel the work for it."""
        self._forget_body()
        super().connectionLost(reason)
        if self.answering is not None:
            self.answering.cancel()


def too_large(limit: int) -> ApiError:
    """Return the refusal of a body beyond its limit."""
    return ApiError(413, "CONTENT_TOO_LARGE", f"The request body is larger than {limit} bytes")


def _too_many() -> ApiError:
    return ApiError(
        503,
        "TOO_MANY_BODIES",
        "The request bodies that are being received are too large together",
        hint="Send the request again later, or in smaller parts.",
        headers=(("Retry-After", "1"),),
    )
