"""Endpoints in the store: what is kept of them, who sees them, and what goes with them."""

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


async def test_endpoint_is_read_as_it_was_created(database: Database, pool: Pool) -> None:
    """Endpoint attributes; the signing secret is not among them."""
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
    """Neither signing secret nor header values can be read in the database."""
    store = await migrated(database, pool)
    await add_endpoint(store, custom_headers={"X-Key": "geheim"})
    [(secret, headers)] = database.execute("select signing_secret, custom_headers from webhooks.endpoint")
    assert SECRET.encode() not in bytes(secret)
    assert b"geheim" not in bytes(headers)


async def test_endpoints_need_an_encryption_key(database: Database, pool: Pool) -> None:
    """Without [webhooks] encryption-key nothing is created, and the error names the key."""
    await migrated(database, pool)
    store = make_store(pool, Cipher([]), 14)
    with pytest.raises(NoEncryptionKey, match="encryption-key"):
        await add_endpoint(store)
    assert database.execute("select count(*) from webhooks.endpoint") == [(0,)]


async def test_secret_of_one_endpoint_is_of_no_use_to_another(database: Database, pool: Pool) -> None:
    """The ciphertext is bound to its endpoint: copied to another one, it does not open."""
    store = await migrated(database, pool)
    victim, other = [await add_endpoint(store) for _ in range(2)]
    database.execute(
        "update webhooks.endpoint set custom_headers = "
        f"(select custom_headers from webhooks.endpoint where id = '{victim.id}') where id = '{other.id}'"
    )
    with pytest.raises(CannotOpen):
        await store.endpoints.read(ACME, other.id)
    assert await store.endpoints.delete(ACME, other.id) == other


async def test_endpoint_is_visible_only_under_its_own_scope(database: Database, pool: Pool) -> None:
    """An endpoint is visible only under the scope that it was created in."""
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


async def test_endpoints_are_listed_page_by_page_with_their_total(database: Database, pool: Pool) -> None:
    """Limit, offset, and what the links need."""
    store = await migrated(database, pool)
    made = [await add_endpoint(store) for _ in range(5)]
    assert await store.endpoints.page(ACME, 2, 0) == (tuple(made[:2]), 5)
    assert await store.endpoints.page(ACME, 2, 4) == ((made[4],), 5)
    assert await store.endpoints.page(ACME, 2, 6) == ((), 5)


async def test_a_scope_has_a_limit_of_endpoints(database: Database, pool: Pool) -> None:
    """At most 50 endpoints per scope; scopes do not count for each other."""
    store = await migrated(database, pool)
    few = dataclasses.replace(store, endpoints=Endpoints(pool, Cipher([KEY]), maximum=2))
    for _ in range(2):
        await add_endpoint(few)
    with pytest.raises(TooManyEndpoints):
        await add_endpoint(few)
    await add_endpoint(few, PROJECT)


async def test_change_leaves_what_is_not_given(database: Database, pool: Pool) -> None:
    """Absent is unchanged, null clears the description."""
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


async def test_new_secret_and_url_are_used_by_pending_deliveries(database: Database, pool: Pool) -> None:
    """Attempts after the commit use the new secret, retries the new url."""
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


