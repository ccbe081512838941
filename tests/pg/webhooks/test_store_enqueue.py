"""Publishing with ``webhooks.publish`` in the caller's transaction, and the endpoints that receive a copy."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg2
import pytest
from dataapi.settings import Settings
from dataapi.webhooks.catalogue import BadPayload
from dataapi.webhooks.model import NewEvent, Scope
from dataapi.webhooks.plugins import SourcePublisher, installed_catalogue
from dataapi.webhooks.store.enqueue import CannotPublish, PublishProblem
from support.clocks import FOR_EVER
from support.daemon import wait_for
from support.webhooks import (
    ACME,
    MEMBER,
    PAUSED,
    PROJECT,
    REF,
    add_endpoint,
    claim,
    migrated,
    publish,
)
from twisted.internet.task import Clock
from twisted.internet.threads import deferToThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataapi.database.pool import Pool
    from dataapi.webhooks.store import Store
    from support.postgres import Database

JOINED = "v1.organization.member.added"
RESTORED = "v1.project.restored"
PUBLISH = "select webhooks.publish(%s, %s, %s, %s, %s)"


async def bodies(store: Store) -> list[dict[str, Any]]:
    """Claim all attempts and return their bodies with the endpoint IDs."""
    works = await claim(store)
    return [{"endpoint": work.endpoint_id, **json.loads(work.body or b"{}")} for work in works]


def counts(database: Database) -> tuple[int, ...]:
    """Return the numbers of events, due attempts and idempotency keys."""
    tables = ("event", "due", "idempotency")
    return tuple(database.execute(f"select count(*) from webhooks.{one}")[0][0] for one in tables)


class App:
    """An application's role without privileges on the webhooks schema."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.role = f"app_{database.name}"
        self.uri = database.uri.replace("authenticator@", f"{self.role}@")
        database.execute(f"create role {self.role} login")

    def allow_publishing(self) -> None:
        """Grant the privileges that the SQL comment on webhooks.publish lists."""
        self._database.execute(
            f"grant usage on schema webhooks to {self.role};"
            f"grant execute on function webhooks.publish to {self.role}"
        )

    def remove(self) -> None:
        self._database.execute(f"drop owned by {self.role}; drop role {self.role}")


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    made = App(database)
    yield made
    made.remove()


