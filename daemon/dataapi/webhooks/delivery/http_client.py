"""HTTP client for deliveries: one POST request over a connection to a checked address."""

from __future__ import annotations

import ipaddress
import select
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from OpenSSL import SSL
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.interfaces import IDelayedCall, ISSLTransport, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.iweb import IPolicyForHTTPS

from dataapi.webhooks.delivery.destinations import Address, Destination, UrlRefused
from dataapi.webhooks.delivery.proxy import Proxy, TunnelEndpoint
from dataapi.webhooks.delivery.resolver import AddressRefused, Unresolvable
from dataapi.webhooks.delivery.response import NoResponse, NotHttp, Response
from dataapi.webhooks.model import AttemptError

MAX_ADDRESSES = 4
"""Maximum number of addresses that one attempt connects to."""

CONNECT_SECONDS = 5.0
"""Connect timeout in seconds while there are other addresses to try."""

IDLE_SECONDS = 15
"""Seconds after which an idle connection is closed."""

CLOSE_SECONDS = 2.0
"""Maximum time for a receiver to close its side of a connection, in seconds."""

Key: TypeAlias = "tuple[str, str, int, Address]"
"""Pool key of a connection: scheme, host, port and address."""


def attempt_error(error: Exception) -> AttemptError:
    """Return the ``AttemptError`` for an exception. Re-raises exceptions that a receiver cannot cause."""
    if isinstance(error, SSL.Error) or isinstance(error.__cause__, SSL.Error):
        return AttemptError.TLS
    match error:
        case UrlRefused() | AddressRefused():
            return AttemptError.REFUSED_ADDRESS
        case Unresolvable():
            return AttemptError.DNS
        case ConnectError() | NoResponse():
            return AttemptError.CONNECT
        case NotHttp():
            return AttemptError.PROTOCOL
        case ConnectingCancelledError():
            raise CancelledError from error
    raise error


class ReceiverConnection(Protocol):
    """A connection to a checked address. It handles one request at a time."""

    transport: Any

    def __init__(self, pool: ReceiverConnections, key: Key) -> None:
        self.key = key
        self._pool = pool
        self._response: Response | None = None
        self._done: Deferred[None] | None = None
        self._lost = False
        self._timer: IDelayedCall | None = None

    def post(self, request: bytes, response: Response) -> Deferred[None]:
        """Send a request. The Deferred fires when the response, or the recorded part of it, has arrived."""
        self._response = response
        self._done = done = Deferred[None]()
        self.transport.write(request)
        return done

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        response = self._response
        if response is None:
            self.drop()
            return
        try:
            response.feed(data)
        except NotHttp as error:
            self._end(error)
        else:
            if response.is_finished:
                self._end()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - twisted's name
        self._lost = True
        self.drop_after(None)
        self._pool.forget(self)
        if self._response is not None:
            try:
                self._response.end()
            except (NoResponse, NotHttp) as error:
                error.__cause__ = reason.value
                self._end(error)
            else:
                self._end()

    def _end(self, error: Exception | None = None) -> None:
        done, self._done = self._done, None
        if done is not None and not done.called:
            done.callback(None) if error is None else done.errback(error)

    def has_no_input(self) -> bool:
        """Whether an idle connection has no unread input.

        Input means that the receiver closed the connection, or sent an unexpected response or a TLS alert.
        """
        # The TLS transport wraps the socket's transport.
        secure = ISSLTransport.providedBy(self.transport)
        socket_transport = self.transport.transport if secure else self.transport
        poller = select.poll()
        poller.register(socket_transport.fileno(), select.POLLIN)
        return not poller.poll(0)

    def finish(self) -> None:
        response, self._response, self._done = self._response, None, None
        if self._lost:
            return
        if response is None or not response.complete:
            self.drop()
        elif response.reusable:
            self._pool.release(self)
        else:
            # With TLS, loseConnection waits until the receiver also closes the connection.
            self.transport.loseConnection()
            self.drop_after(CLOSE_SECONDS)

    def drop_after(self, seconds: float | None) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
        if seconds is not None:
            self._timer = self._pool.reactor.callLater(seconds, self.drop)

    def drop(self) -> None:
        """Close the connection immediately, and discard data that has not been sent or read."""
        self.transport.abortConnection()


