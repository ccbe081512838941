"""``node``, ``nodeId`` and ``…ByPk`` over HTTP (docs/reference/graphql.md, Node ids)."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create schema other;
create table account (id int primary key, email text);
insert into account values (1, 'a@example.org'), (2, null);
create table orders ("order" int, product int, note text, primary key (product, "order"));
insert into orders values (1, 7, 'x'), (2, 7, 'y');
create table other.account (id int primary key);
insert into other.account values (1);
create table keyed_by_date (day date primary key);
insert into keyed_by_date values ('2024-01-01');
create table "odd ""key" (" k" text primary key, v int);
comment on table "odd ""key" is '@graphql({"name": "odd"})';
insert into "odd ""key" values (E'%s $1 \\'"', 1);
create domain code as varchar(4);
create table small_keys (a smallint, b bigint, c varchar(3), d char(3), e uuid, f code, g text,
    primary key (a, b, c, d, e, f, g));
insert into small_keys values
    (1, 9223372036854775807, 'c', 'd', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'f', '');
create view seen as select 1 as id, 'v' as v union all select 1, 'w';
comment on view seen is '@graphql({"primary_key_columns": ["id"]})';
create table hidden (id int primary key);
insert into hidden values (1);
grant select on all tables in schema public to anon;
revoke all on hidden from anon;
do $$ begin create role reader nologin; exception when duplicate_object then end $$;
grant reader to authenticator;
grant select (id) on account to reader;
grant select (product, note) on orders to reader;
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA), db_schemas=("public", "other")) as service:
        yield service
    server.admin.execute("drop owned by reader")


def node_id(*values: object) -> str:
    return base64.b64encode(json.dumps(values).encode()).decode()


@pytest.mark.parametrize(
    "bad",
    [
        node_id("public", "account", "x"),
        node_id("public", "account", 2**31),
        node_id("public", "account", -(2**31) - 1),
        node_id("public", "account", 1.5),
        node_id("public", "account", True),
        node_id("public", "account", {"a": 1}),
        node_id("public", "small_keys", 1, 2**63, "c", "d", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "f", ""),
        node_id("public", "small_keys", 2**15, 1, "c", "d", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "f", ""),
        node_id("public", "small_keys", 1, 1, "c", "d", "no uuid", "f", ""),
    ],
)
async def test_key_value_of_another_type_does_not_affect_siblings(api: Service, bad: str) -> None:
    """PostgreSQL would reject the whole query because of one invalid value."""
    query = "query($id: ID!) { a: accountByPk(id: 1) { id } node(nodeId: $id) { nodeId } }"
    good = node_id("public", "account", 2)
    for _ in range(2):
        assert (await api.data(query, {"id": good})) == {"a": {"id": 1}, "node": {"nodeId": good}}
        response = await api.ask(query, {"id": bad})
        assert response.body["data"] == {"a": {"id": 1}, "node": None}
        assert response.error == "Invalid value passed to nodeId argument. Error 6"
        assert response.errors[0]["path"] == ["node"]


async def test_node_id_has_the_documented_form(api: Service) -> None:
    rows = await api.rows("account", "nodeId id")
    assert rows[0] == {"nodeId": "WyJwdWJsaWMiLCAiYWNjb3VudCIsIDFd", "id": 1}
    assert [row["nodeId"] for row in await api.rows("orders", "nodeId")] == [
        node_id("public", "orders", 7, 1),
        node_id("public", "orders", 7, 2),
    ]


async def test_node_finds_every_row_by_its_id(api: Service) -> None:
    for base in ("account", "orders", "keyed_by_date", "odd", "small_keys"):
        for row in await api.rows(base, "nodeId __typename"):
            data = await api.data(
                "query($id: ID!) { node(nodeId: $id) { __typename nodeId } }", {"id": row["nodeId"]}
            )
            assert data["node"] == {"__typename": base, "nodeId": row["nodeId"]}


async def test_inline_fragments_select_per_type(api: Service) -> None:
    query = """query($id: ID!) { node(nodeId: $id) {
        ... on account { id mail: email } ... on orders { product note } ...rest
        ... on Node { same: nodeId } } }
        fragment rest on Node { __typename ... on account { again: id } }"""
    account, order = node_id("public", "account", 1), node_id("public", "orders", 7, 2)
    assert (await api.data(query, {"id": account}))["node"] == {
        "id": 1, "mail": "a@example.org", "__typename": "account", "again": 1, "same": account,
    }  # fmt: skip
    assert (await api.data(query, {"id": order}))["node"] == {
        "product": 7, "note": "y", "__typename": "orders", "same": order,
    }  # fmt: skip


@pytest.mark.parametrize(
    "key",
    [
        ("public", "account", 99),
        ("public", "nothing", 1),
        ("nowhere", "account", 1),
        ("public", "hidden", 1),
        ("pg_catalog", "pg_authid", 10),
        ("other", "account", 1),
    ],
)
async def test_absent_and_hidden_rows_are_null(api: Service, key: tuple[object, ...]) -> None:
    response = await api.ask("query($id: ID!) { node(nodeId: $id) { nodeId } }", {"id": node_id(*key)})
    assert response.data == {"node": None}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 2),
        ("%", 1),
        ("YQ==", 2),
        ("e30=", 3),
        (base64.b64encode(b"\xff").decode(), 2),
        (node_id(), 4),
        (node_id("public", "account"), 4),
        (node_id("public", "account", None), 4),
        (node_id(None, "account", 1), 4),
        (node_id("public", "account", 1, 2), 5),
        (node_id("public", "orders", 1), 5),
    ],
)
async def test_invalid_node_id_is_rejected(api: Service, text: str, number: int) -> None:
    query = "query($id: ID!) { node(nodeId: $id) { nodeId } }"
    for response in (
        await api.ask(query, {"id": text}),
        await api.ask(f'{{ node(nodeId: "{text}") {{ nodeId }} }}'),
    ):
        assert response.error == f"Invalid value passed to nodeId argument. Error {number}"
        assert response.errors[0]["path"] == ["node"]
        assert response.body["data"] is None


@pytest.mark.parametrize("key", ["x", 1.5, 10**30, True, [1], {"a": 1}, "1; drop table account"])
async def test_key_of_a_wrong_type_is_an_error(api: Service, key: object) -> None:
    response = await api.ask(
        "query($id: ID!) { node(nodeId: $id) { nodeId } }", {"id": node_id("public", "account", key)}
    )
    assert response.body["data"] is None
    assert response.errors


async def test_by_pk_finds_the_row_or_null(api: Service) -> None:
    data = await api.data("{ a: accountByPk(id: 1) { email } b: accountByPk(id: 99) { email } }")
    assert data == {"a": {"email": "a@example.org"}, "b": None}
    query = "query($o: Int!, $p: Int!) { ordersByPk(order: $o, product: $p) { note } }"
    assert (await api.data(query, {"o": 2, "p": 7}))["ordersByPk"] == {"note": "y"}
    assert (await api.data(query, {"o": 7, "p": 2}))["ordersByPk"] is None


async def test_every_key_type_of_the_reference_has_by_pk(api: Service) -> None:
    fields = api.entries()
    arguments = fields["small_keysByPk"].args
    assert {name: str(argument.type) for name, argument in arguments.items()} == {
        **dict.fromkeys("cdfg", "String!"),
        "a": "Int!",
        "b": "BigInt!",
        "e": "UUID!",
    }
    assert "keyed_by_dateByPk" not in fields
    assert str(fields["accountByPk"].type) == "account"
    data = await api.data(
        """{ small_keysByPk(a: 1, b: "9223372036854775807", c: "c", d: "d",
            e: "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", f: "f", g: "") { a } }"""
    )
    assert data["small_keysByPk"] == {"a": 1}


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [("", "product, order"), ("(product: 7)", "order"), ("(order: 1)", "product")],
)
async def test_missing_key_columns_are_named(api: Service, arguments: str, missing: str) -> None:
    response = await api.ask(f"{{ rows: ordersByPk{arguments} {{ note }} }}")
    assert response.error == f"Missing primary key column(s): {missing}"
    assert response.body["data"] is None
    assert response.errors[0]["path"] == ["rows"]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("accountByPk(id: null)", "Expected value of non-null type 'Int!' not to be"),
        ('accountByPk(id: "1")', "Int cannot represent non-integer value"),
        ("accountByPk(id: 1, extra: 2)", "Unknown argument 'extra'"),
        ('accountByPk(email: "x")', "Unknown argument 'email'"),
    ],
)
async def test_malformed_keys_are_rejected(api: Service, field: str, message: str) -> None:
    response = await api.ask(f"{{ {field} {{ id }} }}")
    assert message in response.error
    assert response.messages == ()


async def test_declared_key_that_is_not_unique_returns_one_row(api: Service) -> None:
    assert (await api.data("{ seenByPk(id: 1) { id } }"))["seenByPk"] == {"id": 1}
    data = await api.data(
        "query($id: ID!) { node(nodeId: $id) { nodeId } }", {"id": node_id("public", "seen", 1)}
    )
    assert data["node"] is not None


async def test_partly_readable_key_has_no_node_id(api: Service) -> None:
    schema = api.schema("reader")
    assert set(schema.object_type("orders").fields) == {"product", "note"}
    assert schema.object_type("orders").interfaces == ()
    assert "ordersByPk" not in api.entries("reader")
    assert await api.rows("orders", "product note", role="reader") == [
        {"product": 7, "note": "x"},
        {"product": 7, "note": "y"},
    ]
    query = "query($id: ID!) { node(nodeId: $id) { __typename } }"
    order = await api.ask(query, {"id": node_id("public", "orders", 7, 1)}, role="reader")
    assert order.data == {"node": None}
    account = await api.ask(query, {"id": node_id("public", "account", 1)}, role="reader")
    assert account.data == {"node": {"__typename": "account"}}
