"""Row changes as events (docs/reference/webhooks.md, Row changes): ``webhooks.watch`` and ``unwatch``."""

from __future__ import annotations

import io
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
    from support.postgres import Database, Server

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
    grant execute on function webhooks.watch, webhooks.unwatch, webhooks.check_watch,
        webhooks.publish_row_changes to {owner};
"""


class Shop:
    """A table whose owner may watch it."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store
        self.owner = f"shop_{database.name}"
        database.execute(CREATE.format(owner=self.owner))

    def execute(
        self, text: str, role: str = "", values: tuple[Any, ...] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run SQL as the owner or as another role."""
        return self._database.execute(f"set role {role or self.owner}; {text}", values)

    def watch(self, arguments: str = "organization => 'acme'", event_type: str = ORDER) -> None:
        self.execute(f"""select webhooks.watch('shop."Order"', '{event_type}', {arguments})""")

    async def payloads(self) -> list[dict[str, Any]]:
        """Claim all attempts and return their payloads in the order of the events."""
        works = sorted(await claim(self._store), key=lambda work: work.event_id)
        events = [json.loads(work.body or b"{}") for work in works]
        return [{"type": event["type"], **event["payload"]} for event in events]

    async def changes(self) -> list[tuple[str, Any, Any]]:
        """Claim all attempts and return each event's operation, old row and new row."""
        return [(one["operation"], one["old"], one["new"]) for one in await self.payloads()]

    def remove(self) -> None:
        self._database.execute(f"drop owned by {self.owner} cascade; drop role {self.owner}")


async def prepared(database: Database, pool: Pool) -> Store:
    """Return a store with these tests' event types, and an endpoint that receives all events."""
    made = await migrated(database, pool)
    await made.publisher.sync_event_types({}, [ORDER, TOTAL])
    await add_endpoint(made)
    return made


@pytest.fixture
def store(database: Database, pool: Pool) -> Store:
    made: Store = run(prepared(database, pool))
    return made


@pytest.fixture
def shop(database: Database, store: Store) -> Iterator[Shop]:
    made = Shop(database, store)
    yield made
    made.remove()


async def test_event_contains_old_and_new_row(shop: Shop) -> None:
    shop.watch()
    shop.execute("""insert into shop."Order" values (1, 1.50, '{"a": [1]}')""", "anon")
    shop.execute("""update shop."Order" set total = 2""", "anon")
    shop.execute("""delete from shop."Order" """, "anon")
    first = {"id": 1, "total": 1.5, "notes": {"a": [1]}, "tenant": None, "project": None}
    second = {**first, "total": 2}
    payloads = await shop.payloads()
    assert payloads[0] == {
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
    changes = [(one["operation"], one["old"], one["new"]) for one in payloads]
    assert changes == [("insert", None, first), ("update", first, second), ("delete", second, None)]


async def test_event_is_published_only_if_the_write_commits(shop: Shop, database: Database) -> None:
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


async def test_row_level_security_does_not_hide_changes_from_the_watch(shop: Shop) -> None:
    shop.execute("""
        alter table shop."Order" enable row level security;
        create policy own on shop."Order" to anon using (tenant = 'a');
        insert into shop."Order" (id, tenant) values (1, 'a'), (2, 'b');""")
    shop.watch("array['id'], organization => 'acme'")
    shop.execute("""delete from shop."Order" """, "anon")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="row-level security"):
        shop.execute("""insert into shop."Order" (id, tenant) values (3, 'b')""", "anon")
    assert await shop.changes() == [("delete", {"id": 1}, None)]


async def test_unlisted_columns_are_neither_sent_nor_compared(shop: Shop) -> None:
    shop.watch("array['id', 'notes'], organization => 'acme'")
    shop.watch(event_type=TOTAL)
    shop.execute("""
        insert into shop."Order" values (1, 1, '{}');
        update shop."Order" set id = id, total = total;""")
    assert len(await shop.payloads()) == 2
    shop.execute("""update shop."Order" set total = 2; update shop."Order" set notes = '[]'""")
    assert [one["type"] for one in await shop.payloads()].count(ORDER) == 1


async def test_watch_can_be_limited_by_condition_and_operation(shop: Shop) -> None:
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


async def test_watch_can_be_replaced_and_removed(shop: Shop, database: Database) -> None:
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


async def test_scope_can_come_from_columns(shop: Shop, database: Database) -> None:
    database.execute("insert into webhooks.organization values ('denied', false)")
    shop.watch("array['id'], organization_column => 'tenant', project_column => 'project'")
    shop.execute(f"""insert into shop."Order" (id, tenant, project) values
        (1, 'acme', null), (2, null, '{REF}'), (3, 'unknown', null), (4, 'denied', null), (5, null, null),
        (6, 'acme', 'unknown')""")
    shop.execute("""delete from shop."Order" where id = 2""")
    payloads = [(one["organization_slug"], one["project_ref"], one["new"]) for one in await shop.payloads()]
    assert payloads == [("acme", None, {"id": 1}), ("acme", REF, {"id": 2}), ("acme", REF, None)]


async def test_project_events_follow_the_project_to_its_new_organization(shop: Shop, store: Store) -> None:
    await store.directory.create_organization("globex", early_access=True)
    await add_endpoint(store, Scope("globex"))
    shop.watch(f"array['id'], project => '{REF}'")
    await store.directory.transfer_project(REF, "globex", "key")
    shop.execute("""insert into shop."Order" values (1)""")
    await store.directory.set_early_access("globex", False)
    shop.execute("""insert into shop."Order" values (2)""")
    assert [work.organization for work in await claim(store) if work.event_type == ORDER] == ["globex"]


async def test_change_without_subscribers_creates_no_event(
    shop: Shop, database: Database, store: Store
) -> None:
    database.execute(f"update webhooks.endpoint set event_types = array['{ORDER}']")
    shop.watch("array['id'], organization => 'acme'", TOTAL)
    shop.execute("""insert into shop."Order" values (1)""")
    assert database.execute("select count(*) from webhooks.event") == [(0,)]
    await store.publisher.sync_event_types({TOTAL: [ORDER]})
    shop.execute("""insert into shop."Order" values (2)""")
    assert [work.event_type for work in await claim(store)] == [ORDER]


async def test_oversized_row_is_truncated_to_its_key(shop: Shop) -> None:
    shop.watch("array['id', 'tenant'], organization => 'acme'")
    shop.watch("array['tenant'], organization => 'acme'", TOTAL)
    shop.execute("""insert into shop."Order" (id, tenant) values (1, repeat('é', 140000))""")
    assert sorted(
        (one["type"], one["truncated"], str(one["old"]), str(one["new"])) for one in await shop.payloads()
    ) == [
        (ORDER, True, "None", "{'id': 1}"),
        (TOTAL, True, "None", "None"),
    ]


async def test_unpublishable_json_fails_the_write(shop: Shop) -> None:
    insert = """insert into shop."Order" (id, notes) values (1, '"\\u0000"')"""
    shop.watch()
    with pytest.raises(psycopg2.errors.UntranslatableCharacter, match="unsupported Unicode escape sequence"):
        shop.execute(insert)
    shop.watch("array['id'], organization => 'acme'")
    shop.execute(insert)
    assert await shop.changes() == [("insert", None, {"id": 1})]


async def test_partitioned_table_without_a_key_can_be_watched(shop: Shop) -> None:
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
    payloads = await shop.payloads()
    assert {one["table"] for one in payloads} == {"log"}
    all_columns = [(one["operation"], one["old"], one["new"]) for one in payloads if one["type"] == ORDER]
    a, b, moved = {"day": 2, "text": "a"}, {"day": 2, "text": "b"}, {"day": 1, "text": "b"}
    assert all_columns[:2] == [("insert", None, a), ("update", a, b)]
    assert sorted(all_columns[2:], key=str) == [("delete", b, None), ("insert", None, moved)]
    named = [one["operation"] for one in payloads if one["type"] == TOTAL]
    assert sorted(named) == ["delete", "insert", "insert", "update"]


async def test_watch_follows_added_renamed_and_dropped_columns(shop: Shop) -> None:
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
    with pytest.raises(psycopg2.errors.UndefinedColumn, match='record "old" has no field "sum"') as caught:
        shop.execute("""update shop."Order" set total = 3""")
    assert f'dataapi webhooks watch shop."Order" {ORDER}' in str(caught.value.diag.message_hint)
    shop.watch("array['id', 'total'], organization => 'acme'")
    shop.execute("""update shop."Order" set total = 3""")
    assert await shop.changes() == [("update", {"id": 1, "total": 1}, {"id": 1, "total": 3})]


async def test_special_characters_in_names_are_quoted(shop: Shop) -> None:
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
        ("null, 'true) or (true', organization => 'acme'", "syntax error"),
        ("null, 'select true', organization => 'acme'", "syntax error"),
        ("null, 'true limit 1', organization => 'acme'", "syntax error"),
        ("array['id', null], organization => 'acme'", "columns must not contain NULL"),
        ("array['id', 'id'], organization => 'acme'", "columns contain id more than once"),
        ("null, null, '{insert,insert}', organization => 'acme'", "operations contain insert more than once"),
        ("null, null, '{insert,NULL}', organization => 'acme'", "operations must not contain NULL"),
        ("array['id); drop table shop.\"Order\"; --'], organization => 'acme'", "has no column id"),
        ("array['ctid'], organization => 'acme'", "has no column ctid"),
        ("'{}', organization => 'acme'", "columns must not be empty"),
        ("null, null, '{truncate}', organization => 'acme'", "operations must be insert, update or delete"),
        ("organization => 'missing'", "there is no organization missing"),
        ("project => 'nothing'", "there is no project nothing"),
        ("organization => ''''", "there is no organization '"),
        ("organization_column => 'slug'", "has no column slug"),
        (
            "organization => 'acme', organization_column => 'tenant'",
            "specify an organization, a project or both",
        ),
        ("null", "specify an organization, a project or both"),
    ],
)
async def test_invalid_watch_is_rejected(
    shop: Shop, database: Database, arguments: str, message: str
) -> None:
    with pytest.raises(psycopg2.Error, match=message):
        shop.watch(arguments)
    assert database.execute("select tgname from pg_trigger where not tgisinternal") == []
    assert database.execute("select to_regclass('shop.\"Order\"') is not null") == [(True,)]


