"""One HTTP exchange on twisted.web: a request's body read within its limit, an answer written at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web import http

from dataapi.web import wire
from dataapi.web.messages import Reply, Stream
from dataapi.web.streaming import chunk, send_stream

if TYPE_CHECKING:
    from dataapi.web.site import ApiSite, Channel

_DISCARDED = 16 * 1024 * 1024
"""Bytes of a refused body that are read and thrown away, so that the client gets to read the refusal."""


class Exchange(http.Request):
    """A request while it is received and answered; what it asks becomes a frozen ``Request``.

    :ivar answering: the handler's Deferred, cancelled when the client goes away.
    """

    channel: Channel
    site: ApiSite

    def __init__(self, channel: Channel, queued: object = False) -> None:
        super().__init__(channel, queued, parsePOSTFormSubmission=False)
        self.site = channel.site
        self.body: bytes | list[bytes] = b""
        self.received = 0
        self.limit = 0
        self.answering: Deferred[Any] | None = None

    def parseCookies(self) -> None:  # noqa: N802 - twisted.web's name
        """Leave cookies to those who ask for them."""

    def gotLength(self, length: int | None) -> None:  # noqa: N802 - twisted.web's name
        """Prepare for a body of this many bytes, or of an unknown number; refuse one beyond the limit."""
        if length == 0:
            return
        self.body = []
        self.limit = self.site.body_limit(self)
        if length is not None and length > self.limit:
            self._refuse_body()

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - twisted.web's name
        """Keep a piece of the body, or throw it away once the body is refused."""
        self.received += len(data)
        if self.startedWriting:
            if self.received > self.limit + _DISCARDED:
                self.channel.abort()
            return
        if self.received > self.limit:
            self._refuse_body()
            return
        assert isinstance(self.body, list)
        self.body.append(data)

    def _refuse_body(self) -> None:
        self.body = []
        self.requestHeaders.removeHeader(b"expect")  # no "100 Continue" after the refusal
        self.channel.persistent = False
        self.method, self.uri, self.clientproto = self.channel.request_line()
        self.site.refuse_body(self)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:  # noqa: N802
        """Answer the request, now that all of it is there."""
        if self.startedWriting:
            self.finish()
            return
        self.method, self.uri, self.clientproto = command, path, version
        if isinstance(self.body, list):
            self.body = b"".join(self.body)
        self.site.handle(self)

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
        """Cancel the work for a client that went away."""
        super().connectionLost(reason)
        if self.answering is not None:
            self.answering.cancel()
