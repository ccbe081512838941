"""Introspection over HTTP: off by default, per schema (docs/reference/graphql.md, Introspection)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.graphql.schema.role_schema import schema_text
from graphql import (
    build_client_schema,
    get_introspection_query,
    is_enum_type,
    lexicographic_sort_schema,
    print_schema,
    validate_schema,
)
from support.oracle import eager
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create schema shown;
create type shown.mood as enum ('sad', 'happy');
create table shown.author (id int primary key, name text not null, mood shown.mood);
create table public.book (id int primary key, title text, author_id int references shown.author);
create table shown.review (
    id int primary key, book_id int references public.book, author_id int references shown.author
);
comment on schema shown is '@graphql({"introspection": true, "inflect_names": true})';
comment on table shown.author is '@graphql({"totalCount": {"enabled": true}, "description": "Who writes"})';
insert into shown.author values (1, 'Ann', 'sad'), (2, 'Bo', null);
insert into public.book values (1, 'A', 1);
grant usage on schema shown to anon, authenticated;
grant select on all tables in schema public, shown to anon, service_role;
"""
PROJECT = {"db_schemas": ("public", "shown"), "graphql_max_depth": 30}
FULL = get_introspection_query(
    descriptions=True,
    specified_by_url=True,
    directive_is_repeatable=True,
    schema_description=True,
    input_value_deprecation=True,
).replace("specifiedByURL", "specifiedByURL isOneOf")


@pytest.fixture(scope="module")
def closed(server: Server, reactor: Any) -> Iterator[Service]:
    sql = "create table a (id int primary key); insert into a values (1); grant select on a to anon"
    with serving(reactor, server.create_database(sql)) as service:
        yield service


async def test_introspection_is_off_by_default(closed: Service) -> None:
    response = await closed.ask(
        '{ s: __schema { queryType { name } } aByPk(id: 1) { id } __type(name: "a") { name } __typename }'
    )
    assert response.status == 200
    assert response.body["data"] == {"aByPk": {"id": 1}, "__typename": "Query"}
    assert [(error["message"], error["path"]) for error in response.errors] == [
        ('Unknown field "__schema" on type Query', ["s"]),
        ('Unknown field "__type" on type Query', ["__type"]),
    ]
    assert response.errors[0]["locations"] == [{"line": 1, "column": 3}]
    assert len(response.messages) == 1
    response = await closed.ask(FULL)
    assert response.status == 200
    assert response.body["data"] is None, "no other field was requested"
    assert response.error == 'Unknown field "__schema" on type Query'
    assert response.messages == ()


async def test_comment_on_a_schema_enables_introspection(closed: Service) -> None:
    query = "{ __schema { queryType { name } } }"
    assert (await closed.ask(query)).errors
    await closed.execute("""comment on schema public is 'x @graphql({"introspection": true}) y'""")
    assert (await closed.data(query)) == {"__schema": {"queryType": {"name": "Query"}}}
    await closed.execute("comment on schema public is null")
    assert (await closed.ask(query)).error == 'Unknown field "__schema" on type Query'


async def introspect(api: Service, query: str = FULL, role: str = "anon") -> Any:
    response = await api.ask(query, role=role, check=False)
    assert response.messages == ()
    return response.data


@pytest.mark.parametrize("query", [get_introspection_query(), FULL], ids=["plain", "every member"])
async def test_clients_can_build_a_schema(api: Service, query: str) -> None:
    """The introspection queries are those of graphql-core and of graphql-js 16 and 17."""
    schema = build_client_schema(await introspect(api, query))
    assert validate_schema(schema) == []
    assert {"Author", "AuthorConnection", "AuthorFilter", "Review", "Mood", "Node"} <= set(schema.type_map)
    assert schema.type_map["Author"].description == "Who writes"


async def test_schemas_that_did_not_opt_in_are_hidden(api: Service) -> None:
    schema = build_client_schema(await introspect(api))
    text = print_schema(schema)
    assert "book" not in text.replace("bookId", "")
    assert schema.query_type is not None
    assert {"authorCollection", "authorByPk", "reviewCollection", "node"} <= set(schema.query_type.fields)
    assert (await introspect(api, '{ __type(name: "book") { name } }')) == {"__type": None}
    assert (await api.data("{ bookByPk(id: 1) { title author { name } } }"))["bookByPk"]["title"] == "A"


