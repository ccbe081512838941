"""Changes of rows as events (docs/reference/webhooks.md, Row changes): ``webhooks.watch`` and ``unwatch``."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from dataapi.webhooks.event_types import row_change
from dataapi.webhooks.model import Scope
from support.service import run
from support.webhooks import REF, add_endpoint, claim, migrated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataapi.database.pool import Pool
    from dataapi.webhooks.store import Store
    from support.postgres import Database

ORDER = "v1.shop.order"
TOTAL = "v1.shop.order.total"
CREATE = """
    create role {owner} login;
    create schema shop authorization {owner};
    set role {owner};
    create table shop."Order" (id int primary key, total numeric, notes json, tenant text, project text);
    grant usage on schema shop to anon;
    grant select, insert, update, delete on shop."Order" to anon;
    reset role;
    grant usage on schema webhooks to {owner};
    grant execute on function webhooks.watch, webhooks.publish_row_change to {owner};
"""


class Shop:
    """A table whose owner may watch it, and events of it."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store
        self.owner = f"shop_{database.name}"
        database.execute(CREATE.format(owner=self.owner))

    def execute(
        self, text: str, role: str = "", values: tuple[Any, ...] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run SQL as the owner, or as another role."""
        return self._database.execute(f"set role {role or self.owner}; {text}", values)

    def watch(self, arguments: str = "organization => 'acme'", event_type: str = ORDER) -> None:
        """Watch the table."""
        self.execute(f"""select webhooks.watch('shop."Order"', '{event_type}', {arguments})""")

    async def payloads(self) -> list[dict[str, Any]]:
        """Claim everything and return the payloads, in the order of their events."""
        works = sorted(await claim(self._store), key=lambda work: work.event_id)
        events = [json.loads(work.body or b"{}") for work in works]
        return [{"type": event["type"], **event["payload"]} for event in events]

    async def changes(self) -> list[tuple[str, Any, Any]]:
        """Claim everything and return operations with the old and the new row."""
        return [(one["operation"], one["old"], one["new"]) for one in await self.payloads()]

    def remove(self) -> None:
        """Drop the owner with all that it owns."""
        self._database.execute(f"drop owned by {self.owner} cascade; drop role {self.owner}")


async def prepared(database: Database, pool: Pool) -> Store:
    """Return a store with an endpoint for everything, which has the types of these tests."""
    made = await migrated(database, pool)
    await made.publisher.sync_event_types({}, [ORDER, TOTAL])
    await add_endpoint(made)
    return made


@pytest.fixture
def store(database: Database, pool: Pool) -> Store:
    """Give a store that is ready for row changes."""
    made: Store = run(prepared(database, pool))
    return made


@pytest.fixture
def shop(database: Database, store: Store) -> Iterator[Shop]:
    """Give the table."""
    made = Shop(database, store)
    yield made
    made.remove()


async def test_each_change_is_an_event_with_the_old_and_the_new_row(shop: Shop) -> None:
    """Insert, update and delete, by an unprivileged writer, in their order."""
    shop.watch()
    shop.execute("""insert into shop."Order" values (1, 1.50, '{"a": [1]}')""", "anon")
    shop.execute("""update shop."Order" set total = 2""", "anon")
    shop.execute("""delete from shop."Order" """, "anon")
    first = {"id": 1, "total": 1.5, "notes": {"a": [1]}, "tenant": None, "project": None}
    second = {**first, "total": 2}
    found = await shop.payloads()
    assert found[0] == {
        "type": ORDER,
        "organization_slug": "acme",
        "project_ref": None,
        "actor": None,
        "operation": "insert",
        "schema": "shop",
        "table": "Order",
        "old": None,
        "new": first,
        "truncated": False,
    }
    changes = [(one["operation"], one["old"], one["new"]) for one in found]
    assert changes == [("insert", None, first), ("update", first, second), ("delete", second, None)]


async def test_the_event_is_delivered_if_and_only_if_the_write_commits(
    shop: Shop, database: Database
) -> None:
    """A rollback takes it back, a savepoint's as well."""
    shop.watch("array['id'], organization => 'acme'")
    with closing(psycopg2.connect(database.admin_uri)) as connection, connection.cursor() as cursor:
        cursor.execute("""insert into shop."Order" values (1)""")
        connection.rollback()
        cursor.execute(
            """insert into shop."Order" values (2); savepoint s; insert into shop."Order" values (3)"""
        )
        cursor.execute("rollback to s")
        connection.commit()
    assert await shop.changes() == [("insert", None, {"id": 2})]


async def test_rows_behind_row_level_security(shop: Shop) -> None:
    """What a policy hides from the writer is not changed, and what it may write is published."""
    shop.execute("""
        alter table shop."Order" enable row level security;
        create policy own on shop."Order" to anon using (tenant = 'a');
        insert into shop."Order" (id, tenant) values (1, 'a'), (2, 'b');""")
    shop.watch("array['id'], organization => 'acme'")
    shop.execute("""delete from shop."Order" """, "anon")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="row-level security"):
        shop.execute("""insert into shop."Order" (id, tenant) values (3, 'b')""", "anon")
    assert await shop.changes() == [("delete", {"id": 1}, None)]


