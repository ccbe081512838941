"""Deliveries from a real queue to real receivers."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.settings import Webhooks
from dataapi.webhooks.model import Accepted, EndpointChange, NewEvent, Recovery, Scope, Status, Trigger
from standardwebhooks import Webhook
from support.clocks import FOR_EVER
from support.deliveries import QUICK, Deliveries, event_of, records
from support.messages import until
from support.receiver import Received, Receiver, World, pause
from support.webhooks import ACME, PAUSED, PROJECT, SECRET, add_endpoint, publish
from twisted.internet import threads

if TYPE_CHECKING:
    from dataapi.webhooks.model import Delivery
    from dataapi.webhooks.store import Store
    from support.postgres import Server

JOINED = "v1.organization.member.added"
LEFT = "v1.organization.member.removed"
BAD = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
GOOD = b"HTTP/1.1 204 No Content\r\n\r\n"


def url(world: World, receiver: Receiver) -> str:
    """Let a receiver listen, and return its URL."""
    return f"http://127.0.0.1:{world.listen(receiver)}/hook"


async def settled(store: Store) -> list[Delivery]:
    """Wait until nothing is left to be done; return the records, oldest first."""
    while await store.queue.next_due() is not None:
        await pause()
    return await records(store)


async def test_an_event_is_delivered_signed_and_recorded(deliveries: Deliveries, world: World) -> None:
    """A 2xx response makes the delivery successful, with no further attempts."""
    store = await deliveries.store()
    receiver = Receiver()
    await add_endpoint(store, url=url(world, receiver), custom_headers={"X-Tenant": "7"})
    await deliveries.dispatcher(store)
    await publish(store, reason="inactivity")
    [record] = await settled(store)
    [request] = receiver.received
    Webhook(SECRET).verify(request.body, request.headers)
    assert event_of(request)["payload"]["reason"] == "inactivity"
    assert request.headers["x-tenant"] == "7"
    assert (record.status, record.response_code, record.attempt_number) == (Status.SUCCESS, 200, 1)
    assert (record.response_body, record.error, record.next_attempt_at) == ("ok", None, None)
    assert str(record.event_id) == request.headers["webhook-id"] == event_of(request)["id"]


async def test_failures_are_retried_on_schedule_and_then_end(deliveries: Deliveries, world: World) -> None:
    """In real time, with shortened waits, five attempts of the same id and bytes."""
    store = await deliveries.store()
    arrived = []

    def answer(request: Received) -> None:
        arrived.append(time.monotonic())
        request.connection.write(BAD)

    receiver = Receiver(answer)
    await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store)
    await publish(store)
    made = await settled(store)
    gaps = [after - before for before, after in itertools.pairwise(arrived)]
    assert len(arrived) == 5
    assert all(wait <= gap for wait, gap in zip(QUICK.retry_waits, gaps, strict=True)), gaps
    assert len({request.headers["webhook-id"] for request in receiver.received}) == 1
    assert len({request.body for request in receiver.received}) == 1
    assert [record.attempt_number for record in made] == [1, 2, 3, 4, 5]
    assert {(record.status, record.response_code, record.response_body) for record in made} == {
        (Status.FAILED, 503, "busy")
    }
    assert [record.next_attempt_at is None for record in made] == [False] * 4 + [True]


async def test_every_post_is_a_recorded_attempt(deliveries: Deliveries, world: World) -> None:
    """Who closes kept connections as requests arrive sees five of them at most."""
    store = await deliveries.store()
    carried: Counter[Any] = Counter()

    def answer(request: Received) -> None:
        carried[request.connection] += 1
        if carried[request.connection] == 1:
            request.connection.write(BAD)
        else:
            transport: Any = request.connection.transport
            transport.loseConnection()

    receiver = Receiver(answer)
    await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store)
    await publish(store)
    made = await settled(store)
    assert len(receiver.received) == len(made) == 5
    refused, closed = (503, None), (0, "connect")
    found = [(one.response_code, one.error) for one in made]
    assert found == [refused, closed, refused, closed, refused]


async def test_a_retry_uses_the_endpoints_url_and_secret_of_now(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
    """A new url and secret count for pending retries."""
    store = await deliveries.store()
    old, new = Receiver(), Receiver()
    old.sends(BAD)
    endpoint = await add_endpoint(store, url=url(world, old))
    await deliveries.dispatcher(store)
    await publish(store)
    await until(reactor, lambda: bool(old.received))
    change = EndpointChange(url=url(world, new), signing_secret="another secret")
    await store.endpoints.change(ACME, endpoint.id, change)
    await until(reactor, lambda: bool(new.received))
    [request] = new.received
    Webhook(b"another secret").verify(request.body, request.headers)


async def test_disabling_skips_what_is_enqueued_and_deleting_drops_it(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
    """A record ``skipped``, nothing sent; of a deleted endpoint not even that."""
    store = await deliveries.store()
    receiver = Receiver()
    receiver.sends(BAD)
    off, gone = [await add_endpoint(store, url=url(world, receiver)) for _ in range(2)]
    dispatcher = await deliveries.dispatcher(store, Webhooks(retry_waits=(0.5,), timeout=60.0))
    await publish(store)
    await until(reactor, lambda: len(receiver.received) == 2 and dispatcher.in_flight == 0)
    while len(await records(store, status=Status.FAILED)) < 2:
        await pause()
    await store.endpoints.change(ACME, off.id, EndpointChange(enabled=False))
    await store.endpoints.delete(ACME, gone.id)
    made = await settled(store)
    assert [(record.status, record.attempt_number) for record in made] == [
        (Status.FAILED, 1),
        (Status.SKIPPED, 2),
    ]
    assert len(receiver.received) == 2
    # The record is there before the dispatcher has read that it made one.
    await until(reactor, lambda: dispatcher.counters.settled == 1)


async def test_manual_retries_and_tests_are_made_once(deliveries: Deliveries, world: World) -> None:
    """One single attempt each; a retry repeats the event's id and bytes."""
    store = await deliveries.store()
    receiver = Receiver()
    receiver.sends(BAD)
    endpoint = await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store, Webhooks(retry_waits=(), timeout=60.0))
    await publish(store)
    [first] = await settled(store)
    accepted = await store.manual_deliveries.retry(ACME, first.id)
    assert isinstance(accepted, Accepted)
    await settled(store)
    test = await store.manual_deliveries.test(ACME, endpoint.id, PAUSED, {})
    assert isinstance(test, Accepted)
    made = await settled(store)
    assert [(record.trigger, record.attempt_number, record.status) for record in made] == [
        (Trigger.AUTOMATIC, 1, Status.FAILED),
        (Trigger.MANUAL, 1, Status.FAILED),
        (Trigger.TEST, 1, Status.FAILED),
    ]
    one, again, tested = receiver.received
    assert (one.headers["webhook-id"], one.body) == (again.headers["webhook-id"], again.body)
    assert event_of(tested)["payload"]["is_test"] is True