async def test_unknown_event_type_is_rejected(shop: Shop) -> None:
    for event_type in ("v1.shop.customer", f"{ORDER}''; drop table shop.\"Order\"; --"):
        with pytest.raises(psycopg2.errors.InvalidParameterValue) as caught:
            shop.watch(event_type=event_type)
        assert "row-change-types in [webhooks]" in str(caught.value)


async def test_only_the_owner_may_watch(shop: Shop, database: Database) -> None:
    watch = f"""select webhooks.watch('shop."Order"', '{ORDER}', organization => 'acme')"""
    database.execute(
        "grant usage on schema webhooks to anon; grant execute on function webhooks.watch to anon"
    )
    database.execute("""grant trigger on shop."Order" to anon""")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="only the owner of table"):
        shop.execute(watch, "anon")
    shop.watch()
    for text in (
        """select webhooks.unwatch('shop."Order"')""",
        f"select webhooks.check_watch('{ORDER}', 'acme', null)",
    ):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="permission denied for function"):
            shop.execute(text, "anon")
    database.execute("grant execute on function webhooks.unwatch to anon")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="must be owner of"):
        shop.execute("""select webhooks.unwatch('shop."Order"')""", "anon")
    [(name,)] = database.execute(
        "select oid::regproc::text from pg_proc where proname like 'webhooks_watch%'"
    )
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="permission denied for function"):
        shop.execute(
            f"create temp table t (); create trigger t after insert on t execute function {name}()", "anon"
        )
    database.execute(f"revoke execute on function webhooks.check_watch from {shop.owner}")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="grant execute on function"):
        shop.watch()
    database.execute(f"revoke execute on function webhooks.publish_row_changes from {shop.owner}")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="grant execute on function"):
        shop.execute(watch, "postgres")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="tables in schema webhooks"):
        database.execute(f"select webhooks.watch('webhooks.event', '{ORDER}', organization => 'acme')")


