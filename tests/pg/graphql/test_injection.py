"""SQL injection: hostile values in every position, and hostile names."""

from __future__ import annotations

import base64
import json
from typing import Any

from dataapi.database.message import Statement
from graphql import validate_schema
from hypothesis import given
from hypothesis import strategies as st
from support.oracle import eager
from support.service import Service, nodes

QUOTES = "\" ;' $$ \\"
SCHEMA = r"""
create type "mo'od ""$1 %s" as enum ('it''s', 'say "hi"', '$1 %s', 'back\slash');
comment on type "mo'od ""$1 %s" is
    '@graphql({"name": "Mood", "mappings":
        {"it''s": "ITS", "say \"hi\"": "SAY_HI", "$1 %s": "PERCENT", "back\\slash": "BACK"}})';
create table "odd "" ; ' $1 %s $$ --" (
    "key "" '' $1 %" text,
    "val %s (') \ " text,
    "Mood ;" "mo'od ""$1 %s",
    "list "" x" text[],
    parent text,
    constraint "pk " primary key ("key "" '' $1 %"),
    constraint "fk "" '" foreign key (parent) references "odd "" ; ' $1 %s $$ --"
);
comment on table "odd "" ; ' $1 %s $$ --" is
    '@graphql({"name": "Odd", "totalCount": {"enabled": true}, "aggregate": {"enabled": true}})';
comment on column "odd "" ; ' $1 %s $$ --"."key "" '' $1 %" is '@graphql({"name": "key"})';
comment on column "odd "" ; ' $1 %s $$ --"."val %s (') \ " is '@graphql({"name": "val"})';
comment on column "odd "" ; ' $1 %s $$ --"."Mood ;" is '@graphql({"name": "mood"})';
comment on column "odd "" ; ' $1 %s $$ --"."list "" x" is '@graphql({"name": "list"})';
comment on constraint "fk "" '" on "odd "" ; ' $1 %s $$ --" is
    '@graphql({"foreign_name": "up", "local_name": "down"})';
create function "_comp "" ' $1 %s"("odd "" ; ' $1 %s $$ --") returns text language sql stable as
    'select $1."key "" '''' $1 %"';
comment on function "_comp "" ' $1 %s" is '@graphql({"name": "comp"})';
insert into "odd "" ; ' $1 %s $$ --" values
    (E'k" '' $1 %s \\ ;--', E'v" '' $1 %s \\ $$', '$1 %s', array['a" b', E'c\\d', '%'],
        E'k" '' $1 %s \\ ;--'),
    ('plain', 'x', 'it''s', '{}', 'plain');
create table "1bad" (id int primary key);
create table "no name" (id int primary key);
create table note (id int primary key, text text, list text[], at timestamptz, u uuid, n numeric, j jsonb);
insert into note (id, text) values (1, 'kept');
grant select on all tables in schema public to anon;
"""