async def test_columns_that_are_not_named_neither_travel_nor_matter(shop: Shop) -> None:
    """An update that changes none of the named columns publishes nothing; nor does one of nothing."""
    shop.watch("array['id', 'notes'], organization => 'acme'")
    shop.watch(event_type=TOTAL)
    shop.execute("""
        insert into shop."Order" values (1, 1, '{}');
        update shop."Order" set id = id, total = total;""")
    assert len(await shop.payloads()) == 2
    shop.execute("""update shop."Order" set total = 2; update shop."Order" set notes = '[]'""")
    assert [one["type"] for one in await shop.payloads()].count(ORDER) == 1


async def test_condition_and_operations(shop: Shop) -> None:
    """The condition is over OLD and NEW, as in a trigger; the operations must have what it names."""
    shop.watch("""array['total'], 'new.total > 10 -- large', '{insert,update}', organization => 'acme'""")
    shop.execute(
        """insert into shop."Order" values (1, 5), (2, 15); update shop."Order" set total = total + 6"""
    )
    shop.execute("""delete from shop."Order" """)
    assert await shop.changes() == [
        ("insert", None, {"total": 15}),
        ("update", {"total": 5}, {"total": 11}),
        ("update", {"total": 15}, {"total": 21}),
    ]
    with pytest.raises(psycopg2.errors.InvalidObjectDefinition, match="DELETE trigger's WHEN condition"):
        shop.watch("""null, 'new.total > 10', organization => 'acme'""")


async def test_unwatch_and_watching_again(shop: Shop, database: Database) -> None:
    """A watch replaces that of the same type; another type's stays; nothing is left behind at the end."""
    shop.watch("array['id'], organization => 'acme'", TOTAL)
    shop.watch()
    shop.watch("array['total'], organization => 'acme'")
    shop.execute("""insert into shop."Order" values (1, 2)""")
    assert [(one["type"], one["new"]) for one in await shop.payloads()] == [
        (ORDER, {"total": 2}),
        (TOTAL, {"id": 1}),
    ]
    shop.execute(f"""select webhooks.unwatch('shop."Order"', '{ORDER}'); delete from shop."Order" """)
    assert [one["type"] for one in await shop.payloads()] == [TOTAL]
    shop.execute("""select webhooks.unwatch('shop."Order"'); insert into shop."Order" values (1, 2)""")
    assert await shop.payloads() == []
    assert database.execute("select proname from pg_proc where proname like 'webhooks%'") == []


async def test_scope_from_columns(shop: Shop, database: Database) -> None:
    """A project's event names its organization; nobody receives what belongs to nobody."""
    database.execute("insert into webhooks.organization values ('denied', false)")
    shop.watch("array['id'], organization_column => 'tenant', project_column => 'project'")
    shop.execute(f"""insert into shop."Order" (id, tenant, project) values
        (1, 'acme', null), (2, null, '{REF}'), (3, 'unknown', null), (4, 'denied', null), (5, null, null),
        (6, 'acme', 'unknown')""")
    shop.execute("""delete from shop."Order" where id = 2""")
    found = [(one["organization_slug"], one["project_ref"], one["new"]) for one in await shop.payloads()]
    assert found == [("acme", None, {"id": 1}), ("acme", REF, {"id": 2}), ("acme", REF, None)]


async def test_project_of_another_organization_now(shop: Shop, database: Database, store: Store) -> None:
    """The events go where the project is; the write never fails for it."""
    await store.directory.create_organization("globex", early_access=True)
    await add_endpoint(store, Scope("globex"))
    shop.watch(f"array['id'], project => '{REF}'")
    await store.directory.transfer_project(REF, "globex", "key")
    shop.execute("""insert into shop."Order" values (1)""")
    await store.directory.allow("globex", False)
    shop.execute("""insert into shop."Order" values (2)""")
    rows = database.execute(
        "select organization_slug from webhooks.idempotency where key like 'row change %'"
    )
    assert rows == [("globex",)]


async def test_changes_that_no_endpoint_takes_cost_nothing(
    shop: Shop, database: Database, store: Store
) -> None:
    """Nothing is stored of them; an endpoint that takes an older version of the type counts."""
    database.execute(f"update webhooks.endpoint set event_types = array['{ORDER}']")
    shop.watch("array['id'], organization => 'acme'", TOTAL)
    shop.execute("""insert into shop."Order" values (1)""")
    assert database.execute("select count(*) from webhooks.idempotency") == [(0,)]
    await store.publisher.sync_event_types({TOTAL: [ORDER]})
    shop.execute("""insert into shop."Order" values (2)""")
    assert [work.event_type for work in await claim(store)] == [ORDER]


