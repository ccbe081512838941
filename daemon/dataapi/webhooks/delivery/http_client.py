"""The HTTP client of deliveries: one POST over a connection to a checked address, with limits."""

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
"""Addresses of a receiver that one attempt tries to connect to."""

CONNECT_SECONDS = 5.0
"""Seconds to connect to one address while there is another to try."""

IDLE_SECONDS = 15
"""Seconds after which an idle connection is closed."""

CLOSE_SECONDS = 2.0
"""Seconds that a receiver has to close its side of a connection."""

Key: TypeAlias = "tuple[str, str, int, Address]"
"""What interchangeable connections have in common: scheme, host, port, and the address."""


def attempt_error(error: Exception) -> AttemptError:
    """Classify what made an attempt fail; raise an error that no receiver can cause."""
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
    """A connection to a checked address of a receiver: one request at a time, each with its response."""

    transport: Any  # of TCP or TLS

    def __init__(self, pool: ReceiverConnections, key: Key) -> None:
        self.key = key
        self._pool = pool
        self._response: Response | None = None
        self._over: Deferred[None] | None = None
        self._lost = False
        self._timer: IDelayedCall | None = None

    def post(self, request: bytes, response: Response) -> Deferred[None]:
        """Send a request.

        :param response: takes what arrives.
        :return: fires when the response is complete, or as much of it has arrived as is recorded.
        """
        self._response = response
        self._over = over = Deferred[None]()
        self.transport.write(request)
        return over

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Pass on what belongs to a response; anything else ends the connection."""
        response = self._response
        if response is None:
            self.drop()
            return
        try:
            response.feed(data)
        except NotHttp as error:
            self._end(error)
        else:
            if response.over:
                self._end()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - twisted's name
        """Leave the pool; for some responses this is the end."""
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
        over, self._over = self._over, None
        if over is not None and not over.called:
            over.callback(None) if error is None else over.errback(error)

    def is_quiet(self) -> bool:
        """Whether an idle connection may be used: nothing has arrived that the reactor has yet to see.

        The receiver may have closed it, or sent what was not requested: a response, or a TLS alert.
        """
        # TLS is a protocol over the transport that has the socket.
        secure = ISSLTransport.providedBy(self.transport)
        carrier = self.transport.transport if secure else self.transport
        arrived = select.poll()
        arrived.register(carrier.fileno(), select.POLLIN)
        return not arrived.poll(0)

    def finish(self) -> None:
        """End the current request: return the connection to the pool, or close it."""
        response, self._response, self._over = self._response, None, None
        if self._lost:
            return
        if response is None or not response.complete:
            self.drop()
        elif response.reusable:
            self._pool.keep(self)
        else:
            # Closing waits for the receiver with TLS.
            self.transport.loseConnection()
            self.drop_after(CLOSE_SECONDS)

    def drop_after(self, seconds: float | None) -> None:
        """Set the timer that drops this connection, in place of any other; None for no timer."""
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
        if seconds is not None:
            self._timer = self._pool.reactor.callLater(seconds, self.drop)

    def drop(self) -> None:
        """Close at once, whatever is still to be sent or received."""
        self.transport.abortConnection()


@dataclass(frozen=True, slots=True)
class OutgoingRoute:
    """By which way connections are made.

    :ivar bind_addresses: where they come from, at most one address of each version; none: the system chooses.
    """

    proxy: Proxy | None = None
    bind_addresses: tuple[Address, ...] = ()

    def source(self, version: int) -> str | None:
        """Return the address that a connection to an IP version comes from, None for any."""
        return next((str(one) for one in self.bind_addresses if one.version == version), None)

    def leads_to(self, address: Address) -> bool:
        """Whether an address can be reached from where connections come from."""
        return self.proxy is not None or not self.bind_addresses or self.source(address.version) is not None

    def endpoint(
        self, reactor: Any, address: Address, port: int, seconds: float | None
    ) -> IStreamClientEndpoint:
        """Return what connects to an address within so many seconds; None: the caller has a limit."""
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
"""Without a proxy, from any address."""


class _Factory(Factory):
    """Makes the protocol of one connection; Twisted's ``connectProtocol`` logs each one, and takes longer."""

    noisy = False

    def __init__(self, connection: ReceiverConnection) -> None:
        self._connection = connection

    def buildProtocol(self, addr: object) -> ReceiverConnection:  # noqa: ARG002, N802 - twisted's names
        return self._connection


class ReceiverConnections:
    """Opens connections to checked addresses and pools the idle ones.

    :param reactor: connects and keeps time.
    :param tls: checks certificates.
    :param max_idle: how many idle connections stay open; the one idle for longest is closed first.
    :param route: by which way connections are made.
    """

    def __init__(
        self, reactor: Any, tls: IPolicyForHTTPS, max_idle: int = 256, route: OutgoingRoute = DIRECT
    ) -> None:
        self.reactor = reactor
        self._tls = tls
        self._max_idle = max_idle
        self._route = route
        self._open: set[ReceiverConnection] = set()
        # In the order in which they became idle.
        self._idle: dict[ReceiverConnection, None] = {}
        self._by_key: dict[Key, list[ReceiverConnection]] = {}

    async def get(self, destination: Destination, addresses: Iterable[Address]) -> ReceiverConnection:
        """Return a connection to one of the addresses, which were all checked.

        :raises ConnectError: none accepts a connection.
        :raises AddressRefused: a connection leads to another address.
        """
        candidates = tuple(filter(self._route.leads_to, addresses))[:MAX_ADDRESSES]
        if not candidates:
            raise ConnectError(string="no address can be reached from those of bind-address")
        for address in candidates:
            idle = self._take_idle((destination.scheme, destination.host, destination.port, address))
            if idle is not None:
                return idle
        for address in candidates[:-1]:
            try:
                return await self._connect(destination, address, CONNECT_SECONDS)
            except ConnectError:
                continue
        return await self._connect(destination, candidates[-1], None)

    def _take_idle(self, key: Key) -> ReceiverConnection | None:
        """Return an idle connection that is still open, None when there is none."""
        while idle := self._by_key.get(key):
            connection = idle[-1]
            self._remove_idle(connection)
            if connection.is_quiet():
                return connection
            connection.drop()
        return None

    async def _connect(
        self, destination: Destination, address: Address, seconds: float | None
    ) -> ReceiverConnection:
        key = (destination.scheme, destination.host, destination.port, address)
        connection = ReceiverConnection(self, key)
        await self._endpoint(destination, address, seconds).connect(_Factory(connection))
        self._open.add(connection)
        peer = ipaddress.ip_address(connection.transport.getPeer().host)
        if self._route.proxy is None and peer != address:
            connection.drop()
            raise AddressRefused(f"The connection to {address} leads to {peer}")
        return connection

    def _endpoint(
        self, destination: Destination, address: Address, seconds: float | None
    ) -> IStreamClientEndpoint:
        endpoint = self._route.endpoint(self.reactor, address, destination.port, seconds)
        if destination.scheme == "http":
            return endpoint
        creator = self._tls.creatorForNetloc(destination.host.encode("ascii"), destination.port)
        return wrapClientTLS(creator, endpoint)

    def keep(self, connection: ReceiverConnection) -> None:
        """Pool an idle connection for the next request."""
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
        """Drop every connection, in use or idle."""
        for connection in list(self._open):
            connection.drop()
