"""One connection of a client on twisted.web: its limits, and how it ends."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Connection
from twisted.python.failure import Failure
from twisted.web import http
from zope.interface import implementer

from dataapi.http.errors import ApiError
from dataapi.http.messages import LONGEST_TARGET
from dataapi.web.server import head
from dataapi.web.server.request import ServerRequest

if TYPE_CHECKING:
    from dataapi.web.server.site import ApiSite

_LONGEST_LINE = LONGEST_TARGET + 100
"""Bytes of a request line: the target with a method and a version."""
_LONGEST_HEADER = 32_768
_LONGEST_HEAD = 65_536
"""Bytes of all headers together."""
_MOST_HEADERS = 200
_LONGEST_LENGTH = 30
"""Digits of a ``Content-Length``, leading zeros included."""

_LEAST_TAKEN = 65_536
"""Bytes of an answer that a client must take within the idle time-out to get the rest."""

_FIRST_WITHIN = 1.0
"""Seconds for which a new connection does not count as idle although nothing was read yet."""

_LINGERING = 30
"""Seconds to wait after a refusal for the client to close or to send more of its request."""

_REFUSED_WITHIN = 5
"""Seconds in which a crowded connection must send its request."""

_LEAST_SENT = 4096
"""Bytes of a request that a client must send within the idle time-out, unless it is complete."""

_CHECK_EVERY = 0.25
"""Seconds between two checks for a client that is gone; faster answers have no interim response."""

_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


@implementer(IHalfCloseableProtocol)
class ClientConnection(http.HTTPChannel):
    """One connection.

    :ivar crowded: there are too many connections, so its request is refused.
    :ivar peer: the client's address, "" where there is none.
    """

    MAX_LENGTH = _LONGEST_LINE
    totalHeadersSize = _LONGEST_HEAD  # noqa: N815 - twisted's name
    maxHeaders = _MOST_HEADERS  # noqa: N815 - twisted's name
    requestFactory: Any = ServerRequest  # noqa: N815 - twisted's name
    transport: Any
    site: ApiSite
    _host: Any = None
    _peer: Any = None
    _resting = False
    _unsent = 0
    _received = 0
    _is_progress = True
    _since = 0.0
    _served = False
    _half_closed = False
    _discards = False
    _presence: PresenceCheck | None = None
    crowded = False
    peer = ""
    _path: Any = None

    def getHost(self) -> Any:  # noqa: N802 - twisted's name
        """Return the local address, which the system is asked for once per connection."""
        if self._host is None:
            self._host = self.transport.getHost()
        return self._host

    def getPeer(self) -> Any:  # noqa: N802 - twisted's name
        """Return the remote address."""
        if self._peer is None:
            self._peer = self.transport.getPeer()
        return self._peer

    def send(self, data: bytes) -> None:
        """Write what the socket takes at once, and leave only the rest to the reactor.

        Waiting until the reactor finds the socket writable would cost another turn of it and
        two system calls.
        """
        transport = self.transport
        if isinstance(transport, Connection) and _accepts_more(transport):
            sent = transport.writeSomeData(data)
            if isinstance(sent, int):  # else the connection is lost, as the reactor will find out
                data = data[sent:]
        if data:
            transport.write(data)
            self._unsent = _unsent(transport)

    def loseConnection(self) -> None:  # noqa: N802 - twisted's name
        """Close the connection once everything was sent, without waiting for that for ever."""
        super().loseConnection()
        if _unsent(self.transport):
            self.setTimeout(self.site.timeOut)

    def timeoutConnection(self) -> None:  # noqa: N802 - twisted's name
        """Close an idle connection, unless its client is still receiving an answer, slowly."""
        if self._half_closed:
            self.abort()
            return
        unsent = _unsent(self.transport)
        taken, self._unsent = self._unsent - unsent, unsent
        if unsent and taken >= _LEAST_TAKEN:
            self.setTimeout(self.timeOut)
        else:
            super().timeoutConnection()

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        """Register the connection with the site."""
        self.peer = str(getattr(self.getPeer(), "host", ""))
        self._since = self.site.reactor.seconds()
        self.crowded = not self.site.has_room()
        self.site.connections[self] = None
        if self.crowded:
            self.timeOut = _REFUSED_WITHIN
        super().connectionMade()

    @property
    def idle(self) -> bool:
        """Whether there was time for a request, none was begun, and no answer waits to be taken."""
        if self.requests or self._waitingForTransport:
            return False
        return self._served or self.site.reactor.seconds() - self._since >= _FIRST_WITHIN

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - twisted's name
        """Forget the connection, and what was received of requests."""
        if self._presence is not None:
            self._presence.stop()
        super().connectionLost(reason)
        self.requests, self._dataBuffer, self._buffer, self._transferDecoder = [], [], b"", None
        self.site.connections.pop(self, None)
        self.site.settle()

    def readConnectionLost(self) -> None:  # noqa: N802 - twisted's name
        """Answer the request of a client that ended its input, then close."""
        if self._half_closed or not self._handlingRequest:
            self.loseConnection()
        elif self._presence is None:
            if not any(self._dataBuffer):
                self.persistent = False
            self._presence = PresenceCheck(self.transport, self.callLater, self._awaits_answer, self.abort)

    def writeConnectionLost(self) -> None:  # noqa: N802 - twisted's name
        """Wait for the client to close too."""

    def _awaits_answer(self) -> bool:
        [request] = self.requests or [None]
        return bool(request) and request.clientproto == b"HTTP/1.1" and not request.startedWriting

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Take data; a byte now and then does not restart the time-out."""
        if self._discards:
            return
        before, self._received = self._received, self._received + len(data)
        self._is_progress = before == 0 or before // _LEAST_SENT < self._received // _LEAST_SENT
        super().dataReceived(data)

    def resetTimeout(self) -> None:  # noqa: N802 - twisted's name
        """Restart the time-out if the client made progress with its request."""
        if self._is_progress:
            super().resetTimeout()

    def setLineMode(self, extra: bytes = b"") -> None:  # noqa: N802 - twisted's name
        """Begin the next request of the connection, once the client takes what was answered before.

        Otherwise pipelined requests of a client that never reads would all be answered into memory.
        """
        self._received = 0
        self._served = True
        self.MAX_LENGTH = _LONGEST_LINE
        if self._waitingForTransport:
            self._resting = self._handlingRequest = True
            self._dataBuffer = [extra]
        else:
            super().setLineMode(extra)
            if self._presence is not None and not (self._handlingRequest or self._busyReceiving):
                self.loseConnection()

    def resumeProducing(self) -> None:  # noqa: N802 - twisted's name
        """Go on with the next request, if it waits for its turn."""
        super().resumeProducing()
        if self._resting:
            self._resting = self._handlingRequest = False
            self._networkProducer.resumeProducing()
            waiting, self._dataBuffer = b"".join(self._dataBuffer), []
            self.setLineMode(waiting)

    def rawDataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Buffer what comes before its turn, and read no more of it than Twisted does while it can send."""
        super().rawDataReceived(data)
        if self._waitingForTransport and sum(map(len, self._dataBuffer)) > self._optimisticEagerReadSize:
            self._networkProducer.pauseProducing()

    @property
    def unread(self) -> int:
        """How many bytes came behind what was read so far."""
        return len(self._buffer)

    def lineReceived(self, line: bytes) -> None:  # noqa: N802 - twisted's name
        """Take a line of the head; empty ones before it are skipped, as RFC 9112 section 2.2 advises."""
        if self._path is None:
            if not line:
                return
            self._receivedHeaderSize = -len(line)  # headers alone count
            self.MAX_LENGTH = _LONGEST_HEADER
        super().lineReceived(line)

    def headerReceived(self, line: bytes) -> Any:  # noqa: N802 - twisted's name
        """Take a header, unless it is a length of more digits than Python converts."""
        if len(line) > _LONGEST_LENGTH and line[:14].lower() == b"content-length":
            name, _, value = line.partition(b":")
            if len(name) == 14 and len(value.strip()) > _LONGEST_LENGTH:
                self._respondToBadRequestAndDisconnect()
                return False
        return super().headerReceived(line)

    def request_line(self) -> tuple[bytes, bytes, bytes]:
        """Return method, target and version of the request that is being received."""
        return self._command, self._path, self._version

    def abort(self) -> None:
        """Close the connection without waiting for what is still to be written."""
        self.transport.abortConnection()

    def lineLengthExceeded(self, line: bytes) -> None:  # noqa: N802 - twisted's name
        """Refuse a request line or a header that is too long."""
        if self._path is not None:
            self._refuse(_too_large(f"A header of the request is longer than {self.MAX_LENGTH} bytes"))
        else:
            self._refuse(head.target_too_long(), line)

    def _respondToBadRequestAndDisconnect(self) -> None:  # noqa: N802 - twisted's name
        if self._receivedHeaderCount > self.maxHeaders:
            self._refuse(_too_large(f"The request has more than {self.maxHeaders} headers"))
        elif self._receivedHeaderSize > self.totalHeadersSize:
            self._refuse(_too_large(f"The request's headers are longer than {self.totalHeadersSize} bytes"))
        else:
            self._refuse(ApiError(400, "BAD_REQUEST", "The request is not valid HTTP"))

    def _refuse(self, error: ApiError, line: bytes = b"") -> None:
        """Answer a request that cannot be read, unless it already has an answer, and close.

        :param line: as much of the request line as was received, unless it is complete.
        """
        request = self.requests[-1] if self.requests else ServerRequest(self)
        if not request.startedWriting:
            if self._path is not None:
                request.method, request.uri, request.clientproto = self.request_line()
            else:
                request.method, request.uri, request.clientproto = head.partial_request_line(line)
            self.site.refuse(request, error)
        self._discards, self._buffer = True, b""
        if not self._half_closed:
            self.loseConnection()

    def end_sending(self) -> None:
        """Send the end and keep reading: closing with unread data can destroy the answer on its way."""
        if isinstance(self.transport, Connection):
            self._half_closed = True
            self.transport.unregisterProducer()
            self.transport.loseWriteConnection()
            self.setTimeout(_LINGERING)


class PresenceCheck:
    """Finds out whether a client that sends no more waits for its answer or is gone.

    Both look the same, an end of input; but one that is gone refuses what it is sent.  Before an answer that
    may be an interim response, which clients of HTTP/1.1 skip (RFC 9110 section 15.2).

    :param transport: a plain connection whose input has ended.
    :param may_ask: whether an interim response may be sent now.
    """

    def __init__(
        self,
        transport: Any,
        call_later: Callable[..., Any],
        may_ask: Callable[[], bool],
        gone: Callable[[], object],
    ) -> None:
        self._transport = transport
        self._call_later = call_later
        self._may_ask = may_ask
        self._gone = gone
        self._asked = False
        self._timer = call_later(_CHECK_EVERY, self._check)

    def _check(self) -> None:
        # As nothing is read, the reactor would notice a refusal only when it sends the next time.
        if self._transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._gone()
            return
        if not self._asked and self._may_ask():
            self._asked = True
            self._transport.write(_INTERIM)
        self._timer = self._call_later(_CHECK_EVERY, self._check)

    def stop(self) -> None:
        """Stop watching."""
        if self._timer.active():
            self._timer.cancel()


def _accepts_more(transport: Any) -> bool:
    """Whether a plain connection is open and nothing waits to be sent on it."""
    closed = transport.TLS or not transport.connected or transport._writeDisconnected
    return not (closed or transport.dataBuffer or transport._tempDataBuffer)


def _unsent(transport: Any) -> int:
    """Return how many bytes wait to be sent; below TLS, where there is some."""
    connection = transport if isinstance(transport, Connection) else getattr(transport, "transport", None)
    if not isinstance(connection, Connection):
        return 0
    return len(connection.dataBuffer) - connection.offset + connection._tempDataLen


def _too_large(message: str) -> ApiError:
    return ApiError(431, "REQUEST_HEADER_FIELDS_TOO_LARGE", message)
