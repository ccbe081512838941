"""One request while it is received within its limits and answered, at once or by a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Stream
from dataapi.web.server.sending import BODILESS, response_head

if TYPE_CHECKING:
    from dataapi.web.pipeline import RoutedRequest
    from dataapi.web.server.connection import ClientConnection
    from dataapi.web.server.parser import Head
    from dataapi.web.server.site import ApiSite

UNCOUNTED = 16_384
"""Bytes of each body that are not counted: small requests are served while large ones hold all there is."""

_LAST_CHUNK = b"0\r\n\r\n"


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

    def __init__(self, connection: ClientConnection, head: Head) -> None:
        self.connection = connection
        self.site: ApiSite = connection.site
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
        sender, chunked = self.connection.sender, self.head.minor > 0
        if chunked:
            headers = (*headers, ("Transfer-Encoding", "chunked"))
        else:
            self.connection.persistent = False
        head = self._head(reply, headers, None)
        if self.head.method == "HEAD":
            sender.send(head)
            return 0
        size = len(reply.body)
        sender.send(head + (chunk(reply.body) if chunked and reply.body else reply.body))
        await sender.room()
        async for piece in stream:
            if piece:
                size += len(piece)
                sender.send(chunk(piece) if chunked else piece)
                await sender.room()
        if chunked:
            sender.send(_LAST_CHUNK)
        return size

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


def chunk(piece: bytes) -> bytes:
    """Frame a piece of a body as RFC 9112 section 7.1 says."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)
