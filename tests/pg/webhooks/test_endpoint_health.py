"""Endpoint health, secret rotation, rate limits, payload deletion, and publishing without rejections."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg2
import pytest
from dataapi.webhooks.delivery.headers import sign
from dataapi.webhooks.model import (
    Cursor,
    DeliveryFilter,
    DueWork,
    FinishedAttempt,
    Recovery,
    RefusalReason,
    Refused,
    SkipReason,
    Status,
)
from dataapi.webhooks.secrets import Cipher, new_key
from dataapi.webhooks.store import make_store
from support.management import ORGANIZATION, Management, document
from support.management import PROJECT as PROJECT_PATH
from support.messages import until
from support.webhooks import (
    ACME,
    KEY,
    PAUSED,
    PROJECT,
    REF,
    SECRET,
    add_endpoint,
    claim,
    failure,
    migrated,
    publish,
    success,
)
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataapi.database.pool import Pool
    from dataapi.webhooks.model import Delivery
    from dataapi.webhooks.store import Store
    from support.postgres import Database

NEW_SECRET = "whsec_" + "bmV3IHNlY3JldCBvZiB0aGUgZW5kcG9pbnQ="
FAILING, RECOVERED, DISABLED, ROTATED = (
    f"v1.webhook.endpoint.{name}" for name in ("failing", "recovered", "disabled", "secret_rotated")
)


async def migrated_with_limit(database: Database, pool: Pool, days: int = 5) -> Store:
    """Return a store that disables endpoints after some days of failures."""
    await migrated(database, pool)
    return make_store(pool, Cipher([KEY]), 14, disable_after=days)


async def fail(store: Store, *, for_good: bool = False) -> None:
    """Publish an event and make its attempts fail."""
    await publish(store)
    for work in await claim(store):
        await store.queue.finish([failure(work, None if for_good else 3600.0)])


def age(database: Database, days: int) -> None:
    """Move the recorded start of failures some days back."""
    database.execute("update webhooks.failing set since = since - %s * interval '1 day'", (days,))


def events_of(works: tuple[DueWork, ...]) -> list[tuple[str, dict[str, Any]]]:
    """Return the types and payloads of claimed events."""
    return [(work.event_type, json.loads(work.body or b"{}")["payload"]) for work in works]


async def list_deliveries(store: Store, **chosen: Any) -> list[Delivery]:
    """Return the deliveries to endpoints of the organization and its project."""
    pages = [
        await store.history.page(one, None, DeliveryFilter(**chosen), Cursor()) for one in (ACME, PROJECT)
    ]
    return list({one.id: one for page in pages for one in page.deliveries}.values())


# ---------------------------------------------------------------- failing endpoints


async def test_endpoint_that_only_fails_for_days_is_disabled(database: Database, pool: Pool) -> None:
    store = await migrated_with_limit(database, pool)
    endpoint = await add_endpoint(store, ACME)
    await fail(store)
    shown = await store.endpoints.read(ACME, endpoint.id)
    assert shown is not None
    assert shown.enabled
    assert shown.failing_since is not None
    age(database, 6)
    await publish(store)
    waiting, first = await claim(store), shown.failing_since
    await store.queue.finish([failure(work, 3600.0) for work in waiting])

    shown = await store.endpoints.read(ACME, endpoint.id)
    assert shown is not None
    assert (shown.enabled, shown.disabled_reason) == (False, "failing")
    assert shown.disabled_since is not None
    assert first is not None
    assert shown.failing_since is not None
    assert (first - shown.failing_since).days == 6

    database.execute("update webhooks.due set due_at = now(), claimable_at = now()")
    assert await claim(store) == ()
    skipped = await list_deliveries(store, status=Status.SKIPPED)
    assert [one.error for one in skipped] == [SkipReason.ENDPOINT_FAILING] * 2

    changed = await store.endpoints.change(ACME, endpoint.id, {"enabled": True})
    assert changed is not None
    assert (changed.enabled, changed.disabled_reason, changed.failing_since) == (True, None, None)
    recovered = await store.manual_deliveries.recover(
        ACME, endpoint.id, datetime.now(UTC) - timedelta(days=1)
    )
    assert isinstance(recovered, Recovery)
    assert recovered.matched == 2
    assert len(await claim(store)) == 2


async def test_one_success_keeps_an_endpoint_enabled(database: Database, pool: Pool) -> None:
    store = await migrated_with_limit(database, pool)
    endpoint = await add_endpoint(store, ACME)
    await fail(store)
    age(database, 6)
    await publish(store)
    [work] = await claim(store)
    await store.queue.finish([success(work)])
    await fail(store)
    shown = await store.endpoints.read(ACME, endpoint.id)
    assert shown is not None
    assert shown.enabled
    age(database, 4)
    await fail(store)
    shown = await store.endpoints.read(ACME, endpoint.id)
    assert shown is not None
    assert shown.enabled


async def test_endpoint_is_never_disabled_if_the_limit_is_zero_days(database: Database, pool: Pool) -> None:
    store = await migrated_with_limit(database, pool, days=0)
    endpoint = await add_endpoint(store, ACME)
    await fail(store)
    age(database, 1000)
    await fail(store)
    shown = await store.endpoints.read(ACME, endpoint.id)
    assert shown is not None
    assert shown.enabled
    database.execute("delete from webhooks.failing")
    await store.manual_deliveries.test(ACME, endpoint.id, PAUSED, {})
    await store.queue.finish([failure(work) for work in await claim(store)])
    shown = await store.endpoints.read(ACME, endpoint.id)
    assert shown is not None
    assert shown.failing_since is None


async def test_organization_receives_events_about_endpoint_health(database: Database, pool: Pool) -> None:
    store = await migrated_with_limit(database, pool)
    listener = await add_endpoint(store, ACME, event_types=(FAILING, RECOVERED, DISABLED))
    dead = await add_endpoint(store, PROJECT, event_types=("*",), description="Orders")
    await fail(store)
    assert await claim(store) == (), "an attempt that is retried raises no event"
    await fail(store, for_good=True)
    works = await claim(store)
    assert [(work.endpoint_id, work.event_type) for work in works] == [(listener.id, FAILING)]
    [(_, payload)] = events_of(works)
    assert payload["endpoint"] == {"id": str(dead.id), "project_ref": REF, "description": "Orders"}
    assert payload["project_ref"] is None
    assert payload["failing_since"].endswith("Z")
    await store.queue.finish([failure(work) for work in works])
    shown = await store.endpoints.read(ACME, listener.id)
    assert shown is not None
    assert shown.failing_since is None, "events about endpoints do not affect health"
    await fail(store, for_good=True)
    assert await claim(store) == ()

    await publish(store)
    [work] = await claim(store)
    await store.queue.finish([success(work)])
    assert [name for name, _ in events_of(await claim(store))] == [RECOVERED]
    await fail(store)
    age(database, 6)
    await fail(store)
    assert [name for name, _ in events_of(await claim(store))] == [DISABLED]


async def test_no_health_events_are_raised_without_early_access(database: Database, pool: Pool) -> None:
    store = await migrated_with_limit(database, pool)
    await add_endpoint(store, ACME)
    await publish(store)
    works = await claim(store)
    await store.directory.set_early_access(ACME.organization, allowed=False)
    assert len(await store.queue.finish([failure(work) for work in works])) == 1
    assert await claim(store) == ()


@pytest.mark.parametrize("name", [FAILING, DISABLED])
async def test_publishers_cannot_raise_endpoint_events(database: Database, pool: Pool, name: str) -> None:
    await migrated(database, pool)
    with pytest.raises(psycopg2.errors.InvalidParameterValue):
        database.execute("select webhooks.publish(%s, 'acme', null, '{}', 'key')", (name,))


# ---------------------------------------------------------------- secrets


async def test_rotated_secret_signs_until_its_grace_period_ends(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store, ACME, event_types=(PAUSED,))
    listener = await add_endpoint(store, ACME, event_types=(ROTATED,))
    changed = await store.endpoints.change(
        ACME, endpoint.id, {"signing_secret": NEW_SECRET, "grace_seconds": 60}
    )
    assert changed is not None
    assert changed.previous_secret_until is not None
    [notice] = await claim(store)
    assert (notice.endpoint_id, notice.event_type) == (listener.id, ROTATED)
    keys = [new_key(), KEY]
    rotated = make_store(pool, Cipher(keys), 14)
    assert (await rotated.key_rotation.run()).sealed == 2
    store = make_store(pool, Cipher(keys[:1]), 14)
    await publish(store)
    [work] = await claim(store)
    assert (work.signing_secret, work.previous_secret) == (NEW_SECRET, SECRET)
    assert SECRET not in repr(work)

    database.execute(
        "update webhooks.endpoint set previous_secret_until = now() where previous_secret is not null"
    )
    await publish(store)
    [work] = await claim(store)
    assert (work.signing_secret, work.previous_secret) == (NEW_SECRET, None)
    await store.maintenance.run()
    assert database.execute("select count(*) from webhooks.endpoint where previous_secret is not null") == [
        (0,)
    ]


async def test_rotation_without_grace_replaces_the_secret_immediately(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store, ACME)
    await store.endpoints.change(ACME, endpoint.id, {"signing_secret": NEW_SECRET, "grace_seconds": 60})
    await store.endpoints.change(ACME, endpoint.id, {"signing_secret": SECRET})
    await publish(store)
    [work] = await claim(store)
    assert (work.signing_secret, work.previous_secret) == (SECRET, None)


# ---------------------------------------------------------------- rate limits


async def test_attempts_per_second_are_limited(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    slow = await add_endpoint(store, ACME, event_types=(PAUSED,), max_per_second=2)
    free = await add_endpoint(store, ACME)
    for _ in range(5):
        await publish(store)
    endpoint_ids = [work.endpoint_id for work in await claim(store)]
    assert (endpoint_ids.count(slow.id), endpoint_ids.count(free.id)) == (1, 5)
    assert await claim(store) == (), "the limit applies to all daemons"
    seconds = await store.queue.next_due()
    assert seconds is not None
    assert 0.2 < seconds <= 0.5
    for expected in (1, 1):
        database.execute("update webhooks.pace set next_at = next_at - interval '0.5 s'")
        works = await claim(store)
        assert [work.attempt_number for work in works] == [1] * expected
    database.execute("update webhooks.pace set next_at = next_at - interval '1 hour'")
    assert len(await claim(store)) == 1, "an idle period does not raise the limit"

    changed = await store.endpoints.change(ACME, slow.id, {"max_per_second": None})
    assert changed is not None
    assert changed.max_per_second is None
    assert len(await claim(store)) == 1


async def test_claim_includes_at_most_a_tenth_of_a_second_of_the_rate(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store, ACME, max_per_second=100)
    for _ in range(20):
        await publish(store)
    database.execute("update webhooks.pace set next_at = now() - interval '1 hour'")
    assert len(await claim(store)) == 11


# ---------------------------------------------------------------- privacy


async def test_payload_is_deleted_from_history_and_queue(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store, ACME)
    await add_endpoint(store, PROJECT)
    event = await publish(store, email="a@example.org")
    first, second = await claim(store)
    finished = success(first, response_body="Hello a@example.org", response_headers=(("x-user", "a"),))
    await store.queue.finish([finished, failure(second, 3600.0)])
    other = await publish(store, email="b@example.org")

    assert await store.endpoints.delete_payload(ACME, event) == 2
    everything = database.execute("select string_agg(e::text, '') from webhooks.event e")[0][0] + str(
        database.execute("select string_agg(d::text, '') from webhooks.delivery d")
    )
    assert "a@example.org" not in everything
    assert "b@example.org" in everything
    skipped = await list_deliveries(store, status=Status.SKIPPED)
    assert [(one.endpoint_id, one.error) for one in skipped] == [
        (second.endpoint_id, SkipReason.PAYLOAD_DELETED)
    ]
    read = await store.history.read(ACME, first.claim.delivery_id) or await store.history.read(
        PROJECT, first.claim.delivery_id
    )
    assert read is not None
    assert read[1].payload is None
    assert len(await claim(store)) == 2, "attempts that deliver the other event"
    for scope in (ACME, PROJECT):
        retried = await store.manual_deliveries.retry(scope, first.claim.delivery_id)
        assert retried == Refused(RefusalReason.NOT_FOUND)
    assert await store.endpoints.delete_payload(PROJECT, other) == 1, (
        "a project can delete only copies for its own endpoints"
    )


async def test_attempt_in_flight_is_not_retried_after_payload_deletion(
    database: Database, pool: Pool
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store, ACME)
    await publish(store)
    [work] = await claim(store)
    assert await store.endpoints.delete_payload(ACME, work.event_id) == 1
    with pytest.raises(LookupError):
        await store.queue.rendered(work.event_id, {"email": "a@example.org"})
    await store.queue.finish([failure(work, 10.0)])
    [record] = await list_deliveries(store)
    assert (record.status, record.next_attempt_at) == (Status.FAILED, None)


@pytest.mark.parametrize("retry_in", [None, 10.0], ids=["last attempt", "attempt with a retry"])
async def test_response_to_a_deleted_payload_is_not_recorded(
    database: Database, pool: Pool, retry_in: float | None
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store, ACME)
    await publish(store)
    [work] = await claim(store)
    assert await store.endpoints.delete_payload(ACME, work.event_id) == 1
    await store.queue.finish([replace(reject_with_payload(work), retry_in=retry_in)])
    assert recorded_attempts(database) == [(Status.FAILED, 400, None, None)]


async def test_payload_deletion_waits_for_an_outcome_in_progress(
    reactor: Any, database: Database, pool: Pool
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store, ACME)
    await publish(store)
    [work] = await claim(store)
    with locking(database, "select from webhooks.due for update"):
        recording = Deferred.fromCoroutine(store.queue.finish([reject_with_payload(work)]))
        await until(reactor, lambda: waiting_for_locks(database) == 1)
        deleting = Deferred.fromCoroutine(store.endpoints.delete_payload(ACME, work.event_id))
        await until(reactor, lambda: deleting.called or waiting_for_locks(database) == 2)
    assert await recording == {work.claim.delivery_id}
    assert await deleting == 1
    assert recorded_attempts(database) == [(Status.FAILED, 400, None, None)]


async def test_outcome_waits_for_a_payload_deletion(reactor: Any, database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    for _ in range(2):
        await add_endpoint(store, ACME)
    event = await publish(store)
    [work] = await claim(store, 1)
    with locking(database, "select from webhooks.due where not leased for update"):
        deleting = Deferred.fromCoroutine(store.endpoints.delete_payload(ACME, event))
        await until(reactor, lambda: waiting_for_locks(database) == 1)
        recording = Deferred.fromCoroutine(store.queue.finish([reject_with_payload(work)]))
        await until(reactor, lambda: recording.called or waiting_for_locks(database) == 2)
    assert await deleting == 2
    assert await recording == {work.claim.delivery_id}
    assert (Status.FAILED, 400, None, None) in recorded_attempts(database)


def recorded_attempts(database: Database) -> list[tuple[Any, ...]]:
    """Return the recorded status and response of all attempts."""
    return database.execute(
        "select status, response_code, response_body, response_headers from webhooks.delivery"
    )


def reject_with_payload(work: DueWork) -> FinishedAttempt:
    """Return the outcome of an attempt whose response repeats the payload."""
    return failure(
        work,
        error=None,
        response_code=400,
        response_body="unknown: a@example.org",
        response_headers=(("x-user", "a@example.org"),),
    )


@contextmanager
def locking(database: Database, statement: str) -> Iterator[None]:
    """Hold the locks that a statement acquires until the block ends."""
    connection = psycopg2.connect(database.admin_uri)
    try:
        connection.cursor().execute(statement)
        yield
    finally:
        connection.close()


def waiting_for_locks(database: Database) -> int:
    [(number,)] = database.execute(
        "select count(*) from pg_stat_activity"
        " where wait_event_type = 'Lock' and datname = current_database()"
    )
    return int(number)


async def test_payloads_of_other_organizations_cannot_be_deleted(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await store.directory.create_organization("globex", early_access=True)
    await add_endpoint(store, ACME)
    event = await publish(store)
    other = ACME.__class__("globex")
    assert await store.endpoints.delete_payload(other, event) == 0
    assert await store.endpoints.delete_payload(ACME, uuid4()) == 0


# ---------------------------------------------------------------- publishing


PUBLISH = "select webhooks.publish(%s, %s, %s, %s, %s, on_refusal => %s)"


@pytest.mark.parametrize(
    ("event_type", "organization", "project", "payload", "key"),
    [
        (PAUSED, "missing", None, "{}", "key"),
        (PAUSED, "closed", None, "{}", "key"),
        (PAUSED, "acme", "z" * 20, "{}", "key"),
        (PAUSED, "closed", REF, "{}", "key"),
        ("paused", "acme", None, "{}", "key"),
        (PAUSED, "acme", None, "[]", "key"),
        (PAUSED, "acme", None, "{}", ""),
        (PAUSED, "acme", None, '{"is_test": true}', "key"),
        (PAUSED, "acme", None, json.dumps({"long": "x" * 300_000}), "key"),
    ],
)
async def test_rejected_event_can_be_ignored(
    database: Database,
    pool: Pool,
    event_type: str,
    organization: str,
    project: str | None,
    payload: str,
    key: str,
) -> None:
    store = await migrated(database, pool)
    await store.directory.create_organization("closed")
    values = (event_type, organization, project, payload, key)
    assert database.execute(PUBLISH, (*values, "ignore")) == [(None,)]
    with pytest.raises(psycopg2.Error) as raised:
        database.execute(PUBLISH, (*values, "raise"))
    assert raised.value.pgcode in {"22023", "WH001", "WH002", "WH003", "WH004", "WH005"}


async def test_accepted_event_is_published_with_any_on_refusal(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store, ACME)
    values = (PAUSED, "acme", None, "{}", "key")
    [(first,)] = database.execute(PUBLISH, (*values, "ignore"))
    assert UUID(first)
    assert database.execute("select webhooks.publish(%s, %s, %s, %s, %s)", values) == [(first,)]
    assert len(await claim(store)) == 1
    with pytest.raises(psycopg2.errors.InvalidParameterValue):
        database.execute(PUBLISH, (*values, "never"))


# ---------------------------------------------------------------- the management API


async def test_api_changes_and_returns_health_attributes(api: Management) -> None:
    made = await api.create(max_per_second=5)
    path = f"{ORGANIZATION}/endpoints/{made['id']}"
    assert made["attributes"]["max_per_second"] == 5
    changed = await api.send(
        "PATCH",
        path,
        document("endpoint", signing_secret=NEW_SECRET, grace_seconds=3600, max_per_second=None),
    )
    shown = changed.data["attributes"]
    assert shown["max_per_second"] is None
    assert shown["previous_secret_until"].endswith("Z")
    assert (shown["disabled_reason"], shown["disabled_since"], shown["failing_since"]) == (None, None, None)
    assert NEW_SECRET not in changed.content.decode()
    assert "grace_seconds" not in shown
    await publish(api.store)
    [work] = await claim(api.store)
    assert sign(work.previous_secret or "", "id", 0, b"") != sign(work.signing_secret, "id", 0, b"")


@pytest.mark.parametrize(
    ("attributes", "pointer"),
    [
        ({"grace_seconds": 60}, "signing_secret"),
        ({"grace_seconds": -1, "signing_secret": NEW_SECRET}, "grace_seconds"),
        ({"grace_seconds": 604_801, "signing_secret": NEW_SECRET}, "grace_seconds"),
        ({"max_per_second": 0}, "max_per_second"),
        ({"max_per_second": 1001}, "max_per_second"),
        ({"max_per_second": 1.5}, "max_per_second"),
        ({"max_per_second": "5"}, "max_per_second"),
        ({"disabled_reason": None}, "disabled_reason"),
    ],
)
async def test_invalid_values_are_rejected_with_their_pointer(
    api: Management, attributes: dict[str, Any], pointer: str
) -> None:
    made = await api.create()
    response = await api.send(
        "PATCH", f"{ORGANIZATION}/endpoints/{made['id']}", document("endpoint", **attributes)
    )
    assert response.refusal == (400, "bad_request.validation")
    assert response.pointers == [f"/data/attributes/{pointer}"]


async def test_api_deletes_payloads(api: Management) -> None:
    await api.create()
    await api.create(PROJECT_PATH)
    event = str(await publish(api.store, email="a@example.org"))
    response = await api.send("DELETE", f"{PROJECT_PATH}/events/{event}/payload")
    assert response.data == {"type": "event", "id": event, "attributes": {"copies": 1}}
    response = await api.send("DELETE", f"{ORGANIZATION}/events/{event}/payload")
    assert response.data["attributes"] == {"copies": 2}
    [record] = (await api.send("GET", f"{ORGANIZATION}/deliveries")).data
    assert (record["attributes"]["status"], record["attributes"]["error"]) == ("skipped", "payload_deleted")
    shown = await api.send("GET", f"{ORGANIZATION}/deliveries/{record['id']}")
    assert shown.data["attributes"]["event"]["payload"] is None
    for wrong in (str(uuid4()), "x"):
        refused = await api.send("DELETE", f"{ORGANIZATION}/events/{wrong}/payload")
        assert refused.refusal == (404, "not_found.event")