@dataclass(frozen=True, slots=True)
class OutgoingRoute:
    """Route of outgoing connections.

    :ivar bind_addresses: source addresses, at most one per IP version. The system chooses if there are none.
    """

    proxy: Proxy | None = None
    bind_addresses: tuple[Address, ...] = ()

    def source(self, version: int) -> str | None:
        return next((str(address) for address in self.bind_addresses if address.version == version), None)

    def can_reach(self, address: Address) -> bool:
        return self.proxy is not None or not self.bind_addresses or self.source(address.version) is not None

    def endpoint(
        self, reactor: Any, address: Address, port: int, seconds: float | None
    ) -> IStreamClientEndpoint:
        if self.proxy is not None:
            authority = f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"
            source = self.source(4) or self.source(6)
            return TunnelEndpoint(reactor, self.proxy, authority, seconds, source)
        source = self.source(address.version)
        bind = None if source is None else (source, 0)
        kind: Any = TCP4ClientEndpoint if address.version == 4 else TCP6ClientEndpoint
        endpoint: IStreamClientEndpoint = kind(reactor, str(address), port, timeout=seconds, bindAddress=bind)
        return endpoint


DIRECT = OutgoingRoute()


class _ConnectionFactory(Factory):
    # Twisted's connectProtocol logs each connection, and is slower.
    noisy = False

    def __init__(self, connection: ReceiverConnection) -> None:
        self._connection = connection

    def buildProtocol(self, addr: object) -> ReceiverConnection:  # noqa: ARG002, N802 - twisted's names
        return self._connection


class ReceiverConnections:
    """Opens connections to checked addresses and pools idle connections.

    If more than ``max_idle`` connections are idle, the least recently used one is closed.
    """

    def __init__(
        self, reactor: Any, tls: IPolicyForHTTPS, max_idle: int = 256, route: OutgoingRoute = DIRECT
    ) -> None:
        self.reactor = reactor
        self._tls = tls
        self._max_idle = max_idle
        self._route = route
        self._open: set[ReceiverConnection] = set()
        # Idle connections, least recently used first.
        self._idle: dict[ReceiverConnection, None] = {}
        self._by_key: dict[Key, list[ReceiverConnection]] = {}

    async def get(self, destination: Destination, addresses: Iterable[Address]) -> ReceiverConnection:
        """Return a connection to one of the checked addresses.

        :raises ConnectError: all connections failed.
        :raises AddressRefused: the peer of a connection has an address that was not checked.
        """
        candidates = tuple(filter(self._route.can_reach, addresses))[:MAX_ADDRESSES]
        if not candidates:
            raise ConnectError(string="bind-address has no address of the receiver's IP version")
        for address in candidates:
            idle = self._idle_connection((destination.scheme, destination.host, destination.port, address))
            if idle is not None:
                return idle
        for address in candidates[:-1]:
            try:
                return await self._connect(destination, address, CONNECT_SECONDS)
            except ConnectError:
                continue
        return await self._connect(destination, candidates[-1], None)

    def _idle_connection(self, key: Key) -> ReceiverConnection | None:
        while idle := self._by_key.get(key):
            connection = idle[-1]
            self._remove_idle(connection)
            if connection.has_no_input():
                return connection
            connection.drop()
        return None

    async def _connect(
        self, destination: Destination, address: Address, seconds: float | None
    ) -> ReceiverConnection:
        key = (destination.scheme, destination.host, destination.port, address)
        connection = ReceiverConnection(self, key)
        await self._endpoint(destination, address, seconds).connect(_ConnectionFactory(connection))
        self._open.add(connection)
        peer = ipaddress.ip_address(connection.transport.getPeer().host)
        if self._route.proxy is None and peer != address:
            connection.drop()
            raise AddressRefused(f"The connection to {address} reached {peer}")
        return connection

    def _endpoint(
        self, destination: Destination, address: Address, seconds: float | None
    ) -> IStreamClientEndpoint:
        endpoint = self._route.endpoint(self.reactor, address, destination.port, seconds)
        if destination.scheme == "http":
            return endpoint
        creator = self._tls.creatorForNetloc(destination.host.encode("ascii"), destination.port)
        return wrapClientTLS(creator, endpoint)

    def release(self, connection: ReceiverConnection) -> None:
        self._idle[connection] = None
        self._by_key.setdefault(connection.key, []).append(connection)
        connection.drop_after(IDLE_SECONDS)
        if len(self._idle) > self._max_idle:
            oldest = next(iter(self._idle))
            self._remove_idle(oldest)
            oldest.drop()

    def forget(self, connection: ReceiverConnection) -> None:
        self._open.discard(connection)
        self._remove_idle(connection)

    def _remove_idle(self, connection: ReceiverConnection) -> None:
        connection.drop_after(None)
        if connection in self._idle:
            del self._idle[connection]
            idle = self._by_key[connection.key]
            idle.remove(connection)
            if not idle:
                del self._by_key[connection.key]

    def close(self) -> None:
        for connection in list(self._open):
            connection.drop()
