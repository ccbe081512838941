"""Connections to receivers through an HTTP proxy, with ``CONNECT`` to a checked address."""

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

_CONNECT_SECONDS = 30.0
_MAX_HEAD = 16_384
_GRANTED = re.compile(rb"HTTP/1\.[01] 2[0-9][0-9](?: |\r\n|$)")


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. The credentials are the value of ``Proxy-Authorization``, or ""."""

    host: str
    port: int
    credentials: str = field(default="", repr=False)


def parse_proxy(url: str) -> Proxy:
    """Parse a URL such as ``http://user:password@host:port``. Raises ``ValueError``."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("expected the URL of an HTTP proxy, such as http://proxy.example.org:3128")
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        credentials = "Basic " + base64.b64encode(pair).decode("ascii")
    return Proxy(parts.hostname, parts.port or PORT, credentials)


@implementer(IStreamClientEndpoint)
class TunnelEndpoint:
    """Connects to an address through a proxy.

    :param authority: address and port, as in ``CONNECT``.
    :param timeout: seconds to establish the tunnel, or None.
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
            await endpoint.connect(_SingleProtocolFactory(handshake))
        except DNSLookupError as error:
            raise ConnectError(string=f"the proxy {self._proxy.host} has no address") from error
        if self._timeout is not None:
            handshake.done.addTimeout(self._timeout, self._reactor, _raise_timeout)
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


class _SingleProtocolFactory(Factory):
    noisy = False

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol

    def buildProtocol(self, addr: object) -> Protocol:  # noqa: ARG002, N802 - twisted's names
        return self._protocol


class _Handshake(Protocol):
    """Establishes a tunnel and hands it over to another protocol."""

    transport: Any

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._head = b""
        self.done: Deferred[None] = Deferred()

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        self.transport.write(self._request)

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end and len(head) <= _MAX_HEAD:
            return
        # Receivers do not send anything before the request.
        if _GRANTED.match(head) and end and not rest:
            self._fire(None)
        else:
            status_line = head.partition(b"\r\n")[0][:80].decode("ascii", "replace")
            self._fire(ConnectError(string=f"the proxy refused the tunnel: {status_line}"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's names
        self._fire(ConnectError(string="the proxy closed the connection"))

    def _fire(self, error: Exception | None) -> None:
        if not self.done.called:
            self.done.callback(None) if error is None else self.done.errback(error)

    def abort(self) -> None:
        self.transport.abortConnection()

    def hand_over(self, factory: IProtocolFactory) -> IProtocol:
        protocol = factory.buildProtocol(self.transport.getPeer())
        assert protocol is not None
        self.transport.protocol = protocol
        protocol.makeConnection(self.transport)
        return protocol


def _raise_timeout(_outcome: object, seconds: float) -> None:
    raise ConnectError(string=f"the proxy did not establish a tunnel within {seconds:g} seconds")
