"""Tables, enums and composite types whose names clash with generated types."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.catalog.directives import FEATURES
from dataapi.catalog.registry import TableType
from dataapi.graphql.schema.role_schema import schema_text
from dataapi.service.inspection import inspect
from graphql import build_client_schema, build_schema, get_introspection_query, validate_schema
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataapi.catalog.model import Table
    from support.postgres import Database, Server


def snake(ending: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", ending).lower()


ENDINGS = {
    True: [f"user_{snake(ending)}" for ending in (*TableType, "Collection", "ByPk") if ending],
    False: [f"user{ending}" for ending in (*TableType, "Collection", "ByPk") if ending],
}
SHARED = ("text_search", "subscription", "node", "page_info", "filter_is", "is", "int", "query")
ENUMS = ("mood_filter", "mood_list", "member_group", "member_row_filter")


def tables_of(*, inflection: bool) -> list[str]:
    return ["user", "member", *ENDINGS[inflection], *SHARED]


def database(server: Server, *, inflection: bool) -> Database:
    directive = json.dumps({"introspection": True, "inflect_names": inflection})
    enums = "".join(f"create type {name} as enum ('on', 'off');" for name in ("mood", *ENUMS))
    columns = ", ".join(f"of_{name} {name}, all_{name} {name}[]" for name in ("mood", *ENUMS))
    values = ", ".join("'on', '{on}'" for _ in ("mood", *ENUMS))
    tables = "".join(
        f'create table "{name}" (id int primary key, label text, peer int, {columns});'
        f"insert into \"{name}\" values (1, '{name}', 1, {values});"
        f'alter table "{name}" add constraint "{name}_peer" foreign key (peer) references "user";'
        for name in tables_of(inflection=inflection)
    )
    return server.create_database(
        f"""comment on schema public is '@graphql({directive})';
        create type member_edge as (a int); create type user_group_edge as (a int);
        create function composed(member_edge) returns int language sql stable as 'select $1.a';
        {enums} {tables} grant all on all tables in schema public to anon;"""
    )


CASES = {"unchanged-plain": (False, frozenset[str]()), "inflected-features": (True, frozenset(FEATURES))}
"""Whether names are inflected, and the enabled features. ``tests/unit/graphql`` tests other combinations."""


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def clashing(request: Any, server: Server, reactor: Any) -> Iterator[Service]:
    inflection, features = request.param
    with serving(reactor, database(server, inflection=inflection), graphql_features=features) as service:
        yield service


def names_of(service: Service) -> dict[str, str]:
    catalog = service.catalog
    return {
        catalog.tables[oid].name: name for oid, name in catalog.base_names.items() if oid in catalog.tables
    }


def filters_of_enums(service: Service, table: Table) -> str:
    inputs = service.schema().view.names.fields(table.oid).inputs
    return ", ".join(
        f"{inputs[f'of_{name}']}: {{eq: on}}, {inputs[f'all_{name}']}: {{contains: [on]}}" for name in ENUMS
    )


async def test_every_table_is_queried_and_changed_under_its_name(clashing: Service) -> None:
    catalog = clashing.catalog
    tables = {catalog.tables[oid]: base for oid, base in catalog.base_names.items() if oid in catalog.tables}
    reads = {
        f"q{number}: {base[0].lower()}{base[1:]}Collection(filter: {{{filters_of_enums(clashing, table)}}})"
        " { edges { node { __typename id label } } }": (table.name, base)
        for number, (table, base) in enumerate(tables.items())
    }
    data = await clashing.data(f"{{ {' '.join(reads)} }}")
    assert list(data.values()) == [
        {"edges": [{"node": {"__typename": base, "id": 1, "label": name}}]} for name, base in reads.values()
    ]
    keys = " ".join(f"{base[0].lower()}{base[1:]}ByPk(id: 1) {{ label }}" for base in tables.values())
    data = await clashing.data(f"{{ {keys} }}")
    assert [row["label"] for row in data.values()] == [table.name for table in tables]
    changes = " ".join(
        f"insertInto{base}Collection(objects: [{{id: 2}}]) {{ affectedCount }}"
        f' update{base}Collection(set: {{label: "new"}}, filter: {{id: {{eq: 2}}}}) {{ affectedCount }}'
        f" deleteFrom{base}Collection(filter: {{id: {{eq: 2}}}}) {{ affectedCount records {{ label }} }}"
        for base in tables.values()
    )
    data = await clashing.data(f"mutation {{ {changes} }}")
    assert [response["affectedCount"] for response in data.values()] == [1] * (3 * len(tables))


async def test_variables_may_be_declared_with_the_name_of_any_type(clashing: Service) -> None:
    catalog, names = clashing.catalog, names_of(clashing)
    (user,) = (oid for oid, table in catalog.tables.items() if table.name == "user")
    name = catalog.name_of_type(user, TableType.FILTER)
    assert name == f"{names['user']}Filter_2"
    query = f"query Q($of: {name}!) {{ userCollection(filter: $of) {{ edges {{ node {{ label }} }} }} }}"
    data = await clashing.data(query, {"of": {"label": {"eq": "user"}}})
    assert nodes(data["userCollection"]) == [{"label": "user"}]


async def test_whole_schema_is_introspected_and_printed(clashing: Service) -> None:
    response = await clashing.ask(get_introspection_query(), check=False)
    assert "errors" not in response.body
    assert validate_schema(build_client_schema(response.body["data"])) == []
    printed = build_schema(schema_text(clashing.schema()))
    assert validate_schema(printed) == []
    assert set(names_of(clashing).values()) <= printed.type_map.keys()


async def test_features_work_if_tables_have_the_names_of_their_types(clashing: Service) -> None:
    if not clashing.project.graphql_features:
        return
    base = names_of(clashing)["user"]
    data = await clashing.data(
        """{ userCollection(filter: {label: {search: {query: "user"}}}) {
            groupBy(by: [label], having: {count: {gt: 0}}) { __typename keys { label } aggregate { count } }
        } }"""
    )
    (group,) = data["userCollection"]["groupBy"]
    assert group == {"__typename": f"{base}Group_2", "keys": {"label": "user"}, "aggregate": {"count": 1}}
    data = await clashing.data(
        f"""mutation {{ change: insertInto{base}Collection(
            objects: [{{id: 1, label: "user"}}], onConflict: {{columns: [id], update: [label]}}
        ) {{ records {{ label }} }} }}"""
    )
    assert data["change"]["records"] == [{"label": "user"}]


async def test_every_clash_is_reported(clashing: Service) -> None:
    found = "\n".join(finding.text for finding in inspect(clashing.project)) + "\n"
    renamed = clashing.catalog.registry.renamed.values()
    assert [name for name in renamed if f" type is named {name}\n" not in found] == []


@pytest.fixture
def pair(server: Server, reactor: Any) -> Iterator[Service]:
    sql = """
        create table t (id int primary key); create table "tCollection" (id int primary key);
        insert into t values (1); insert into "tCollection" values (2);
        grant select on t to anon; grant select on "tCollection" to authenticated;
    """
    with serving(reactor, server.create_database(sql)) as service:
        yield service


async def test_table_is_served_to_a_role_that_sees_only_it(pair: Service) -> None:
    assert await pair.ids("t") == [1]
    assert await pair.ids("tCollection", role="authenticated") == [2]
    assert pair.collections() == {"tCollection", "tByPk"}
    assert pair.collections("authenticated") == {"tCollectionCollection", "tCollectionByPk"}