async def test_a_successful_manual_retry_ends_the_automatic_ones(
    deliveries: Deliveries, world: World
) -> None:
    """Any attempt, 2xx: no further attempt; the one that waited is recorded as skipped at once."""
    store = await deliveries.store()
    receiver = Receiver()
    receiver.sends(BAD)
    await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store, Webhooks(retry_waits=(3600.0,), timeout=60.0))
    await publish(store)
    while not (failed := await records(store, status=Status.FAILED)):
        await pause()
    receiver.sends(GOOD)
    assert isinstance(await store.manual_deliveries.retry(ACME, failed[0].id), Accepted)
    made = await settled(store)
    assert [(record.trigger, record.attempt_number, record.status) for record in made] == [
        (Trigger.AUTOMATIC, 1, Status.FAILED),
        (Trigger.AUTOMATIC, 2, Status.SKIPPED),
        (Trigger.MANUAL, 1, Status.SUCCESS),
    ]
    assert len(receiver.received) == 2


async def test_a_recovery_delivers_what_had_failed(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
    """Every finally failed delivery of a time range, once more."""
    store = await deliveries.store()
    receiver = Receiver()
    receiver.sends(BAD)
    endpoint = await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store, Webhooks(retry_waits=(), timeout=60.0))
    for _ in range(3):
        await publish(store)
    failed = await settled(store)
    receiver.sends(GOOD)
    recovery = await store.manual_deliveries.recover(ACME, endpoint.id, failed[0].created_at)
    assert isinstance(recovery, Recovery)
    await until(reactor, lambda: len(receiver.received) == 6)
    made = await settled(store)
    assert {record.event_id for record in made[3:]} == {record.event_id for record in failed}
    assert {(record.trigger, record.status) for record in made[3:]} == {(Trigger.MANUAL, Status.SUCCESS)}


