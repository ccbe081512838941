"""An HTTP proxy that opens tunnels with CONNECT, or refuses to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataapi.webhooks.delivery.http_client import OutgoingRoute
from dataapi.webhooks.delivery.proxy import parse_proxy
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.portforward import ProxyClient, ProxyClientFactory

if TYPE_CHECKING:
    from support.receiver import World


class Tunnel(Protocol):
    """A connection to the proxy: handles CONNECT, then forwards bytes in both directions."""

    transport: Any
    peer: Any = None

    def __init__(self, proxy: ConnectProxy) -> None:
        self._proxy = proxy
        self._data = b""

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Connect to the requested address, then forward data."""
        if self.peer is not None:
            self.peer.transport.write(data)
            return
        self._data += data
        if not self._data.endswith(b"\r\n\r\n"):
            return
        line, *lines = self._data.decode().split("\r\n")
        self._proxy.requests.append(line)
        self._proxy.headers.append(dict(one.split(": ") for one in lines if one))
        if self._proxy.answer is not None:
            self.transport.write(self._proxy.answer)
            return
        host, _, port = line.split(" ")[1].rpartition(":")
        self.transport.pauseProducing()
        client = ProxyClientFactory()
        client.protocol = ProxyClient
        client.setServer(self)
        self._proxy.reactor.connectTCP(host.strip("[]"), int(port), client)
        self.transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    def setPeer(self, peer: Any) -> None:  # noqa: N802 - twisted's name
        self.peer = peer


@dataclass
class ConnectProxy:
    """A proxy on the loopback interface.

    :ivar answer: bytes to send instead of opening a tunnel.
    """

    reactor: Any
    answer: bytes | None = None
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def factory(self) -> Factory:
        return Factory.forProtocol(lambda: Tunnel(self))

    def listen(self, world: World) -> OutgoingRoute:
        listened: Any = self
        return OutgoingRoute(parse_proxy(f"http://bob:p%40ss@127.0.0.1:{world.listen(listened)}"))
