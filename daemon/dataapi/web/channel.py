"""One connection of a client, on twisted.web: its limits, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Connection
from twisted.python.failure import Failure
from twisted.web import http
from zope.interface import implementer

from dataapi.errors import ApiError
from dataapi.web import target, wire
from dataapi.web.exchange import Exchange
from dataapi.web.presence import Presence

if TYPE_CHECKING:
    from dataapi.web.site import ApiSite

_LONGEST_LINE = target.LONGEST_TARGET + 100
"""Bytes of a request line: the target with a method and a version."""
_LONGEST_HEADER = 32_768
_LONGEST_HEAD = 65_536
"""Bytes of all headers together."""
_MOST_HEADERS = 200
_LONGEST_LENGTH = 30
"""Digits of a ``Content-Length``, leading zeros included."""

_LEAST_TAKEN = 65_536
"""Bytes of an answer that a client must take within the time of an idle connection, to get the rest."""

_FIRST_WITHIN = 1.0
"""Seconds for which a new connection is not idle, though nothing was read from it yet."""

_LINGERING = 30
"""Seconds that are waited after a refusal for the client to close, or to send more of its request."""

_REFUSED_WITHIN = 5
"""Seconds in which it must come."""

_LEAST_SENT = 4096
"""Bytes of a request that a client must send within that time, unless it is all there."""


@implementer(IHalfCloseableProtocol)
class Channel(http.HTTPChannel):
    """One connection.

    :ivar crowded: there are too many, so that this one's request is refused.
    :ivar peer: the address that it comes from, "" where it has none.
    """

    MAX_LENGTH = _LONGEST_LINE
    totalHeadersSize = _LONGEST_HEAD  # noqa: N815 - twisted's name
    maxHeaders = _MOST_HEADERS  # noqa: N815 - twisted's name
    requestFactory: Any = Exchange  # noqa: N815 - twisted's name
    transport: Any
    site: ApiSite
    _host: Any = None
    _peer: Any = None
    _resting = False
    _unsent = 0
    _came = 0
    _is_progress = True
    _since = 0.0
    _served = False
    _half_closed = False
    _ignores = False
    _presence: Presence | None = None
    crowded = False
    peer = ""
    _path: Any = None

    def getHost(self) -> Any:  # noqa: N802 - twisted's name
        """Return the local address, asked of the system once a connection and not for each request."""
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
        if isinstance(transport, Connection) and _takes_more(transport):
            sent = transport.writeSomeData(data)
            if isinstance(sent, int):  # else the connection is lost, as the reactor will find out
                data = data[sent:]
        if data:
            transport.write(data)
            self._unsent = _unsent(transport)

    def loseConnection(self) -> None:  # noqa: N802 - twisted's name
        """Close the connection once all was sent, and do not wait for ever for that."""
        super().loseConnection()
        if _unsent(self.transport):
            self.setTimeout(self.site.timeOut)

    def timeoutConnection(self) -> None:  # noqa: N802 - twisted's name
        """Close a connection on which nothing comes, unless its client still takes an answer, slowly."""
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
        """Note the connection, so that it can be closed at the end."""
        self.peer = str(getattr(self.getPeer(), "host", ""))
        self._since = self.site.reactor.seconds()
        self.crowded = not self.site.has_room()
        self.site.connections[self] = None
        if self.crowded:
            self.timeOut = _REFUSED_WITHIN
        super().connectionMade()

    @property
    def idle(self) -> bool:
        """Whether no request was begun, though there was time, and no answer waits to be taken."""
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
        """Answer what a client asked before it said that it sends no more; then close."""
        if self._half_closed or not self._handlingRequest:
            self.loseConnection()
        elif self._presence is None:
            if not any(self._dataBuffer):
                self.persistent = False
            self._presence = Presence(self.transport, self.callLater, self._awaits_answer, self.abort)

    def writeConnectionLost(self) -> None:  # noqa: N802 - twisted's name
        """Wait for the client to close too."""

    def _awaits_answer(self) -> bool:
        [request] = self.requests or [None]
        return bool(request) and request.clientproto == b"HTTP/1.1" and not request.startedWriting

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Take what came; a byte now and then does not keep a request from taking too long."""
        if self._ignores:
            return
        before, self._came = self._came, self._came + len(data)
        self._is_progress = before == 0 or before // _LEAST_SENT < self._came // _LEAST_SENT
        super().dataReceived(data)

    def resetTimeout(self) -> None:  # noqa: N802 - twisted's name
        """Begin to wait anew, if the client got on with its request."""
        if self._is_progress:
            super().resetTimeout()

    def setLineMode(self, extra: bytes = b"") -> None:  # noqa: N802 - twisted's name
        """Begin the next request of the connection, once the client takes what was answered before.

        Requests that were sent all at once would else be answered one after the other into the memory,
        for somebody who never reads.
        """
        self._came = 0
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
            kept, self._dataBuffer = b"".join(self._dataBuffer), []
            self.setLineMode(kept)

    def rawDataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Keep what comes before its turn, and read no more of it than Twisted does while it can send."""
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
        """Take a header, unless it is a length of more digits than Python makes a number of."""
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
            self._refuse(target.too_long(), line)

    def _respondToBadRequestAndDisconnect(self) -> None:  # noqa: N802 - twisted's name
        if self._receivedHeaderCount > self.maxHeaders:
            self._refuse(_too_large(f"The request has more than {self.maxHeaders} headers"))
        elif self._receivedHeaderSize > self.totalHeadersSize:
            self._refuse(_too_large(f"The request's headers are longer than {self.totalHeadersSize} bytes"))
        else:
            self._refuse(ApiError(400, "BAD_REQUEST", "The request is no valid HTTP"))

    def _refuse(self, error: ApiError, line: bytes = b"") -> None:
        """Answer a request that cannot be read, unless it already has an answer, and close.

        :param line: as much of the request line as came, unless that was read.
        """
        exchange = self.requests[-1] if self.requests else Exchange(self)
        if not exchange.startedWriting:
            if self._path is not None:
                exchange.method, exchange.uri, exchange.clientproto = self.request_line()
            else:
                exchange.method, exchange.uri, exchange.clientproto = wire.begun_request_line(line)
            self.site.refuse(exchange, error)
        self._ignores, self._buffer = True, b""
        if not self._half_closed:
            self.loseConnection()

    def end_sending(self) -> None:
        """Say that nothing follows, and read on: to close on what was not read can cost the answer."""
        if isinstance(self.transport, Connection):
            self._half_closed = True
            self.transport.unregisterProducer()
            self.transport.loseWriteConnection()
            self.setTimeout(_LINGERING)


def _takes_more(transport: Any) -> bool:
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
