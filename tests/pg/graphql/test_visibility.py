"""Schemas, tables, columns and rows that roles can see (docs/reference/graphql.md, Exposure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from graphql import validate_schema
from support.oracle import eager
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create schema api;
create schema unused;
create type api.state as enum ('on', 'off');
create type api.pair as (a int, b int);
create table public.author (id int primary key, name text, secret text);
create table public.book (
    id int primary key, title text, author_id int references author, state api.state, price numeric, j jsonb
);
create table api.shelf (id int primary key, label text, book_id int references public.book);
create table unused.thing (id int primary key);
create table public.owned (id int primary key, owner name not null, note text);
create table public.strange (pair api.pair, id int primary key, j jsonb, author_id int references author);
comment on table book is '@graphql({"aggregate": {"enabled": true}, "totalCount": {"enabled": true}})';
alter table public.owned enable row level security;
create policy mine on public.owned using (owner = current_user);
create policy by_claim on public.owned using (
    note = nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub'
);
insert into author values (1, 'Ann', 'hush');
insert into book values (1, 'A', 1, 'on', 2.5, '{}');
insert into api.shelf values (1, 'top', 1);
insert into owned values (1, 'anon', 'a'), (2, 'v_reader', 'b'), (3, 'nobody', 'a user of v_reader');
create function author_secret(author) returns text language sql stable as 'select $1.secret';

create table public.visit (word text, author_id int references author);
create view api.loud as select upper(word) as word from public.visit;

do $$ begin create role v_reader nologin; exception when duplicate_object then end $$;
do $$ begin create role v_columns nologin; exception when duplicate_object then end $$;
do $$ begin create role v_nothing nologin; exception when duplicate_object then end $$;
do $$ begin create role v_writer nologin; exception when duplicate_object then end $$;
do $$ begin
    create role v_member nologin in role v_reader inherit;
exception when duplicate_object then end $$;
do $$ begin create role v_odd nologin; exception when duplicate_object then end $$;
do $$ begin create role v_keyless nologin; exception when duplicate_object then end $$;
do $$ begin create role v_pairs nologin; exception when duplicate_object then end $$;
do $$ begin create role v_bypass nologin bypassrls; exception when duplicate_object then end $$;
grant v_reader, v_columns, v_nothing, v_writer, v_member to authenticator;
grant v_odd, v_pairs, v_keyless, v_bypass to authenticator;
grant usage on schema api to v_reader;
grant select on public.author, public.book, public.owned, api.shelf to v_reader;
grant select on public.visit, api.loud to v_reader;
grant select (id, title) on book to v_columns;
grant select (id, name) on author to v_columns;
grant insert, update, delete on book to v_writer;
grant select (pair, j) on strange to v_odd;
grant select (pair) on strange to v_pairs;
insert into strange (id, j) values (1, '1'), (2, '2');
grant select (title, author_id) on book to v_keyless;
grant select on author to v_keyless;
grant select on owned to anon, v_bypass;
grant usage on schema unused to v_reader;
grant select on unused.thing to v_reader;
"""
ROLES = (
    "anon",
    "v_reader",
    "v_columns",
    "v_nothing",
    "v_writer",
    "v_member",
    "v_odd",
    "v_keyless",
    "v_bypass",
)


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA), db_schemas=("public", "api")) as service:
        yield service
    for role in ROLES[1:]:
        server.admin.execute(f"drop owned by {role}")


def collections(api: Service, role: str) -> set[str]:
    names = api.entries(role)
    return {name.removesuffix("Collection") for name in names if name.endswith("Collection")}


def fields(api: Service, name: str, role: str) -> set[str]:
    return set(api.schema(role).object_type(name).fields)


@pytest.mark.parametrize(
    ("role", "tables"),
    [
        ("anon", {"owned"}),
        ("v_reader", {"author", "book", "owned", "shelf"}),
        ("v_member", {"author", "book", "owned", "shelf"}),
        ("v_columns", {"author", "book"}),
        ("v_nothing", set()),
        ("v_writer", set()),
        ("v_keyless", {"author", "book"}),
        ("v_bypass", {"owned"}),
    ],
)
async def test_role_sees_only_readable_tables(api: Service, role: str, tables: set[str]) -> None:
    assert collections(api, role) == tables
    for table in ("author", "book", "owned", "shelf", "thing"):
        response = await api.ask(
            f"{{ {table}Collection {{ edges {{ node {{ id: __typename }} }} }} }}", role=role
        )
        assert ("errors" not in response.body) is (table in tables)


