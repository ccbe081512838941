"""TLS to receivers: the name and the certificate are checked (docs/reference/webhooks.md, Addresses)."""

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
    """Make an authority for the module."""
    return Authority.create()


async def test_the_name_is_checked_while_the_address_is_pinned(world: World, authority: Authority) -> None:
    """SNI and Host carry the name, the certificate is for the name, and the connection is used again."""
    receiver = Receiver()
    asked: list[str] = []

    def answer(request: Received) -> None:
        transport: Any = request.connection.transport
        asked.append(transport.getHandle().get_servername().decode())
        request.connection.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    receiver.answer = answer
    port = world.listen(receiver, tls=authority.issue(x509.DNSName(NAME)))
    sender = world.sender(tls=authority.trusted)
    for _ in range(2):
        outcome = await sender.send(attempt(port, scheme="https"))
        assert (outcome.success, outcome.error) == (True, None)
    assert asked == [NAME, NAME]
    assert receiver.received[0].headers["host"] == f"{NAME}:{port}"
    assert len(receiver.connections) == 1


async def test_a_close_that_came_on_a_kept_connection_is_seen_before_it_is_used(
    world: World, authority: Authority
) -> None:
    """Although the reactor had no turn since: the attempt goes out once, on a new connection."""
    receiver = Receiver()
    port = world.listen(receiver, tls=authority.issue(x509.DNSName(NAME)))
    sender = world.sender(tls=authority.trusted)
    assert (await sender.send(attempt(port, scheme="https"))).success
    transport: Any = receiver.connections[0].transport
    transport.transport.getHandle().shutdown(socket.SHUT_WR)
    assert (await sender.send(attempt(port, scheme="https"))).success
    assert [request.connection for request in receiver.received] == receiver.connections
    assert len(receiver.connections) == 2


async def test_a_certificate_for_another_name_fails_with_tls(world: World, authority: Authority) -> None:
    await refused(world, authority, authority.issue(x509.DNSName("other.example.com")))


async def test_an_expired_certificate_fails_with_tls(world: World, authority: Authority) -> None:
    await refused(world, authority, authority.issue(x509.DNSName(NAME), until=NOW - DAY))


async def test_a_certificate_that_signs_itself_fails_with_tls(world: World, authority: Authority) -> None:
    await refused(world, authority, Authority.create(x509.DNSName(NAME)).served)


async def test_a_certificate_of_an_unknown_authority_fails_with_tls(
    world: World, authority: Authority
) -> None:
    await refused(world, authority, Authority.create().issue(x509.DNSName(NAME)))


async def test_the_systems_authorities_are_used_unless_configured_otherwise(
    world: World, authority: Authority
) -> None:
    receiver = Receiver()
    port = world.listen(receiver, tls=authority.issue(x509.DNSName(NAME)))
    assert (await world.sender().send(attempt(port, scheme="https"))).error is AttemptError.TLS
    assert receiver.received == []


async def test_a_receiver_that_does_not_speak_tls_fails_with_tls(world: World, authority: Authority) -> None:
    receiver = Receiver(greeting=b"220 mail.example.com ESMTP\r\n")
    port = world.listen(receiver)
    outcome = await world.sender(tls=authority.trusted).send(attempt(port, scheme="https"))
    assert outcome.error is AttemptError.TLS
    assert receiver.received == []


async def test_a_receiver_that_does_not_end_its_connection_is_cut_off(
    reactor: Any, world: World, authority: Authority
) -> None:
    """It said that it would close; closing over TLS waits for it, but not for ever."""
    receiver, clock = Receiver(), Clock()

    def answer(request: Received) -> None:
        request.connection.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        transport: Any = request.connection.transport
        transport.pauseProducing()

    receiver.answer = answer
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


async def refused(world: World, authority: Authority, options: Any) -> None:
    """Deliver to a receiver with this certificate, and see that it learns nothing of the event."""
    receiver = Receiver()
    port = world.listen(receiver, tls=options)
    outcome = await world.sender(Names(["127.0.0.1"]), tls=authority.trusted).send(
        attempt(port, scheme="https")
    )
    assert (outcome.error, outcome.response_code, outcome.response_body) == (AttemptError.TLS, 0, None)
    assert receiver.received == []
    await receiver.connections[0].lost


async def test_tls_is_spoken_with_the_receiver_within_the_tunnel(world: World, reactor: Any) -> None:
    """And its certificate is checked for the name in the URL."""
    authority, receiver, proxy = Authority.create(), Receiver(), ConnectProxy(reactor)
    port = world.listen(receiver, tls=authority.issue(x509.DNSName(NAME)))
    other = world.listen(Receiver(), tls=authority.issue(x509.DNSName("other.example.com")))
    sender = world.sender(tls=authority.trusted, route=proxy.listen(world))
    assert (await sender.send(attempt(port, scheme="https"))).success
    refused = await sender.send(attempt(other, scheme="https"))
    assert refused.error is AttemptError.TLS