async def test_row_over_the_size_limit_is_truncated_to_its_key(shop: Shop) -> None:
    """The write goes on, and the event says that the rest is missing."""
    shop.watch("array['id', 'tenant'], organization => 'acme'")
    shop.watch("array['tenant'], organization => 'acme'", TOTAL)
    shop.execute("""insert into shop."Order" (id, tenant) values (1, repeat('é', 140000))""")
    assert sorted(
        (one["type"], one["truncated"], str(one["old"]), str(one["new"])) for one in await shop.payloads()
    ) == [
        (ORDER, True, "None", "{'id': 1}"),
        (TOTAL, True, "None", "None"),
    ]


async def test_json_that_cannot_be_published_refuses_the_write(shop: Shop) -> None:
    """With PostgreSQL's reason, and only if the column is one of the watch's."""
    insert = """insert into shop."Order" (id, notes) values (1, '"\\u0000"')"""
    shop.watch()
    with pytest.raises(psycopg2.errors.UntranslatableCharacter, match="unsupported Unicode escape sequence"):
        shop.execute(insert)
    shop.watch("array['id'], organization => 'acme'")
    shop.execute(insert)
    assert await shop.changes() == [("insert", None, {"id": 1})]


async def test_partitions_and_tables_without_a_key(shop: Shop) -> None:
    """Partitions of any layout report the partitioned table; a row that moves is deleted and inserted."""
    shop.execute("""
        create table shop.log (day int, text text) partition by list (day);
        create table shop.log1 partition of shop.log for values in (1);
        create table shop.log2 (unused int, text text, day int);
        alter table shop.log2 drop column unused;""")
    shop.execute(f"select webhooks.watch('shop.log', '{ORDER}', organization => 'acme')")
    shop.execute(f"select webhooks.watch('shop.log', '{TOTAL}', '{{text}}', organization => 'acme')")
    shop.execute("""
        alter table shop.log attach partition shop.log2 for values in (2);
        insert into shop.log values (2, 'a');
        update shop.log set text = 'b';
        update shop.log set text = text;
        update shop.log set day = 1;""")
    found = await shop.payloads()
    assert {one["table"] for one in found} == {"log"}
    whole = [(one["operation"], one["old"], one["new"]) for one in found if one["type"] == ORDER]
    a, b, moved = {"day": 2, "text": "a"}, {"day": 2, "text": "b"}, {"day": 1, "text": "b"}
    assert whole[:2] == [("insert", None, a), ("update", a, b)]
    assert sorted(whole[2:], key=str) == [("delete", b, None), ("insert", None, moved)]
    named = [one["operation"] for one in found if one["type"] == TOTAL]
    assert sorted(named) == ["delete", "insert", "insert", "update"]


async def test_columns_that_are_added_renamed_or_dropped(shop: Shop) -> None:
    """Without named columns the payload follows the table; with them its form never changes unnoticed."""
    shop.watch()
    shop.execute(
        """insert into shop."Order" (id, total) values (1, 1); alter table shop."Order" drop notes"""
    )
    shop.execute("""alter table shop."Order" rename total to sum; alter table shop."Order" add more int""")
    shop.execute("""update shop."Order" set more = 2""")
    [_, (_, old, new)] = await shop.changes()
    assert old == {"id": 1, "sum": 1, "tenant": None, "project": None, "more": None}
    assert new == {**old, "more": 2}
    shop.execute("""select webhooks.unwatch('shop."Order"')""")
    shop.watch("array['id', 'sum'], organization => 'acme'")
    with pytest.raises(psycopg2.errors.DependentObjectsStillExist):
        shop.execute("""alter table shop."Order" drop sum""")
    shop.execute("""alter table shop."Order" rename sum to total""")
    with pytest.raises(psycopg2.errors.UndefinedColumn, match='record "old" has no field "sum"'):
        shop.execute("""update shop."Order" set total = 3""")
    shop.watch("array['id', 'total'], organization => 'acme'")
    shop.execute("""update shop."Order" set total = 3""")
    assert await shop.changes() == [("update", {"id": 1, "total": 1}, {"id": 1, "total": 3})]