async def test_role_sees_only_readable_columns(api: Service) -> None:
    assert fields(api, "author", "v_columns") == {"nodeId", "id", "name"}
    assert fields(api, "book", "v_columns") == {"nodeId", "id", "title"}
    assert fields(api, "bookFilter", "v_columns") == {"nodeId", "id", "title", "and", "or", "not"}
    assert fields(api, "bookOrderBy", "v_columns") == {"id", "title"}
    assert fields(api, "bookMinAggregateResult", "v_columns") == {"id", "title"}
    assert fields(api, "bookSumAggregateResult", "v_columns") == {"id"}
    assert await api.rows("book", "id title nodeId", role="v_columns")
    data = await api.data("{ bookByPk(id: 1) { title } }", role="v_columns")
    assert data == {"bookByPk": {"title": "A"}}


async def test_types_without_usable_columns_are_omitted(api: Service) -> None:
    assert fields(api, "strange", "v_odd") == {"j"}
    query = api.entries("v_odd")
    assert set(query["strangeCollection"].args) == {"first", "last", "before", "after", "offset", "filter"}
    assert collections(api, "v_pairs") == set()
    assert await api.rows("strange", "j", role="v_odd") == [{"j": "1"}, {"j": "2"}]


async def test_relationship_requires_its_columns_on_both_sides(api: Service) -> None:
    assert "author" not in fields(api, "book", "v_columns")
    assert "bookCollection" not in fields(api, "author", "v_columns")
    assert fields(api, "book", "v_keyless") == {"title", "author_id", "author"}
    [row] = await api.rows(
        "book", "title author { name bookCollection { edges { node { title } } } }", role="v_keyless"
    )
    assert row["author"] == {"name": "Ann", "bookCollection": {"edges": [{"node": {"title": "A"}}]}}


async def test_without_a_readable_key_rows_still_page(api: Service) -> None:
    query = """{ bookCollection(orderBy: {title: AscNullsLast}) {
        edges { cursor } pageInfo { endCursor hasNextPage } } }"""
    data = await api.data(query, role="v_keyless")
    cursor = data["bookCollection"]["edges"][0]["cursor"]
    query = (
        "query($a: Cursor) { bookCollection(after: $a, orderBy: {title: AscNullsLast}) { edges { cursor } } }"
    )
    assert (await api.data(query, {"a": cursor}, role="v_keyless"))["bookCollection"]["edges"] == []


async def test_types_of_a_hidden_schema_are_left_out(api: Service) -> None:
    assert str(api.schema("v_reader").object_type("book").fields["state"].type) == "state"
    try:
        await api.execute("grant select on public.book to v_columns")
        assert "price" in fields(api, "book", "v_columns")
        assert "state" not in fields(api, "book", "v_columns")
        assert "state" not in api.schema("v_columns").schema.type_map
    finally:
        await api.execute(
            "revoke select on public.book from v_columns; grant select (id, title) on book to v_columns"
        )


@pytest.mark.parametrize("role", ROLES)
def test_every_roles_schema_is_valid(api: Service, role: str) -> None:
    assert validate_schema(eager(api.schema(role))) == []


async def test_role_without_tables_can_query_heartbeat(api: Service) -> None:
    assert (await api.data("{ __typename heartbeat }", role="v_nothing"))["__typename"] == "Query"
    response = await api.ask("{ bookCollection { edges { cursor } } }", role="v_writer")
    assert response.error == "Cannot query field 'bookCollection' on type 'Query'."


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "{ visitCollection { edges { cursor } } }",
            "Table public.visit has no primary key, which GraphQL needs.",
        ),
        ("{ visitByPk(id: 1) { id } }", "Table public.visit has no primary key, which GraphQL needs."),
        (
            "{ authorCollection { edges { node { visitCollection { edges { cursor } } } } } }",
            "Table public.visit has no primary key, which GraphQL needs.",
        ),
        (
            "{ loudCollection { edges { cursor } } }",
            "Table api.loud has no primary key, which GraphQL needs; the directive primary_key_columns can"
            " declare one.",
        ),
    ],
)
async def test_error_explains_that_a_table_has_no_key(api: Service, query: str, reason: str) -> None:
    response = await api.ask(query, role="v_reader")
    assert response.error.startswith("Cannot query field '")
    assert response.error.endswith(f"'. {reason}")
    assert "has no primary key" not in (await api.ask(query, role="v_columns")).error


