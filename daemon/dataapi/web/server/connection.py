"""A client connection: its requests in sequence, its timeouts, and how it is closed."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from socket import SO_ERROR, SOL_SOCKET
from typing import Any
from typing import Protocol as Interface

from twisted.internet.interfaces import IHalfCloseableProtocol, ISSLTransport, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from dataapi.http.errors import ApiError
from dataapi.http.messages import Feed
from dataapi.web.server.parser import RequestParser
from dataapi.web.server.request import UNCOUNTED, OutgoingData, ServerRequest, SiteState, too_many_connections

_MAX_READ_AHEAD = 16_384
"""Bytes to read ahead while a request is handled, to detect that the client disconnects."""

_MIN_SENT = 4096
"""Bytes of a body that a client must send within the timeout, unless the request is complete."""

_MAX_DISCARDED = 16 * 1024 * 1024
"""Maximum number of bytes of a rejected request to read and discard, so that the client reads the response.
"""

_LINGER_TIMEOUT = 30.0
"""Seconds for the client to read the response to a rejected request and to close the connection."""

_QUIET_AFTER = 0.25
"""Seconds without progress after which a connection without a request may be closed for a new connection."""

_CROWDED_TIMEOUT = 5.0
"""Seconds for a connection above the limit to send its request."""

_CLOSE_TIMEOUT = 5.0
"""Seconds for the client to acknowledge the close of a connection, as TLS requires."""

_DRAIN_TIMEOUT = 1.0
"""Seconds for a client to complete its request when the server stops."""

_PRESENCE_INTERVAL = 0.25
"""Seconds between checks of whether the client is still connected.

