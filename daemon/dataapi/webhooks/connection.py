"""Connections to receivers: opened to checked addresses only, bounded in what they take, used again."""

from __future__ import annotations

import ipaddress
import select
from typing import TYPE_CHECKING, Any, TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import ISSLTransport
from twisted.internet.protocol import Factory, connectionDone

# Twisted's pool keeps every key for ever and does not check what it kept for a close, so its public names do
# not serve.
from twisted.web._newclient import HTTP11ClientProtocol, Request

from dataapi.webhooks.resolver import AddressRefused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
    from twisted.python.failure import Failure
    from twisted.web.iweb import IPolicyForHTTPS, IResponse

    from dataapi.webhooks.addresses import Address
    from dataapi.webhooks.urls import Target

HEAD_LIMIT = 65_536
"""Bytes of status line and headers, of all 1xx answers too, that a receiver may send for one request."""

ADDRESSES_TRIED = 4
CONNECT_SHARE = 5.0
"""Seconds for one address while there is another to try."""

IDLE_SECONDS = 15.0
GRACE = 2.0
"""Seconds that a receiver has to close a connection that is done with."""

Key: TypeAlias = "tuple[str, str, int, Address]"


class Connection(HTTP11ClientProtocol):
    """One connection to a receiver."""

    def __init__(self, pool: Connections, key: Key) -> None:
        super().__init__(pool.keep)
        self.key = key
        self._pool = pool
        self._head: int | None = None
        self._timer: IDelayedCall | None = None

    def request(self, request: Request) -> Deferred[IResponse]:
        """Send a request; the answer's head is counted until it is whole."""
        self._head = 0
        answer: Deferred[IResponse] = super().request(request)
        return answer.addCallback(self._head_ended)

    def _head_ended(self, response: IResponse) -> IResponse:
        self._head = None
        return response

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Take what came, unless nothing was asked for or it is too much."""
        if self.state == "QUIESCENT":
            self.drop()
            return
        super().dataReceived(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > HEAD_LIMIT:
                self.drop()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - twisted's name
        """Leave the pool."""
        self.rest(None)
        self._pool.forget(self)
        super().connectionLost(reason)

    def rest(self, timer: IDelayedCall | None) -> None:
        """Put another timer, or none, in place of the one that ends this connection."""
        before, self._timer = self._timer, timer
        if before is not None and before.active():
            before.cancel()

    def is_quiet(self) -> bool:
        """Tell whether an idle connection may be used: nothing came that the reactor has yet to see.

        The receiver may have closed it; or what came was not asked for, as a reply or an alert of TLS.
        """
        transport: Any = self.transport
        # TLS is a protocol over the transport that has the socket.
        secure = ISSLTransport.providedBy(transport)
        carrier = transport.transport if secure else transport
        came = select.poll()
        came.register(carrier.fileno(), select.POLLIN)
        return not came.poll(0)

    def drop(self) -> None:
        """Close at once, whatever is still to be sent or received."""
        transport: Any = self.transport
        transport.abortConnection()

    def finish(self, *, complete: bool) -> None:
        """End the current request; a connection that may not be used again is closed.

        :param complete: whether the answer came whole, so that the receiver may be the one who closes.
        """
        if not complete:
            self.drop()
        elif self._timer is None and self.state != "CONNECTION_LOST":
            # Not kept, so it is being closed; over TLS that waits for the receiver.
            self.rest(self._pool.later(GRACE, self))


class _Factory(Factory):
    """Makes the protocol of one connection."""

    noisy = False

    def __init__(self, pool: Connections, key: Key) -> None:
        self._pool = pool
        self._key = key

    def buildProtocol(self, addr: object) -> Connection:  # noqa: ARG002, N802 - twisted's names
        """Make it."""
        return Connection(self._pool, self._key)


class Connections:
    """Opens connections and keeps those that are idle, by scheme, host, port and address.

    :param reactor: connects and keeps time.
    :param tls: checks certificates.
    :param most_idle: how many are kept idle; those idle for longest are closed first.
    """

    def __init__(self, reactor: Any, tls: IPolicyForHTTPS, most_idle: int = 256) -> None:
        self._reactor = reactor
        self._tls = tls
        self._most_idle = most_idle
        self._open: set[Connection] = set()
        # In the order in which they became idle.
        self._idle: dict[Connection, None] = {}
        self._by_key: dict[Key, list[Connection]] = {}

    async def get(self, target: Target, addresses: Iterable[Address]) -> Connection:
        """Return a connection to one of the addresses, which were all checked.

        Raises ``ConnectError`` when none can be connected to, ``AddressRefused`` when a connection leads
        elsewhere.
        """
        tried = tuple(addresses)[:ADDRESSES_TRIED]
        for address in tried:
            kept = self._kept((target.scheme, target.host, target.port, address))
            if kept is not None:
                return kept
        for address in tried[:-1]:
            try:
                return await self._connect(target, address, CONNECT_SHARE)
            except ConnectError:
                continue
        return await self._connect(target, tried[-1], None)

    def _kept(self, key: Key) -> Connection | None:
        """Return an idle connection that is still open, None when there is none."""
        while idle := self._by_key.get(key):
            connection = idle[-1]
            self._take(connection)
            if connection.is_quiet():
                return connection
            connection.drop()
        return None

    async def _connect(self, target: Target, address: Address, seconds: float | None) -> Connection:
        key = (target.scheme, target.host, target.port, address)
        endpoint = self._endpoint(target, address, seconds)
        connection: Connection = await endpoint.connect(_Factory(self, key))  # type: ignore[assignment]
        self._open.add(connection)
        transport: Any = connection.transport
        peer = ipaddress.ip_address(transport.getPeer().host)
        if peer != address:
            connection.drop()
            raise AddressRefused(f"The connection to {address} leads to {peer}")
        return connection

    def _endpoint(self, target: Target, address: Address, seconds: float | None) -> IStreamClientEndpoint:
        kind: Any = TCP4ClientEndpoint if address.version == 4 else TCP6ClientEndpoint
        # The attempt's own deadline is the limit where no other is given.
        endpoint: IStreamClientEndpoint = kind(self._reactor, str(address), target.port, timeout=seconds)
        if target.scheme == "http":
            return endpoint
        creator = self._tls.creatorForNetloc(target.host.encode("ascii"), target.port)
        return wrapClientTLS(creator, endpoint)

    def keep(self, connection: Connection) -> None:
        """Keep an idle connection for the next request."""
        self._idle[connection] = None
        self._by_key.setdefault(connection.key, []).append(connection)
        connection.rest(self.later(IDLE_SECONDS, connection))
        if len(self._idle) > self._most_idle:
            oldest = next(iter(self._idle))
            self._take(oldest)
            oldest.drop()

    def later(self, seconds: float, connection: Connection) -> IDelayedCall:
        """Drop the connection after so many seconds."""
        timer: IDelayedCall = self._reactor.callLater(seconds, connection.drop)
        return timer

    def forget(self, connection: Connection) -> None:
        """Know nothing more of a connection that was lost."""
        self._open.discard(connection)
        self._take(connection)

    def _take(self, connection: Connection) -> None:
        """Make the connection idle no more."""
        connection.rest(None)
        if connection in self._idle:
            del self._idle[connection]
            kept = self._by_key[connection.key]
            kept.remove(connection)
            if not kept:
                del self._by_key[connection.key]

    def close(self) -> None:
        """Drop every connection, in use or idle."""
        for connection in list(self._open):
            connection.drop()
