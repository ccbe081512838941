"""The listening side on twisted.web: connections, their limits, and an orderly end."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Connection
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import Site

from dataapi.web import wire
from dataapi.web.exchange import Exchange

_LONGEST_LINE = 32_768
_LONGEST_HEAD = 65_536
_MOST_HEADERS = 200
_LONGEST_LENGTH = 30
"""Digits of a ``Content-Length``, leading zeros included."""

_LEAST_TAKEN = 65_536
"""Bytes of an answer that a client must take within the time of an idle connection, to get the rest."""

_LEAST_SENT = 4096
"""Bytes of a request that a client must send within that time, unless it is all there."""


class Front(Protocol):
    """Answers exchanges."""

    def body_limit(self, exchange: Exchange) -> int:
        """Return how many bytes of a body are taken for this request."""

    def refuse_body(self, exchange: Exchange) -> None:
        """Answer a request whose body is beyond the limit, before all of it came."""

    def handle(self, exchange: Exchange) -> None:
        """Answer a request that was read."""

    def tell_unreadable(self, status: int, size: int) -> None:
        """Note that what came over a connection was no request, and was answered so."""


class Channel(http.HTTPChannel):
    """One connection."""

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
        unsent = _unsent(self.transport)
        taken, self._unsent = self._unsent - unsent, unsent
        if unsent and taken >= _LEAST_TAKEN:
            self.setTimeout(self.timeOut)
        else:
            super().timeoutConnection()

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        """Note the connection, so that it can be closed at the end."""
        self.site.connections.add(self)
        super().connectionMade()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - twisted's name
        """Forget the connection."""
        super().connectionLost(reason)
        self.site.connections.discard(self)
        self.site.settle()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Take what came; a byte now and then does not keep a request from taking too long."""
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
        if self._waitingForTransport:
            self._resting = self._handlingRequest = True
            self._dataBuffer = [extra]
        else:
            super().setLineMode(extra)

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

    def headerReceived(self, line: bytes) -> Any:  # noqa: N802 - twisted's name
        """Take a header, unless it is a length of more digits than Python makes a number of."""
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and len(value.strip()) > _LONGEST_LENGTH:
            self._respondToBadRequestAndDisconnect()
            return False
        return super().headerReceived(line)

    def request_line(self) -> tuple[bytes, bytes, bytes]:
        """Return method, target and version of the request that is being received."""
        return self._command, self._path, self._version

    def abort(self) -> None:
        """Close the connection without waiting for what is still to be written."""
        self.transport.abortConnection()

    def lineLengthExceeded(self, line: bytes) -> None:  # noqa: ARG002, N802 - twisted's name
        """Refuse a request line or a header that is too long."""
        if hasattr(self, "_path"):
            self._refuse(431, f"A header of the request is longer than {self.MAX_LENGTH} bytes")
        else:
            self._refuse(414, f"The request line is longer than {self.MAX_LENGTH} bytes")

    def _respondToBadRequestAndDisconnect(self) -> None:  # noqa: N802 - twisted's name
        if self._receivedHeaderCount > self.maxHeaders:
            self._refuse(431, f"The request has more than {self.maxHeaders} headers")
        elif self._receivedHeaderSize > self.totalHeadersSize:
            self._refuse(431, f"The request's headers are longer than {self.totalHeadersSize} bytes")
        else:
            self._refuse(400, "The request is no valid HTTP")

    def _refuse(self, status: int, message: str) -> None:
        """Tell a client that its request cannot be read, unless it already has an answer, and close."""
        if not (self.requests and self.requests[-1].startedWriting):
            body = f'{{"message":"{message}"}}'.encode()
            headers = (("Content-Type", "application/json; charset=utf-8"), ("Connection", "close"))
            self.transport.write(wire.head(status, headers, len(body)) + body)
            self.site.tell_unreadable(status, len(body))
        self.loseConnection()


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


class ApiSite(Site):
    """The factory of connections.

    :param now: Unix seconds, for the ``Date`` header.
    :ivar in_flight: requests that are being answered.
    :ivar draining: no connection is kept open beyond its answer.
    """

    noisy = False
    protocol: Any = Channel
    requestFactory: Any = Exchange  # noqa: N815 - twisted's name

    def __init__(self, front: Front, reactor: Any, now: Callable[[], float] = time.time) -> None:
        super().__init__(Resource(), reactor=reactor, parsePOSTFormSubmission=False)
        self.body_limit = front.body_limit
        self.refuse_body = front.refuse_body
        self.handle = front.handle
        self.tell_unreadable = front.tell_unreadable
        self.connections: set[Channel] = set()
        self.in_flight = 0
        self.draining = False
        self._now = now
        self._second = 0
        self._date = ""
        self._drained: list[Deferred[None]] = []

    def startFactory(self) -> None:  # noqa: N802 - twisted's name
        """Open no access log: requests are told to an observer."""

    def stopFactory(self) -> None:  # noqa: N802 - twisted's name
        """Leave connections to ``drain``."""

    def log(self, request: http.Request) -> None:
        """Write no access log."""

    def acceptableProtocols(self) -> list[bytes]:  # noqa: N802 - twisted's name
        """Speak HTTP/1.1 alone."""
        return [b"http/1.1"]

    def date(self) -> str:
        """Return the time for the ``Date`` header, made once a second."""
        second = int(self._now())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True)
        return self._date

    def drain(self, seconds: float) -> Deferred[None]:
        """Close idle connections and every other after its answer.

        :return: fires when no connection and no request is left, or after ``seconds``, when
            those that still are get aborted.
        """
        self.draining = True
        for connection in list(self.connections):
            if not connection.requests:
                connection.loseConnection()
        if self._is_settled():
            return succeed(None)
        drained: Deferred[None] = Deferred()
        self._drained.append(drained)
        expiry = self.reactor.callLater(seconds, self._give_up)

        def settled(result: None) -> None:
            if expiry.active():
                expiry.cancel()
            return result

        return drained.addBoth(settled)

    def settle(self) -> None:
        """Tell those who wait for the end, when it is there."""
        if self._drained and self._is_settled():
            self._finish_draining()

    def _is_settled(self) -> bool:
        return not self.connections and self.in_flight == 0

    def _give_up(self) -> None:
        for connection in list(self.connections):
            connection.abort()
        self._finish_draining()

    def _finish_draining(self) -> None:
        waiting, self._drained = self._drained, []
        for drained in waiting:
            drained.callback(None)