async def test_names_with_quotes_work(either: Service) -> None:
    key = "k\" ' $1 %s \\ ;--"
    query = """query($key: String!, $in: [Mood!], $down: OddFilter) {
        oddCollection(filter: {val: {neq: $key}, mood: {in: $in}}, orderBy: [{mood: DescNullsLast}]) {
            totalCount aggregate { count min { val key } } pageInfo { endCursor hasNextPage hasPreviousPage }
            edges { cursor node { nodeId key val mood list comp up { key }
                down(filter: $down) { edges { cursor } } } } }
        oddByPk(key: $key) { comp } }"""
    variables = {"key": key, "in": ["PERCENT", "ITS"], "down": {"mood": {"eq": "PERCENT"}}}
    data = await either.data(query, variables)
    odd, plain = nodes(data["oddCollection"])
    assert odd["key"] == odd["comp"] == odd["up"]["key"] == key
    assert odd["val"] == "v\" ' $1 %s \\ $$"
    assert (odd["mood"], odd["list"]) == ("PERCENT", ['a" b', "c\\d", "%"])
    assert (plain["mood"], plain["comp"]) == ("ITS", "plain")
    assert len(odd["down"]["edges"]) == 1
    assert data["oddByPk"] == {"comp": key}
    assert data["oddCollection"]["totalCount"] == 2
    [table] = json.loads(base64.b64decode(odd["nodeId"]))[1:2]
    assert table == "odd \" ; ' $1 %s $$ --"
    query = "query($id: ID!) { node(nodeId: $id) { ... on Odd { key } } }"
    found = await either.data(query, {"id": odd["nodeId"]})
    assert found["node"] == {"key": key}
    cursor = data["oddCollection"]["edges"][0]["cursor"]
    query = """query($after: Cursor) { oddCollection(after: $after, orderBy: {mood: DescNullsLast}) {
        edges { node { key } } pageInfo { hasPreviousPage } } }"""
    page = (await either.data(query, {"after": cursor}))["oddCollection"]
    assert nodes(page) == [{"key": "plain"}]
    assert page["pageInfo"] == {"hasPreviousPage": True}


def test_names_that_graphql_does_not_allow_are_left_out(service: Service) -> None:
    schema = service.schema()
    assert validate_schema(eager(schema)) == []
    fields = [name for name in service.entries() if name.endswith("Collection")]
    assert sorted(fields) == ["noteCollection", "oddCollection"]


POSITIONS: dict[str, tuple[str, str]] = {
    "eq": ("String", "noteCollection(filter: {text: {eq: $v}}) { edges { node { text } } }"),
    "like": ("String", "noteCollection(filter: {text: {like: $v}}) { edges { node { text } } }"),
    "regex": ("String", "noteCollection(filter: {text: {regex: $v}}) { edges { node { text } } }"),
    "startsWith": ("String", "noteCollection(filter: {text: {startsWith: $v}}) { edges { node { text } } }"),
    "in": ("[String!]", "noteCollection(filter: {text: {in: $v}}) { edges { node { text } } }"),
    "contains": ("[String!]", "noteCollection(filter: {list: {contains: $v}}) { edges { node { text } } }"),
    "datetime": ("Datetime", "noteCollection(filter: {at: {eq: $v}}) { edges { node { text } } }"),
    "uuid": ("UUID", "noteCollection(filter: {u: {eq: $v}}) { edges { node { text } } }"),
    "numeric": ("BigFloat", "noteCollection(filter: {n: {eq: $v}}) { edges { node { text } } }"),
    "id": ("ID", "noteCollection(filter: {nodeId: {eq: $v}}) { edges { node { text } } }"),
    "after": ("Cursor", "noteCollection(after: $v) { edges { node { text } } }"),
    "before": ("Cursor", "noteCollection(before: $v) { edges { node { text } } }"),
    "node": ("ID!", "node(nodeId: $v) { nodeId }"),
    "key": ("String!", "oddByPk(key: $v) { key }"),
    "enum": ("Mood", "oddCollection(filter: {mood: {eq: $v}}) { edges { node { key } } }"),
    "order": ("[noteOrderBy!]", "noteCollection(orderBy: $v) { edges { node { text } } }"),
    "filter": ("noteFilter", "noteCollection(filter: $v) { edges { node { text } } }"),
}

hostile = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text("\"';$\\%s1-_*/(){}[],:\n\0é😀 ", max_size=20),
    st.sampled_from(
        [
            QUOTES,
            "'; drop table note; --",
            "$1",
            "$dataapi$; select 1; $dataapi$",
            "%s %(x)s %%",
            "\\'; select pg_sleep(9); --",
            '{"a",NULL}',
            "NULL",
        ]
    ),
)