async def test_casts_run_with_the_privileges_of_the_table_owner(shop: Shop, database: Database) -> None:
    """A cast to JSON must not run with the privileges of the webhooks schema's owner."""
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
    assert database.execute("select count(*) from pg_trigger where not tgisinternal") == [(6,)]


async def test_statement_of_many_rows_publishes_each_change(shop: Shop, store: Store) -> None:
    shop.execute("""insert into shop."Order" (id, total) select n, n from generate_series(1, 2500) n""")
    shop.watch("array['id', 'total'], 'new.id % 2 = 0', '{insert,update}', organization => 'acme'")
    shop.watch("array['id'], null, '{delete}', organization => 'acme'", TOTAL)
    shop.execute("""update shop."Order" set total = -total""")
    shop.execute("""delete from shop."Order" where id > 3""")
    works = sorted(await claim(store, 9000), key=lambda work: work.event_id)
    payloads = [json.loads(work.body or b"{}")["payload"] for work in works]
    updates = [(one["old"], one["new"]) for one in payloads if one["operation"] == "update"]
    assert updates == [({"id": n, "total": n}, {"id": n, "total": -n}) for n in range(2, 2501, 2)]
    deletes = [one["old"]["id"] for one in payloads if one["operation"] == "delete"]
    assert sorted(deletes) == list(range(4, 2501))


