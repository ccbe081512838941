"""Features of newer PostgreSQL versions. Each test is skipped on a server without the feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.server_watch import ServerWatch
from graphql import print_schema
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server

EIGHTEEN = """
create table parent (id int primary key, name text);
insert into parent values (1, 'one');
create table child (
    id int primary key, parent_id int not null, amount int not null default 1,
    twice int generated always as (amount * 2) virtual, note text,
    foreign key (parent_id) references parent not enforced
);
insert into child (id, parent_id) values (1, 1), (2, 404);
alter table child add constraint child_note not null note not valid;
create view cheap with (security_invoker) as select id, twice from child;
grant all on all tables in schema public to anon;
"""
PERIODS = """
create extension btree_gist;
create table room (id int, valid daterange, price int, primary key (id, valid without overlaps));
insert into room values (1, '[2026-01-01,2026-02-01)', 10), (1, '[2026-02-01,2026-03-01)', 11);
create table booking (
    id int primary key, room_id int, during daterange,
    foreign key (room_id, period during) references room (id, period valid)
);
insert into booking values (1, 1, '[2026-01-20,2026-02-10)');
grant all on room, booking to anon;
"""


@pytest.fixture(scope="module")
def eighteen(server: Server, reactor: Any) -> Iterator[Service]:
    if server.version < 18:
        pytest.skip("needs PostgreSQL 18")
    periods = [PERIODS] if server.has("btree_gist") else []
    database = server.create_database(EIGHTEEN, *periods)
    features = frozenset({"upsert"})
    with serving(
        reactor, database, graphql_features=features, graphql_non_null_relationships=True
    ) as service:
        yield service


@pytest.fixture(scope="module")
def periods(server: Server, eighteen: Service) -> Service:
    server.require("btree_gist")
    return eighteen


async def test_virtual_generated_columns_are_read_only(eighteen: Service) -> None:
    response = await eighteen.rest("GET", "child?select=id,twice&twice=eq.2&order=id")
    assert response.body == [{"id": 1, "twice": 2}, {"id": 2, "twice": 2}]
    assert (await eighteen.rest("GET", "cheap?id=eq.1")).body == [{"id": 1, "twice": 2}]
    assert await eighteen.rows("child", "twice", "filter: {id: {eq: 1}}") == [{"twice": 2}]
    schema = eighteen.schema()
    assert "twice" not in schema.schema.type_map["childInsertInput"].fields  # type: ignore[attr-defined]
    assert "twice" not in schema.schema.type_map["childUpdateInput"].fields  # type: ignore[attr-defined]


async def test_foreign_key_that_is_not_enforced_is_a_nullable_relationship(eighteen: Service) -> None:
    assert await eighteen.rows("child", "id parent { name }") == [
        {"id": 1, "parent": {"name": "one"}},
        {"id": 2, "parent": None},
    ]
    fields = eighteen.schema().object_type("child").fields
    assert (str(fields["parent"].type), str(fields["note"].type)) == ("parent", "String")
    response = await eighteen.rest("GET", "child?select=id,parent(name)&id=eq.2")
    assert response.body == [{"id": 2, "parent": None}]


async def test_temporal_key_identifies_rows(periods: Service) -> None:
    data = await periods.data("{ roomCollection { edges { node { nodeId price } } } }")
    rows = nodes(data["roomCollection"])
    assert [row["price"] for row in rows] == [10, 11]
    query = "query ($id: ID!) { node(nodeId: $id) { ... on room { price } } }"
    node = await periods.data(query, {"id": rows[1]["nodeId"]})
    assert node == {"node": {"price": 11}}


async def test_temporal_key_is_no_upsert_target(periods: Service) -> None:
    """PostgreSQL has no ``on conflict`` for temporal keys: GraphQL omits the key, REST returns the error."""
    sdl = print_schema(periods.schema().schema)
    assert "enum bookingConflictConstraint" in sdl
    assert "enum roomConflictConstraint" not in sdl
    response = await periods.rest(
        "POST", "room", {"id": 1, "valid": "[2026-01-01,2026-02-01)", "price": 12},
        headers={"Prefer": "resolution=merge-duplicates"},
    )  # fmt: skip
    assert (response.status, response.body["code"]) == (400, "42P10")


async def test_foreign_key_with_a_period_is_no_relationship(periods: Service) -> None:
    response = await periods.rest("GET", "booking?select=id,room(price)")
    assert (response.status, response.body["code"]) == (400, "PGRST200")
    assert "room" not in periods.schema().object_type("booking").fields


@pytest.fixture
def limited(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a function that exceeds its own transaction_timeout."""
    if server.version < 17:
        pytest.skip("needs PostgreSQL 17")
    database = server.create_database(
        "create function slow() returns int language plpgsql set transaction_timeout = '50ms' as"
        " $$ begin perform pg_sleep(20); return 1; end $$"
    )
    with serving(reactor, database) as service:
        yield service


async def test_exceeded_transaction_timeout_is_named_in_the_error(limited: Service) -> None:
    response = await limited.rest("POST", "rpc/slow", {})
    assert (response.status, response.body["code"]) == (500, "25P04")
    assert "transaction_timeout" in response.body["message"]
    assert "transaction_timeout" in (await limited.ask("mutation { slow }")).error
    assert (await limited.rest("GET", "")).status == 200


async def test_server_watch_works_without_the_set_option(
    server: Server, database: Database, reactor: Any
) -> None:
    """PostgreSQL 16 can grant membership in a role without the right to SET ROLE."""
    if server.version < 16:
        pytest.skip("needs PostgreSQL 16")
    database.execute("grant pg_read_all_stats to authenticator with set false")
    watch = ServerWatch(reactor, database.uri)
    await watch.poll()
    database.execute("revoke pg_read_all_stats from authenticator")
    assert watch.state is not None, watch.trouble
    watch.close()