async def test_errors_do_not_reveal_the_names_of_hidden_schemas(api: Service, closed: Service) -> None:
    assert "book" not in (await api.ask("{ bokCollection { __typename } }")).error
    await closed.execute("""comment on schema public is '@graphql({"introspection": true})'""")
    assert "Did you mean 'aCollection'?" in (await closed.ask("{ abCollection { __typename } }")).error
    await closed.execute("comment on schema public is null")


async def test_heartbeat_works_but_is_not_introspected(api: Service) -> None:
    schema = build_client_schema(await introspect(api))
    assert schema.query_type is not None
    assert "heartbeat" not in schema.query_type.fields
    assert len(api.entries()) == len(list(api.entries()))
    assert "heartbeat" not in list(api.entries())
    assert str(api.entries()["heartbeat"].type) == "Datetime!"
    assert set(await api.data("{ heartbeat }")) == {"heartbeat"}


async def test_unreferenced_enums_are_introspected(server: Server, reactor: Any) -> None:
    sql = """
        comment on schema public is '@graphql({"introspection": true})';
        create type alone as enum ('a'); create type hidden as enum ('b'); create type met as enum ('c');
        create type given as enum ('d'); create type elsewhere as enum ('e');
        create table t (id int primary key, met met[]); create table secret (id int primary key, e elsewhere);
        create function f(g given) returns int language sql stable as 'select 1';
        revoke usage on type hidden, met, given, elsewhere from public; grant select on t to anon;
    """
    with_enums = Service(reactor, server.create_database(sql))
    await with_enums.start()
    try:
        shown = build_client_schema(await introspect(with_enums))
        enums = {name for name, type_ in shown.type_map.items() if is_enum_type(type_)}
        fixed = {"FilterIs", "OrderByDirection", "__TypeKind", "__DirectiveLocation"}
        assert enums - fixed == {"alone", "met", "given"}
        assert "enum alone {" in schema_text(with_enums.schema())
        assert "hidden" not in schema_text(with_enums.schema())
    finally:
        await with_enums.stop()


def undescribed(name: str, type_: Any) -> Iterator[str]:
    """Yield the names without a description. Columns of tables need none."""
    if is_enum_type(type_) and name != "mood":
        yield from (f"{name}.{value}" for value, each in type_.values.items() if not each.description)
    around = name.endswith(("Connection", "Edge"))
    if (around or name.endswith(("Filter", "OrderBy"))) and not type_.description:
        yield name
    if around or name in ("Query", "Mutation", "PageInfo", "tAggregate"):
        for field, each in type_.fields.items():
            if not each.description:
                yield f"{name}.{field}"
            yield from (
                f"{name}.{field}({word})" for word, given in each.args.items() if not given.description
            )
    if name.endswith("Filter"):
        operators = ("and", "or", "not", "nodeId") if name == "tFilter" else type_.fields
        yield from (f"{name}.{word}" for word in operators if not type_.fields[word].description)


async def test_collections_filters_and_directions_are_described(server: Server, reactor: Any) -> None:
    sql = """
        comment on schema public is '@graphql({"introspection": true})';
        create type mood as enum ('sad');
        create table t (
            id int primary key, s text, n int[], m mood, ms mood[], p point, self int references t
        );
        comment on table t is
            '@graphql({"totalCount": {"enabled": true}, "aggregate": {"enabled": true}})';
        comment on column t.s is '@graphql({"description": "What it says"})';
        grant all on t to anon;
    """
    described = Service(reactor, server.create_database(sql))
    await described.start()
    try:
        shown = build_client_schema(await introspect(described))
        text = schema_text(described.schema())
    finally:
        await described.stop()
    lacking = [path for name, type_ in shown.type_map.items() for path in undescribed(name, type_)]
    assert lacking == []
    rows: Any = shown.type_map["t"]
    assert rows.fields["tCollection"].description
    for name in ("tFilter", "tOrderBy", "tInsertInput", "tUpdateInput"):
        given: Any = shown.type_map[name]
        assert given.fields["s"].description == "What it says"
    assert '"""Ascending, nulls last."""\n  AscNullsLast' in text