async def test_a_receiver_that_hangs_delays_no_other(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
    """A thousand deliveries pass by one dead receiver's forty."""
    store = await deliveries.store()
    dead, healthy = Receiver(lambda _request: None), Receiver()
    await add_endpoint(store, url=f"http://127.0.0.9:{world.listen(dead, '127.0.0.9')}/")
    port = world.listen(healthy, "0.0.0.0")
    for number in range(25):
        await add_endpoint(store, url=f"http://127.0.1.{number}:{port}/")
    for _ in range(40):
        await publish(store)
    rules = Webhooks(concurrency=32, concurrency_per_host=4, timeout=30.0)
    dispatcher = await deliveries.dispatcher(store, rules)
    await until(reactor, lambda: len(healthy.received) == 1000)
    # The last answers may still be on their way; the dead one's first attempts have not timed out yet.
    await until(reactor, lambda: dispatcher.in_flight == len(dead.received))
    assert len(dead.received) == 1


async def test_two_dispatchers_on_one_queue_double_nothing(deliveries: Deliveries, world: World) -> None:
    """Any number of daemons share the work; each attempt is one daemon's."""
    store = await deliveries.store()
    receiver = Receiver()
    await add_endpoint(store, url=url(world, receiver))
    dispatchers = [await deliveries.dispatcher(store) for _ in range(2)]
    for number in range(300):
        event = NewEvent(PAUSED, PROJECT, {"number": number}, str(number))
        await store.publisher.publish(event)
    await settled(store)
    seen = Counter(event_of(request)["payload"]["number"] for request in receiver.received)
    assert seen == Counter(range(300))
    shares = [one.counters.snapshot(0, None)["dataapi_webhooks_attempts_total"] for one in dispatchers]
    assert sum(share.get(("success",), 0) for share in shares) == 300  # type: ignore[misc]


@pytest.mark.direct("a pooler passes no notifications on")
async def test_a_new_event_is_on_its_way_at_once(
    deliveries: Deliveries, world: World, reactor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle daemon hears of it, however long its looks are apart."""
    monkeypatch.setattr("dataapi.webhooks.delivery.dispatcher.POLL_INTERVAL", FOR_EVER)
    store = await deliveries.store()
    receiver = Receiver()
    await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store)
    await settled(store)
    for number in range(5):
        await publish(store)
        await until(reactor, lambda number=number: len(receiver.received) > number)  # type: ignore[misc]


async def test_stopping_gives_back_what_is_not_sent(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
    """After the grace time claims are released, so that another daemon goes on at once."""
    store = await deliveries.store()
    receiver = Receiver(lambda _request: None)
    await add_endpoint(store, url=url(world, receiver))
    dispatcher = await deliveries.dispatcher(store, Webhooks(concurrency_per_host=2, timeout=60.0))
    for _ in range(5):
        await publish(store)
    await until(reactor, lambda: len(receiver.received) == 1)
    await dispatcher.drain(0.1)
    assert (await store.queue.statistics()).ready == 5
    receiver.sends(GOOD)
    await deliveries.dispatcher(store)
    made = await settled(store)
    assert [record.status for record in made] == [Status.SUCCESS] * 5
    assert {record.attempt_number for record in made} == {1}
    assert len({request.headers["webhook-id"] for request in receiver.received}) == 5


async def test_deliveries_go_on_when_postgresql_comes_back(
    deliveries: Deliveries, world: World, reactor: Any, server: Server
) -> None:
    """Issue, faults: an attempt under way at a restart is recorded after it, and nothing is sent twice."""
    store = await deliveries.store()
    receiver = Receiver(lambda _request: None)
    await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store, Webhooks(timeout=30.0))
    await publish(store)
    await until(reactor, lambda: bool(receiver.received))
    await threads.deferToThread(server.stop)
    try:
        receiver.received[0].connection.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await pause()
    finally:
        await threads.deferToThread(server.start)
    receiver.sends(GOOD)
    while True:
        try:
            await publish(store)
            break
        except Exception:
            await pause()
    made = await settled(store)
    assert [record.status for record in made] == [Status.SUCCESS] * 2
    assert len(receiver.received) == 2


async def test_receivers_that_hang_do_not_delay_another_organization(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
    """Twenty of one organization, with enough to fill every place."""
    store = await deliveries.store()
    await store.directory.create_organization("other", early_access=True)
    hanging, quick = Receiver(lambda _: None), Receiver()
    for number in range(20):
        port = world.listen(hanging, f"127.0.0.{2 + number}")
        await add_endpoint(store, url=f"http://127.0.0.{2 + number}:{port}/")
    for _ in range(30):
        await publish(store, ACME, JOINED)
    dispatcher = await deliveries.dispatcher(store, Webhooks(timeout=600.0))
    await until(reactor, lambda: dispatcher.in_flight == 20)
    await add_endpoint(store, Scope("other"), url=url(world, quick))
    for expected in range(1, 11):
        await publish(store, Scope("other"), JOINED)
        await until(reactor, partial(_has, quick, expected))
    assert len(hanging.received) == 20


def _has(receiver: Receiver, count: int) -> bool:
    return len(receiver.received) == count


async def test_endpoints_that_hang_do_not_delay_those_that_answer_at_their_host(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
    """Of another organization, and of the same one; no attempt of those that hang ends during the test."""
    store = await deliveries.store()
    answered: Counter[str] = Counter()
    hanging: Counter[str] = Counter()

    def answer(request: Received) -> None:
        path = request.line.split()[1]
        if "dead" in path:
            hanging[path] += 1
        else:
            answered[path] += 1
            request.connection.write(GOOD)

    port = world.listen(Receiver(answer))
    organizations = [ACME, Scope("second"), Scope("third"), Scope("alive")]
    for scope in organizations:
        if scope != ACME:
            await store.directory.create_organization(scope.organization, early_access=True)
        base = f"http://127.0.0.1:{port}/{scope.organization}"
        await add_endpoint(store, scope, url=base, event_types=(JOINED,))
        if scope.organization != "alive":
            for number in range(5):
                await add_endpoint(store, scope, url=f"{base}/dead/{number}", event_types=(LEFT,))
    dispatcher = await deliveries.dispatcher(store, Webhooks(timeout=600.0))
    for scope in organizations:
        await publish(store, scope, JOINED)
    await until(reactor, lambda: answered.total() == 4 and dispatcher.in_flight == 0)
    for _ in range(20):
        for scope in organizations[:3]:
            await publish(store, scope, LEFT)
    await until(reactor, lambda: hanging.total() >= 7)
    for expected in range(2, 12):
        for scope in organizations:
            await publish(store, scope, JOINED)
        await until(reactor, partial(_each_has, answered, expected))
    # Half of the limit.  The last one of these is for an organization that had none when it was free.
    assert hanging.total() in (7, 8)
    assert max(hanging.values()) == 1


def _each_has(answered: Counter[str], count: int) -> bool:
    return set(answered.values()) == {count}