async def test_statement_with_several_operations_publishes_each_change_once(
    shop: Shop, server: Server, database: Database
) -> None:
    shop.watch("array['id', 'total'], organization => 'acme'")
    shop.execute("""insert into shop."Order" values (1, 1)""")
    assert len(await shop.changes()) == 1
    shop.execute("""
        insert into shop."Order" values (1, 2), (2, 2)
        on conflict (id) do update set total = excluded.total""")
    first, second = {"id": 1, "total": 2}, {"id": 2, "total": 2}
    assert sorted(await shop.changes(), key=str) == [
        ("insert", None, second),
        ("update", {"id": 1, "total": 1}, first),
    ]
    shop.execute("""
        with gone as (delete from shop."Order" where id = 1 returning *), changed as (
            update shop."Order" set total = 3 where id = 2
        ) insert into shop."Order" (id, total) select 3, total from gone""")
    assert sorted(await shop.changes(), key=str) == [
        ("delete", first, None),
        ("insert", None, {"id": 3, "total": 2}),
        ("update", second, {"id": 2, "total": 3}),
    ]
    with closing(psycopg2.connect(database.admin_uri)) as connection, connection.cursor() as cursor:
        cursor.copy_expert("""copy shop."Order" (id, total) from stdin""", io.StringIO("4\t4\n5\t5\n"))
        connection.commit()
    assert [new for _, _, new in await shop.changes()] == [{"id": 4, "total": 4}, {"id": 5, "total": 5}]
    if server.version < 15:
        return
    shop.execute("""
        merge into shop."Order" o using (values (4), (5), (6)) as v (id) on o.id = v.id
        when matched and v.id = 4 then delete when matched then update set total = 0
        when not matched then insert (id, total) values (v.id, v.id)""")
    assert sorted(await shop.changes(), key=str) == [
        ("delete", {"id": 4, "total": 4}, None),
        ("insert", None, {"id": 6, "total": 6}),
        ("update", {"id": 5, "total": 5}, {"id": 5, "total": 0}),
    ]


async def test_changes_by_foreign_keys_and_triggers_are_published(shop: Shop) -> None:
    shop.execute("""
        create table shop.tree (id int primary key,
            parent int references shop.tree on delete cascade on update cascade);
        insert into shop.tree values (1, null), (2, 1), (3, 1), (4, 2), (5, 4);
        create table shop.leaf (tree int references shop.tree on delete set null);
        insert into shop.leaf values (5), (3), (5);
        create function shop.renumber() returns trigger language plpgsql as
            'begin update shop.leaf set tree = 3 where new.tree is null and tree is null; return null; end';
        create trigger renumber after update on shop.leaf for each row execute function shop.renumber();""")
    for table in ("tree", "leaf"):
        shop.execute(f"select webhooks.watch('shop.{table}', '{ORDER}', organization => 'acme')")
    shop.execute("update shop.tree set id = 20 where id = 2")
    assert sorted((str(old), str(new)) for _, old, new in await shop.changes()) == [
        ("{'id': 2, 'parent': 1}", "{'id': 20, 'parent': 1}"),
        ("{'id': 4, 'parent': 2}", "{'id': 4, 'parent': 20}"),
    ]
    shop.execute("delete from shop.tree where id = 20")
    changes = await shop.changes()
    assert sorted(old["id"] for _, old, _ in changes if "id" in old) == [4, 5, 20]
    leaves = sorted((old["tree"] or 0, new["tree"] or 0) for _, old, new in changes if "tree" in old)
    assert leaves == [(0, 3), (0, 3), (5, 0), (5, 0)]


