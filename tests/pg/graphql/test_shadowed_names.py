"""Functions and operators that somebody creates in an exposed schema are not run in place of PostgreSQL's.

PostgreSQL takes what fits the argument types best from all schemas of the search path.  Whoever may
create objects in one of them would otherwise have their code run by every caller, with its rights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create type mood as enum ('sad', 'ok');
create table item (id int primary key, name varchar(20), price numeric, mood mood, tags text[], data jsonb);
comment on table item is
    '@graphql({"totalCount": {"enabled": true}, "aggregate": {"enabled": true}, "features": ["groupBy"]})';
insert into item values (1, 'a', 1.5, 'sad', '{x}', '{"a": 1}'), (2, 'b', 2.5, 'ok', '{y}', '{"a": 2}');
create table child (id int primary key, item_id int references item);
insert into child values (1, 1), (2, 1);
grant all on all tables in schema public to anon;
"""
SELECTION = """nodeId id name price mood tags data
    childCollection { edges { cursor node { nodeId item { id } } } }"""
QUERIES = (
    f"""{{ itemCollection(orderBy: [{{name: AscNullsLast}}]) {{
        totalCount aggregate {{ count max {{ name price }} min {{ name }} sum {{ price }} avg {{ id }} }}
        pageInfo {{ endCursor startCursor hasNextPage }} edges {{ cursor node {{ {SELECTION} }} }} }} }}""",
    """{ itemCollection(filter: {name: {eq: "a", neq: "b", in: ["a"], like: "a%", startsWith: "a"},
        mood: {eq: sad, in: [sad]}, tags: {contains: ["x"], eq: ["x"]}, price: {gt: "1"}}) {
        edges { node { id } } } }""",
    f"""mutation {{
        a: insertIntoitemCollection(objects: [{{id: 9, name: "z", mood: ok}}]) {{ records {{ {SELECTION} }} }}
        b: updateitemCollection(set: {{name: "k"}}, filter: {{name: {{eq: "z"}}}}) {{
            records {{ {SELECTION} }} }}
        c: deleteFromitemCollection(filter: {{name: {{eq: "k"}}}}) {{ affectedCount records {{ nodeId }} }}
    }}""",
)
_RAISE = "language plpgsql as $$ begin raise exception 'shadowed'; end $$;"


def function(name: str, arguments: str, result: str = "text") -> str:
    """Return SQL that makes a function that fails."""
    return f"create function public.{name}({arguments}) returns {result} {_RAISE}"


def aggregate(name: str, argument: str) -> str:
    """Return SQL that makes an aggregate that fails."""
    step = function("step", f"text, {argument}")
    return f"{step} create aggregate public.{name}({argument}) (sfunc = public.step, stype = text)"


def operator(name: str, type_: str) -> str:
    """Return SQL that makes an operator that fails."""
    made = function("compare", f"{type_}, {type_}", "bool")
    arguments = f"leftarg = {type_}, rightarg = {type_}, function = public.compare"
    return f"{made} create operator public.{name} ({arguments})"


SHADOWS = [
    *[function("json_build_object", f"text, {last}", "json") for last in ("int", "json", "text")],
    *[function("jsonb_build_array", arguments, "json") for arguments in ("int", "varchar, int")],
    function("json_build_array", "text", "json"),
    *[function("to_json", arguments, "json") for arguments in ("json", "text")],
    function("row_to_json", "item", "json"),
    function("convert_to", "text, varchar"),
    function("current_setting", "varchar"),
    function("set_config", "varchar, text, bool"),
    *[aggregate("json_agg", argument) for argument in ("json", "text", "item")],
    *[aggregate(name, argument) for name in ("max", "min") for argument in ("varchar",)],
    *[operator(name, "varchar") for name in ("=", "<>", "~~", "^@", ">")],
    *[operator(name, "mood") for name in ("=", "<")],
    *[operator(name, "text[]") for name in ("=", "@>")],
]  # fmt: skip


@pytest.fixture
def api(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a database of the test's own."""
    with serving(reactor, server.create_database(SCHEMA)) as service:
        yield service


async def test_functions_and_operators_of_others_are_never_run(api: Service) -> None:
    """Each is created alone, as together they might be ambiguous; the answers stay as they were."""
    before = [await api.data(query) for query in QUERIES]
    for shadow in SHADOWS:
        await api.execute(shadow)
        assert [await api.data(query) for query in QUERIES] == before, shadow
        api.database.execute(
            """do $$ declare dropped text; begin
                for dropped in
                    select format('drop operator %s', oid::regoperator) from pg_operator
                        where oprnamespace = 'public'::regnamespace
                    union all select format('drop routine %s', oid::regprocedure)
                        from (select * from pg_proc order by prokind) as p
                        where pronamespace = 'public'::regnamespace
                loop execute dropped; end loop;
            end $$"""
        )
