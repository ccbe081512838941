"""A TCP proxy for PostgreSQL that can freeze: it accepts bytes without forwarding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone

if TYPE_CHECKING:
    from support.postgres import Database
    from twisted.python.failure import Failure


class _Pipe(Protocol):
    """One side of a connection; forwards received data to the other side."""

    transport: Any

    def __init__(self, proxy: FreezingProxy, other: _Pipe | None = None) -> None:
        self.frozen = False
        self.other = other
        self._proxy = proxy
        self._early = b""

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        self._proxy.pipes.append(self)
        if self.other is None:
            self.frozen = self._proxy.freezes_new
            other = self.other = _Pipe(self._proxy, self)
            other.frozen = self.frozen
            self._proxy.endpoint.connect(Factory.forProtocol(lambda: other))
        elif self.other._early:
            self.transport.write(self.other._early)

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        if self.frozen:
            return
        assert self.other is not None
        if self.other.transport is None:
            self._early += data
        else:
            self.other.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        self._proxy.pipes.remove(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.loseConnection()


class FreezingProxy:
    """A TCP proxy between the daemon and PostgreSQL.

    :ivar uri: connection URI through the proxy.
    :ivar freezes_new: whether new connections are frozen.
    """

    def __init__(self, reactor: Any, database: Database) -> None:
        parts = urlsplit(database.direct_uri)
        assert parts.hostname is not None
        self.endpoint = TCP4ClientEndpoint(reactor, parts.hostname, parts.port or 5432)
        self.pipes: list[_Pipe] = []
        self.freezes_new = False
        self._port = reactor.listenTCP(0, Factory.forProtocol(lambda: _Pipe(self)), interface="127.0.0.1")
        port = self._port.getHost().port
        self.uri = (
            f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?sslmode=disable&connect_timeout=3"
        )

    def freeze(self, *, new: bool = False) -> None:
        """Freeze the current connections, and optionally new connections."""
        self.freezes_new = new
        for pipe in self.pipes:
            pipe.frozen = True

    def thaw(self) -> None:
        """Serve new connections. Frozen connections have lost data and stay frozen."""
        self.freezes_new = False

    async def stop(self) -> None:
        await self._port.stopListening()
        for pipe in list(self.pipes):
            pipe.transport.abortConnection()
