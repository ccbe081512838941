"""One connection of a client: its requests one after another, its time limits, and how it ends."""

from __future__ import annotations

from enum import Enum, auto
from socket import SO_ERROR, SOL_SOCKET
from typing import Any
from typing import Protocol as Interface

from twisted.internet.interfaces import IHalfCloseableProtocol, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from dataapi.http.errors import ApiError
from dataapi.http.messages import Feed
from dataapi.web.server.parser import RequestParser
from dataapi.web.server.request import UNCOUNTED, OutgoingData, ServerRequest, SiteState, too_many_connections

_READ_AHEAD = 16_384
"""Bytes that are read behind a request while it is answered, so that the end of the connection is noticed."""

_MIN_SENT = 4096
"""Bytes of a body that a client must send within the time-out, unless the request is complete."""

_DISCARDED = 16 * 1024 * 1024
"""Bytes of a refused request that are read and discarded, so that the client gets to read the refusal."""

_LINGERING = 30.0
"""Seconds that a client has to read a refusal and to close."""

_QUIET_AFTER = 0.25
"""Seconds that a client has for its next request, or for more of it, before its connection makes room."""

_REFUSED_WITHIN = 5.0
"""Seconds in which a crowded connection must send its request."""

_CLOSED_WITHIN = 5.0
"""Seconds in which a client has to agree to the end of a connection, as TLS asks it to."""

_DRAINED_AFTER = 1.0
"""Seconds that a client has to complete its request when the server stops."""

_CHECK_EVERY = 0.25
"""Seconds between two checks for a client that is gone; faster answers have no interim response."""

_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


class _State(Enum):
    """The state of a connection.  It never returns to an earlier state, except between the first two.

    :cvar RECEIVING: waits for a request, or for the rest of one.
    :cvar ANSWERING: a complete request is being answered.
    :cvar DISCARDING: a request was refused before its end; what still comes of it is discarded.
    :cvar CLOSING: ends as soon as everything was sent.
    """

    RECEIVING = auto()
    ANSWERING = auto()
    DISCARDING = auto()
    CLOSING = auto()


_RECEIVING, _ANSWERING = _State.RECEIVING, _State.ANSWERING
_DISCARDING, _CLOSING = _State.DISCARDING, _State.CLOSING


class ConnectionSite(SiteState, Interface):
    """What a connection needs of the site."""

    timeout: float
    header_timeout: float
    keep_alive_timeout: float

    def expect(self, received: ServerRequest, length: int | None, /) -> None:
        """Judge a request by its head."""

    def handle(self, received: ServerRequest, body: bytes, /) -> None:
        """Answer a request that was read completely."""

    def refuse(self, received: ServerRequest, error: ApiError, /) -> None:
        """Answer a request with an error."""

    def has_room(self, address: str) -> bool:
        """Return whether one more connection from an address can be served."""

    def opened(self, connection: ClientConnection) -> None:
        """Register a new connection."""

    def count_feed(self, connection: ClientConnection) -> bool:
        """Count a connection as a subscription if there is room, and return whether there is."""

    def closed(self, connection: ClientConnection) -> None:
        """Forget a connection that was lost."""