@pytest.mark.parametrize(
    ("role", "expected"), [("anon", [1]), ("v_reader", [2, 3]), ("v_member", []), ("v_bypass", [1, 2, 3])]
)
async def test_row_level_security_decides_the_rows(api: Service, role: str, expected: list[int]) -> None:
    assert await api.ids("owned", role=role) == expected
    for number in (1, 2, 3):
        data = await api.data(f"{{ ownedByPk(id: {number}) {{ id }} }}", role=role)
        assert data["ownedByPk"] == ({"id": number} if number in expected else None)


async def test_roles_can_share_a_connection(api: Service) -> None:
    for _ in range(3):
        for role, expected in (("anon", [1]), ("v_bypass", [1, 2, 3]), ("v_reader", [2, 3])):
            assert await api.ids("owned", role=role) == expected
        assert (await api.ask("{ authorCollection { edges { cursor } } }")).errors
        assert (await api.ask("{ authorCollection { edges { cursor } } }", role="v_reader")).data


async def test_reload_applies_new_grants(api: Service) -> None:
    query = "{ shelfCollection { edges { node { label } } } }"
    assert (await api.ask(query, role="v_reader")).data
    api.database.execute("revoke select on api.shelf from v_reader")
    response = await api.ask(query, role="v_reader")
    assert response.errors[0]["extensions"] == {"code": "42501"}
    await api.reload()
    assert "Cannot query field 'shelfCollection'" in (await api.ask(query, role="v_reader")).error
    await api.execute("grant select on api.shelf to v_reader")
    assert (await api.ask(query, role="v_reader")).data


async def test_not_null_keys_may_make_non_null_relationships(server: Server, reactor: Any) -> None:
    database = server.create_database(
        """
        create table free (id int primary key);
        create table guarded (id int primary key);
        alter table guarded enable row level security;
        create table a (
            id int primary key, free_id int not null references free, maybe_id int references free,
            guarded_id int not null references guarded, one_id int not null unique references free
        );
        grant select on all tables in schema public to anon;
        insert into free values (1); insert into a values (1, 1, null, 1, 1);
        """.replace("insert into a", "insert into guarded values (1); insert into a")
    )
    names: tuple[str, ...] = ("freeByfree_id", "freeBymaybe_id", "guarded", "freeByone_id")
    database.execute(
        """
        alter table a add column lost_id int not null default 404,
            add constraint lost foreign key (lost_id) references free not valid;
        comment on table a is '@graphql({"foreign_keys": [{
            "local_columns": ["id"], "foreign_name": "says",
            "foreign_schema": "public", "foreign_table": "free", "foreign_columns": ["id"]}]})';
        """
    )
    # PostgreSQL does not enforce keys that are NOT VALID or that only a directive declares.
    names += ("free", "says")
    for setting, expected in (
        (False, ["free", "free", "guarded", "free", "free", "free"]),
        (True, ["free!", "free", "guarded", "free!", "free", "free"]),
    ):
        service = Service(reactor, database, graphql_non_null_relationships=setting)
        await service.start()
        try:
            found = service.schema().object_type("a").fields
            assert [str(found[name].type) for name in names] == expected
            assert str(service.schema().object_type("free").fields["a"].type) == "a"
            [row] = await service.rows("a", "freeByfree_id { id } guarded { id } freeBymaybe_id { id }")
            assert row == {"freeByfree_id": {"id": 1}, "guarded": None, "freeBymaybe_id": None}
            [row] = await service.rows("a", "free { id }")
            assert row == {"free": None}
        finally:
            await service.stop()
    server.drop_database(database)