async def test_introspected_schema_is_the_served_schema(server: Server, reactor: Any) -> None:
    sql = SCHEMA + """comment on schema public is '@graphql({"introspection": true})'"""
    with_all = Service(reactor, server.create_database(sql), db_schemas=("public", "shown"))
    await with_all.start()
    try:
        shown = build_client_schema(await introspect(with_all))
        served = build_client_schema(build_introspection(with_all))
        assert print_schema(lexicographic_sort_schema(shown)) == print_schema(
            lexicographic_sort_schema(served)
        )
    finally:
        await with_all.stop()


def build_introspection(api: Service) -> Any:
    from graphql import introspection_from_schema  # noqa: PLC0415

    return introspection_from_schema(eager(api.schema()))


async def test_introspection_shows_a_role_its_own_schema(api: Service) -> None:
    for role, types in (("anon", {"Author", "Review"}), ("authenticated", set())):
        data = await introspect(api, "{ __schema { types { name kind } } }", role)
        objects = {found["name"] for found in data["__schema"]["types"] if found["kind"] == "OBJECT"}
        assert objects & {"Author", "Review", "book"} == types
    response = await api.ask("{ __schema { queryType { name } } }", role="service_role")
    assert response.error == 'Unknown field "__schema" on type Query'


async def test_one_operation_can_return_introspection_and_data(api: Service) -> None:
    query = """query($o: [AuthorOrderBy!], $f: bookFilter, $name: String!, $deep: Boolean = false) {
        a: authorCollection(orderBy: $o) { edges { node { id } } }
        type: __type(name: $name) { ...t fields @include(if: $deep) { name } }
        bookCollection(filter: $f) { edges { node { id } } } __schema { queryType { name } } __typename }
        fragment t on __Type { kind name }"""
    variables: dict[str, Any] = {"o": [{"name": "DescNullsLast"}], "f": {"id": {"eq": 1}}, "name": "Author"}
    response = await api.ask(query, variables, check=False)
    assert list(response.data) == ["a", "type", "bookCollection", "__schema", "__typename"]
    assert response.data["a"]["edges"] == [{"node": {"id": 2}}, {"node": {"id": 1}}]
    assert response.data["type"] == {"kind": "OBJECT", "name": "Author"}
    assert response.data["__schema"] == {"queryType": {"name": "Query"}}
    assert len(response.messages) == 1
    again = await api.ask(query, {**variables, "name": "Mood", "deep": True}, check=False)
    assert again.data["type"] == {"kind": "ENUM", "name": "Mood", "fields": None}
    deep = await api.ask(query, {**variables, "deep": True}, check=False)
    assert {"name": "nodeId"} in deep.data["type"]["fields"]


async def test_relay_finds_its_node_interface(api: Service) -> None:
    schema = build_client_schema(await introspect(api))
    node: Any = schema.type_map["Node"]
    assert {name: str(field.type) for name, field in node.fields.items()} == {"nodeId": "ID!"}
    assert {type_.name for type_ in schema.get_possible_types(node)} == {"Author", "Review"}
    assert schema.query_type is not None
    assert str(schema.query_type.fields["node"].args["nodeId"].type) == "ID!"
    page: Any = schema.type_map["PageInfo"]
    assert {name: str(field.type) for name, field in page.fields.items()} == {
        "startCursor": "String",
        "endCursor": "String",
        "hasNextPage": "Boolean!",
        "hasPreviousPage": "Boolean!",
    }
    edge: Any = schema.type_map["AuthorEdge"]
    assert {name: str(field.type) for name, field in edge.fields.items()} == {
        "cursor": "String!",
        "node": "Author",
    }


async def test_introspection_depth_is_limited(api: Service) -> None:
    nested = "fields { type { " * 6 + "name" + " } }" * 6
    response = await api.ask(f"{{ __schema {{ types {{ {nested} }} }} }}", check=False)
    assert response.errors[0]["message"] == "Maximum introspection depth exceeded"
    assert "data" not in response.body
