"""The delivery queue in the store: claims, leases and outcomes."""

from __future__ import annotations

import dataclasses
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import psycopg2
import pytest
from dataapi.database.sql_text import split
from dataapi.http import strict_json
from dataapi.webhooks.catalogue import read_payload
from dataapi.webhooks.delivery.dispatcher import CHANGED
from dataapi.webhooks.model import Cursor, DeliveryFilter, QueueStatistics, Scope, Status, Trigger
from dataapi.webhooks.secrets import Cipher, new_key
from dataapi.webhooks.store import make_store
from dataapi.webhooks.store.queue import ROWS_SAMPLED, SESSION_GRACE, UNREADABLE_DELAY, join_statement
from dataapi.webhooks.store.statements import load_statements
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
from twisted.internet.defer import Deferred, gatherResults

if TYPE_CHECKING:
    from dataapi.database.pool import Pool
    from dataapi.webhooks.model import DueWork
    from dataapi.webhooks.store import Store
    from support.postgres import Database

ALL = DeliveryFilter()
DEEP = '{"n": ' + "[" * 1500 + "]" * 1500 + "}"


async def test_claim_returns_everything_an_attempt_needs(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store, custom_headers={"X-Key": "1"})
    await publish(store, reason="inactivity")
    [work] = await claim(store)
    assert (work.endpoint_id, work.url) == (endpoint.id, endpoint.url)
    assert (work.signing_secret, work.custom_headers) == (SECRET, {"X-Key": "1"})
    assert (work.attempt_number, work.trigger, work.event_type) == (1, Trigger.AUTOMATIC, PAUSED)
    assert work.body is not None
    assert str(work.event_id).encode() in work.body
    assert b'"reason": "inactivity"' in work.body
    assert 0 <= work.waited < 5
    assert SECRET not in repr(work)


