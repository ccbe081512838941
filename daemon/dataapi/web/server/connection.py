"""One connection of a client: its requests one after another, its time-outs, and how it ends."""

from __future__ import annotations

from socket import SO_ERROR, SOL_SOCKET
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IHalfCloseableProtocol, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from dataapi.http.errors import ApiError
from dataapi.web.server.parser import RequestParser
from dataapi.web.server.request import ServerRequest
from dataapi.web.server.sending import Sender

if TYPE_CHECKING:
    from dataapi.web.server.site import ApiSite

_READ_AHEAD = 16_384
"""Bytes that are read behind a request while it is answered, so that the end of the connection is noticed."""

_LEAST_SENT = 4096
"""Bytes of a request that a client must send within the time-out, unless it is complete."""

_DISCARDED = 16 * 1024 * 1024
"""Bytes of a refused request that are read and discarded, so that the client gets to read the refusal."""

_LINGERING = 30
"""Seconds to wait after a refusal for the client to close or to send more of its request."""

_FIRST_WITHIN = 1.0
"""Seconds for which a new connection does not count as idle although nothing was read yet."""

_REFUSED_WITHIN = 5
"""Seconds in which a crowded connection must send its request."""

_CHECK_EVERY = 0.25
"""Seconds between two checks for a client that is gone; faster answers have no interim response."""

_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