async def test_event_reaches_matching_endpoints(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await store.directory.create_project("z" * 20, "acme")
    await store.directory.create_organization("other", early_access=True)
    everything = await add_endpoint(store)
    paused = await add_endpoint(store, event_types=(RESTORED, PAUSED))
    await add_endpoint(store, event_types=(RESTORED,))
    await add_endpoint(store, enabled=False)
    project = await add_endpoint(store, PROJECT)
    await add_endpoint(store, Scope("acme", "z" * 20))
    await add_endpoint(store, Scope("other"))
    await publish(store)
    assert {body["endpoint"] for body in await bodies(store)} == {everything.id, paused.id, project.id}


async def test_organization_event_reaches_organization_endpoints_only(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await add_endpoint(store, PROJECT)
    await publish(store, ACME, JOINED)
    [body] = await bodies(store)
    assert body["endpoint"] == endpoint.id
    assert body["payload"] == {"organization_slug": "acme", "project_ref": None, "actor": None}


async def test_each_endpoint_gets_a_copy_with_its_own_id(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    for _ in range(3):
        await add_endpoint(store)
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    ingress = await publish(store, PROJECT, PAUSED, reason="other", actor={"user_id": "u1"}, text='"ü\n')
    sent = await bodies(store)
    identifiers = {UUID(body["id"]) for body in sent}
    assert len(identifiers | {ingress}) == 4
    assert {identifier.version for identifier in identifiers} == {7}
    for body in sent:
        assert set(body) == {"endpoint", "id", "type", "timestamp", "payload"}
        assert body["type"] == PAUSED
        assert body["timestamp"][19:20] + body["timestamp"][23:] == ".Z"
        assert before <= datetime.fromisoformat(body["timestamp"]) <= datetime.now(UTC)
        assert body["payload"] == {
            "organization_slug": "acme",
            "project_ref": REF,
            "actor": {"user_id": "u1"},
            "reason": "other",
            "text": '"ü\n',
        }


ID = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        (json.dumps({"host": "a", "traceparent": f"00-{ID}-01", "via": "b"}), f"00-{ID}-01"),
        (f'{{"traceparent":"01-{ID}-ff"}}', f"00-{ID}-03"),
        (json.dumps({"traceparent": f"ff-{ID}-01"}), ""),
        (json.dumps({"traceparent": f"00-{ID}-01, 00-{ID}-01"}), ""),
        (json.dumps({"x": f'"traceparent": "00-{ID}-01"'}), ""),
        ("no JSON", ""),
        ("", ""),
    ],
)
async def test_event_continues_the_trace_of_its_request(
    database: Database, pool: Pool, headers: str, trace: str
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    database.execute(
        f"begin; select set_config('request.headers', %s, true); {PUBLISH}; commit",
        (headers, PAUSED, ACME.organization, REF, "{}", "key"),
    )
    [work] = await claim(store)
    assert work.traceparent == trace


async def test_publisher_cannot_forge_the_scope_in_the_payload(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    await publish(store, PROJECT, PAUSED, organization_slug="evil", project_ref="evil")
    [body] = await bodies(store)
    assert body["payload"] == {"organization_slug": "acme", "project_ref": REF, "actor": None}


async def test_publisher_may_set_the_timestamp(database: Database, pool: Pool) -> None:
    """Timestamps have millisecond precision."""
    store = await migrated(database, pool)
    await add_endpoint(store)
    when = datetime(2026, 2, 3, 4, 5, 6, 789_999, UTC)
    await store.publisher.publish(NewEvent(PAUSED, PROJECT, {}, "k", when))
    [body] = await bodies(store)
    assert body["timestamp"] == "2026-02-03T04:05:06.789Z"


async def test_rollback_discards_published_events(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    with closing(psycopg2.connect(database.uri)) as connection, connection.cursor() as cursor:
        cursor.execute(PUBLISH, (PAUSED, "acme", REF, "{}", "k"))
        assert counts(database) == (0, 0, 0)
        connection.rollback()
        assert counts(database) == (0, 0, 0)
        cursor.execute(PUBLISH, (PAUSED, "acme", REF, None, "k"))
        connection.commit()
    assert counts(database) == (1, 1, 1)
    [body] = await bodies(store)
    assert body["payload"] == {"organization_slug": "acme", "project_ref": REF, "actor": None}


@pytest.mark.direct("the tests' pooler logs everybody in as one role")
async def test_ordinary_role_needs_only_execute(database: Database, pool: Pool, app: App) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    app.allow_publishing()
    with closing(psycopg2.connect(app.uri)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute(PUBLISH, (PAUSED, "acme", REF, "{}", "k"))
        for text in (
            "select * from webhooks.endpoint",
            "select * from webhooks.event",
            "insert into webhooks.organization values ('mine', true)",
            "select webhooks.raise_event('v1.a.b', 'acme', null, '{}', 'k', now())",
            "select webhooks.publish_at('v1.a.b', 'acme', null, '{}', 'k', now())",
            "select webhooks.make_partitions(1)",
            "select webhooks.drop_partition('1 day')",
            "select webhooks.transfer_project('abcdefghijklmnopqrst', 'acme', 'key')",
        ):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(text)
    assert len(await bodies(store)) == 1


@pytest.mark.direct("the tests' pooler logs everybody in as one role")
async def test_callers_search_path_is_ignored(database: Database, pool: Pool, app: App) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    app.allow_publishing()
    database.execute(f"create schema app authorization {app.role}")
    with closing(psycopg2.connect(app.uri)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute(
            "create function app.clock_timestamp() returns date language sql as 'select null::date';"
            "create function app.pg_notify(text, text) returns void language sql as 'select 1 / 0; select';"
            "create table app.event (); create table app.due ();"
            "set search_path = app, pg_catalog"
        )
        cursor.execute(PUBLISH, (PAUSED, "acme", REF, "{}", "k"))
    [body] = await bodies(store)
    assert body["payload"] == {"organization_slug": "acme", "project_ref": REF, "actor": None}


async def test_publishing_requires_a_grant(database: Database, pool: Pool) -> None:
    await migrated(database, pool)
    database.execute("grant usage on schema webhooks to anon")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        database.execute("set role anon; select webhooks.publish('v1.a.b', 'acme', null, null, 'k')")


async def test_repeated_key_raises_no_event_and_returns_the_first_id(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await store.directory.create_organization("other", early_access=True)
    await add_endpoint(store)
    first = await store.publisher.publish(NewEvent(PAUSED, PROJECT, {}, "key"))
    assert await store.publisher.publish(NewEvent(RESTORED, ACME, {"a": 1}, "key")) == first
    assert await store.publisher.publish(NewEvent(PAUSED, Scope("other"), {}, "key")) != first
    assert len(await bodies(store)) == 1


async def test_idempotency_key_expires_after_24_hours(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    first = await store.publisher.publish(NewEvent(PAUSED, PROJECT, {}, "key"))
    database.execute("update webhooks.idempotency set created_at = now() - interval '23 h 59 min'")
    assert await store.publisher.publish(NewEvent(PAUSED, PROJECT, {}, "key")) == first
    assert (await store.maintenance.run()).keys == 0
    database.execute("update webhooks.idempotency set created_at = now() - interval '24 h'")
    second = await store.publisher.publish(NewEvent(PAUSED, PROJECT, {}, "key"))
    assert second != first
    assert await store.publisher.publish(NewEvent(PAUSED, PROJECT, {}, "key")) == second
    assert len(await bodies(store)) == 2
    database.execute("update webhooks.idempotency set created_at = now() - interval '24 h'")
    assert (await store.maintenance.run()).keys == 1


@pytest.mark.parametrize("committed", [True, False])
async def test_concurrent_use_of_a_key_raises_one_event(
    database: Database, pool: Pool, committed: bool
) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    first, second = psycopg2.connect(database.uri), psycopg2.connect(database.uri)
    began = threading.Event()

    def publish_second() -> str:
        with second.cursor() as cursor:
            began.set()
            cursor.execute(PUBLISH, (PAUSED, "acme", REF, "{}", "k"))
            [sent] = cursor.fetchone() or [""]
            second.commit()
            return str(sent)

    with closing(first), closing(second), first.cursor() as cursor:
        cursor.execute(PUBLISH, (PAUSED, "acme", REF, "{}", "k"))
        [identifier] = cursor.fetchone() or [""]
        waiting = deferToThread(publish_second)
        await deferToThread(began.wait, FOR_EVER)
        await deferToThread(_wait_for_lock, database)
        assert not waiting.called
        if committed:
            first.commit()
        else:
            first.rollback()
        assert (await waiting == identifier) is committed
    assert len(await bodies(store)) == 1


def _wait_for_lock(database: Database) -> None:
    query = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    wait_for(lambda: database.execute(query), "a statement that waits")


@pytest.mark.parametrize(
    ("event_type", "scope", "key", "problem"),
    [
        ("project.paused", ACME, "k", PublishProblem.MALFORMED),
        ("v1.paused", ACME, "k", PublishProblem.MALFORMED),
        ("v1.project.paused\n", ACME, "k", PublishProblem.MALFORMED),
        (PAUSED, ACME, "", PublishProblem.MALFORMED),
        (PAUSED, ACME, "k" * 256, PublishProblem.MALFORMED),
        (PAUSED, Scope("missing"), "k", PublishProblem.NO_ORGANIZATION),
        (PAUSED, Scope("acme", "q" * 20), "k", PublishProblem.NO_PROJECT),
        (PAUSED, Scope("denied", REF), "k", PublishProblem.OTHER_ORGANIZATION),
        (PAUSED, Scope("denied"), "k", PublishProblem.NOT_ALLOWED),
    ],
)
async def test_rejected_event_leaves_no_rows(
    database: Database, pool: Pool, event_type: str, scope: Scope, key: str, problem: PublishProblem
) -> None:
    store = await migrated(database, pool)
    await store.directory.create_organization("denied")
    await add_endpoint(store)
    with pytest.raises(CannotPublish) as caught:
        await store.publisher.publish(NewEvent(event_type, scope, {}, key))
    assert caught.value.problem is problem
    assert counts(database) == (0, 0, 0)


@pytest.mark.parametrize("payload", ["[]", '"text"', "1"])
async def test_payload_must_be_an_object(database: Database, pool: Pool, payload: str) -> None:
    await migrated(database, pool)
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match="JSON object"):
        database.execute(PUBLISH, (PAUSED, "acme", REF, payload, "k"))
    database.execute(PUBLISH, (PAUSED, "acme", REF, "null", "k"))


@pytest.mark.parametrize("value", ["true", "false", "null", '"no"'])
async def test_publishers_cannot_set_is_test(database: Database, pool: Pool, value: str) -> None:
    store = await migrated(database, pool)
    await add_endpoint(store)
    payload = f'{{"is_test": {value}}}'
    with pytest.raises(psycopg2.DatabaseError, match="must not contain is_test: the service") as refused:
        database.execute(PUBLISH, (PAUSED, "acme", REF, payload, "k"))
    assert refused.value.pgcode == PublishProblem.RESERVED_NAME
    with pytest.raises(CannotPublish) as caught:
        await publish(store, **json.loads(payload))
    assert caught.value.problem is PublishProblem.RESERVED_NAME
    source = SourcePublisher(store.publisher, installed_catalogue, Settings(projects=()), Clock())
    with pytest.raises((CannotPublish, BadPayload), match="is_test"):
        await source.publish(JOINED, "acme", None, {"member": MEMBER, **json.loads(payload)}, "k")
    assert counts(database) == (0, 0, 0)
    await publish(store, inner={"is_test": True})
    assert counts(database) == (1, 1, 1)


async def test_comment_on_the_function_lists_its_errors(database: Database, pool: Pool) -> None:
    await migrated(database, pool)
    [(comment,)] = database.execute(
        "select obj_description(oid) from pg_proc where proname = 'publish'"
        " and pronamespace = 'webhooks'::regnamespace"
    )
    assert all(problem in comment for problem in PublishProblem)


async def test_payload_size_is_limited(database: Database, pool: Pool) -> None:
    """The limit bounds the memory that a daemon needs for a batch of claimed attempts."""
    store = await migrated(database, pool)
    maximum = 256 * 1024 - len('{"a": ""}')
    await publish(store, a="x" * maximum)
    with pytest.raises(CannotPublish, match="256 KiB") as refused:
        await publish(store, a="x" * (maximum + 1))
    assert refused.value.problem is PublishProblem.MALFORMED


async def test_versions_of_an_event_are_sent_in_parallel(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    newer = "v2.project.paused"
    await store.publisher.sync_event_types({newer: [PAUSED], "v2.project.restored": [RESTORED]})
    await store.publisher.sync_event_types({newer: [PAUSED]})
    old = await add_endpoint(store, event_types=(PAUSED,))
    new = await add_endpoint(store, event_types=(newer,))
    everything = await add_endpoint(store)
    await publish(store, event_type=newer)
    await publish(store, event_type="v2.project.restored")
    works = await claim(store)
    assert {(work.endpoint_id, work.event_type, work.rendered_from) for work in works} == {
        (old.id, PAUSED, newer),
        (new.id, newer, None),
        (everything.id, PAUSED, newer),
        (everything.id, newer, None),
        (everything.id, "v2.project.restored", None),
    }
    assert len(works) == 5


@pytest.mark.direct("a pooler forwards no notifications")
async def test_commit_notifies_the_daemons(database: Database, pool: Pool) -> None:
    store = await migrated(database, pool)
    with closing(psycopg2.connect(database.uri)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("listen webhooks")
        await publish(store)
        cursor.execute("select 1")
        assert connection.notifies == []
        for _ in range(2):
            await add_endpoint(store)
        await publish(store)
        cursor.execute("select 1")
        assert [(one.channel, one.payload) for one in connection.notifies] == [("webhooks", "")]


@pytest.mark.direct("a pooler forwards no notifications")
async def test_only_one_open_transaction_notifies(database: Database, pool: Pool) -> None:
    """NOTIFY serializes commits. Events without a notification are found by polling."""
    store = await migrated(database, pool)
    await add_endpoint(store)
    with (
        closing(psycopg2.connect(database.admin_uri)) as first,
        closing(psycopg2.connect(database.admin_uri)) as listening,
    ):
        listening.autocommit = True

        def notified() -> int:
            with listening.cursor() as cursor:
                cursor.execute("listen webhooks")
            count = len(listening.notifies)
            listening.notifies.clear()
            return count

        assert notified() == 0
        with first.cursor() as cursor:
            cursor.execute(PUBLISH, (PAUSED, "acme", REF, "{}", "first"))
            await publish(store)
            assert notified() == 0
            first.commit()
        assert notified() == 1
        await publish(store)
        assert notified() == 1