async def test_concurrent_claims_do_not_overlap(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    for _ in range(30):
        await publish(store)
    stores = [store, make_store(pool, Cipher([KEY]), 14), make_store(pool, Cipher([KEY]), 14)]
    claimed = await gatherResults([Deferred.fromCoroutine(claim(one, 15)) for one in stores])
    claimed_rows = [work.claim.delivery_id for works in claimed for work in works]
    assert len(claimed_rows) == len(set(claimed_rows)) == 30


async def test_oldest_due_attempt_is_claimed_first(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    for _ in range(5):
        await publish(store)
    claimed = [*await claim(store, 3), *await claim(store, 3)]
    identifiers = [work.claim.delivery_id for work in claimed]
    assert len(identifiers) == 5
    assert identifiers == sorted(identifiers)


async def test_expired_lease_can_be_claimed_again(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [first] = await claim(store, lease=0.0)
    [second] = await claim(store)
    assert second.claim.delivery_id == first.claim.delivery_id
    assert second.claim.fence > first.claim.fence
    assert (second.event_id, second.body, second.attempt_number) == (first.event_id, first.body, 1)


async def test_outcome_of_a_lost_lease_is_ignored(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [slow] = await claim(store, lease=0.0)
    [quick] = await claim(store)
    assert await store.queue.finish([failure(slow, 10)]) == frozenset()
    assert await store.queue.release([slow.claim]) == 0
    assert await store.queue.finish([success(quick)]) == {quick.claim.delivery_id}
    assert await store.queue.finish([failure(slow, 10)]) == frozenset()
    [record] = (await store.history.page(ACME, None, ALL, Cursor())).deliveries
    assert record.status is Status.SUCCESS


@pytest.mark.parametrize("late_first", [True, False])
async def test_one_batch_with_stale_and_current_outcomes_records_the_current(
    database: Database, pool: Pool, late_first: bool
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    await publish(store)
    late = await claim(store, lease=0.0)
    one, two = await claim(store)
    assert {work.claim.delivery_id for work in late} == {one.claim.delivery_id, two.claim.delivery_id}
    fates = {one.claim.delivery_id: (success(one), 10.0), two.claim.delivery_id: (failure(two, 10), None)}
    stale = [failure(work, fates[work.claim.delivery_id][1]) for work in late]
    counted = [fate for fate, _ in fates.values()]
    batch = stale + counted if late_first else counted + stale
    assert await store.queue.finish(batch) == set(fates)
    records = (await store.history.page(ACME, None, ALL, Cursor())).deliveries
    assert sorted((record.status, record.attempt_number) for record in records) == [
        (Status.FAILED, 1),
        (Status.PENDING, 2),
        (Status.SUCCESS, 1),
    ]


async def test_manual_success_ends_automatic_retries(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [automatic] = await claim(store)
    await retry_successfully(store, automatic)
    await store.queue.finish([failure(automatic, 10.0)])
    assert await store.queue.next_due() is None
    [failed] = (await store.history.page(ACME, None, DeliveryFilter(Status.FAILED), Cursor())).deliveries
    assert failed.next_attempt_at is None


@pytest.mark.parametrize("attempt", [1, 2])
async def test_claimed_attempt_is_skipped_after_a_manual_success(
    database: Database, pool: Pool, attempt: int
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [automatic] = await claim(store)
    if attempt == 2:
        await store.queue.finish([failure(automatic, 0.0)])
        [automatic] = await claim(store)
    with closing(psycopg2.connect(database.uri)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"listen {CHANGED}")
            await retry_successfully(store, automatic)
            cursor.execute("select")
        assert [one.channel for one in connection.notifies] == [CHANGED] * (attempt - 1)
    await store.queue.release([automatic.claim])
    claimed = await store.queue.claim(10, 30.0)
    assert (claimed.work, claimed.settled) == ((), 1)
    [skipped] = (await store.history.page(ACME, None, DeliveryFilter(Status.SKIPPED), Cursor())).deliveries
    assert (skipped.id, skipped.attempt_number) == (automatic.claim.delivery_id, attempt)


async def retry_successfully(store: Store, automatic: DueWork) -> None:
    await store.manual_deliveries.retry(ACME, automatic.claim.delivery_id)
    [manual] = await claim(store)
    assert (manual.event_id, manual.trigger) == (automatic.event_id, Trigger.MANUAL)
    assert await store.queue.finish([success(manual)])


async def test_failure_is_recorded_with_the_next_attempt(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [work] = await claim(store)
    await store.queue.finish([failure(work, 90.0)])
    after, before = (await store.history.page(ACME, None, ALL, Cursor())).deliveries
    assert (before.status, before.attempt_number, before.error) == (Status.FAILED, 1, "timeout")
    assert (after.status, after.attempt_number) == (Status.PENDING, 2)
    assert before.next_attempt_at == after.next_attempt_at
    assert after.event_id == before.event_id
    seconds = await store.queue.next_due()
    assert seconds == pytest.approx(90, abs=5)
    assert await claim(store) == ()


async def test_batch_of_different_outcomes_is_recorded(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    for _ in range(4):
        await publish(store)
    one, two, three, lost = await claim(store)
    stale = dataclasses.replace(lost, claim=dataclasses.replace(lost.claim, fence=99))
    accepted = await store.queue.finish([success(one), failure(two, 10), failure(three), success(stale)])
    assert accepted == {work.claim.delivery_id for work in (one, two, three)}
    records = {
        record.id: record.status
        for record in (await store.history.page(ACME, None, ALL, Cursor())).deliveries
        if record.attempt_number == 1
    }
    assert [records[work.claim.delivery_id] for work in (one, two, three, lost)] == [
        Status.SUCCESS,
        Status.FAILED,
        Status.FAILED,
        Status.PENDING,
    ]


async def test_hostile_response_does_not_spoil_the_batch(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [work] = await claim(store)
    finished = success(work)
    nasty = dataclasses.replace(
        finished.outcome,
        response_code=99_999_999,
        response_headers=(("X-A\0", "1"), ("X-A\0", "2\ud800")),
        response_body="a\0b\udfff'%s $1",
    )
    await store.queue.finish([dataclasses.replace(finished, outcome=nasty)])
    [record] = (await store.history.page(ACME, None, ALL, Cursor())).deliveries
    assert record.response_code == 0
    assert record.response_headers == {"X-A\ufffd": "1, 2?"}
    assert record.response_body == "a\ufffdb?'%s $1"


async def test_released_work_can_be_claimed_immediately(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [work] = await claim(store, lease=1000)
    assert await claim(store) == ()
    assert await store.queue.release([work.claim]) == 1
    [again] = await claim(store)
    assert (again.claim.delivery_id, again.attempt_number) == (work.claim.delivery_id, 1)
    assert await store.queue.release([again.claim], 50.0) == 1
    assert await store.queue.next_due() == pytest.approx(50, abs=5)


async def test_next_due_is_the_earliest_attempt_or_lease(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    assert await store.queue.next_due() is None
    await add_endpoint(store)
    await publish(store)
    seconds = await store.queue.next_due()
    assert seconds is not None
    assert seconds <= 0
    await claim(store, lease=25.0)
    assert await store.queue.next_due() == pytest.approx(25, abs=5)


async def test_long_queue_does_not_delay_other_endpoints(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    busy = [await add_endpoint(store, event_types=(PAUSED,)) for _ in range(3)]
    for _ in range(10):
        await publish(store)
    late = await add_endpoint(store, event_types=("v1.project.restored",))
    await publish(store, event_type="v1.project.restored")
    seen = []
    for _ in range(4):
        works = await claim(store, 2, per_endpoint=2)
        seen.append({work.endpoint_id for work in works})
    assert set().union(*seen) == {late.id, *(endpoint.id for endpoint in busy)}


async def test_saturated_endpoints_are_not_claimed(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    dead, alive = [await add_endpoint(store) for _ in range(2)]
    for _ in range(3):
        await publish(store)
    works = await claim(store, limits={dead.id: 0})
    assert {work.endpoint_id for work in works} == {alive.id}
    assert len(works) == 3
    first, without_dead = await store.queue.next_due(), await store.queue.next_due([dead.id])
    assert first is not None
    assert without_dead is not None
    assert first < 0 < without_dead
    assert len(await claim(store, limits={dead.id: 2})) == 2


async def test_saturated_organizations_are_not_claimed(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await store.directory.create_organization("other", early_access=True)
    new, busy = [await add_endpoint(store, scope) for scope in (PROJECT, ACME)]
    await publish(store)
    assert await claim(store, full=["acme"]) == ()
    assert await store.queue.next_due([], ["acme"]) is None
    theirs = await add_endpoint(store, Scope("other"))
    await publish(store, Scope("other"), "v1.organization.member.added")
    works = await claim(store, full=["acme", "missing"], limits={busy.id: 1})
    assert {(work.endpoint_id, work.organization) for work in works} == {
        (busy.id, "acme"),
        (theirs.id, "other"),
    }
    due = await store.queue.next_due([], ["other"])
    assert due is not None
    assert due < 0
    assert [work.endpoint_id for work in await claim(store)] == [new.id]


async def test_work_with_an_unknown_key_is_postponed(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    unreadable = await add_endpoint(store)
    other = make_store(pool, Cipher([new_key()]), 14)
    readable = await add_endpoint(other)
    await publish(store)
    claimed = await other.queue.claim(10, 30)
    assert [work.endpoint_id for work in claimed.work] == [readable.id]
    assert claimed.unreadable == (unreadable.id,)
    await other.queue.finish([success(claimed.work[0])])
    assert await other.queue.next_due() == pytest.approx(UNREADABLE_DELAY, abs=5)
    database.execute("update webhooks.due set claimable_at = now()")
    [work] = await claim(store)
    assert work.attempt_number == 1


async def test_secrets_of_a_rotated_key_are_decrypted(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    rotated = make_store(pool, Cipher([new_key(), KEY]), 14)
    [work] = await claim(rotated)
    assert work.signing_secret == SECRET


async def test_missing_partition_is_created_when_history_is_written(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [work] = await claim(store)
    for (name,) in database.execute(
        "select inhrelid::regclass::text from pg_inherits where inhparent = 'webhooks.delivery'::regclass"
    ):
        database.execute(f"drop table {name}")
    assert await store.queue.finish([success(work)]) == {work.claim.delivery_id}
    [record] = (await store.history.page(ACME, None, ALL, Cursor())).deliveries
    assert record.id == work.claim.delivery_id


async def test_statistics_describe_the_queue(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    assert await store.queue.statistics() == QueueStatistics(0, 0, 0, 0.0)
    await add_endpoint(store)
    for _ in range(4):
        await publish(store)
    database.execute(
        "update webhooks.due set due_at = now() - interval '100 s' "
        "where delivery_id = (select delivery_id from webhooks.due limit 1)"
    )
    one, *_ = await claim(store, 2)
    figures = await store.queue.statistics()
    assert (figures.waiting, figures.ready, figures.leased) == (4, 2, 2)
    assert figures.oldest_due == pytest.approx(100, abs=5)
    await store.queue.finish([failure(one, 1000)])
    assert (await store.queue.statistics()).waiting == 4
    await claim(store, 1, lease=0.0)
    figures = await store.queue.statistics()
    assert (figures.ready, figures.leased) == (2, 1), "attempts with an expired lease are ready"
    database.execute("delete from webhooks.due where due_at <= now()")
    assert await store.queue.statistics() == QueueStatistics(1, 0, 0, 0.0)


async def test_statistics_of_a_long_queue_are_sampled(database: Database, pool: Pool) -> None:
    """Because only a sample is read, /metrics does not become slower as the queue grows."""
    store = await migrated(database, pool)
    database.execute(
        "insert into webhooks.due"
        " (delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at, leased) "
        "select gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 0, 'v1.a.b', 'manual',"
        " now() - interval '100 s', now() + case when n % 4 = 0 then -1 else 1 end * interval '1 h',"
        " n % 4 = 1 "
        "from generate_series(1, 20000) n"
    )
    figures = await store.queue.statistics()
    assert (figures.waiting, figures.ready, figures.leased) == (20_000, 5_000, 5_000)
    database.execute(
        "update pg_class set reltuples = %s where oid = 'webhooks.due'::regclass", (10 * ROWS_SAMPLED,)
    )
    read = await store.queue.statistics()
    # About 25 of 250 pages are read. Fewer than 8 or more than 60 are practically impossible.
    assert 6_000 < read.waiting < 50_000
    assert read.waiting % 10 == read.ready % 10 == read.leased % 10 == 0
    assert read.ready == pytest.approx(read.waiting / 4, rel=0.1)
    assert read.leased == pytest.approx(read.waiting / 4, rel=0.1)
    assert read.oldest_due == pytest.approx(100, abs=20)


@pytest.mark.parametrize("hostile", ['{"n": 1e5000}', '{"n": 1e400, "m": 1.5e400}', DEEP])
async def test_unreadable_payload_does_not_block_others(database: Database, pool: Pool, hostile: str) -> None:
    """PostgreSQL accepts JSON numbers and nesting depths that Python rejects."""
    store = await migrated(database, pool)
    await store.publisher.sync_event_types({"v2.project.paused": [PAUSED]})
    await add_endpoint(store)
    database.execute(
        "select webhooks.publish('v2.project.paused', 'acme', %s, %s, 'hostile')", (REF, hostile)
    )
    await publish(store)
    claimed_rows = await claim(store)
    assert [(work.event_type, work.body is None) for work in claimed_rows] == [
        ("v2.project.paused", False),
        (PAUSED, True),
        (PAUSED, False),
    ]
    for work in claimed_rows:
        read = await store.history.read(ACME, work.claim.delivery_id)
        assert read is not None
        assert read[1].payload is not None
        strict_json.EXACT_DECODER.decode(strict_json.encode(dict(read[1].payload)))


async def test_older_version_is_rendered_once(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await store.publisher.sync_event_types({"v2.project.paused": [PAUSED]})
    await add_endpoint(store, event_types=(PAUSED,))
    await publish(store, event_type="v2.project.paused", cause="idle")
    [work] = await claim(store)
    assert (work.event_type, work.rendered_from, work.body) == (PAUSED, "v2.project.paused", None)
    assert work.payload is not None
    assert json.loads(work.payload)["cause"] == "idle"
    price = read_payload('{"price": 1.10}')
    first = await store.queue.rendered(work.event_id, {"reason": "inactivity", **price})
    assert await store.queue.rendered(work.event_id, {"reason": "other"}) == first
    await store.queue.release([work.claim])
    [again] = await claim(store)
    assert again.body == first
    assert first.startswith(f'{{"id":"{work.event_id}","type":"{PAUSED}","timestamp":"'.encode())
    assert first.endswith(b'"payload":{"price": 1.10, "reason": "inactivity"}}')


def join(database: Database, number: int) -> Any:
    """Open the session that marks a dispatcher as alive."""
    session = psycopg2.connect(database.uri)
    session.autocommit = True
    with session.cursor() as cursor:
        cursor.execute(join_statement(number))
    return session


def terminate(database: Database, session: Any) -> None:
    """Terminate a session and wait until it ends. PostgreSQL 13's pg_terminate_backend cannot wait."""
    process = (session.info.backend_pid,)
    database.execute("select pg_terminate_backend(%s)", process)
    while database.execute("select from pg_stat_activity where pid = %s", process):
        pass


async def expire_session_grace(pool: Pool) -> None:
    """End the time in which a dispatcher may reconnect."""
    await pool.fetch(
        "update webhooks.dispatcher set missing_since = missing_since - $1 * interval '1 s'", (SESSION_GRACE,)
    )


@pytest.mark.direct("a pooler shares server processes between clients")
async def test_claims_of_a_dead_dispatcher_are_released(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    for _ in range(3):
        await publish(store)
    [dead] = await claim(store, 1, holder=1)
    await claim(store, 1, holder=2)
    await claim(store, 1)
    with closing(join(database, 2)):
        join(database, 1).close()
        while database.execute("select from pg_locks where locktype = 'advisory' and objid = 1"):
            pass
        assert await store.queue.end_lost_leases(3) == 0
        assert await store.queue.end_lost_leases(3) == 0, "the dispatcher may reconnect"
        await expire_session_grace(pool)
        assert await store.queue.end_lost_leases(3) == 1
        [again] = await claim(store)
    assert again.claim.delivery_id == dead.claim.delivery_id
    assert not await store.queue.finish([success(dead)])


@pytest.mark.direct("a pooler shares server processes between clients")
@pytest.mark.parametrize(
    "early", [True, False], ids=["before the old session ends", "after the old session ends"]
)
async def test_reconnected_dispatcher_keeps_its_claims(
    database: Database, pool: Pool, *, early: bool
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [work] = await claim(store, holder=1)
    old = join(database, 1)
    if early:
        new = join(database, 1)
    terminate(database, old)
    await store.queue.end_lost_leases(2)
    if not early:
        new = join(database, 1)
    with closing(new):
        await store.queue.leave(1)
        await expire_session_grace(pool)
        assert await store.queue.end_lost_leases(2) == 0
        assert await claim(store) == ()
        assert await store.queue.finish([success(work)])


@pytest.mark.direct("a pooler shares server processes between clients")
async def test_dispatcher_without_a_session_keeps_its_leases(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    await claim(store, holder=1)
    session = join(database, 1)
    terminate(database, session)
    await store.queue.leave(1)
    await store.queue.end_lost_leases(2)
    await expire_session_grace(pool)
    assert await store.queue.end_lost_leases(2) == 0
    assert await claim(store) == ()


_OTHERS_WAIT = """
insert into webhooks.due (
    delivery_id, event_id, endpoint_id, epoch, event_type, trigger, attempt_number, due_at, claimable_at,
    waiting
)
select webhooks.uuid_v7(), gen_random_uuid(), gen_random_uuid(), 0, 'v1.project.paused', 'automatic', 2,
       later, later, true
from generate_series(1, 1000) n cross join lateral (select now() + interval '1 hour') as l (later)
"""
_READ = "select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables where relname = 'due'"


@pytest.mark.parametrize("statement", ["claim", "next_due"])
async def test_claims_do_not_read_attempts_that_are_not_due(
    database: Database, pool: Pool, statement: str
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    database.execute(_OTHERS_WAIT)
    no_one = str(UUID(int=0))
    values = [100, 30.0, 16, no_one, [], [], [], None] if statement == "claim" else [[], []]
    with psycopg.connect(database.admin_uri, cursor_factory=psycopg.RawCursor) as connection:
        for part in split(load_statements("queue.sql")[statement]):
            claimed_rows = connection.execute(part.text, part.arrange(values))
        assert len(claimed_rows.fetchall()) == 1
        [(read,)] = connection.execute(_READ).fetchall()
    assert 1 <= read <= 10


async def test_claim_includes_retries_that_have_become_due(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await publish(store)
    [work] = await claim(store)
    await store.queue.finish([failure(work, 3600.0)])
    assert await claim(store) == ()
    database.execute(
        "update webhooks.due set due_at = now(), claimable_at = now() - interval '1 second' where waiting"
    )
    assert (await store.queue.next_due() or 1) <= 0
    [again] = await claim(store)
    assert (again.endpoint_id, again.attempt_number) == (endpoint.id, 2)