async def test_toasted_and_generated_values_are_published(shop: Shop) -> None:
    shop.execute("""
        create table shop.page (gone int, id int, text text,
            size int generated always as (length(text)) stored);
        alter table shop.page alter text set storage external;
        alter table shop.page drop gone;
        insert into shop.page (id, text) values (1, repeat('a', 50000)), (2, repeat('b', 50000));""")
    shop.execute(f"select webhooks.watch('shop.page', '{ORDER}', organization => 'acme')")
    shop.execute("update shop.page set id = id + 1; update shop.page set text = 'c' where id = 2")
    first, second = ({"text": letter * 50000, "size": 50000} for letter in "ab")
    assert await shop.changes() == [
        ("update", {"id": 1, **first}, {"id": 2, **first}),
        ("update", {"id": 2, **second}, {"id": 3, **second}),
        ("update", {"id": 2, **first}, {"id": 2, "text": "c", "size": 1}),
    ]


async def test_direct_writes_to_a_partition_are_published(shop: Shop) -> None:
    shop.execute("""
        create table shop.log (day int, text text) partition by list (day);
        create table shop.log1 partition of shop.log for values in (1);""")
    shop.execute(f"select webhooks.watch('shop.log', '{ORDER}', organization => 'acme')")
    shop.execute(f"select webhooks.watch('shop.log1', '{TOTAL}', organization => 'acme')")
    shop.execute("insert into shop.log1 values (1, 'a'); insert into shop.log values (1, 'b')")
    events = sorted((one["new"]["text"], one["type"], one["table"]) for one in await shop.payloads())
    assert events == [(text, kind, "log") for text in "ab" for kind in (ORDER, TOTAL)]


async def test_unwatching_a_partition_keeps_the_watch_of_its_table(shop: Shop) -> None:
    shop.execute(
        """create table shop.sale (id int) partition by list (id);
        create table shop.first_sale partition of shop.sale for values in (1)"""
    )
    shop.execute(f"select webhooks.watch('shop.sale', '{ORDER}', organization => 'acme')")
    shop.execute(f"select webhooks.watch('shop.first_sale', '{TOTAL}', organization => 'acme')")
    shop.execute("select webhooks.unwatch('shop.first_sale')")
    shop.execute("insert into shop.sale values (1)")
    assert [one["type"] for one in await shop.payloads()] == [ORDER]


@pytest.mark.parametrize(("length", "batches"), [(10, 1), (150_000, 3)])
async def test_long_rows_are_published_in_batches(
    shop: Shop, database: Database, length: int, batches: int
) -> None:
    shop.watch()
    shop.execute(
        """insert into shop."Order" (id, tenant) select n, repeat('x', %s) from generate_series(1, 3) n""",
        values=(length,),
    )
    assert database.execute("select count(distinct happened_at) from webhooks.event") == [(batches,)]
    assert len(await shop.changes()) == 3


async def test_child_tables_are_watched_separately(shop: Shop) -> None:
    shop.execute("""
        create table shop.log (text text);
        create table shop.child () inherits (shop.log);
        insert into shop.child values ('c');""")
    shop.execute(f"select webhooks.watch('shop.log', '{ORDER}', organization => 'acme')")
    shop.execute(f"select webhooks.watch('shop.child', '{TOTAL}', organization => 'acme')")
    shop.execute("insert into shop.log values ('p'); update shop.log set text = text || '2'")
    events = [(one["type"], one["operation"], one["new"]["text"]) for one in await shop.payloads()]
    assert sorted(events) == [(ORDER, "insert", "p"), (ORDER, "update", "p2"), (TOTAL, "update", "c2")]


async def test_watched_table_cannot_become_a_partition_or_child(shop: Shop) -> None:
    """The watch would miss statements on the parent table. It can be recreated afterwards."""
    shop.execute("""
        create table shop.log (day int) partition by list (day);
        create table shop.base (day int);
        create table shop.log1 (day int);""")
    watch = f"select webhooks.watch('shop.log1', '{ORDER}', organization => 'acme')"
    shop.execute(watch)
    attach = "alter table shop.log attach partition shop.log1 for values in (1)"
    for change in (attach, "alter table shop.log1 inherit shop.base"):
        with pytest.raises(psycopg2.Error, match=f'trigger "{ORDER}:.*" prevents table "log1"'):
            shop.execute(change)
    shop.execute(f"select webhooks.unwatch('shop.log1'); {attach}; {watch}; insert into shop.log values (1)")
    assert await shop.changes() == [("insert", None, {"day": 1})]


