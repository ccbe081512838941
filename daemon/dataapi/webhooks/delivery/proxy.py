"""Connections to receivers through an HTTP proxy, which tunnels to a checked address (RFC 9110, CONNECT)."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

PORT = 3128
"""The port of a proxy whose URL has none."""

_CONNECT_SECONDS = 30.0
_MAX_HEAD = 16_384
_GRANTED = re.compile(rb"HTTP/1\.[01] 2[0-9][0-9](?: |\r\n|$)")


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy.

    :ivar credentials: the value of ``Proxy-Authorization``, "" without one.
    """

    host: str
    port: int
    credentials: str = field(default="", repr=False)


def parse_proxy(url: str) -> Proxy:
    """Parse ``http://user:password@host:port``; ``ValueError`` for anything else."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("expected the address of an HTTP proxy, such as http://proxy.example.org:3128")
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        credentials = "Basic " + base64.b64encode(pair).decode("ascii")
    return Proxy(parts.hostname, parts.port or PORT, credentials)


@implementer(IStreamClientEndpoint)
class TunnelEndpoint:
    """Connects to an address through a proxy.

    :param authority: the address and port, as ``CONNECT`` names them.
    :param timeout: seconds until the tunnel is there; None for no limit.
    :param bind_address: the address that the connection to the proxy comes from.
    """

    def __init__(
        self,
        reactor: Any,
        proxy: Proxy,
        authority: str,
        timeout: float | None = None,
        bind_address: str | None = None,
    ) -> None:
        self._reactor = reactor
        self._proxy = proxy
        self._authority = authority
        self._timeout = timeout
        self._bind_address = bind_address

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:  # noqa: N803 - twisted's name
        """Return the factory's protocol, connected to the address; ``ConnectError`` if the proxy refuses."""
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        endpoint = HostnameEndpoint(
            self._reactor,
            self._proxy.host,
            self._proxy.port,
            timeout=_CONNECT_SECONDS if self._timeout is None else self._timeout,
            bindAddress=None if self._bind_address is None else (self._bind_address, 0),
        )
        handshake = _Handshake(self._request())
        try:
            await endpoint.connect(_Once(handshake))
        except DNSLookupError as error:
            raise ConnectError(string=f"the proxy {self._proxy.host} has no address") from error
        if self._timeout is not None:
            handshake.done.addTimeout(self._timeout, self._reactor, _too_late)
        try:
            await handshake.done
        except BaseException:
            handshake.abort()
            raise
        return handshake.hand_over(factory)

    def _request(self) -> bytes:
        lines = [f"CONNECT {self._authority} HTTP/1.1", f"Host: {self._authority}"]
        if self._proxy.credentials:
            lines.append(f"Proxy-Authorization: {self._proxy.credentials}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")


class _Once(Factory):
    """Makes one protocol."""

    noisy = False

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol

    def buildProtocol(self, addr: object) -> Protocol:  # noqa: ARG002, N802 - twisted's names
        return self._protocol


class _Handshake(Protocol):
    """Asks a proxy for a tunnel, and hands it over to the protocol that it is for.

    :ivar done: fires when the tunnel is there.
    """

    transport: Any

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._head = b""
        self.done: Deferred[None] = Deferred()

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        self.transport.write(self._request)

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Read the head of the response; after a tunnel is granted, the receiver waits for its client."""
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end and len(head) <= _MAX_HEAD:
            return
        if _GRANTED.match(head) and end and not rest:
            self._fire(None)
        else:
            answer = head.partition(b"\r\n")[0][:80].decode("ascii", "replace")
            self._fire(ConnectError(string=f"the proxy does not make a tunnel: {answer}"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's names
        self._fire(ConnectError(string="the proxy closed the connection"))

    def _fire(self, error: Exception | None) -> None:
        if not self.done.called:
            self.done.callback(None) if error is None else self.done.errback(error)

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abortConnection()

    def hand_over(self, factory: IProtocolFactory) -> IProtocol:
        """Connect the protocol of a factory in place of this one."""
        protocol = factory.buildProtocol(self.transport.getPeer())
        assert protocol is not None
        self.transport.protocol = protocol
        protocol.makeConnection(self.transport)
        return protocol


def _too_late(_outcome: object, seconds: float) -> None:
    raise ConnectError(string=f"the proxy made no tunnel within {seconds:g} seconds")