async def test_writes_that_trip_over_no_name(shop: Shop) -> None:
    """Names of tables and columns may be anything."""
    table = """shop."t'%s""; x" """.strip()
    columns = ["a\"b%s'", "new"]
    shop.execute(f"""create table {table} ("old" int, "a""b%s'" int, "new" int)""")
    watch = "select webhooks.watch(%s, %s, %s, organization_column => null, organization => %s)"
    shop.execute(watch, values=(table, ORDER, columns, "acme"))
    shop.execute(f"insert into {table} values (1, 2, 3)")
    [payload] = await shop.payloads()
    assert (payload["table"], payload["new"]) == ("t'%s\"; x", {columns[0]: 2, "new": 3})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "null, 'true) execute function shop.f(); drop table shop.log; --', organization => 'acme'",
            "syntax",
        ),
        ("null, 'true; drop table shop.\"Order\"', organization => 'acme'", "syntax error|multi-query"),
        ("null, 'true); drop table shop.\"Order\"; select (1', organization => 'acme'", "multi-query"),
        ("null, 'true /*', organization => 'acme'", "unterminated"),
        ("array['id); drop table shop.\"Order\"; --'], organization => 'acme'", "has no column id"),
        ("array['ctid'], organization => 'acme'", "has no column ctid"),
        ("'{}', organization => 'acme'", "columns are not empty"),
        ("null, null, '{truncate}', organization => 'acme'", "operations are insert, update and delete"),
        ("organization => 'nobody'", "there is no organization nobody"),
        ("project => 'nothing'", "there is no project nothing"),
        ("organization => ''''", "there is no organization '"),
        ("organization_column => 'slug'", "has no column slug"),
        (
            "organization => 'acme', organization_column => 'tenant'",
            "name an organization, a project or both",
        ),
        ("null", "name an organization, a project or both"),
    ],
)
async def test_watches_that_are_refused(shop: Shop, database: Database, arguments: str, message: str) -> None:
    """Nothing of the arguments becomes other SQL; nothing is installed."""
    with pytest.raises(psycopg2.Error, match=message):
        shop.watch(arguments)
    assert database.execute("select tgname from pg_trigger where not tgisinternal") == []
    assert database.execute("select to_regclass('shop.\"Order\"') is not null") == [(True,)]


async def test_types_that_no_catalogue_has(shop: Shop) -> None:
    """The message has the key that adds it; a type is not a way to other SQL either."""
    for event_type in ("v1.shop.customer", f"{ORDER}''; drop table shop.\"Order\"; --"):
        with pytest.raises(psycopg2.errors.InvalidParameterValue) as caught:
            shop.watch(event_type=event_type)
        assert "row-change-types in [webhooks]" in str(caught.value)


async def test_who_may_watch(shop: Shop, database: Database) -> None:
    """The owner alone, once an operator lets it publish; what is made gives nobody a way to publish."""
    watch = f"""select webhooks.watch('shop."Order"', '{ORDER}', organization => 'acme')"""
    database.execute(
        "grant usage on schema webhooks to anon; grant execute on function webhooks.watch to anon"
    )
    database.execute("""grant trigger on shop."Order" to anon""")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="only its owner may watch"):
        shop.execute(watch, "anon")
    shop.watch()
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="must be owner of function"):
        shop.execute("""select webhooks.unwatch('shop."Order"')""", "anon")
    [(name,)] = database.execute(
        "select oid::regproc::text from pg_proc where proname like 'webhooks_watch%'"
    )
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="permission denied for function"):
        shop.execute(
            f"create temp table t (); create trigger t after insert on t execute function {name}()", "anon"
        )
    database.execute(f"revoke execute on function webhooks.publish_row_change from {shop.owner}")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="grant execute on function"):
        shop.execute(watch, "postgres")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="nobody the tables of webhooks"):
        database.execute(f"select webhooks.watch('webhooks.event', '{ORDER}', organization => 'acme')")


async def test_casts_of_the_tables_types_run_with_the_rights_of_its_owner(
    shop: Shop, database: Database
) -> None:
    """A function that becomes part of writing JSON is not a way to the rights of the schema's owner."""
    shop.execute("""
        create type shop.size as enum ('small', 'large');
        create function shop.to_json(shop.size) returns json language plpgsql as
            'begin return to_json(current_user); end';
        create cast (shop.size as json) with function shop.to_json(shop.size);
        create table shop.shirt (size shop.size);
        grant insert on shop.shirt to anon;""")
    watch = f"select webhooks.watch('shop.shirt', '{ORDER}', organization => 'acme')"
    for watcher in ("postgres", shop.owner):
        shop.execute(watch, watcher)
        shop.execute("insert into shop.shirt values ('small')", "anon")
    assert [new for _, _, new in await shop.changes()] == [{"size": shop.owner}] * 2
    assert database.execute("select count(*) from pg_trigger where not tgisinternal") == [(3,)]


def test_types_of_row_changes_take_what_triggers_publish() -> None:
    """Columns may have schemas of their own."""
    made = row_change("v1.shop.order", "An order changed.", {"total": {"type": "integer"}})
    assert made.example["table"] == "order"
    assert made.schema["properties"]["new"]["properties"] == {"total": {"type": "integer"}}
