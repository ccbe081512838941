"""Deliveries from a queue in PostgreSQL to receivers on the loopback interface."""

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
    """Start a receiver and return its URL."""
    return f"http://127.0.0.1:{world.listen(receiver)}/hook"


async def finish_all(store: Store) -> list[Delivery]:
    """Wait until no attempts are due and return the delivery records, oldest first."""
    while await store.queue.next_due() is not None:
        await pause()
    return await records(store)


async def test_event_is_signed_delivered_and_recorded(deliveries: Deliveries, world: World) -> None:
    store = await deliveries.store()
    receiver = Receiver()
    await add_endpoint(store, url=url(world, receiver), custom_headers={"X-Tenant": "7"})
    await deliveries.dispatcher(store)
    await publish(store, reason="inactivity")
    [record] = await finish_all(store)
    [request] = receiver.received
    Webhook(SECRET).verify(request.body, request.headers)
    assert event_of(request)["payload"]["reason"] == "inactivity"
    assert request.headers["x-tenant"] == "7"
    assert (record.status, record.response_code, record.attempt_number) == (Status.SUCCESS, 200, 1)
    assert (record.response_body, record.error, record.next_attempt_at) == ("ok", None, None)
    assert str(record.event_id) == request.headers["webhook-id"] == event_of(request)["id"]


async def test_failures_are_retried_on_schedule_until_the_last_attempt(
    deliveries: Deliveries, world: World
) -> None:
    store = await deliveries.store()
    arrived = []

    def respond(request: Received) -> None:
        arrived.append(time.monotonic())
        request.connection.write(BAD)

    receiver = Receiver(respond)
    await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store)
    await publish(store)
    recorded = await finish_all(store)
    gaps = [after - before for before, after in itertools.pairwise(arrived)]
    assert len(arrived) == 5
    assert all(wait <= gap for wait, gap in zip(QUICK.retry_waits, gaps, strict=True)), gaps
    assert len({request.headers["webhook-id"] for request in receiver.received}) == 1
    assert len({request.body for request in receiver.received}) == 1
    assert [record.attempt_number for record in recorded] == [1, 2, 3, 4, 5]
    assert {(record.status, record.response_code, record.response_body) for record in recorded} == {
        (Status.FAILED, 503, "busy")
    }
    assert [record.next_attempt_at is None for record in recorded] == [False] * 4 + [True]


async def test_every_request_is_recorded_as_an_attempt(deliveries: Deliveries, world: World) -> None:
    store = await deliveries.store()
    requests: Counter[Any] = Counter()

    def respond(request: Received) -> None:
        requests[request.connection] += 1
        if requests[request.connection] == 1:
            request.connection.write(BAD)
        else:
            transport: Any = request.connection.transport
            transport.loseConnection()

    receiver = Receiver(respond)
    await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store)
    await publish(store)
    recorded = await finish_all(store)
    assert len(receiver.received) == len(recorded) == 5
    refused, closed = (503, None), (0, "connect")
    results = [(one.response_code, one.error) for one in recorded]
    assert results == [refused, closed, refused, closed, refused]


async def test_retry_uses_the_endpoints_current_url_and_secret(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
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


async def test_queued_attempts_are_skipped_when_disabled_and_dropped_when_deleted(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
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
    recorded = await finish_all(store)
    assert [(record.status, record.attempt_number) for record in recorded] == [
        (Status.FAILED, 1),
        (Status.SKIPPED, 2),
    ]
    assert len(receiver.received) == 2
    # The record is committed before the dispatcher has counted the attempt.
    await until(reactor, lambda: dispatcher.counters.settled == 1)


async def test_manual_retries_and_tests_are_attempted_once(deliveries: Deliveries, world: World) -> None:
    store = await deliveries.store()
    receiver = Receiver()
    receiver.sends(BAD)
    endpoint = await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store, Webhooks(retry_waits=(), timeout=60.0))
    await publish(store)
    [first] = await finish_all(store)
    accepted = await store.manual_deliveries.retry(ACME, first.id)
    assert isinstance(accepted, Accepted)
    await finish_all(store)
    test = await store.manual_deliveries.test(ACME, endpoint.id, PAUSED, {})
    assert isinstance(test, Accepted)
    recorded = await finish_all(store)
    assert [(record.trigger, record.attempt_number, record.status) for record in recorded] == [
        (Trigger.AUTOMATIC, 1, Status.FAILED),
        (Trigger.MANUAL, 1, Status.FAILED),
        (Trigger.TEST, 1, Status.FAILED),
    ]
    one, again, tested = receiver.received
    assert (one.headers["webhook-id"], one.body) == (again.headers["webhook-id"], again.body)
    assert event_of(tested)["payload"]["is_test"] is True


async def test_successful_manual_retry_ends_automatic_retries(deliveries: Deliveries, world: World) -> None:
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
    recorded = await finish_all(store)
    assert [(record.trigger, record.attempt_number, record.status) for record in recorded] == [
        (Trigger.AUTOMATIC, 1, Status.FAILED),
        (Trigger.AUTOMATIC, 2, Status.SKIPPED),
        (Trigger.MANUAL, 1, Status.SUCCESS),
    ]
    assert len(receiver.received) == 2


async def test_recovery_delivers_failed_events(deliveries: Deliveries, world: World, reactor: Any) -> None:
    store = await deliveries.store()
    receiver = Receiver()
    receiver.sends(BAD)
    endpoint = await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store, Webhooks(retry_waits=(), timeout=60.0))
    for _ in range(3):
        await publish(store)
    failed = await finish_all(store)
    receiver.sends(GOOD)
    recovery = await store.manual_deliveries.recover(ACME, endpoint.id, failed[0].created_at)
    assert isinstance(recovery, Recovery)
    await until(reactor, lambda: len(receiver.received) == 6)
    recorded = await finish_all(store)
    assert {record.event_id for record in recorded[3:]} == {record.event_id for record in failed}
    assert {(record.trigger, record.status) for record in recorded[3:]} == {(Trigger.MANUAL, Status.SUCCESS)}


