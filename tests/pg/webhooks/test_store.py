"""Endpoints in the store: encryption, visibility by scope, changes and deletion."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg2
import pytest
from dataapi.webhooks import identifiers
from dataapi.webhooks.model import (
    ClaimResult,
    Cursor,
    DeliveryFilter,
    EndpointChange,
    RefusalReason,
    Refused,
    Scope,
    Status,
)
from dataapi.webhooks.secrets import CannotOpen, Cipher, NoEncryptionKey, new_key
from dataapi.webhooks.store import make_store
from dataapi.webhooks.store.endpoints import DELETE_BATCH, Endpoints, KeyRotation, TooManyEndpoints
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
    made_at,
    migrated,
    publish,
    success,
)
from twisted.internet import threads
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.database.pool import Pool
    from support.postgres import Database

ALL = DeliveryFilter()
MANY_ROWS = """
with given (endpoint, count) as (
    values (%s::uuid, %s)
), raised as (
    insert into webhooks.event (id, endpoint_id, type, happened_at, body)
    select webhooks.uuid_v7(), endpoint, 'v1.project.paused', now(), '{}'
    from given cross join generate_series(1, 2 * count)
    returning *
), waiting as (
    insert into webhooks.due (
        delivery_id, event_id, endpoint_id, event_type, epoch, trigger, due_at, claimable_at
    )
    select webhooks.uuid_v7(), id, endpoint_id, type, 0, 'automatic', now(), now() from raised
    limit (select count from given)
)
insert into webhooks.delivery (id, event_id, endpoint_id, event_type, status, attempt_number, trigger)
select webhooks.uuid_v7(), id, endpoint_id, type, 'failed', 1, 'automatic' from raised
offset (select count from given)
"""
BLOCKED = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


async def test_endpoint_is_read_as_created(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    created = await add_endpoint(
        store,
        PROJECT,
        event_types=("v1.project.paused", "v1.project.restored"),
        custom_headers={"X-Key": "geheim ✓"},
        description="Ours",
        enabled=False,
        created_by="token 1",
    )
    assert created == await store.endpoints.read(PROJECT, created.id)
    assert created.scope == PROJECT
    assert created.event_types == ("v1.project.paused", "v1.project.restored")
    assert created.custom_headers == {"X-Key": "geheim ✓"}
    assert (created.description, created.enabled, created.created_by) == ("Ours", False, "token 1")
    assert created.id.version == 7
    assert created.created_at == created.updated_at
    assert SECRET not in repr(created)


async def test_secrets_are_encrypted_at_rest(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store, custom_headers={"X-Key": "geheim"})
    [(secret, headers)] = database.execute("select signing_secret, custom_headers from webhooks.endpoint")
    assert SECRET.encode() not in bytes(secret)
    assert b"geheim" not in bytes(headers)


async def test_endpoints_need_an_encryption_key(database: Database, pool: Pool) -> None:
    await migrated(database, pool)
    store = make_store(pool, Cipher([]), 14)
    with pytest.raises(NoEncryptionKey, match="encryption-key"):
        await add_endpoint(store)
    assert database.execute("select count(*) from webhooks.endpoint") == [(0,)]


async def test_secret_of_another_endpoint_cannot_be_decrypted(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    victim, other = [await add_endpoint(store) for _ in range(2)]
    database.execute(
        "update webhooks.endpoint set custom_headers = "
        f"(select custom_headers from webhooks.endpoint where id = '{victim.id}') where id = '{other.id}'"
    )
    with pytest.raises(CannotOpen):
        await store.endpoints.read(ACME, other.id)
    assert await store.endpoints.delete(ACME, other.id) == other


async def test_endpoint_is_visible_only_in_its_scope(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await store.directory.create_organization("other", early_access=True)
    mine = await add_endpoint(store, PROJECT)
    for scope in (ACME, Scope("other"), Scope("other", REF)):
        assert await store.endpoints.read(scope, mine.id) is None
        assert await store.endpoints.change(scope, mine.id, EndpointChange(url="https://x.example/")) is None
        assert await store.endpoints.delete(scope, mine.id) is None
        assert await store.endpoints.delete_all(scope) == ()
        assert await store.endpoints.page(scope, 20, 0) == ((), 0)
    assert await store.endpoints.read(PROJECT, mine.id) == mine


async def test_endpoint_pages_include_the_total(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    made = [await add_endpoint(store) for _ in range(5)]
    assert await store.endpoints.page(ACME, 2, 0) == (tuple(made[:2]), 5)
    assert await store.endpoints.page(ACME, 2, 4) == ((made[4],), 5)
    assert await store.endpoints.page(ACME, 2, 6) == ((), 5)


async def test_number_of_endpoints_per_scope_is_limited(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    few = dataclasses.replace(store, endpoints=Endpoints(pool, Cipher([KEY]), maximum=2))
    for _ in range(2):
        await add_endpoint(few)
    with pytest.raises(TooManyEndpoints):
        await add_endpoint(few)
    await add_endpoint(few, PROJECT)


async def test_change_keeps_omitted_attributes(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    before = await add_endpoint(store, description="Ours", custom_headers={"X-Key": "1"})
    changed = await store.endpoints.change(ACME, before.id, EndpointChange(url="https://new.example/"))
    assert changed is not None
    assert changed.updated_at > before.updated_at
    assert changed == dataclasses.replace(before, url="https://new.example/", updated_at=changed.updated_at)
    cleared = await store.endpoints.change(
        ACME,
        before.id,
        EndpointChange(description=None, custom_headers={}, event_types=("v1.project.paused",)),
    )
    assert cleared is not None
    assert (cleared.description, cleared.custom_headers, cleared.event_types) == (
        None,
        {},
        ("v1.project.paused",),
    )


async def test_pending_deliveries_use_new_secret_and_url(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await publish(store)
    change = EndpointChange(
        url="https://new.example/", signing_secret="another secret", custom_headers={"A": "b"}
    )
    await store.endpoints.change(ACME, endpoint.id, change)
    [work] = await claim(store)
    assert (work.url, work.signing_secret, work.custom_headers) == (
        "https://new.example/",
        "another secret",
        {"A": "b"},
    )


async def test_key_rotation_keeps_concurrent_changes(database: Database, pool: Pool) -> None:
    old = await migrated(database, pool)
    first, second, third = [await add_endpoint(old, event_types=(PAUSED,)) for _ in range(3)]
    newest = new_key()
    between = make_store(pool, Cipher([newest, KEY]), 14)

    class ChangesDuringRotation:
        """Changes and deletes endpoints just before the rotation replaces the first secret."""

        done = False

        async def fetch(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
            if "update" in text and not self.done:
                self.done = True
                await old.endpoints.change(ACME, first.id, EndpointChange(signing_secret="changed meanwhile"))
                await between.endpoints.change(ACME, second.id, EndpointChange(signing_secret="changed too"))
                await old.endpoints.delete(ACME, third.id)
            return await pool.fetch(text, values)

    done = await KeyRotation(ChangesDuringRotation(), Cipher([newest, KEY]), batch_size=1).run()
    assert (done.sealed, done.unreadable) == (2, ())
    await publish(old)
    work = await claim(make_store(pool, Cipher([newest]), 14))
    assert sorted(one.signing_secret for one in work) == ["changed meanwhile", "changed too"]


async def test_deleting_an_endpoint_deletes_its_events_and_deliveries(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint, other = [await add_endpoint(store) for _ in range(2)]
    for _ in range(2):
        await publish(store)
    first, *_ = await claim(store, 1)
    await store.queue.finish([success(first)])
    assert await store.endpoints.delete(ACME, endpoint.id) == endpoint
    assert await store.endpoints.read(ACME, endpoint.id) is None
    page = await store.history.page(ACME, None, ALL, Cursor())
    assert {record.endpoint_id for record in page.deliveries} == {other.id}
    assert len(page.deliveries) == 2
    assert await store.endpoints.delete_all(ACME) == (other,)
    for table in ("event", "due", "delivery", "endpoint"):
        assert database.execute(f"select count(*) from webhooks.{table}") == [(0,)]


@pytest.mark.parametrize("everything", [False, True])
async def test_endpoint_with_many_rows_is_deleted_immediately(
    database: Database, pool: Pool, everything: bool
) -> None:
    store = await migrated(database, pool)
    endpoint, *others = [await add_endpoint(store, scope) for scope in (ACME, ACME, PROJECT)]
    await publish(store)
    database.execute(MANY_ROWS, (str(endpoint.id), 3 * DELETE_BATCH))
    [(record,)] = database.execute("select max(id::text) from webhooks.delivery")
    if everything:
        assert await store.endpoints.delete_all(ACME) == (endpoint, others[0])
    else:
        assert await store.endpoints.delete(ACME, endpoint.id) == endpoint
    [(left,)] = database.execute("select count(*) from webhooks.delivery")
    assert left >= DELETE_BATCH
    remaining = others[1:] if everything else others
    page = await store.history.page(ACME, None, ALL, Cursor())
    assert [one.endpoint_id for one in page.deliveries] == [one.id for one in remaining if one.scope == ACME]
    assert await store.history.read(ACME, UUID(record)) is None
    assert await store.history.statistics(ACME, None, None) == ()
    assert await store.manual_deliveries.retry(ACME, UUID(record)) == Refused(RefusalReason.NOT_FOUND)
    assert {work.endpoint_id for work in await claim(store)} <= {one.id for one in remaining}
    store.maintenance._batch_size = 700
    assert (await store.maintenance.run()).removed > left
    for table, left_in in (("delivery", []), ("due", remaining), ("event", remaining)):
        rows = database.execute(f"select distinct endpoint_id::text from webhooks.{table}")
        assert {UUID(identifier) for (identifier,) in rows} == {one.id for one in left_in}, table
    assert (await store.maintenance.run()).removed == 0


async def test_deletion_survives_a_deadlock_with_outcomes(
    database: Database, pool: Pool, reactor: Any
) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    for _ in range(2):
        await publish(store)
    first, second = sorted(str(work.claim.delivery_id) for work in await claim(store))
    lock = "select 1 from webhooks.due where delivery_id = %s for update"
    with closing(psycopg2.connect(database.admin_uri)) as connection, connection.cursor() as cursor:
        # PostgreSQL must abort the deletion, not the other transaction.
        cursor.execute("set deadlock_timeout = '1min'")
        cursor.execute(lock, (second,))
        deleting = Deferred.fromCoroutine(store.endpoints.delete(ACME, endpoint.id))
        await until(reactor, lambda: bool(database.execute(BLOCKED)))
        await threads.deferToThread(cursor.execute, lock, (first,))
        assert not deleting.called
        connection.commit()
    assert await deleting == endpoint
    assert database.execute("select count(*) from webhooks.due") == [(0,)]


async def test_outcome_of_a_deleted_endpoint_is_ignored(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    for _ in range(2):
        await publish(store)
    one, two = await claim(store)
    await store.endpoints.delete(ACME, endpoint.id)
    assert await store.queue.finish([success(one), failure(two, 10)]) == frozenset()
    assert database.execute("select count(*) from webhooks.delivery") == [(0,)]
    assert await store.queue.next_due() is None


async def test_event_published_during_a_deletion_is_discarded(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    database.execute("delete from webhooks.endpoint")
    claimed = await store.queue.claim(10, 30)
    assert (claimed.work, claimed.settled) == ((), 1)
    assert await store.queue.next_due() is None
    assert database.execute("select count(*) from webhooks.delivery") == [(0,)]


async def test_queued_attempt_of_a_disabled_endpoint_is_skipped_when_due(
    database: Database, pool: Pool
) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await publish(store)
    await store.endpoints.change(ACME, endpoint.id, EndpointChange(enabled=False))
    [pending] = (await store.history.page(ACME, None, ALL, Cursor())).deliveries
    assert pending.status is Status.PENDING
    assert await store.queue.claim(10, 30) == ClaimResult((), settled=1)
    [skipped] = (await store.history.page(ACME, None, ALL, Cursor())).deliveries
    assert (skipped.id, skipped.status, skipped.attempt_timestamp) == (pending.id, Status.SKIPPED, None)


async def test_reenabling_does_not_revive_queued_attempts(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await publish(store)
    for enabled in (False, False, True):
        await store.endpoints.change(ACME, endpoint.id, EndpointChange(enabled=enabled))
    await publish(store)
    claimed = await store.queue.claim(10, 30)
    assert claimed.settled == 1
    assert len(claimed.work) == 1


async def test_disabling_prevents_retries_of_attempts_in_flight(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await publish(store)
    [work] = await claim(store)
    await store.endpoints.change(ACME, endpoint.id, EndpointChange(enabled=False))
    await store.endpoints.change(ACME, endpoint.id, EndpointChange(enabled=True))
    await store.queue.finish([failure(work, 0.0)])
    assert await claim(store) == ()
    page = await store.history.page(ACME, endpoint.id, ALL, Cursor())
    assert [(one.status, one.attempt_number) for one in page.deliveries] == [
        (Status.SKIPPED, 2),
        (Status.FAILED, 1),
    ]


async def test_disabled_endpoint_receives_no_events(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store, enabled=False)
    await publish(store)
    assert database.execute("select count(*) from webhooks.event") == [(0,)]
    assert await store.queue.next_due() is None


async def test_identifiers_from_sql_and_python_agree(database: Database, pool: Pool) -> None:
    await migrated(database, pool)
    rows = await pool.fetch(
        "select clock_timestamp(), webhooks.uuid_v7()::text, clock_timestamp()"
        " from generate_series(1, 200) order by random()"
    )
    for before, text, after in rows:
        made = UUID(text)
        assert (made.version, made.variant) == (7, "specified in RFC 4122")
        assert before - timedelta(milliseconds=1) < made_at(made) <= after
    [(ordered,)] = await pool.fetch(
        "with made as (select webhooks.uuid_v7() as id, n from generate_series(1, 200) n, pg_sleep(0.0001)) "
        "select array_agg(n order by id) = array_agg(n order by n) from made"
    )
    assert ordered
    for microsecond in (0, 1, 999, 1_000, 122_999, 123_000, 999_999):
        moment = datetime(2026, 2, 3, 4, 5, 6, microsecond, UTC)
        mine = identifiers.uuid_floor(moment)
        [(floor, time)] = await pool.fetch(
            "select webhooks.uuid_floor($1::timestamptz)::text, webhooks.uuid_time($2::uuid)",
            (moment, str(mine)),
        )
        assert UUID(floor) == mine
        assert time == made_at(mine)
