"""The site: the state that all connections share, their number, and an orderly end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IProtocolNegotiationFactory
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger
from zope.interface import implementer

from dataapi.http.client_address import TrustedProxies, address_of
from dataapi.settings import Settings
from dataapi.web.pipeline import Observe, Pipeline
from dataapi.web.routing import Backend
from dataapi.web.server.connection import ClientConnection
from dataapi.web.server.request import Budget

_log = Logger(namespace="dataapi.web")

_REFUSED = 64
"""Connections above the limit on which a request is awaited, so that it can be refused in its own form."""
_REPORT_EVERY = 60.0
"""Minimum number of seconds between two log lines that report it."""


class _Closing(Protocol):
    """A connection that is closed at once."""

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        transport: Any = self.transport
        transport.abortConnection()


@implementer(IProtocolNegotiationFactory)
class ApiSite(Factory):
    """The factory of connections.

    :param settings: hold the limits of connections and bodies.
    :ivar proxies: the trusted proxies.
    :ivar header_timeout: seconds within which the head of a request must be complete.
    :ivar timeout: seconds for which a client may make no progress with a request or its response.
    :ivar keep_alive_timeout: seconds for which a connection may be idle.
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
        settings: Settings,
    ) -> None:
        self.reactor = reactor
        self.timeout = 60.0
        self.header_timeout = 10.0
        self._pipeline = pipeline
        self.expect = pipeline.expect
        self.handle = pipeline.handle
        self.refuse = pipeline.refuse
        self._pause = pipeline.pause
        self.bodies = Budget(0)
        self._limit(settings)
        self.connections: dict[ClientConnection, None] = {}
        self._crowded = 0
        self._feeds = 0
        self._by_address: Counter[str] = Counter()
        self._reported_full = -_REPORT_EVERY
        self.in_flight = 0
        self.draining = False
        self.report: Callable[[int], object] = lambda count: None  # noqa: ARG005
        self._drained: list[Deferred[None]] = []

    def configure(
        self,
        backends: Sequence[Backend],
        observe: Observe,
        settings: Settings,
    ) -> None:
        """Serve other projects by other limits from the next request on."""
        self._pipeline.configure(backends, observe)
        self._limit(settings)

    def _limit(self, settings: Settings) -> None:
        self.bodies.resize(settings.max_bodies)
        self.keep_alive_timeout = settings.keep_alive_timeout
        self._max_connections = settings.max_connections
        self._max_subscriptions = settings.max_subscriptions
        self._max_connections_per_address = settings.connections_per_address
        self.proxies = TrustedProxies(settings.trusted_proxies)

    def acceptableProtocols(self) -> list[bytes]:  # noqa: N802 - twisted's name
        """Speak only HTTP/1.1."""
        return [b"http/1.1"]

    def buildProtocol(self, addr: Any) -> Protocol:  # noqa: N802 - twisted's name
        """Serve a connection, or close it where it would be refused as many others are already."""
        peer = address_of(addr)
        if (
            self._crowded >= _REFUSED
            and not self.has_room(peer)
            and not self._make_room(lambda each: each.crowded)
        ):
            return _Closing()
        return ClientConnection(self, peer)

    def opened(self, connection: ClientConnection) -> None:
        """Register a new connection."""
        self.connections[connection] = None
        if connection.crowded:
            self._crowded += 1
        else:
            self._by_address[connection.peer] += 1
        self.report(len(self.connections))

    def count_feed(self, connection: ClientConnection) -> bool:
        """Count a connection towards ``max-subscriptions`` until it is closed, if there is room."""
        if self._feeds >= self._max_subscriptions:
            return False
        self._forget(connection)
        self._feeds += 1
        self.connections[connection] = None
        return True

    def closed(self, connection: ClientConnection) -> None:
        """Forget a connection that was lost."""
        if connection in self.connections:
            self._forget(connection)
        self.report(len(self.connections))
        self.settle()

    def _forget(self, connection: ClientConnection) -> None:
        del self.connections[connection]
        if connection.feed is not None:
            self._feeds -= 1
            return
        if connection.crowded:
            self._crowded -= 1
            return
        self._by_address[connection.peer] -= 1
        if not self._by_address[connection.peer]:
            del self._by_address[connection.peer]

    def has_room(self, address: str) -> bool:
        """Whether one more connection from an address can be served; an unused one may be closed for it.

        Refused connections are beyond the limit, and leave no room when they end.
        """
        maximum = self._max_connections_per_address
        if self._by_address[address] >= maximum and not self.proxies.trusts(address):
            return self._make_room(lambda each: each.peer == address and not each.crowded)
        if len(self.connections) - self._crowded - self._feeds < self._max_connections:
            return True
        if not self._make_room(lambda each: not each.crowded):
            self._report_full()
            return False
        return True

    def _make_room(self, among: Callable[[ClientConnection], bool]) -> bool:
        """Close the oldest connection on which no complete request has arrived, if there is one."""
        quiet = next((each for each in self.connections if each.quiet and among(each)), None)
        if quiet is None:
            return False
        self._forget(quiet)
        quiet.make_room()
        return True

    def _report_full(self) -> None:
        now = self.reactor.seconds()
        if now - self._reported_full >= _REPORT_EVERY:
            self._reported_full = now
            count = self._max_connections
            _log.warn("requests are refused: all {count} of max-connections are busy", count=count)

    def drain(self, seconds: float) -> Deferred[None]:
        """Close every connection after the answer to the request that was received on it.

        A client that has just connected, or sent a part of its request, has a second for the rest.

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
        """Pause when no client is connected and no request answered, and end a drain that waits for it."""
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