async def test_foreign_table_can_be_watched(shop: Shop, server: Server, database: Database) -> None:
    server.require("postgres_fdw")
    database.execute(f"""
        create extension postgres_fdw;
        create server here foreign data wrapper postgres_fdw
            options (host '127.0.0.1', port '{server.port}', dbname '{database.name}');
        create user mapping for public server here options (user 'postgres', password_required 'false');
        create table shop.near (id int);
        create foreign table shop.far (id int) server here options (schema_name 'shop', table_name 'near');
        alter table shop.far owner to {shop.owner};""")
    shop.execute(f"select webhooks.watch('shop.far', '{ORDER}', organization => 'acme')")
    database.execute("insert into shop.far values (1), (2); update shop.far set id = 3 where id = 2")
    assert await shop.changes() == [
        ("insert", None, {"id": 1}),
        ("insert", None, {"id": 2}),
        ("update", {"id": 2}, {"id": 3}),
    ]


async def test_condition_runs_with_the_privileges_of_the_owner(shop: Shop) -> None:
    shop.execute("""
        create function shop.large(numeric) returns boolean language sql as
            $$ select $1 > 10 and current_user <> 'anon' $$;
        create function shop.large(shop."Order") returns boolean language sql as
            'select shop.large($1.total)';
        revoke all on function shop.large(numeric), shop.large(shop."Order") from public;""")
    shop.watch("array['id'], 'shop.large(new.total)', '{insert,update}', organization => 'acme'")
    # The string literal 'new' is not a reference to the row.
    shop.watch(
        "array['id'], 'new.notes::text is distinct from ''new''', '{insert}', organization => 'acme'", TOTAL
    )
    definition = """
        select obj_description(oid)::json -> 'by_statement' from pg_proc
        where proname like 'webhooks_watch%'"""
    assert shop.execute(definition) == [(True,), (True,)]
    shop.watch("array['id'], 'shop.large(new.*)', '{insert,update}', organization => 'acme'", TOTAL)
    shop.execute("""insert into shop."Order" values (1, 10), (2, 20)""", "anon")
    events = [(one["type"], one["new"]) for one in await shop.payloads()]
    assert sorted(events, key=str) == [(ORDER, {"id": 2}), (TOTAL, {"id": 2})]


async def test_moved_row_is_a_delete_for_the_old_scope_and_an_insert_for_the_new(
    shop: Shop, store: Store
) -> None:
    await store.directory.create_organization("globex", early_access=True)
    globex = await add_endpoint(store, Scope("globex"))
    shop.execute("""
        insert into shop."Order" (id, total, tenant) values (1, 5, 'acme'), (2, 6, 'acme'), (3, 7, 'x')""")
    shop.watch("array['id', 'total'], organization_column => 'tenant', project_column => 'project'")

    async def seen_after(change: str) -> list[tuple[bool, Any, str, Any, Any]]:
        shop.execute(f"""update shop."Order" set {change}""")
        events = []
        for work in await claim(store):
            one = json.loads(work.body or b"{}")["payload"]
            is_globex = work.endpoint_id == globex.id
            events.append((is_globex, one["project_ref"], one["operation"], one["old"], one["new"]))
        return sorted(events, key=str)

    assert await seen_after("tenant = 'globex', total = 50 where id = 1") == [
        (False, None, "delete", {"id": 1, "total": 5}, None),
        (True, None, "insert", None, {"id": 1, "total": 50}),
    ]
    assert await seen_after("tenant = 'globex' where id = 2") == [
        (False, None, "delete", {"id": 2, "total": 6}, None),
        (True, None, "insert", None, {"id": 2, "total": 6}),
    ]
    assert await seen_after("tenant = null where id = 1") == [
        (True, None, "delete", {"id": 1, "total": 50}, None)
    ]
    assert await seen_after("tenant = 'y' where id = 3") == []
    assert await seen_after(f"project = '{REF}' where id = 2") == [
        (False, REF, "insert", None, {"id": 2, "total": 6}),
        (True, None, "delete", {"id": 2, "total": 6}, None),
    ]
    # The project determines the organization.
    assert await seen_after("tenant = 'acme' where id = 2") == []
    shop.watch("array['id'], null, '{delete}', organization_column => 'tenant'")
    assert await seen_after("tenant = 'globex', total = 7 where id = 2") == [
        (False, None, "delete", {"id": 2}, None)
    ]


