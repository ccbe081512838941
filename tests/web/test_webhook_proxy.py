"""Deliveries through an HTTP proxy or from a chosen source address, over real sockets."""

from __future__ import annotations

import base64
import socket
from ipaddress import ip_address
from typing import Any

import pytest
from dataapi.webhooks.delivery.http_client import OutgoingRoute
from dataapi.webhooks.delivery.proxy import Proxy, parse_proxy
from dataapi.webhooks.model import AttemptError
from support.connect_proxy import ConnectProxy
from support.receiver import NAME, Names, Receiver, World, attempt


async def test_proxy_connects_to_the_checked_address(world: World, reactor: Any) -> None:
    """The proxy receives the checked address, so that it does not resolve the name again."""
    receiver, proxy = Receiver(), ConnectProxy(reactor)
    port = world.listen(receiver)
    sender = world.sender(route=proxy.listen(world))
    for _ in range(2):
        assert (await sender.send(attempt(port))).success
    assert proxy.requests == [f"CONNECT 127.0.0.1:{port} HTTP/1.1"]
    secret = base64.b64encode(b"bob:p@ss").decode()
    assert proxy.headers == [{"Host": f"127.0.0.1:{port}", "Proxy-Authorization": f"Basic {secret}"}]
    assert receiver.received[0].headers["host"] == f"{NAME}:{port}"
    assert "proxy-authorization" not in receiver.received[0].headers


async def test_forbidden_address_is_rejected_before_the_proxy_is_used(world: World, reactor: Any) -> None:
    proxy = ConnectProxy(reactor)
    sender = world.sender(Names(["10.0.0.1"]), allowed=(), route=proxy.listen(world))
    outcome = await sender.send(attempt(443))
    assert outcome.error is AttemptError.REFUSED_ADDRESS
    assert proxy.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 403 Forbidden\r\n\r\n",
        b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"x" * 20_000,
    ],
)
async def test_failed_tunnel_fails_with_connect(world: World, reactor: Any, answer: bytes) -> None:
    proxy = ConnectProxy(reactor, answer)
    sender = world.sender(route=proxy.listen(world))
    outcome = await sender.send(attempt(9))
    assert (outcome.success, outcome.error, outcome.response_code) == (False, AttemptError.CONNECT, 0)


async def test_unreachable_or_silent_proxy_fails_the_attempt(world: World, reactor: Any) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        unreachable = world.sender(route=OutgoingRoute(Proxy(*bound.getsockname())))
        assert (await unreachable.send(attempt(9))).error is AttemptError.CONNECT
    nameless = world.sender(route=OutgoingRoute(Proxy("no-such-host.invalid", 3128)))
    assert (await nameless.send(attempt(9))).error is AttemptError.CONNECT
    silent = ConnectProxy(reactor, b"")
    sender = world.sender(route=silent.listen(world), timeout=0.2)
    assert (await sender.send(attempt(9))).error is AttemptError.TIMEOUT


async def test_deliveries_use_the_configured_source_address(world: World) -> None:
    receiver = Receiver()
    port = world.listen(receiver)
    route = OutgoingRoute(bind_addresses=(ip_address("127.0.0.5"),))
    assert (await world.sender(route=route).send(attempt(port))).success
    [connection] = receiver.connections
    transport: Any = connection.transport
    assert transport.getPeer().host == "127.0.0.5"
    six = world.sender(Names(["::1"]), route=route)
    assert (await six.send(attempt(port))).error is AttemptError.CONNECT


@pytest.mark.parametrize(
    "url",
    [
        "",
        "proxy:3128",
        "https://proxy:3128",
        "http://",
        "http://proxy/path",
        "http://proxy?q",
        "socks5://proxy",
    ],
)
def test_invalid_proxy_url_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="expected the URL of an HTTP proxy"):
        parse_proxy(url)


def test_proxy_has_a_default_port_and_hides_its_password() -> None:
    proxy = parse_proxy("http://bob:secret@proxy.example.org")
    assert (proxy.host, proxy.port) == ("proxy.example.org", 3128)
    assert "Basic" not in repr(proxy)