def packed(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


wrapped = st.one_of(
    hostile,
    hostile.map(lambda text: packed([text])),
    hostile.map(lambda text: packed(["public", "note", text])),
    hostile.map(lambda text: packed([text, text, 1])),
    hostile.map(lambda text: packed({text: text})),
)


@given(position=st.sampled_from(list(POSITIONS)), text=wrapped, as_key=st.booleans())
async def test_hostile_values_are_only_values(
    service: Service, position: str, text: str, as_key: bool
) -> None:
    kind, use = POSITIONS[position]
    value: Any = {text: {"eq": text}} if as_key and position in ("order", "filter") else text
    by_variable = {"query": f"query($v: {kind}) {{ {use} }}", "variables": {"v": value}}
    as_literal = {"query": "{ " + use.replace("$v", _literal(value)) + " }"}
    for body in (by_variable, as_literal):
        response = await service.send(json.dumps(body).encode())
        assert response.status in (200, 400)
        if "errors" in response.body:
            assert "internal" not in response.text
    assert service.database.execute("select text from note") == [("kept",)]


def _literal(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{" + ", ".join(f"a: {_literal(inner)}" for inner in value.values()) + "}"


WORD = "zzq"
"""Marker of request text. No catalog and no generated SQL contains it."""
marked = st.text("abc\"'\\$;%", max_size=5).map(lambda text: WORD + text)


@st.composite
def operations(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Generate an operation with the marker in aliases, variable names, literals and variables."""
    names = iter(f"{WORD}{number}" for number in range(100))
    variables: dict[str, Any] = {}
    definitions: list[str] = []

    def text(kind: str = "String") -> str:
        value = draw(marked)
        if kind == "[String!]":
            value = [value, draw(marked)]  # type: ignore[assignment]
        if draw(st.booleans()):
            return json.dumps(value)
        name = next(names)
        variables[name] = value
        definitions.append(f"${name}: {kind}")
        return f"${name}"

    def condition(depth: int) -> str:
        match draw(st.integers(0, 5 if depth else 3)):
            case 0:
                operator = draw(st.sampled_from(["eq", "neq", "gt", "like", "startsWith"]))
                return f"{{text: {{{operator}: {text()}}}}}"
            case 1:
                return f"{{list: {{contains: {text('[String!]')}}}}}"
            case 2:
                return f"{{text: {{in: {text('[String!]')}}}}}"
            case 3:
                return f"{{text: {{is: {draw(st.sampled_from(['NULL', 'NOT_NULL']))}}}}}"
            case 4:
                return f"{{not: {condition(depth - 1)}}}"
            case _:
                return f"{{or: [{condition(depth - 1)}, {condition(depth - 1)}]}}"

    def alias() -> str:
        return f"{next(names)}: " if draw(st.booleans()) else ""

    cursor = packed([draw(marked), 1])
    fields = []
    for _ in range(draw(st.integers(1, 3))):
        order = draw(st.sampled_from(["AscNullsFirst", "DescNullsLast"]))
        after = f', after: "{cursor}"' if draw(st.booleans()) else ""
        arguments = f"filter: {condition(2)}, orderBy: [{{text: {order}}}]{after}"
        fields.append(
            f"{next(names)}: noteCollection({arguments}) {{"
            f" {alias()}edges {{ {alias()}node {{ {alias()}text id }} }}"
            f" {alias()}pageInfo {{ {alias()}endCursor }} }}"
        )
    fields.append(f"{next(names)}: oddByPk(key: {text('String!')}) {{ {alias()}key }}")
    head = f"query {WORD}({', '.join(definitions)})" if definitions else f"query {WORD}"
    return f"{head} {{ {' '.join(fields)} }}", variables


@given(operations())
async def test_statements_contain_no_text_of_a_request(
    service: Service, operation: tuple[str, dict[str, Any]]
) -> None:
    query, variables = operation
    response = await service.ask(query, variables)
    assert response.data
    [message] = response.messages
    [bound] = message.statements
    assert isinstance(bound.statement, Statement)
    assert WORD not in bound.statement.text
    assert not any(WORD in kind for kind in bound.statement.types)
    assert any(value and WORD in value for value in bound.values)