async def test_resealing_leaves_what_is_changed_meanwhile(database: Database, pool: Pool) -> None:
    """Beside running daemons: a secret that is replaced while it is sealed anew stays the new one."""
    old = await migrated(database, pool)
    first, second, third = [await add_endpoint(old, event_types=(PAUSED,)) for _ in range(3)]
    newest = new_key()
    between = make_store(pool, Cipher([newest, KEY]), 14)

    class Beside:
        """Lets somebody change and delete endpoints right before the first one is replaced."""

        done = False

        async def fetch(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
            if "update" in text and not self.done:
                self.done = True
                await old.endpoints.change(ACME, first.id, EndpointChange(signing_secret="changed meanwhile"))
                await between.endpoints.change(ACME, second.id, EndpointChange(signing_secret="changed too"))
                await old.endpoints.delete(ACME, third.id)
            return await pool.fetch(text, values)

    done = await KeyRotation(Beside(), Cipher([newest, KEY]), batch_size=1).run()
    assert (done.sealed, done.unreadable) == (2, ())
    await publish(old)
    work = await claim(make_store(pool, Cipher([newest]), 14))
    assert sorted(one.signing_secret for one in work) == ["changed meanwhile", "changed too"]


async def test_deleting_an_endpoint_deletes_its_events_and_deliveries(database: Database, pool: Pool) -> None:
    """What other endpoints have stays."""
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
async def test_an_endpoint_with_many_rows_is_deleted_at_once(
    database: Database, pool: Pool, everything: bool
) -> None:
    """Nothing of it is shown or delivered from then on, and upkeep removes its rows in pieces."""
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
    kept = others[1:] if everything else others
    page = await store.history.page(ACME, None, ALL, Cursor())
    assert [one.endpoint_id for one in page.deliveries] == [one.id for one in kept if one.scope == ACME]
    assert await store.history.read(ACME, UUID(record)) is None
    assert await store.history.statistics(ACME, None, None) == ()
    assert await store.manual_deliveries.retry(ACME, UUID(record)) == Refused(RefusalReason.NOT_FOUND)
    assert {work.endpoint_id for work in await claim(store)} <= {one.id for one in kept}
    store.upkeep._batch_size = 700
    assert (await store.upkeep.run()).removed > left
    for table, left_in in (("delivery", []), ("due", kept), ("event", kept)):
        rows = database.execute(f"select distinct endpoint_id::text from webhooks.{table}")
        assert {UUID(identifier) for (identifier,) in rows} == {one.id for one in left_in}, table
    assert (await store.upkeep.run()).removed == 0


async def test_deleting_beside_outcomes_that_lock_in_another_order(
    database: Database, pool: Pool, reactor: Any
) -> None:
    """Whom PostgreSQL chooses to end a deadlock, the endpoint is deleted."""
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    for _ in range(2):
        await publish(store)
    first, second = sorted(str(work.claim.delivery_id) for work in await claim(store))
    lock = "select 1 from webhooks.due where delivery_id = %s for update"
    with closing(psycopg2.connect(database.admin_uri)) as connection, connection.cursor() as cursor:
        # This one waits for longer than the deletion before it looks whether that is in vain.
        cursor.execute("set deadlock_timeout = '1min'")
        cursor.execute(lock, (second,))
        deleting = Deferred.fromCoroutine(store.endpoints.delete(ACME, endpoint.id))
        await until(reactor, lambda: bool(database.execute(BLOCKED)))
        await threads.deferToThread(cursor.execute, lock, (first,))
        assert not deleting.called
        connection.commit()
    assert await deleting == endpoint
    assert database.execute("select count(*) from webhooks.due") == [(0,)]


async def test_attempt_in_flight_when_its_endpoint_is_deleted_is_a_no_op(
    database: Database, pool: Pool
) -> None:
    """Nothing is recorded, nothing is tried again."""
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    for _ in range(2):
        await publish(store)
    one, two = await claim(store)
    await store.endpoints.delete(ACME, endpoint.id)
    assert await store.queue.finish([success(one), failure(two, 10)]) == frozenset()
    assert database.execute("select count(*) from webhooks.delivery") == [(0,)]
    assert await store.queue.next_due() is None


async def test_publishing_beside_a_deletion_leaves_nothing_stuck(database: Database, pool: Pool) -> None:
    """A due row whose endpoint is gone is dropped when it comes due, with nothing recorded."""
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store)
    database.execute("delete from webhooks.endpoint")
    claimed = await store.queue.claim(10, 30)
    assert (claimed.work, claimed.settled) == ((), 1)
    assert await store.queue.next_due() is None
    assert database.execute("select count(*) from webhooks.delivery") == [(0,)]


async def test_disabling_skips_what_is_enqueued_when_it_comes_due(database: Database, pool: Pool) -> None:
    """Events already enqueued become records with status skipped, and nothing is sent."""
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await publish(store)
    await store.endpoints.change(ACME, endpoint.id, EndpointChange(enabled=False))
    [pending] = (await store.history.page(ACME, None, ALL, Cursor())).deliveries
    assert pending.status is Status.PENDING
    assert await store.queue.claim(10, 30) == ClaimResult((), settled=1)
    [skipped] = (await store.history.page(ACME, None, ALL, Cursor())).deliveries
    assert (skipped.id, skipped.status, skipped.attempt_timestamp) == (pending.id, Status.SKIPPED, None)


async def test_enabling_again_does_not_revive(database: Database, pool: Pool) -> None:
    """Not even what is due only after the endpoint was enabled again."""
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await publish(store)
    for enabled in (False, False, True):
        await store.endpoints.change(ACME, endpoint.id, EndpointChange(enabled=enabled))
    await publish(store)
    claimed = await store.queue.claim(10, 30)
    assert claimed.settled == 1
    assert len(claimed.work) == 1


async def test_failure_of_an_attempt_in_flight_when_disabled_is_not_tried_again(
    database: Database, pool: Pool
) -> None:
    """The attempt is recorded as it ended, the one planned after it is skipped when it comes due."""
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


async def test_event_after_disabling_is_dropped(database: Database, pool: Pool) -> None:
    """An event that arrives after disabling leaves no record."""
    store = await migrated(database, pool)
    await add_endpoint(store, enabled=False)
    await publish(store)
    assert database.execute("select count(*) from webhooks.event") == [(0,)]
    assert await store.queue.next_due() is None


async def test_identifiers_of_both_makers_agree(database: Database, pool: Pool) -> None:
    """What SQL makes, Python takes apart, and the other way round; SQL's sort by when they were made."""
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