async def test_watch_works_after_the_table_changes_owner(shop: Shop, database: Database) -> None:
    heir = f"{shop.owner}_heir"
    shop.watch()
    database.execute(f"""
        create role {heir};
        grant usage, create on schema shop to {heir};
        alter table shop."Order" owner to {heir};
        grant usage on schema webhooks to {heir};
        grant execute on function webhooks.watch, webhooks.unwatch, webhooks.check_watch,
            webhooks.publish_row_changes to {heir};""")
    watch = f"""select webhooks.watch('shop."Order"', '{ORDER}', '{{id}}', organization => 'acme')"""
    try:
        shop.execute("""insert into shop."Order" values (1)""", heir)
        shop.execute(f"""{watch}; insert into shop."Order" values (2)""", heir)
        assert [new["id"] for _, _, new in await shop.changes()] == [1, 2]
        shop.execute("""select webhooks.unwatch('shop."Order"'); insert into shop."Order" values (3)""", heir)
        assert await shop.changes() == []
    finally:
        database.execute(f"drop owned by {heir} cascade; drop role {heir}")


async def test_replicated_writes_are_published_only_with_always(shop: Shop) -> None:
    shop.watch("array['id'], organization => 'acme'")
    shop.watch("array['id'], organization => 'acme', always => true", TOTAL)
    shop.execute(
        """set session_replication_role = replica; insert into shop."Order" values (1)""", "postgres"
    )
    shop.execute("""insert into shop."Order" values (2)""")
    events = [(one["type"], one["new"]["id"]) for one in await shop.payloads()]
    assert sorted(events) == [(ORDER, 2), (TOTAL, 1), (TOTAL, 2)]


async def test_prepared_transaction_does_not_notify(shop: Shop, database: Database) -> None:
    """NOTIFY would prevent two-phase commit."""
    shop.watch("array['id'], organization => 'acme'")
    with closing(psycopg2.connect(database.admin_uri)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("listen webhooks")
        cursor.execute("""begin; insert into shop."Order" values (1); prepare transaction 'watched'""")
        assert await shop.changes() == []
        cursor.execute("commit prepared 'watched'")
        assert await shop.changes() == [("insert", None, {"id": 1})]
        cursor.execute("""insert into shop."Order" values (2)""")
        cursor.execute("select 1")
        assert connection.notifies == []


async def test_subscribers_are_found_by_index(shop: Shop, database: Database) -> None:
    shop.watch("array['id'], organization => 'acme'")
    with closing(psycopg2.connect(database.admin_uri)) as connection, connection.cursor() as cursor:
        cursor.execute("""insert into shop."Order" values (1)""")
        cursor.execute(
            "select relname, seq_scan, idx_scan > 0 from pg_stat_xact_user_tables"
            " where relname in ('endpoint', 'organization') order by relname"
        )
        assert cursor.fetchall() == [("endpoint", 0, True), ("organization", 0, True)]


async def test_writes_succeed_after_the_schema_webhooks_is_dropped(shop: Shop, database: Database) -> None:
    shop.watch()
    database.execute("drop schema webhooks cascade")
    shop.execute("""insert into shop."Order" values (1, 2); update shop."Order" set total = 3""")
    assert shop.execute("""delete from shop."Order" returning total""") == [(3,)]


async def test_oversized_key_is_omitted(shop: Shop) -> None:
    """Escapes make the key's JSON longer than the limit."""
    shop.execute("create table shop.long (id text primary key)")
    shop.execute(f"select webhooks.watch('shop.long', '{ORDER}', organization => 'acme')")
    shop.execute("insert into shop.long values (repeat(chr(1), 50000))")
    assert [(one["truncated"], one["new"]) for one in await shop.payloads()] == [(True, None)]


async def test_many_columns_can_be_watched(shop: Shop) -> None:
    columns = [f"c{number}" for number in range(150)]
    shop.execute(f"create table shop.wide (c0 int default 7, {' int, '.join(columns[1:])} int)")
    watch = "select webhooks.watch('shop.wide', %s, %s, organization => 'acme')"
    shop.execute(watch, values=(ORDER, columns))
    shop.execute("insert into shop.wide default values")
    assert await shop.changes() == [("insert", None, {"c0": 7, **dict.fromkeys(columns[1:])})]


def test_row_change_type_matches_published_payloads() -> None:
    made = row_change("v1.shop.order", "An order changed.", {"total": {"type": "integer"}})
    assert made.example["table"] == "order"
    assert made.schema["properties"]["new"]["properties"] == {"total": {"type": "integer"}}