A response within this time is not preceded by an interim response.
"""

_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


class _State(Enum):
    """The state of a connection. States follow in this order, except that the first two alternate.

    :cvar RECEIVING: waiting for a request, or for the rest of an incomplete request.
    :cvar HANDLING: handling a complete request.
    :cvar DISCARDING: the request was rejected. Data that still arrives is discarded.
    :cvar CLOSING: closing after the pending data has been sent.
    """

    RECEIVING = auto()
    HANDLING = auto()
    DISCARDING = auto()
    CLOSING = auto()


_RECEIVING, _HANDLING = _State.RECEIVING, _State.HANDLING
_DISCARDING, _CLOSING = _State.DISCARDING, _State.CLOSING


class ConnectionSite(SiteState, Interface):
    """The interface that the site provides to connections."""

    timeout: float
    header_timeout: float
    keep_alive_timeout: float

    def expect(self, received: ServerRequest, length: int | None, /) -> None: ...

    def refuse(self, received: ServerRequest, error: ApiError, /) -> None: ...

    def has_room(self, address: str) -> bool: ...

    def opened(self, connection: ClientConnection) -> None: ...

    def count_feed(self, connection: ClientConnection) -> bool: ...

    def closed(self, connection: ClientConnection) -> None: ...


@implementer(IHalfCloseableProtocol)
class ClientConnection(Protocol):
    """A client connection.

    One timer closes the connection if the client is too slow. The timer is not reset by each request, because
    checking the time when it fires is cheaper.

    :ivar crowded: whether the connection was accepted above a limit. If so, its request is rejected.
    :ivar feed: source of an open-ended response, or None.
    :ivar progressed: reactor time when the client last sent or received data.
    :ivar persistent: whether the connection stays open after the current response.
    """

    transport: Any
    sender: OutgoingData
    crowded = secure = False
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
        self._deadline = 0.0  # deadline for receiving a head or rejecting a request, 0 for none

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
        self.secure = ISSLTransport.providedBy(self.transport)
        self.sender = OutgoingData(self.transport, self._progressed, self._sent)
        self._progressed()
        self.crowded = not self.site.has_room(self.peer)
        self._end_within(_CROWDED_TIMEOUT if self.crowded else self.site.header_timeout)
        self.site.opened(self)

    @property
    def busy(self) -> bool:
        """Whether a request is being handled, or its response has not been sent completely.

        While the connection is busy, no other request is read. Otherwise the responses to a client that sends
        requests but never reads would fill the memory.
        """
        return self._state is _HANDLING or self.sender.waits

    @property
    def quiet(self) -> bool:
        return not self.busy and self.site.reactor.seconds() - self.progressed >= _QUIET_AFTER

    # Receiving requests

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Process data: a part of a request, or several requests. A few bytes do not count as progress."""
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
            if len(parser.buffer) > _MAX_READ_AHEAD and self.busy:
                self._reading_paused = True
                self.transport.pauseProducing()

    def _advance(self) -> None:
        if self._advancing:
            return
        self._advancing = True
        while self._parser.buffer and self._state is _RECEIVING and not self.sender.waits:
            if self.request is not None:
                self._receive_body(self.request)
            elif not self._receive_head():
                break
        self._advancing = False
        if self._input_ended and not self.busy:
            self.close()

    def _receive_head(self) -> bool:
        """Start a request if its head is complete.

        A body that has arrived with the head is read before the request is checked.
        """
        try:
            head = self._parser.read_head()
        except ApiError as error:
            self.request = ServerRequest(self, self._parser.begun())
            self._reject_unreadable(self.request, error)
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
            self._state = _HANDLING
            self.site.handle(request, b"")
        elif length is None or length > received:
            self.site.expect(request, length)
            if head.headers.get("expect", "").lower() == "100-continue":
                self._send_interim()
        elif length <= UNCOUNTED:
            self._state = _HANDLING
            self.site.handle(request, self._parser.read_body())
        return True

    def _receive_body(self, request: ServerRequest) -> None:
        try:
            piece = self._parser.read_body()
        except ApiError as error:
            self._reject_unreadable(request, error)
            return
        try:
            request.add(piece)
        except ApiError as error:
            self.site.refuse(request, error)
        else:
            if self._parser.unread == 0:
                self._state = _HANDLING
                self.site.handle(request, request.pop_body())

    def _reject_unreadable(self, request: ServerRequest, error: ApiError) -> None:
        self.site.refuse(request, error)
        if self.sender.socket is None:
            self.close()

    def _send_interim(self) -> None:
        if self.request is not None and not self.request.response_started and self.request.head.minor > 0:
            self.sender.send(_INTERIM)
            self._interim_sent = True

    def begin_feed(self, feed: Feed) -> bool:
        """Start a feed. A feed disconnects slow clients itself, so stop the connection's timer.

        Return False if there are too many feeds.
        """
        if not self.site.count_feed(self):
            return False
        self.feed = feed
        _cancel(self._timer)
        return True

    def upgrade(self, receive: Callable[[bytes], None]) -> None:
        """Pass everything that the client sends from now on to another protocol."""
        self.dataReceived = receive  # type: ignore[method-assign, assignment]
        received, self._parser.buffer = self._parser.buffer, b""
        self.pause(paused=False)
        if received:
            receive(received)

    def pause(self, *, paused: bool) -> None:
        if paused != self._reading_paused:
            self._reading_paused = paused
            (self.transport.pauseProducing if paused else self.transport.resumeProducing)()

    def finished(self) -> None:
        if self.feed is not None:  # the timer was stopped while the feed was running
            self._end_within(self.site.timeout)
        self.request = None
        self.progressed = self.site.reactor.seconds()
        if self._state is _HANDLING:
            self._received = len(self._parser.buffer)
            if self.persistent:
                self._state = _RECEIVING
                if self._received or self._reading_paused or self._input_ended:
                    self._sent()
            else:
                self.close()

    def _sent(self) -> None:
        if self.feed is not None:
            self.feed.resume()
            return
        self._advance()
        if self._reading_paused and not (self.busy or self._input_ended):
            self._reading_paused = False
            self.transport.resumeProducing()

    # Timeouts

    def _progressed(self) -> None:
        self.progressed = self.site.reactor.seconds()

    def _end_within(self, seconds: float) -> None:
        self._deadline = self.site.reactor.seconds() + seconds
        _cancel(self._timer)
        self._timer = self.site.reactor.callLater(seconds, self._check_timeout)

    def _check_timeout(self) -> None:
        if self._state is _HANDLING and not self.sender.waits:  # the client waits for the response
            self._progressed()
        idle = self._state is _RECEIVING and self.request is None and not self.sender.waits
        timeout = self.site.keep_alive_timeout if idle else self.site.timeout
        left = (self._deadline or self.progressed + timeout) - self.site.reactor.seconds()
        if left > 0:
            self._timer = self.site.reactor.callLater(left, self._check_timeout)
        elif self._state is _RECEIVING and not self.sender.waits:
            self._close_within(_CLOSE_TIMEOUT)
        else:
            self.abort()

    # Closing

    def close(self) -> None:
        self._state = _CLOSING
        self.sender.close()

    def _close_within(self, seconds: float) -> None:
        self._end_within(seconds)  # called first, because close() may end the connection immediately
        self.close()

    def abort(self) -> None:
        self._state = _CLOSING
        self.transport.abortConnection()

    def drain(self) -> None:
        _cancel(self._draining)
        self._draining = self.site.reactor.callLater(_DRAIN_TIMEOUT, self._drained)
        if self.quiet:
            self.close()  # called last, because it may end the connection immediately

    def _drained(self) -> None:
        if self.busy:
            self._draining = self.site.reactor.callLater(_DRAIN_TIMEOUT, self._drained)
        else:
            self.sender.close_now()

    def make_room(self) -> None:
        """Close the connection to make room for another. If a head was received, respond with an error."""
        if self._state is _RECEIVING and self.request is not None and not self.request.response_started:
            self.site.refuse(self.request, too_many_connections())
        self._close_within(_CLOSE_TIMEOUT)

    def linger(self) -> None:
        """Close after a rejection, but keep reading. Closing with unread data may destroy the response."""
        self.request = None
        unread = self._parser.unread
        self._to_discard = _MAX_DISCARDED if unread is None else min(unread, _MAX_DISCARDED)
        self._state = _DISCARDING
        received, self._parser.buffer = len(self._parser.buffer), b""
        self._discard(received)
        if self._state is _DISCARDING:
            self.sender.half_close()
            self._end_within(_LINGER_TIMEOUT)

    def _discard(self, count: int) -> None:
        self._to_discard -= count
        if self._to_discard <= 0:
            self.close()

    def readConnectionLost(self) -> None:  # noqa: N802 - twisted's name
        if self._input_ended or self.feed is not None or not self.busy:
            self.close()
            return
        self._input_ended, self._interim_sent = True, False
        if not self._parser.buffer:
            self.persistent = False
        self._presence = self.site.reactor.callLater(_PRESENCE_INTERVAL, self._check_presence)

    def _check_presence(self) -> None:
        """Detect whether a client that has ended its input is waiting for its response or has disconnected.

        The input ends in both cases, but only a disconnected client's operating system responds to data with
        a reset. The only data that can be sent before the response is an interim response. HTTP/1.1 clients
        skip it (RFC 9110 section 15.2).
        """
        # The reactor reads nothing here, so it would not notice the reset before the next write.
        if self.transport.socket.getsockopt(SOL_SOCKET, SO_ERROR):
            self.abort()
            return
        if not self._interim_sent:
            self._send_interim()
        self._presence = self.site.reactor.callLater(_PRESENCE_INTERVAL, self._check_presence)

    def writeConnectionLost(self) -> None:  # noqa: N802 - twisted's name
        ...

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
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