@implementer(IHalfCloseableProtocol)
class ClientConnection(Protocol):
    """One connection.

    :ivar request: the one that is being received or answered.
    :ivar crowded: there are too many connections, so its request is refused.
    :ivar peer: the client's address, "" where there is none.
    :ivar persistent: whether the connection stays open beyond the current answer.
    """

    transport: Any
    sender: Sender
    crowded = False
    peer = ""
    persistent = True
    _discards: int | None = None
    _timer: Any = None
    _presence: Any = None
    _unused: Any = None
    _received = 0
    _advancing = _closing = _input_ended = _interim_sent = _reading_paused = _served = False

    def __init__(self, site: ApiSite) -> None:
        self.site = site
        self.request: ServerRequest | None = None
        self._parser = RequestParser()
        self._since = self._progress = site.reactor.seconds()

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        """Register the connection with the site."""
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
        self.sender = Sender(self.transport, self._progressed, self._sent)
        self.peer = str(getattr(self.transport.getPeer(), "host", ""))
        self.crowded = not self.site.has_room()
        self.site.opened(self)
        self._start_timer(_REFUSED_WITHIN if self.crowded else self.site.timeout)

    @property
    def busy(self) -> bool:
        """Whether a request was begun and is not answered."""
        return self.request is not None or bool(self._parser.buffer)

    @property
    def idle(self) -> bool:
        """Whether there was time for a request, none was begun, and no answer waits to be taken."""
        if self.busy or self.sender.waits:
            return False
        return self._served or self.site.reactor.seconds() - self._since >= _FIRST_WITHIN

    def drain(self) -> None:
        """Close, unless a request was begun, or there was no time yet for the first one."""
        left = self._since + _FIRST_WITHIN - self.site.reactor.seconds()
        if self.busy:
            return
        if self._served or left <= 0:
            self.close()
        elif self._unused is None:
            self._unused = self.site.reactor.callLater(left, self.drain)

    # Requests

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Take data, which may be a part of a request, or several; a byte now and then is no progress."""
        before, self._received = self._received, self._received + len(data)
        progressed = before == 0 or before // _LEAST_SENT < self._received // _LEAST_SENT
        if progressed and not self.sender.waits:
            self._progressed()
        if self._discards is not None:
            self._discard(len(data))
        elif not self._closing:
            self._parser.receive(data)
            self._advance()
            if self._waits and len(self._parser.buffer) > _READ_AHEAD:
                self._reading_paused = True
                self.transport.pauseProducing()

    @property
    def _waits(self) -> bool:
        """Whether an answer is to be made or taken before the next request may begin.

        Else requests of a client that never reads would all be answered into memory.
        """
        return (self.request is not None and self._parser.complete) or self.sender.waits

    def _advance(self) -> None:
        """Receive requests until one waits for its answer, or for more data."""
        if self._advancing:
            return
        self._advancing = True
        while self._parser.buffer and not (self._waits or self._closing or self._discards is not None):
            if self.request is not None:
                self._receive_body(self.request)
            elif not self._receive_head():
                break
        self._advancing = False
        if self._input_ended and not self._waits:
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
            return False
        self.persistent = head.persistent
        self.request = request = ServerRequest(self, head)
        if self._parser.complete:
            self.site.handle(request, b"")
        elif head.length is None or head.length > len(self._parser.buffer):
            self.site.expect(request, head.length)
            if head.headers.get("expect", "").lower() == "100-continue":
                self._send_interim()
        return True

    def _receive_body(self, request: ServerRequest) -> None:
        try:
            pieces = self._parser.read_body()
        except ApiError as error:
            self._refuse_unreadable(request, error)
            return
        try:
            request.add(pieces)
        except ApiError as error:
            self.site.refuse(request, error)
        else:
            if self._parser.complete:
                self.site.handle(request, request.take_body())

    def _refuse_unreadable(self, request: ServerRequest, error: ApiError) -> None:
        """Refuse what is not HTTP, whose end cannot be awaited."""
        self.site.refuse(request, error)
        if self.sender.socket is None:
            self.close()

    def _send_interim(self) -> None:
        """Send an interim response, unless an answer was begun or the client may not know what that is."""
        if self.request is not None and not self.request.answered and self.request.head.minor > 0:
            self.sender.send(_INTERIM)
            self._interim_sent = True

    def finished(self) -> None:
        """Go on with the next request, now that one was answered."""
        self.request = None
        self._served = True
        self._received = len(self._parser.buffer)
        self._progressed()
        if self.persistent:
            self._sent()
        else:
            self.close()

    def _sent(self) -> None:
        """Go on, now that an answer was made or taken."""
        self._advance()
        if self._reading_paused and not (self._waits or self._input_ended):
            self._reading_paused = False
            self.transport.resumeProducing()

    # Time

    def _progressed(self) -> None:
        self._progress = self.site.reactor.seconds()

    def _start_timer(self, seconds: float) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timeout = seconds
        self._progressed()
        self._timer = self.site.reactor.callLater(seconds, self._check_time)

    def _check_time(self) -> None:
        """Disconnect a client that made no progress with its request, or with taking its answer.

        The timer is not reset whenever there is progress, which would cost more than to look again now.
        """
        if self._waits and not self.sender.waits:  # it is our turn
            self._progressed()
        left = self._progress + self._timeout - self.site.reactor.seconds()
        if left > 0:
            self._timer = self.site.reactor.callLater(left, self._check_time)
        elif self.sender.waits or self._closing:
            self.abort()
        else:
            self.close()
            self._start_timer(self._timeout)

    # The end

    def close(self) -> None:
        """Close the connection once everything was sent."""
        self._closing = True
        self.sender.close()

    def abort(self) -> None:
        """Close the connection without waiting for what is still to be written."""
        self._closing = True
        self.transport.abortConnection()

    def linger(self) -> None:
        """Close after a refusal, but read on until then: closing with unread data can destroy the answer."""
        unread = self._parser.unread
        self._discards = _DISCARDED if unread is None else min(unread, _DISCARDED)
        self._discard(len(self._parser.buffer))
        self._parser.buffer = b""
        if not self._closing:
            self.sender.half_close()
            self._start_timer(_LINGERING)

    def _discard(self, count: int) -> None:
        assert self._discards is not None
        self._discards -= count
        if self._discards <= 0:
            self.close()

    def readConnectionLost(self) -> None:  # noqa: N802 - twisted's name
        """Answer the requests of a client that ended its input, then close."""
        if self._input_ended or not self._waits:
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
        """Forget the connection, and what was received of requests."""
        self._closing = True
        for timer in (self._timer, self._presence, self._unused):
            if timer is not None and timer.active():
                timer.cancel()
        request, self.request = self.request, None
        self._parser.buffer = b""
        if request is not None:
            request.lost()
        self.sender.drop()
        self.site.closed(self)
