"""Host names and certificates of receivers are checked (docs/reference/webhooks.md, Addresses)."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from cryptography import x509
from dataapi.webhooks.delivery.attempt import AttemptSender
from dataapi.webhooks.delivery.destinations import networks
from dataapi.webhooks.delivery.resolver import AddressCheck
from dataapi.webhooks.model import AttemptError
from support.certificates import DAY, NOW, Authority
from support.connect_proxy import ConnectProxy
from support.receiver import NAME, Names, Received, Receiver, Timed, World, attempt, pause
from twisted.internet.task import Clock


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create()


async def test_certificate_is_checked_for_the_name_not_the_address(
    world: World, authority: Authority
) -> None:
    """SNI and ``Host`` contain the receiver's name."""
    receiver = Receiver()
    server_names: list[str] = []

    def response(request: Received) -> None:
        transport: Any = request.connection.transport
        server_names.append(transport.getHandle().get_servername().decode())
        request.connection.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    receiver.answer = response
    port = world.listen(receiver, tls=authority.issue(x509.DNSName(NAME)))
    sender = world.sender(tls=authority.trusted)
    for _ in range(2):
        outcome = await sender.send(attempt(port, scheme="https"))
        assert (outcome.success, outcome.error) == (True, None)
    assert server_names == [NAME, NAME]
    assert receiver.received[0].headers["host"] == f"{NAME}:{port}"
    assert len(receiver.connections) == 1


async def test_closed_idle_connection_is_detected_before_use(world: World, authority: Authority) -> None:
    """The reactor has not yet processed the closed connection, but the attempt uses a new connection."""
    receiver = Receiver()
    port = world.listen(receiver, tls=authority.issue(x509.DNSName(NAME)))
    sender = world.sender(tls=authority.trusted)
    assert (await sender.send(attempt(port, scheme="https"))).success
    transport: Any = receiver.connections[0].transport
    transport.transport.getHandle().shutdown(socket.SHUT_WR)
    assert (await sender.send(attempt(port, scheme="https"))).success
    assert [request.connection for request in receiver.received] == receiver.connections
    assert len(receiver.connections) == 2


async def test_certificate_for_another_name_fails_with_tls(world: World, authority: Authority) -> None:
    await check_rejected(world, authority, authority.issue(x509.DNSName("other.example.com")))


async def test_expired_certificate_fails_with_tls(world: World, authority: Authority) -> None:
    await check_rejected(world, authority, authority.issue(x509.DNSName(NAME), until=NOW - DAY))


async def test_self_signed_certificate_fails_with_tls(world: World, authority: Authority) -> None:
    await check_rejected(world, authority, Authority.create(x509.DNSName(NAME)).served)


async def test_certificate_of_an_unknown_authority_fails_with_tls(world: World, authority: Authority) -> None:
    await check_rejected(world, authority, Authority.create().issue(x509.DNSName(NAME)))


async def test_system_authorities_are_used_by_default(world: World, authority: Authority) -> None:
    receiver = Receiver()
    port = world.listen(receiver, tls=authority.issue(x509.DNSName(NAME)))
    assert (await world.sender().send(attempt(port, scheme="https"))).error is AttemptError.TLS
    assert receiver.received == []


async def test_receiver_without_tls_fails_with_tls(world: World, authority: Authority) -> None:
    receiver = Receiver(greeting=b"220 mail.example.com ESMTP\r\n")
    port = world.listen(receiver)
    outcome = await world.sender(tls=authority.trusted).send(attempt(port, scheme="https"))
    assert outcome.error is AttemptError.TLS
    assert receiver.received == []


async def test_receiver_that_does_not_close_is_disconnected(
    reactor: Any, world: World, authority: Authority
) -> None:
    """The receiver announces ``Connection: close``. TLS waits a limited time for its close."""
    receiver, clock = Receiver(), Clock()

    def response(request: Received) -> None:
        request.connection.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        transport: Any = request.connection.transport
        transport.pauseProducing()

    receiver.answer = response
    port = world.listen(receiver, tls=authority.issue(x509.DNSName(NAME)))
    address_check = AddressCheck(Names(["127.0.0.1"]), networks(["127.0.0.1"]))
    sender = AttemptSender(Timed(reactor, clock), address_check, clock.seconds, tls=authority.trusted)  # type: ignore[arg-type]
    assert (await sender.send(attempt(port, scheme="https"))).success
    before = len(reactor.getReaders())
    assert len(clock.getDelayedCalls()) == 1
    clock.advance(2)
    await pause(0.02)
    assert len(reactor.getReaders()) == before - 1
    transport: Any = receiver.connections[0].transport
    transport.resumeProducing()
    await receiver.connections[0].lost


async def check_rejected(world: World, authority: Authority, options: Any) -> None:
    """Send an attempt to a receiver with this certificate and check that the receiver gets no data."""
    receiver = Receiver()
    port = world.listen(receiver, tls=options)
    outcome = await world.sender(Names(["127.0.0.1"]), tls=authority.trusted).send(
        attempt(port, scheme="https")
    )
    assert (outcome.error, outcome.response_code, outcome.response_body) == (AttemptError.TLS, 0, None)
    assert receiver.received == []
    await receiver.connections[0].lost


async def test_tls_is_end_to_end_through_a_tunnel(world: World, reactor: Any) -> None:
    authority, receiver, proxy = Authority.create(), Receiver(), ConnectProxy(reactor)
    port = world.listen(receiver, tls=authority.issue(x509.DNSName(NAME)))
    other = world.listen(Receiver(), tls=authority.issue(x509.DNSName("other.example.com")))
    sender = world.sender(tls=authority.trusted, route=proxy.listen(world))
    assert (await sender.send(attempt(port, scheme="https"))).success
    outcome = await sender.send(attempt(other, scheme="https"))
    assert outcome.error is AttemptError.TLS
