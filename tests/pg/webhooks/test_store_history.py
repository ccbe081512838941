"""The delivery history in the store: pages, filters, expiry, tests, retries and recovery."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import starmap
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg2
import pytest
from dataapi.webhooks import identifiers
from dataapi.webhooks.model import (
    Accepted,
    Cursor,
    DailyStatistics,
    DeliveryFilter,
    EndpointChange,
    Recovery,
    RefusalReason,
    Refused,
    Scope,
    Status,
    Trigger,
)
from dataapi.webhooks.store.history import History
from support.webhooks import (
    ACME,
    PAUSED,
    PROJECT,
    REF,
    add_endpoint,
    claim,
    failure,
    made_at,
    migrated,
    publish,
    success,
)
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.database.pool import Pool
    from dataapi.webhooks.store import Store
    from support.postgres import Database

ALL = DeliveryFilter()
MOVED = {"delivery": ["id", "event_id"], "due": ["delivery_id", "event_id"], "event": ["id"]}


async def list_ids(store: Store, scope: Scope = ACME, size: int = 100, **wanted: Any) -> list[UUID]:
    page = await store.history.page(scope, None, DeliveryFilter(**wanted), Cursor(size))
    return [record.id for record in page.deliveries]


def age(database: Database, days: float) -> None:
    """Move all deliveries, due attempts and events a number of days into the past."""
    passed = f"interval '{days} days'"
    older = (
        f"(left(replace(webhooks.uuid_floor(webhooks.uuid_time(%s) - {passed})::text, '-', ''), 12)"
        " || substr(replace(%s::text, '-', ''), 13))::uuid"
    )
    partitions = []
    for day in range(1, 35):
        begin = datetime.combine(datetime.now(UTC).date() - timedelta(days=day), datetime.min.time(), UTC)
        low, high = (identifiers.uuid_floor(begin + timedelta(days=one)) for one in (0, 1))
        name = f"webhooks.delivery_{begin:%Y%m%d}"
        partitions.append(
            f"create table if not exists {name} partition of webhooks.delivery "
            f"for values from ('{low}') to ('{high}'); alter table {name} owner to authenticator"
        )
    database.execute(";".join(partitions))
    for table, columns in MOVED.items():
        moved = ", ".join(f"{column} = {older.replace('%s', column)}" for column in columns)
        database.execute(f"update webhooks.{table} set {moved}")
    database.execute(f"update webhooks.event set kept_until = kept_until - {passed}")


async def test_deliveries_are_paged_newest_first(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    for _ in range(7):
        await publish(store)
    works = await claim(store, 4)
    await store.queue.finish([success(work) for work in works])
    everything = await list_ids(store)
    assert len(everything) == 7
    assert everything == sorted(everything, reverse=True)

    async def page(cursor: Cursor) -> tuple[list[UUID], bool, bool]:
        result = await store.history.page(ACME, endpoint.id, ALL, cursor)
        return [record.id for record in result.deliveries], result.newer, result.older

    assert await page(Cursor(3)) == (everything[:3], False, True)
    assert await page(Cursor(3, after=everything[2])) == (everything[3:6], True, True)
    assert await page(Cursor(3, after=everything[5])) == (everything[6:], True, False)
    assert await page(Cursor(3, before=everything[6])) == (everything[3:6], True, True)
    assert await page(Cursor(3, before=everything[3])) == (everything[:3], False, True)


async def test_lists_can_be_filtered(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    for event_type in (PAUSED, "v1.project.restored", PAUSED):
        await publish(store, event_type=event_type)
    one, two, three = sorted(await claim(store), key=lambda work: work.claim.delivery_id)
    await store.queue.finish([success(one), failure(two)])
    ids = [work.claim.delivery_id for work in (one, two, three)]
    assert await list_ids(store, status=Status.SUCCESS) == [ids[0]]
    assert await list_ids(store, status=Status.FAILED) == [ids[1]]
    assert await list_ids(store, status=Status.PENDING) == [ids[2]]
    assert await list_ids(store, status=Status.SKIPPED) == []
    assert await list_ids(store, event_id=two.event_id) == [ids[1]]
    assert await list_ids(store, event_id=three.event_id) == [ids[2]]
    assert await list_ids(store, event_type=PAUSED) == [ids[2], ids[0]]
    moment = made_at(ids[1])
    assert set(await list_ids(store, since=moment)) == {one for one in ids if made_at(one) >= moment}
    assert set(await list_ids(store, until=moment)) == {one for one in ids if made_at(one) < moment}


class Explained:
    """Runs statements with EXPLAIN ANALYZE.

    :ivar passed_over: number of rows that a filter removed.
    :ivar pages: number of pages read.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.passed_over = 0
        self.pages = 0

    async def fetch(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        [(plan,)] = await self._pool.fetch(f"explain (analyze, buffers, format json) {text}", values)
        nodes = [json.loads(bytes(plan))[0]["Plan"]]
        self.pages += nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"]
        while nodes:
            node = nodes.pop()
            self.passed_over += node.get("Rows Removed by Filter", 0) * node["Actual Loops"]
            nodes += node.get("Plans", [])
        return []


@pytest.mark.parametrize(
    "rare",
    [
        {"status": Status.FAILED},
        {"status": Status.SKIPPED},
        {"status": Status.PENDING},
        {"event_type": "v1.project.restored"},
        {"event_id": UUID(int=1)},
    ],
)
async def test_filtered_page_reads_only_matching_rows(
    database: Database, pool: Pool, rare: dict[str, Any]
) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    database.execute(
        "insert into webhooks.delivery"
        " (id, event_id, endpoint_id, event_type, status, attempt_number, trigger)"
        " select webhooks.uuid_v7(), webhooks.uuid_v7(), %s, %s, 'success', 1, 'automatic'"
        " from generate_series(1, 5000); analyze webhooks.delivery",
        (str(endpoint.id), PAUSED),
    )
    explained = Explained(pool)
    await History(explained, 14).page(ACME, None, DeliveryFilter(**rare), Cursor())
    assert explained.passed_over < 50


HISTORY = """
insert into webhooks.delivery (
    id, event_id, endpoint_id, event_type, status, attempt_number, trigger, response_body
)
select webhooks.uuid_v7(), webhooks.uuid_v7(), %s, %s, %s, 1, 'automatic',
       (select string_agg(md5(n::text || m), '') from generate_series(1, 45) m)
from generate_series(1, 2000) n
"""
WAITING = """
with raised as (
    insert into webhooks.event (id, endpoint_id, type, happened_at, body)
    select webhooks.uuid_v7(), %s, %s, now(),
           (select string_agg(md5(n::text || m), '') from generate_series(1, 45) m)
    from generate_series(1, 2000) n
    returning *
)
insert into webhooks.due (
    delivery_id, event_id, endpoint_id, event_type, epoch, trigger, due_at, claimable_at
)
select webhooks.uuid_v7(), id, endpoint_id, type, 0, 'automatic', now(), now() from raised
"""


@pytest.mark.parametrize(
    ("status", "rare"),
    [
        ("failed", {"status": Status.SUCCESS}),
        ("failed", {"status": Status.SUCCESS, "event_type": PAUSED}),
        (None, {"event_type": "v1.project.restored"}),
        (None, {"event_type": "v1.project.restored", "status": Status.PENDING}),
    ],
)
async def test_filter_without_matches_reads_few_pages(
    database: Database, pool: Pool, status: str | None, rare: dict[str, Any]
) -> None:
    store = await migrated(database, pool)
    endpoint = str((await add_endpoint(store)).id)
    # VACUUM marks only pages as all-visible whose commits have been flushed to the WAL.
    flushed = "set synchronous_commit = on;"
    if status is None:
        database.execute(flushed + WAITING, (endpoint, PAUSED))
    else:
        database.execute(flushed + HISTORY, (endpoint, PAUSED, status))
    for table in ("due", "event", "delivery"):
        database.execute(f"vacuum analyze webhooks.{table}")
    explained = Explained(pool)
    await History(explained, 14).page(ACME, None, DeliveryFilter(**rare), Cursor())
    assert explained.pages < 150


async def test_deliveries_belong_to_their_endpoints_scope(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await add_endpoint(store, PROJECT)
    await publish(store)
    [theirs], both = await list_ids(store), await list_ids(store, PROJECT)
    [ours] = set(both) - {theirs}
    for scope, identifier in (
        (ACME, ours),
        (PROJECT, theirs),
        (Scope("other"), ours),
        (Scope("other", REF), ours),
    ):
        record = await store.history.read(scope, identifier)
        assert (record is None) == (scope != PROJECT)
        assert await store.manual_deliveries.retry(scope, identifier) == Refused(RefusalReason.NOT_FOUND)
    assert await store.history.read(PROJECT, ours) is not None


async def test_delivery_is_read_with_its_event(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await publish(store, reason="other")
    [work] = await claim(store)
    pending = await store.history.read(ACME, work.claim.delivery_id)
    finished = success(work, response_headers=(("X", "y"),), response_body="done")
    await store.queue.finish([finished])
    delivery = await store.history.read(ACME, work.claim.delivery_id)
    assert delivery is not None
    assert pending is not None
    record, event = delivery
    assert (pending[0].id, pending[0].status, pending[1]) == (record.id, Status.PENDING, event)
    assert work.body is not None
    sent = json.loads(work.body)
    assert (str(event.id), event.type, event.payload) == (sent["id"], sent["type"], sent["payload"])
    assert event.timestamp == datetime.fromisoformat(sent["timestamp"])
    assert (record.event_id, record.endpoint_id, record.event_type) == (work.event_id, endpoint.id, PAUSED)
    assert (record.status, record.attempt_number, record.trigger) == (Status.SUCCESS, 1, Trigger.AUTOMATIC)
    assert (record.response_code, record.response_headers, record.response_body) == (200, {"X": "y"}, "done")
    assert (record.error, record.duration_ms) == (None, 12)
    assert record.attempt_timestamp == finished.outcome.signed_at
    assert record.created_at == made_at(record.id)
    assert record.expires_at == record.created_at + timedelta(days=14)


async def test_deliveries_expire_after_exactly_14_days(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [work] = await claim(store)
    await store.queue.finish([failure(work)])
    age(database, 13.999)
    [identifier] = await list_ids(store)
    assert await store.history.read(ACME, identifier) is not None
    age(database, 0.0011)
    [(older,)] = database.execute("select id from webhooks.delivery")
    assert await list_ids(store) == []
    assert await store.history.read(ACME, UUID(older)) is None
    assert await store.manual_deliveries.retry(ACME, UUID(older)) == Refused(RefusalReason.NOT_FOUND)


async def test_manual_retry_creates_a_new_delivery_of_the_same_event(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    [work] = await claim(store)
    await store.queue.finish([failure(work)])
    accepted = await store.manual_deliveries.retry(ACME, work.claim.delivery_id)
    assert isinstance(accepted, Accepted)
    [again] = await claim(store)
    assert accepted == Accepted(work.event_id, again.claim.delivery_id)
    assert (again.body, again.attempt_number, again.trigger) == (work.body, 1, Trigger.MANUAL)
    await store.queue.finish([success(again)])
    assert await list_ids(store) == [again.claim.delivery_id, work.claim.delivery_id]


async def test_retried_event_outlives_its_first_delivery(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    for _ in range(2):
        await publish(store)
    await store.queue.finish([failure(work) for work in await claim(store)])
    age(database, 13.5)
    retried, _ = await list_ids(store)
    await store.manual_deliveries.retry(ACME, retried)
    [again] = await claim(store)
    await store.queue.finish([success(again)])
    age(database, 13.5)
    assert (await store.maintenance.run()).events == 1
    [still] = await list_ids(store)
    delivery = await store.history.read(ACME, still)
    assert delivery is not None
    assert (delivery[0].trigger, delivery[1].type) == (Trigger.MANUAL, PAUSED)
    age(database, 2)
    assert (await store.maintenance.run()).events == 1
    assert await list_ids(store) == []


@pytest.mark.parametrize("days", [0.3, 2])
async def test_event_outlives_attempts_delayed_by_an_outage(
    database: Database, pool: Pool, days: float
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    age(database, days)
    await store.queue.finish([failure(work, 0.0) for work in await claim(store)])
    [last] = await claim(store)
    await store.queue.finish([success(last)])
    age(database, 13.9)
    assert (await store.maintenance.run()).events == 0
    [identifier] = await list_ids(store)
    delivery = await store.history.read(ACME, identifier)
    assert delivery is not None
    assert delivery[0].attempt_number == 2


async def test_test_event_is_marked(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store, PROJECT)
    accepted = await store.manual_deliveries.test(
        PROJECT, endpoint.id, PAUSED, {"reason": "other", "is_test": False}
    )
    [work] = await claim(store)
    assert accepted == Accepted(work.event_id, work.claim.delivery_id)
    assert work.trigger is Trigger.TEST
    assert work.body is not None
    document = json.loads(work.body)
    assert (document["id"], document["type"]) == (str(work.event_id), PAUSED)
    assert document["payload"] == {
        "actor": None,
        "reason": "other",
        "is_test": True,
        "organization_slug": "acme",
        "project_ref": REF,
    }


async def test_tests_and_retries_of_a_disabled_endpoint_are_rejected(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await publish(store)
    [work] = await claim(store)
    await store.queue.finish([failure(work)])
    await store.endpoints.change(ACME, endpoint.id, EndpointChange(enabled=False))
    disabled = Refused(RefusalReason.DISABLED)
    assert await store.manual_deliveries.test(ACME, endpoint.id, PAUSED, {}) == disabled
    assert await store.manual_deliveries.retry(ACME, work.claim.delivery_id) == disabled
    assert (
        await store.manual_deliveries.recover(ACME, endpoint.id, datetime(2020, 1, 1, tzinfo=UTC)) == disabled
    )
    assert await store.queue.next_due() is None


async def test_tests_and_recoveries_of_an_unknown_endpoint_are_rejected(
    database: Database, pool: Pool
) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store, PROJECT)
    absent = Refused(RefusalReason.NOT_FOUND)
    assert await store.manual_deliveries.test(ACME, endpoint.id, PAUSED, {}) == absent
    assert (
        await store.manual_deliveries.recover(ACME, endpoint.id, datetime(2020, 1, 1, tzinfo=UTC)) == absent
    )


async def test_tests_and_retries_are_limited_per_endpoint(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint, other = [await add_endpoint(store) for _ in range(2)]
    await publish(store)
    delivery = next(work for work in await claim(store) if work.endpoint_id == endpoint.id).claim.delivery_id
    for _ in range(5):
        assert isinstance(await store.manual_deliveries.test(ACME, endpoint.id, PAUSED, {}), Accepted)
        assert isinstance(await store.manual_deliveries.retry(ACME, delivery), Accepted)
    for refused in (
        await store.manual_deliveries.test(ACME, endpoint.id, PAUSED, {}),
        await store.manual_deliveries.retry(ACME, delivery),
    ):
        assert isinstance(refused, Refused)
        assert refused.reason is RefusalReason.TOO_MANY
        assert 50 <= refused.retry_after <= 60
    assert isinstance(await store.manual_deliveries.test(ACME, other.id, PAUSED, {}), Accepted)
    database.execute("update webhooks.request set at = at - interval '60 seconds'")
    assert isinstance(await store.manual_deliveries.retry(ACME, delivery), Accepted)


async def test_recovery_retries_finally_failed_deliveries_in_a_range(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    for _ in range(5):
        await publish(store)
    lost, repaired, trying, good, _open = await claim(store)
    await store.queue.finish([failure(lost), failure(repaired), failure(trying, 100), success(good)])
    await store.manual_deliveries.retry(ACME, repaired.claim.delivery_id)
    [retried] = await claim(store)
    await store.queue.finish([success(retried)])
    now = datetime.now(UTC)
    early = await store.manual_deliveries.recover(
        ACME, endpoint.id, now - timedelta(days=2), now - timedelta(days=1)
    )
    assert isinstance(early, Recovery)
    assert early.matched == 0
    recovery = await store.manual_deliveries.recover(ACME, endpoint.id, now - timedelta(minutes=5))
    assert isinstance(recovery, Recovery)
    assert recovery.matched == 1
    [work] = await claim(store)
    assert (work.event_id, work.trigger, work.attempt_number) == (lost.event_id, Trigger.MANUAL, 1)
    again = await store.manual_deliveries.recover(ACME, endpoint.id, now - timedelta(minutes=5))
    assert isinstance(again, Recovery)
    assert again.matched == 0


async def test_recovery_skips_events_delivered_days_later(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    for _ in range(2):
        await publish(store)
    lost, repaired = await claim(store)
    await store.queue.finish([failure(lost), failure(repaired)])
    age(database, 3)
    [(failed,)] = database.execute("select id from webhooks.delivery order by event_id desc limit 1")
    await store.manual_deliveries.retry(ACME, UUID(failed))
    [retried] = await claim(store)
    await store.queue.finish([success(retried)])
    age(database, 2)
    recovery = await store.manual_deliveries.recover(ACME, endpoint.id, datetime.now(UTC) - timedelta(days=6))
    assert isinstance(recovery, Recovery)
    assert recovery.matched == 1
    [work] = await claim(store)
    assert work.event_id != retried.event_id


async def test_maintenance_drops_expired_partitions_and_keeps_queued_events(
    database: Database, pool: Pool
) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    for _ in range(2):
        await publish(store)
    done, due = await claim(store, lease=0.0)
    await store.queue.finish([success(done)])
    age(database, 20)
    await store.maintenance.run()
    assert database.execute("select count(*) from webhooks.event") == [(1,)]
    [late] = await claim(store)
    assert late.body == due.body
    assert await store.queue.finish([failure(late, 0.0)]) == {late.claim.delivery_id}
    [second] = await claim(store)
    await store.queue.finish([success(second)])
    result = await store.maintenance.run()
    assert result.dropped >= 1
    assert await list_ids(store) == [second.claim.delivery_id]
    assert (await store.history.page(ACME, endpoint.id, ALL, Cursor())).deliveries[0].status is Status.SUCCESS
    assert await store.history.read(ACME, second.claim.delivery_id) is not None


async def test_maintenance_creates_partitions_ahead_of_time(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    result = await store.maintenance.run()
    assert (result.created, result.dropped, result.events, result.keys) == (0, 0, 0, 0)
    [(last,)] = database.execute(
        "select max(inhrelid::regclass::text) from pg_inherits "
        "where inhparent = 'webhooks.delivery'::regclass"
    )
    assert last == f"webhooks.delivery_{datetime.now(UTC) + timedelta(days=7):%Y%m%d}"


def add_old_partitions(database: Database, count: int) -> None:
    for day in range(1, count + 1):
        database.execute(
            f"create table webhooks.delivery_2020010{day} partition of webhooks.delivery for values"
            f" from (webhooks.uuid_floor('2020-01-0{day} 00:00Z'))"
            f" to (webhooks.uuid_floor('2020-01-0{day + 1} 00:00Z'));"
            f"alter table webhooks.delivery_2020010{day} owner to authenticator"
        )


async def test_locked_partition_does_not_prevent_new_partitions(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    add_old_partitions(database, 3)
    [(newest,)] = database.execute(
        "select max(inhrelid::regclass::text) from pg_inherits "
        "where inhparent = 'webhooks.delivery'::regclass"
    )
    database.execute(f"drop table {newest}")
    reader = psycopg2.connect(database.admin_uri)
    try:
        with reader.cursor() as cursor:
            cursor.execute("select count(*) from webhooks.delivery_20200101")
        result = await store.maintenance.run()
        # Closing the connection would not immediately release the session's locks.
        reader.rollback()
    finally:
        reader.close()
    assert (result.created, result.dropped) == (1, 2)
    result = await store.maintenance.run()
    assert (result.created, result.dropped) == (0, 1)


async def test_partitions_are_dropped_one_at_a_time(database: Database, pool: Pool) -> None:
    """Each partition is dropped in its own transaction, so no session has to wait for all of them."""
    await migrated(database, pool)
    add_old_partitions(database, 2)
    drop = "select webhooks.drop_partition('14 days')"
    left = "select count(*) from pg_class where relname like 'delivery\\_202001__'"
    steps = [(database.execute(drop), database.execute(left)) for _ in range(3)]
    assert steps == [([(True,)], [(1,)]), ([(True,)], [(0,)]), ([(False,)], [(0,)])]


@pytest.mark.parametrize("batch_size", [1, 2, 100])
async def test_old_events_are_deleted_in_batches(database: Database, pool: Pool, batch_size: int) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    for _ in range(4):
        await publish(store)
    await store.queue.finish([success(work) for work in await claim(store)])
    age(database, 16)
    store.maintenance._batch_size = batch_size
    assert (await store.maintenance.run()).events == 4
    assert database.execute("select count(*) from webhooks.event") == [(0,)]


OF_FOUR_DAYS = """
insert into webhooks.delivery (
    id, event_id, endpoint_id, event_type, status, attempt_number, trigger, duration_ms
)
select (left(webhooks.uuid_floor(now() - n %% 4 * interval '1 day')::text, 15)
            || substr(md5(n::text), 14))::uuid,
       webhooks.uuid_v7(), endpoint_id::uuid, 'v1.project.paused',
       (array['success', 'failed', 'skipped'])[1 + kind / 5], 1, 'automatic',
       case when kind < 10 then ('x' || md5(n::text))::bit(6)::integer end
from (
    select n, n %% 11 as kind, (%s::text[])[1 + n %% 3] as endpoint_id from generate_series(1, 1000) n
) made
"""


async def test_statistics_match_the_recorded_attempts(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoints = [(await add_endpoint(store)).id for _ in range(3)]
    age(database, 0)
    database.execute(OF_FOUR_DAYS, ([str(one) for one in endpoints],))
    attempts = defaultdict[tuple[Any, UUID | None], list[tuple[str, int | None]]](list)
    for day, endpoint, *attempt in database.execute(
        "select (webhooks.uuid_time(id) at time zone 'UTC')::date, endpoint_id, status, duration_ms"
        " from webhooks.delivery"
    ):
        for key in (day, None), (day, UUID(endpoint)):
            attempts[key].append((attempt[0], attempt[1]))

    def counted(day: Any, endpoint: UUID | None) -> DailyStatistics:
        day_attempts = attempts[day, endpoint]
        numbers = Counter(status for status, _ in day_attempts)
        times = sorted(duration for _, duration in day_attempts if duration is not None)
        ranks = (-(-len(times) * part // 100) - 1 for part in (50, 95))
        return DailyStatistics(
            day,
            endpoint,
            *(numbers[one] for one in ("success", "failed", "skipped")),
            *map(times.__getitem__, ranks),
        )

    statistics = await store.history.statistics(ACME, None, None)
    assert len(statistics) == 16
    assert sorted(statistics, key=str) == sorted(starmap(counted, attempts), key=str)


async def test_concurrent_statistics_requests_use_one_connection() -> None:
    requested: list[defer.Deferred[Any]] = []

    class Slow:
        async def fetch(self, _text: str, _values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
            requested.append(defer.Deferred())
            rows: list[tuple[Any, ...]] = await requested[-1]
            return rows

    history = History(Slow(), 14)
    results = [defer.Deferred.fromCoroutine(history.statistics(ACME, None, None)) for _ in range(3)]
    assert len(requested) == 1
    results[1].addErrback(lambda failure: failure.trap(defer.CancelledError)).cancel()
    requested[0].errback(ValueError())
    results[0].addErrback(lambda failure: failure.trap(ValueError))
    assert len(requested) == 2
    requested[1].callback([])
    assert await results[2] == ()
