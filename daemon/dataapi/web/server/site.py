"""The site: what all connections share, their number, and an orderly end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IProtocolNegotiationFactory
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger
from zope.interface import implementer

from dataapi.web.server.connection import ClientConnection

if TYPE_CHECKING:
    from dataapi.web.pipeline import Observe, Pipeline
    from dataapi.web.routing import Backend

_log = Logger(namespace="dataapi.web")

_REFUSED = 64
"""Connections above the limit on which a request is awaited, so that it can be refused in its own form."""
_REPORT_EVERY = 60.0
"""Least seconds between two log lines that report it."""


class _Closing(Protocol):
    """A connection that is closed at once."""

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        """Close it."""
        transport: Any = self.transport
        transport.abortConnection()


class Budget:
    """Bytes that all requests together may hold in memory, and how many of them are free."""

    def __init__(self, size: int) -> None:
        self.free = self._size = size

    def resize(self, size: int) -> None:
        """Have another size from now on; what is taken stays so."""
        self.free += size - self._size
        self._size = size

    def take(self, count: int) -> bool:
        """Take so many bytes, unless fewer are left."""
        if count > self.free:
            return False
        self.free -= count
        return True

    def give_back(self, count: int) -> None:
        """Return bytes that were taken."""
        self.free += count


@implementer(IProtocolNegotiationFactory)
class ApiSite(Factory):
    """The factory of connections.

    :param now: Unix seconds, for the ``Date`` header.
    :param max_bodies: bytes that the bodies of all requests may hold together.
    :param max_connections: connections on which requests are answered.
    :ivar timeout: seconds for which a connection may be idle, or a client make no progress with a request.
    :ivar connections: in order of their age, the oldest first.
    :ivar in_flight: requests that are being answered.
    :ivar draining: no connection is kept open beyond its answer.
    :ivar report: called with the number of connections whenever it changes.
    """

    noisy = False

    def __init__(
        self,
        pipeline: Pipeline,
        reactor: Any,
        now: Callable[[], float] = time.time,
        *,
        max_bodies: int = sys.maxsize,
        max_connections: int = sys.maxsize,
    ) -> None:
        self.reactor = reactor
        self.timeout = 60.0
        self._pipeline = pipeline
        self.expect = pipeline.expect
        self.handle = pipeline.handle
        self.refuse = pipeline.refuse
        self._pause = pipeline.pause
        self.bodies = Budget(max_bodies)
        self.connections: dict[ClientConnection, None] = {}
        self._max_connections = max_connections
        self._reported_full = -_REPORT_EVERY
        self.in_flight = 0
        self.draining = False
        self.report: Callable[[int], object] = lambda count: None  # noqa: ARG005
        self._now = now
        self._second = 0
        self._date = ""
        self._drained: list[Deferred[None]] = []

    def configure(
        self,
        backends: Sequence[Backend],
        observe: Observe,
        *,
        max_bodies: int,
        max_connections: int,
        traced: bool = False,
    ) -> None:
        """Serve other projects by other limits from the next request on."""
        self._pipeline.configure(backends, observe, traced=traced)
        self.bodies.resize(max_bodies)
        self._max_connections = max_connections

    def acceptableProtocols(self) -> list[bytes]:  # noqa: N802 - twisted's name
        """Speak HTTP/1.1 alone."""
        return [b"http/1.1"]

    def date(self) -> str:
        """Return the time for the ``Date`` header, made once a second."""
        second = int(self._now())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True)
        return self._date

    def buildProtocol(self, addr: Any) -> Protocol:  # noqa: ARG002, N802 - twisted's name
        """Serve a connection, or close it where already many are being refused."""
        if len(self.connections) >= self._max_connections + _REFUSED:
            return _Closing()
        return ClientConnection(self)

    def opened(self, connection: ClientConnection) -> None:
        """Register a new connection."""
        self.connections[connection] = None
        self.report(len(self.connections))

    def closed(self, connection: ClientConnection) -> None:
        """Forget a connection that was lost."""
        self.connections.pop(connection, None)
        self.report(len(self.connections))
        self.settle()

    def has_room(self) -> bool:
        """Whether one more connection can be served; the oldest idle one is closed for it.

        Refused connections are beyond the limit, and leave no room when they end.
        """
        if len(self.connections) < self._max_connections:
            return True
        served = [connection for connection in self.connections if not connection.crowded]
        if len(served) < self._max_connections:
            return True
        idle = next((connection for connection in served if connection.idle), None)
        if idle is None:
            self._report_full()
            return False
        del self.connections[idle]
        idle.close()
        return True

    def _report_full(self) -> None:
        now = self.reactor.seconds()
        if now - self._reported_full >= _REPORT_EVERY:
            self._reported_full = now
            _log.warn(
                "requests are refused: all {count} of max-connections are busy", count=self._max_connections
            )

    def drain(self, seconds: float) -> Deferred[None]:
        """Close idle connections and every other after its answer.

        Who has just connected may still send a request.

        :return: fires when no connection and no request is left, or after ``seconds``, when
            those that still are get aborted.
        """
        self.draining = True
        for connection in list(self.connections):
            connection.drain()
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
        """Pause when nobody is connected and nothing is being answered, and end a drain that waits for it."""
        if self._is_settled():
            self._pause()
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