async def test_hanging_receiver_does_not_delay_others(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
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
    # The last responses may still be in flight. The dead receiver's attempts have not timed out yet.
    await until(reactor, lambda: dispatcher.in_flight == len(dead.received))
    assert len(dead.received) == 1


async def test_two_dispatchers_on_one_queue_deliver_each_event_once(
    deliveries: Deliveries, world: World
) -> None:
    store = await deliveries.store()
    receiver = Receiver()
    await add_endpoint(store, url=url(world, receiver))
    dispatchers = [await deliveries.dispatcher(store) for _ in range(2)]
    for number in range(300):
        event = NewEvent(PAUSED, PROJECT, {"number": number}, str(number))
        await store.publisher.publish(event)
    await finish_all(store)
    seen = Counter(event_of(request)["payload"]["number"] for request in receiver.received)
    assert seen == Counter(range(300))
    shares = [one.counters.snapshot(0, None)["dataapi_webhooks_attempts_total"] for one in dispatchers]
    assert sum(share.get(("success",), 0) for share in shares) == 300  # type: ignore[misc]


@pytest.mark.direct("a pooler forwards no notifications")
async def test_new_event_is_sent_immediately(
    deliveries: Deliveries, world: World, reactor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataapi.webhooks.delivery.dispatcher.POLL_INTERVAL", FOR_EVER)
    store = await deliveries.store()
    receiver = Receiver()
    await add_endpoint(store, url=url(world, receiver))
    await deliveries.dispatcher(store)
    await finish_all(store)
    for number in range(5):
        await publish(store)
        await until(reactor, lambda number=number: len(receiver.received) > number)  # type: ignore[misc]


async def test_stopping_releases_unfinished_attempts(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
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
    recorded = await finish_all(store)
    assert [record.status for record in recorded] == [Status.SUCCESS] * 5
    assert {record.attempt_number for record in recorded} == {1}
    assert len({request.headers["webhook-id"] for request in receiver.received}) == 5


async def test_deliveries_continue_after_postgresql_restarts(
    deliveries: Deliveries, world: World, reactor: Any, server: Server
) -> None:
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
    recorded = await finish_all(store)
    assert [record.status for record in recorded] == [Status.SUCCESS] * 2
    assert len(receiver.received) == 2


async def test_hanging_receivers_do_not_delay_another_organization(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
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
        await until(reactor, partial(_has_received, quick, expected))
    assert len(hanging.received) == 20


def _has_received(receiver: Receiver, count: int) -> bool:
    return len(receiver.received) == count


async def test_hanging_endpoints_do_not_delay_others_on_their_host(
    deliveries: Deliveries, world: World, reactor: Any
) -> None:
    store = await deliveries.store()
    responded: Counter[str] = Counter()
    hanging: Counter[str] = Counter()

    def respond(request: Received) -> None:
        path = request.line.split()[1]
        if "dead" in path:
            hanging[path] += 1
        else:
            responded[path] += 1
            request.connection.write(GOOD)

    port = world.listen(Receiver(respond))
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
    await until(reactor, lambda: responded.total() == 4 and dispatcher.in_flight == 0)
    for _ in range(20):
        for scope in organizations[:3]:
            await publish(store, scope, LEFT)
    await until(reactor, lambda: hanging.total() >= 7)
    for expected in range(2, 12):
        for scope in organizations:
            await publish(store, scope, JOINED)
        await until(reactor, partial(_each_has, responded, expected))
    # Half of the concurrency limit, or one more for an organization without attempts in flight.
    assert hanging.total() in (7, 8)
    assert max(hanging.values()) == 1


def _each_has(responded: Counter[str], count: int) -> bool:
    return set(responded.values()) == {count}
