"""The listening side on twisted.web: what all connections share, their number, and an orderly end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, Protocol

from twisted.internet import protocol
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import Site

from dataapi.errors import ApiError
from dataapi.web.channel import Channel
from dataapi.web.exchange import Exchange
from dataapi.web.limits import Budget

_log = Logger(namespace="dataapi.web")

_REFUSED = 64
"""Connections above the limit on which a request is awaited, so that it can be refused in its own form."""
_TOLD_EVERY = 60.0
"""Seconds between two lines in the log that say so."""


class Front(Protocol):
    """Answers exchanges."""

    def expect(self, exchange: Exchange, length: int | None) -> None:
        """Refuse a request whose body is still to come, or say how much of that is taken."""

    def handle(self, exchange: Exchange, body: bytes) -> None:
        """Answer a request that was read."""

    def refuse(self, exchange: Exchange, error: ApiError) -> None:
        """Answer a request of which not all was read with an error."""

    def rest(self) -> None:
        """Take note that nobody is connected."""


class _Closing(protocol.Protocol):
    """A connection that nobody has time for."""

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        """Close it."""
        transport: Any = self.transport
        transport.abortConnection()


class ApiSite(Site):
    """The factory of connections.

    :param now: Unix seconds, for the ``Date`` header.
    :param max_bodies: bytes that the bodies of all requests may hold together.
    :param max_connections: connections on which requests are answered.
    :ivar connections: the oldest first.
    :ivar in_flight: requests that are being answered.
    :ivar draining: no connection is kept open beyond its answer.
    """

    noisy = False
    protocol: Any = Channel
    requestFactory: Any = Exchange  # noqa: N815 - twisted's name

    def __init__(
        self,
        front: Front,
        reactor: Any,
        now: Callable[[], float] = time.time,
        *,
        max_bodies: int = sys.maxsize,
        max_connections: int = sys.maxsize,
    ) -> None:
        super().__init__(Resource(), reactor=reactor, parsePOSTFormSubmission=False)
        self.expect = front.expect
        self.handle = front.handle
        self.refuse = front.refuse
        self._rest = front.rest
        self.bodies = Budget(max_bodies)
        self.connections: dict[Channel, None] = {}
        self._max_connections = max_connections
        self._told_full = -_TOLD_EVERY
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

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802 - twisted's name
        """Serve a connection, or close it where already many are being refused."""
        if len(self.connections) >= self._max_connections + _REFUSED:
            return _Closing()
        return super().buildProtocol(addr)

    def has_room(self) -> bool:
        """Whether one more connection can be served; the oldest idle one is closed for it."""
        if len(self.connections) < self._max_connections:
            return True
        idle = next((connection for connection in self.connections if connection.idle), None)
        if idle is None:
            self._tell_full()
            return False
        del self.connections[idle]
        idle.loseConnection()
        return True

    def _tell_full(self) -> None:
        now = self.reactor.seconds()
        if now - self._told_full >= _TOLD_EVERY:
            self._told_full = now
            _log.warn(
                "requests are refused: all {count} of max-connections are busy", count=self._max_connections
            )

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
        """Rest when nobody is connected and nothing is being answered, and tell those who wait for that."""
        if self._is_settled():
            self._rest()
            if self._drained:
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
