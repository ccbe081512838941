"""Webhook requests are sent only to checked addresses (docs/reference/webhooks.md, Addresses)."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from dataapi.http.outgoing_tls import OutgoingTls
from dataapi.webhooks.delivery.destinations import networks, parse
from dataapi.webhooks.delivery.http_client import ReceiverConnections
from dataapi.webhooks.delivery.resolver import (
    SLOW,
    AddressCheck,
    AddressRefused,
    SystemResolver,
    Unresolvable,
)
from dataapi.webhooks.model import AttemptError
from support.messages import until
from support.receiver import NAME, Names, Receiver, World, attempt
from twisted.internet.defer import CancelledError, Deferred, gatherResults


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        ["93.184.215.14", "10.0.0.1"],
        ["10.0.0.1", "93.184.215.14"],
        ["93.184.215.14", "::ffff:127.0.0.1"],
        ["2606:4700::1", "fe80::1"],
        ["2606:4700::1", "64:ff9b::7f00:1"],
        ["169.254.169.254"],
        ["::1"],
    ],
)
async def test_one_reserved_address_rejects_the_name(world: World, answer: Sequence[str]) -> None:
    receiver = Receiver()
    port = world.listen(receiver)
    outcome = await world.sender(Names(answer), allowed=()).send(attempt(port))
    assert (outcome.error, outcome.response_code) == (AttemptError.REFUSED_ADDRESS, 0)
    assert receiver.connections == []


async def test_name_without_addresses_fails_with_dns(world: World) -> None:
    assert (await world.sender(Names([])).send(attempt(80))).error is AttemptError.DNS


async def test_name_changed_after_the_check_is_rejected(world: World) -> None:
    public, inside = Receiver(), Receiver()
    port = world.listen(public, "127.0.0.1")
    world.listen_at(inside, "127.0.0.2", port)
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    sender = world.sender(names, allowed=["127.0.0.1/32"])
    assert (await sender.send(attempt(port))).success
    assert names.lookups == [NAME]
    # The second attempt resolves the name again, although there is an idle connection to the first address.
    assert (await sender.send(attempt(port))).error is AttemptError.REFUSED_ADDRESS
    assert (len(public.received), len(inside.connections)) == (1, 0)


async def test_idle_connection_is_not_used_after_the_address_changes(world: World) -> None:
    old, new = Receiver(), Receiver()
    port = world.listen(old, "127.0.0.1")
    world.listen_at(new, "127.0.0.2", port)
    sender = world.sender(Names(["127.0.0.1"], ["127.0.0.2"]))
    for _ in range(2):
        assert (await sender.send(attempt(port))).success
    assert (len(old.received), len(new.received)) == (1, 1)


async def test_next_address_is_tried_after_a_failed_connection(world: World) -> None:
    receiver = Receiver()
    port = world.listen(receiver)
    assert (await world.sender(Names(["127.0.0.9", "127.0.0.1"])).send(attempt(port))).success


async def test_delivery_works_over_ipv6(world: World) -> None:
    receiver = Receiver()
    port = world.listen(receiver, "::1")
    assert (await world.sender(Names(["::1"])).send(attempt(port))).success
    assert receiver.received[0].headers["host"] == f"{NAME}:{port}"


async def test_url_can_contain_an_allowed_address(world: World) -> None:
    receiver = Receiver()
    port = world.listen(receiver)
    url = f"http://127.0.0.1:{port}/"
    assert (await world.sender().send(attempt(port, url=url))).success
    assert receiver.received[0].headers["host"] == f"127.0.0.1:{port}"
    refused = await world.sender(allowed=["10.0.0.0/8"]).send(attempt(port, url=url))
    assert refused.error is AttemptError.REFUSED_ADDRESS
    assert len(receiver.received) == 1


async def test_connection_to_an_unexpected_address_is_dropped(reactor: Any, world: World) -> None:
    receiver = Receiver()
    port = world.listen(receiver)

    class Diverted:
        """A reactor that connects to a different address."""

        def connectTCP(self, host: str, *arguments: Any, **named: Any) -> Any:  # noqa: N802 - twisted's name
            assert host == "93.184.215.14"
            return reactor.connectTCP("127.0.0.1", *arguments, **named)

    connections = ReceiverConnections(Diverted(), OutgoingTls())
    with pytest.raises(AddressRefused):
        await connections.get(parse(f"http://{NAME}:{port}/"), [ipaddress.ip_address("93.184.215.14")])
    assert receiver.received == []


async def test_address_check_reports_forbidden_endpoints() -> None:
    target = parse("https://hooks.example.com/")
    with pytest.raises(Unresolvable):
        await AddressCheck(Names([])).addresses(target)
    with pytest.raises(AddressRefused):
        await AddressCheck(Names(["93.184.215.14", "192.168.0.1"])).addresses(target)
    allowing = AddressCheck(Names(["93.184.215.14", "192.168.0.1"]), networks(["192.168.0.0/24"]))
    assert [str(address) for address in await allowing.addresses(target)] == ["93.184.215.14", "192.168.0.1"]


async def test_overlapping_lookups_of_a_name_share_one_thread(reactor: Any) -> None:
    names: list[tuple[str, bool]] = []
    ready = threading.Event()
    address = ipaddress.ip_address("93.184.215.14")

    def look_up(name: str) -> Sequence[Any]:
        names.append((name, threading.current_thread() is threading.main_thread()))
        ready.wait()
        if name == "missing.example.com":
            raise OSError("no such name")
        return [address]

    resolver = SystemResolver(reactor, look_up, threads=2)
    lookups = [Deferred.fromCoroutine(resolver.addresses(NAME)) for _ in range(3)]
    missing = Deferred.fromCoroutine(resolver.addresses("missing.example.com"))
    lookups[0].addErrback(lambda failure: failure.trap(Exception) and None).cancel()
    ready.set()
    assert await gatherResults(lookups) == [None, [address], [address]]
    with pytest.raises(OSError, match="no such name"):
        await missing
    assert sorted(names) == [(NAME, False), ("missing.example.com", False)]
    resolver.stop()


class NameServers:
    """Fake name servers with a simulated clock. The test can block lookups.

    :ivar lookups: names in the order of their lookups.
    """

    def __init__(self) -> None:
        self.lookups: list[str] = []
        self.now = 0.0
        self._silent: dict[str, threading.Event] = {}

    def silence(self, name: str) -> None:
        """Block lookups of a name."""
        self._silent[name] = threading.Event()

    def speak(self, seconds: float) -> None:
        """Advance the clock, then complete all blocked lookups."""
        self.now += seconds
        for event in self._silent.values():
            event.set()

    def look_up(self, name: str) -> Sequence[Any]:
        self.lookups.append(name)
        if name in self._silent:
            self._silent[name].wait()
        return [ipaddress.ip_address("93.184.216.34")]


async def test_slow_names_do_not_block_other_lookups(reactor: Any) -> None:
    servers = NameServers()
    resolver = SystemResolver(reactor, servers.look_up, threads=4, seconds=lambda: servers.now)
    slow = [f"slow{number}.example.com" for number in range(4)]
    for name in slow:
        servers.silence(name)
    first = [Deferred.fromCoroutine(resolver.addresses(name)) for name in slow]
    await until(reactor, lambda: len(servers.lookups) == 4)
    servers.speak(SLOW)
    await gatherResults(first)
    for name in slow:
        servers.silence(name)
    again = [Deferred.fromCoroutine(resolver.addresses(name)) for name in slow]
    await until(reactor, lambda: len(servers.lookups) == 5)
    for number in range(8):
        await resolver.addresses(f"quick{number}.example.com")
    assert not any(one.called for one in again)
    servers.speak(0.0)
    await gatherResults(again)
    assert sorted(servers.lookups[4:]) == sorted(slow + [f"quick{number}.example.com" for number in range(8)])
    resolver.stop()


async def test_canceled_lookup_is_not_started(reactor: Any) -> None:
    servers = NameServers()
    servers.silence("silent.example.com")
    resolver = SystemResolver(reactor, servers.look_up, threads=1)
    silent = Deferred.fromCoroutine(resolver.addresses("silent.example.com"))
    await until(reactor, lambda: servers.lookups == ["silent.example.com"])
    names = [f"{number}.example.com" for number in range(10)]
    canceled = [Deferred.fromCoroutine(resolver.addresses(name)) for name in names]
    for one in canceled:
        one.addErrback(lambda failure: failure.trap(CancelledError) and None).cancel()
    repeated = Deferred.fromCoroutine(resolver.addresses(names[3]))
    servers.speak(0.0)
    assert len(await repeated) == len(await silent) == 1
    assert len(await resolver.addresses("last.example.com")) == 1
    assert servers.lookups == ["silent.example.com", names[3], "last.example.com"]
    resolver.stop()


async def test_unexpected_lookup_error_does_not_block_later_lookups(
    reactor: Any,
) -> None:
    address = ipaddress.ip_address("93.184.216.34")
    responses: list[Any] = [RuntimeError("the system's own fault"), [address]]

    def look_up(_name: str) -> Any:
        response = responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    resolver = SystemResolver(reactor, look_up, threads=1)
    with pytest.raises(RuntimeError, match="own fault"):
        await resolver.addresses(NAME)
    assert await resolver.addresses(NAME) == [address]
    resolver.stop()


async def test_system_resolver_resolves_localhost(reactor: Any) -> None:
    resolver = SystemResolver(reactor)
    assert ipaddress.ip_address("127.0.0.1") in await resolver.addresses("localhost")
    resolver.stop()
