"""The site: state shared by all connections, connection limits, and orderly shutdown."""

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

_MAX_CROWDED = 64
"""Number of connections above the limit that get an error response. More are closed immediately."""
_WARNING_INTERVAL = 60.0
"""Minimum number of seconds between warnings about the connection limit."""


class _Closing(Protocol):
    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        transport: Any = self.transport
        transport.abortConnection()


@implementer(IProtocolNegotiationFactory)
class ApiSite(Factory):
    """The protocol factory of client connections.

    :ivar header_timeout: seconds to receive the head of a request.
    :ivar timeout: seconds after which a client without progress is disconnected.
    :ivar keep_alive_timeout: seconds for which a connection may be idle.
    :ivar connections: the open connections, from the oldest to the newest.
    :ivar draining: whether connections are closed after the current response.
    :ivar report: called with the number of connections when it changes.
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
        self._last_full_warning = -_WARNING_INTERVAL
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
        return [b"http/1.1"]

    def buildProtocol(self, addr: Any) -> Protocol:  # noqa: N802 - twisted's name
        """Return the protocol of a new connection.

        The protocol closes it immediately if ``_MAX_CROWDED`` connections above the limit are open.
        """
        peer = address_of(addr)
        if (
            self._crowded >= _MAX_CROWDED
            and not self.has_room(peer)
            and not self._make_room(lambda connection: connection.crowded)
        ):
            return _Closing()
        return ClientConnection(self, peer)

    def opened(self, connection: ClientConnection) -> None:
        self.connections[connection] = None
        if connection.crowded:
            self._crowded += 1
        else:
            self._by_address[connection.peer] += 1
        self.report(len(self.connections))

    def count_feed(self, connection: ClientConnection) -> bool:
        if not self.add_feed():
            return False
        self._forget(connection)
        self.connections[connection] = None
        return True

    def add_feed(self) -> bool:
        """Count another feed. Return False if there are too many."""
        if self._feeds >= self._max_subscriptions:
            return False
        self._feeds += 1
        return True

    def remove_feed(self) -> None:
        self._feeds -= 1

    def closed(self, connection: ClientConnection) -> None:
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
        """Return whether an address may open another connection. Close an idle connection if necessary.

        Connections that were accepted above the limit do not count.
        """
        maximum = self._max_connections_per_address
        if self._by_address[address] >= maximum and not self.proxies.trusts(address):
            return self._make_room(lambda connection: connection.peer == address and not connection.crowded)
        if len(self.connections) - self._crowded - self._feeds < self._max_connections:
            return True
        if not self._make_room(lambda connection: not connection.crowded):
            self._warn_full()
            return False
        return True

    def _make_room(self, among: Callable[[ClientConnection], bool]) -> bool:
        quiet = next(
            (connection for connection in self.connections if connection.quiet and among(connection)), None
        )
        if quiet is None:
            return False
        self._forget(quiet)
        quiet.make_room()
        return True

    def _warn_full(self) -> None:
        now = self.reactor.seconds()
        if now - self._last_full_warning >= _WARNING_INTERVAL:
            self._last_full_warning = now
            count = self._max_connections
            _log.warn(
                "requests are rejected: all {count} connections (max-connections) are busy", count=count
            )

    def drain(self, seconds: float) -> Deferred[None]:
        """Close each connection after the response to its current request.

        Clients that have just connected or have sent a part of a request get a second to complete it.

        :param seconds: seconds after which the remaining connections are aborted.
        :return: a Deferred that fires when no connections or requests are left.
        """
        self.draining = True
        for connection in list(self.connections):
            connection.drain()
        if self._is_settled():
            return succeed(None)
        drained: Deferred[None] = Deferred()
        self._drained.append(drained)
        expiry = self.reactor.callLater(seconds, self._abort_all)

        def settled(result: None) -> None:
            if expiry.active():
                expiry.cancel()
            return result

        return drained.addBoth(settled)

    def settle(self) -> None:
        if self._is_settled():
            self._pause()
            if self._drained:
                self._finish_draining()

    def _is_settled(self) -> bool:
        return not self.connections and self.in_flight == 0

    def _abort_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()
        self._finish_draining()

    def _finish_draining(self) -> None:
        pending, self._drained = self._drained, []
        for drained in pending:
            drained.callback(None)