@implementer(IHalfCloseableProtocol)
class ClientConnection(Protocol):
    """One connection.

    One timer ends it when its client takes too long.  It is not reset with each request, which would cost
    more than to look again when it fires.

    :ivar request: the one that is being received or answered.
    :ivar crowded: there are too many connections, so its request is refused.
    :ivar feed: the rest of a response that lasts for as long as the client stays, None for others.
    :ivar peer: the client's address, "" where there is none.
    :ivar progressed: when the client last sent or took something, by the reactor's clock.
    :ivar persistent: whether the connection stays open beyond the current answer.
    """

    transport: Any
    sender: OutgoingData
    crowded = False
    feed: Feed | None = None
    persistent = True
    _state = _RECEIVING
    _timer: Any = None
    _presence: Any = None
    _draining: Any = None
    _received = 0
    _to_discard = 0
    _advancing = _input_ended = _interim_sent = _reading_paused = False

    def __init__(self, site: ConnectionSite, peer: str) -> None:
        self.site = site
        self.peer = peer
        self.request: ServerRequest | None = None
        self._parser = RequestParser()
        self.progressed = 0.0
        self._deadline = 0.0  # of a head that is awaited and of a refusal; 0 for none

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        """Register the connection with the site."""
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
        self.sender = OutgoingData(self.transport, self._progressed, self._sent)
        self._progressed()
        self.crowded = not self.site.has_room(self.peer)
        self._end_within(_REFUSED_WITHIN if self.crowded else self.site.header_timeout)
        self.site.opened(self)

    @property
    def answers(self) -> bool:
        """Whether a complete request is being answered, or its answer still waits to be taken.

        Until then no other request begins: those of a client that never reads would all be answered
        into memory.
        """
        return self._state is _ANSWERING or self.sender.waits

    @property
    def quiet(self) -> bool:
        """Whether the client has had time for a request, and sent none that is complete."""
        return not self.answers and self.site.reactor.seconds() - self.progressed >= _QUIET_AFTER

    # Requests

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Take data, which may be a part of a request, or several; a byte now and then is no progress."""
        before, self._received = self._received, self._received + len(data)
        progressed = before == 0 or before // _MIN_SENT < self._received // _MIN_SENT
        if progressed and not self.sender.waits:
            self.progressed = self.site.reactor.seconds()
        if self._state is _DISCARDING:
            self._discard(len(data))
        elif self._state is not _CLOSING:
            parser = self._parser
            parser.buffer = parser.buffer + data if parser.buffer else data
            self._advance()
            if len(parser.buffer) > _READ_AHEAD and self.answers:
                self._reading_paused = True
                self.transport.pauseProducing()

    def _advance(self) -> None:
        """Receive requests until one waits for its answer, or for more data."""
        if self._advancing:
            return
        self._advancing = True
        while self._parser.buffer and self._state is _RECEIVING and not self.sender.waits:
            if self.request is not None:
                self._receive_body(self.request)
            elif not self._receive_head():
                break
        self._advancing = False
        if self._input_ended and not self.answers:
            self.close()

    def _receive_head(self) -> bool:
        """Begin a request, if its head was received completely.

        A body that arrived together with the head is read before the request is judged.
        """
        try:
            head = self._parser.read_head()
        except ApiError as error:
            self.request = ServerRequest(self, self._parser.begun())
            self._refuse_unreadable(self.request, error)
            return False
        if head is None:
            if not self._deadline:
                self._end_within(self.site.header_timeout)
            return False
        self._deadline = 0.0
        self.persistent = not head.closes
        self.request = request = ServerRequest(self, head)
        length, received = head.length, len(self._parser.buffer)
        if length == 0:
            self._state = _ANSWERING
            self.site.handle(request, b"")
        elif length is None or length > received:
            self.site.expect(request, length)
            if head.headers.get("expect", "").lower() == "100-continue":
                self._send_interim()
        elif length <= UNCOUNTED:
            self._state = _ANSWERING
            self.site.handle(request, self._parser.read_body())
        return True

    def _receive_body(self, request: ServerRequest) -> None:
        try:
            piece = self._parser.read_body()
        except ApiError as error:
            self._refuse_unreadable(request, error)
            return
        try:
            request.add(piece)
        except ApiError as error:
            self.site.refuse(request, error)
        else:
            if self._parser.unread == 0:
                self._state = _ANSWERING
                self.site.handle(request, request.take_body())

    def _refuse_unreadable(self, request: ServerRequest, error: ApiError) -> None:
        """Refuse input that is not HTTP, whose end is unknown."""
        self.site.refuse(request, error)
        if self.sender.socket is None:
            self.close()

    def _send_interim(self) -> None:
        """Send an interim response, unless an answer was begun or the client may not understand one."""
        if self.request is not None and not self.request.answered and self.request.head.minor > 0:
            self.sender.send(_INTERIM)
            self._interim_sent = True

    def begin_feed(self, feed: Feed) -> bool:
        """Begin a feed if there is room for one, and return whether there is.

        The timer stops, because a feed disconnects slow clients itself.
        """
        if not self.site.count_feed(self):
            return False
        self.feed = feed
        _cancel(self._timer)
        return True

    def finished(self) -> None:
        """Continue with the next request, now that one was answered."""
        if self.feed is not None:  # its last bytes have a deadline again
            self._end_within(self.site.timeout)
        self.request = None
        self.progressed = self.site.reactor.seconds()
        if self._state is _ANSWERING:
            self._received = len(self._parser.buffer)
            if self.persistent:
                self._state = _RECEIVING
                if self._received or self._reading_paused or self._input_ended:
                    self._sent()
            else:
                self.close()

    def _sent(self) -> None:
        """Continue, now that the client has taken everything that was written."""
        if self.feed is not None:
            self.feed.resume()
            return
        self._advance()
        if self._reading_paused and not (self.answers or self._input_ended):
            self._reading_paused = False
            self.transport.resumeProducing()

    # Time

    def _progressed(self) -> None:
        self.progressed = self.site.reactor.seconds()

    def _end_within(self, seconds: float) -> None:
        """End in so many seconds, unless the client acts before."""
        self._deadline = self.site.reactor.seconds() + seconds
        _cancel(self._timer)
        self._timer = self.site.reactor.callLater(seconds, self._check_time)

    def _check_time(self) -> None:
        """Disconnect a client that made no progress with its request, or with taking its answer."""
        if self._state is _ANSWERING and not self.sender.waits:  # it is our turn
            self._progressed()
        idle = self._state is _RECEIVING and self.request is None and not self.sender.waits
        timeout = self.site.keep_alive_timeout if idle else self.site.timeout
        left = (self._deadline or self.progressed + timeout) - self.site.reactor.seconds()
        if left > 0:
            self._timer = self.site.reactor.callLater(left, self._check_time)
        elif self._state is _RECEIVING and not self.sender.waits:
            self._close_within(_CLOSED_WITHIN)
        else:
            self.abort()

    # The end

    def close(self) -> None:
        """Close the connection once everything was sent."""
        self._state = _CLOSING
        self.sender.close()

    def _close_within(self, seconds: float) -> None:
        """Close the connection, or abort it if the client does not agree in time."""
        self._end_within(seconds)  # first: closing may end the connection at once
        self.close()

    def abort(self) -> None:
        """Close the connection without waiting for unwritten bytes."""
        self._state = _CLOSING
        self.transport.abortConnection()

    def drain(self) -> None:
        """Close soon, unless a request was received completely, whose answer is awaited."""
        _cancel(self._draining)
        self._draining = self.site.reactor.callLater(_DRAINED_AFTER, self._drained)
        if self.quiet:
            self.close()  # last, as it may end the connection at once

    def _drained(self) -> None:
        if self.answers:
            self._draining = self.site.reactor.callLater(_DRAINED_AFTER, self._drained)
        else:
            self.sender.close_now()

    def make_room(self) -> None:
        """Close for a new connection's sake; a request of which the head was received learns why."""
        if self._state is _RECEIVING and self.request is not None and not self.request.answered:
            self.site.refuse(self.request, too_many_connections())
        self._close_within(_CLOSED_WITHIN)

    def linger(self) -> None:
        """Close after a refusal, but read on until then: closing with unread data can destroy the answer."""
        self.request = None
        unread = self._parser.unread
        self._to_discard = _DISCARDED if unread is None else min(unread, _DISCARDED)
        self._state = _DISCARDING
        received, self._parser.buffer = len(self._parser.buffer), b""
        self._discard(received)
        if self._state is _DISCARDING:
            self.sender.half_close()
            self._end_within(_LINGERING)

    def _discard(self, count: int) -> None:
        self._to_discard -= count
        if self._to_discard <= 0:
            self.close()

    def readConnectionLost(self) -> None:  # noqa: N802 - twisted's name
        """Answer the requests of a client that ended its input, then close."""
        if self._input_ended or self.feed is not None or not self.answers:
            self.close()
            return
        self._input_ended, self._interim_sent = True, False
        if not self._parser.buffer:
            self.persistent = False
        self._presence = self.site.reactor.callLater(_CHECK_EVERY, self._check_presence)

    def _check_presence(self) -> None:
        """Find out whether a client that sends no more waits for its answer or is gone.

        Both look the same, an end of input; but one that is gone refuses what it is sent.  Before an answer
        that may be an interim response, which clients of HTTP/1.1 skip (RFC 9110 section 15.2).
        """
        # As nothing is read, the reactor would notice a refusal only when it sends the next time.
        if self.transport.socket.getsockopt(SOL_SOCKET, SO_ERROR):
            self.abort()
            return
        if not self._interim_sent:
            self._send_interim()
        self._presence = self.site.reactor.callLater(_CHECK_EVERY, self._check_presence)

    def writeConnectionLost(self) -> None:  # noqa: N802 - twisted's name
        """Wait for the client to close too."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        """Forget the connection, and requests that were received in part."""
        self._state = _CLOSING
        for timer in (self._timer, self._presence, self._draining):
            _cancel(timer)
        request, self.request = self.request, None
        self._parser.buffer = b""
        if request is not None:
            request.lost()
        self.sender.drop()
        if self.feed is not None:
            self.feed.leave()
        self.site.closed(self)


def _cancel(timer: Any) -> None:
    if timer is not None and timer.active():
        timer.cancel()
