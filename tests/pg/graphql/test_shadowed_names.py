"""Functions and operators in exposed schemas never replace those of PostgreSQL.

PostgreSQL resolves names by argument types in all schemas of the search path. Otherwise, a role that may
create objects in one of the schemas could run code with the privileges of every caller.
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
create table parcel (
    code varchar(9) primary key, label varchar(20) default upper('x'::varchar) || '!'::varchar);
create table scan (
    id int primary key, code varchar(9) references parcel, again varchar(9) references parcel);
create table bag (
    code varchar(9) references parcel, scan_id int references scan, primary key (code, scan_id));
insert into parcel values ('a', 'A'), ('b', 'B');
insert into scan values (1, 'a', 'b'), (2, 'b', null);
insert into bag values ('a', 1), ('b', 1);
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
REQUESTS: tuple[tuple[str, str, Any], ...] = (
    ("GET", "parcel?select=code,scan!scan_code_fkey(id),bag(scan(id))&order=code", None),
    (
        "GET",
        "scan?select=id,parcel!scan_code_fkey(label),other:parcel!bag(code)&order=id&other.order=code",
        None,
    ),
    ("GET", "parcel?code=isdistinct.a&label=in.(A,B)&select=code,scan!scan_code_fkey!inner()", None),
    ("GET", "item?select=name,mood,name.max()&order=name&name=like.a*&mood=eq.sad", None),
    ("GET", "item?data->>a=eq.1&tags=cs.{x}&select=data->a", None),
    ("GET", "item?select=id&id=gte.1&limit=1", None),
    ("PATCH", "parcel?code=eq.a", {"label": "A"}),
    ("POST", "parcel?columns=code,label&on_conflict=code", [{"code": "z"}, {"code": "a", "label": "A"}]),
    ("DELETE", "parcel?code=eq.z", None),
)
_PREFERRED = (
    "return=representation, count=exact, resolution=merge-duplicates, missing=default, max-affected=9"
)
_RAISE = "language plpgsql as $$ begin raise exception 'shadowed'; end $$;"


def function(name: str, arguments: str, result: str = "text") -> str:
    return f"create function public.{name}({arguments}) returns {result} {_RAISE}"


def aggregate(name: str, argument: str) -> str:
    step = function("step", f"text, {argument}")
    return f"{step} create aggregate public.{name}({argument}) (sfunc = public.step, stype = text)"


def operator(name: str, types: str, result: str = "bool") -> str:
    left, _, right = types.partition(", ")
    made = function("compare", f"{left}, {right or left}", result)
    arguments = f"leftarg = {left}, rightarg = {right or left}, function = public.compare"
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
    *[operator("||", argument, "text") for argument in ("varchar", "text, bigint", "text, int")],
    *[function(name, "varchar") for name in ("upper", "to_json")],
]  # fmt: skip


@pytest.fixture
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA), db_aggregates_enabled=True) as service:
        yield service


async def results(api: Service) -> list[Any]:
    """Return the results of QUERIES and REQUESTS."""
    bodies: list[Any] = [await api.data(query) for query in QUERIES]
    for method, target, body in REQUESTS:
        response = await api.rest(method, target, body, headers={"prefer": _PREFERRED})
        assert response.status < 300, response.text
        bodies.append(response.body)
    plain = await api.rest("GET", "item?order=id", headers={"accept": "text/csv"})
    return [*bodies, plain.text]


async def test_shadowing_functions_and_operators_are_never_run(api: Service) -> None:
    before = await results(api)
    for shadow in SHADOWS:
        await api.execute(shadow)
        assert await results(api) == before, shadow
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
