"""An agent's role has the same tables, functions and privileges as over REST."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.agent import Agent

if TYPE_CHECKING:
    from support.service import Service

SCHEMA = """
create table shared (id int primary key, body text, secret text);
create table owned (id int primary key, owner text);
create table closed (id int primary key);
create table inbox (id int primary key, body text);
create view summary as select count(*) as n from shared;
create function greet(name text) returns text language sql immutable as 'select ''Hello '' || name';
create function count_closed() returns bigint language sql security definer as
    'select count(*) from public.closed';
create function add_closed(i int) returns int language sql security definer as
    'insert into public.closed values (i) returning id';
insert into shared values (1, 'a', 's'), (2, 'b', 't');
insert into owned values (1, 'a user of authenticated'), (2, 'someone else');
alter table owned enable row level security;
create policy own on owned using (owner = current_setting('request.jwt.claims', true)::json ->> 'sub');
grant select (id, body) on shared to anon;
grant select on summary to anon, authenticated;
grant select, insert, update on shared to authenticated;
grant select, insert, update, delete on owned to authenticated;
grant insert on inbox to anon;
grant all on shared, owned, closed, inbox, summary to service_role;
revoke execute on all functions in schema public from public;
grant execute on function greet(text) to anon, authenticated, service_role;
grant execute on function add_closed(int) to authenticated;
grant execute on function count_closed() to service_role;
"""
RESET = """
truncate shared, owned, closed, inbox;
insert into shared values (1, 'a', 's'), (2, 'b', 't');
insert into owned values (1, 'a user of authenticated'), (2, 'someone else');
"""
PROJECT = {"tools": True}
ROLES = ["anon", "authenticated", "service_role"]
TABLES = ["shared", "owned", "closed", "inbox", "summary", "missing"]
RIGHTS = {"get": "read", "post": "insert", "patch": "update", "delete": "delete"}

CALLS: list[tuple[str, dict[str, Any], tuple[str, str, Any]]] = [
    *(("read_rows", {"table": name}, ("GET", name, None)) for name in TABLES),
    ("read_rows", {"table": "shared", "select": "id,body"}, ("GET", "shared?select=id,body", None)),
    ("read_rows", {"table": "shared", "select": "secret"}, ("GET", "shared?select=secret", None)),
    ("read_rows", {"table": "shared", "filters": {"secret": "eq.s"}}, ("GET", "shared?secret=eq.s", None)),
    (
        "call_function",
        {"function": "greet", "arguments": {"name": "x"}},
        ("POST", "rpc/greet", {"name": "x"}),
    ),
    ("call_function", {"function": "count_closed"}, ("POST", "rpc/count_closed", {})),
    (
        "call_function",
        {"function": "add_closed", "arguments": {"i": 7}},
        ("POST", "rpc/add_closed", {"i": 7}),
    ),
    ("call_function", {"function": "missing"}, ("POST", "rpc/missing", {})),
    *(("insert_rows", {"table": name, "rows": [{"id": 9}]}, ("POST", name, [{"id": 9}])) for name in TABLES),
    *(
        (
            "update_rows",
            {"table": name, "set": {"id": 8}, "filters": {"id": "eq.2"}},
            ("PATCH", f"{name}?id=eq.2", {"id": 8}),
        )
        for name in TABLES
    ),
    *(
        ("delete_rows", {"table": name, "filters": {"id": "eq.1"}}, ("DELETE", f"{name}?id=eq.1", None))
        for name in TABLES
    ),
]
"""Tool calls and the equivalent REST requests."""


@pytest.mark.parametrize("role", ROLES)
async def test_listed_tables_and_rights_equal_the_description_of_rest(service: Service, role: str) -> None:
    paths = (await service.rest("GET", "?openapi=3.1", role=role)).body["paths"]
    listed = await Agent(service, role).call("list_tables")
    assert {each["name"]: set(each["can"]) for each in listed["tables"]} == {
        path[1:]: {RIGHTS[method] for method in operations.keys() & RIGHTS.keys()}
        for path, operations in paths.items()
        if path != "/" and not path.startswith("/rpc/")
    }
    functions = {path[5:] for path in paths if path.startswith("/rpc/")}
    assert {each["name"] for each in listed["functions"]} == functions


@pytest.mark.parametrize("role", ROLES)
async def test_described_columns_equal_the_description_of_rest(service: Service, role: str) -> None:
    document = (await service.rest("GET", "?openapi=3.1", role=role)).body
    paths, schemas = document["paths"], document["components"]["schemas"]
    agent = Agent(service, role)
    for table in (await agent.call("list_tables"))["tables"]:
        described = await agent.call("describe_table", table=table["name"])
        for method, suffix in (("get", ""), ("post", ".insert"), ("patch", ".update")):
            right, allowed = RIGHTS[method], method in paths[f"/{table['name']}"]
            properties = schemas[table["name"] + suffix]["properties"] if allowed else {}
            can = {each["name"] for each in described["columns"] if right in each["can"]}
            assert can == set(properties), (table["name"], right)
    for name in {*TABLES} - {each["name"] for each in (await agent.call("list_tables"))["tables"]}:
        error = await agent.fail("describe_table", table=name)
        assert error == (await service.rest("GET", name, role=role)).body


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]} {json.dumps(call[1])}")
async def test_call_has_the_effect_of_the_rest_request(
    service: Service, role: str, call: tuple[str, dict[str, Any], tuple[str, str, Any]]
) -> None:
    tool, arguments, (method, target, body) = call
    changes = method != "GET"
    if changes:
        service.database.execute(RESET)
    result = await Agent(service, role).result(tool, **arguments)
    after_call = None
    if changes:
        after_call = _rows(service)
        service.database.execute(RESET)
    headers = {"prefer": "handling=strict, max-affected=1"} if method in ("PATCH", "DELETE") else {}
    answer = await service.rest(method, target, body, role=role, headers=headers)
    assert result["isError"] is (answer.status >= 400)
    expected = answer.body if answer.text else None
    content = result["structuredContent"]
    if result["isError"]:
        assert content == expected
    elif tool in ("read_rows", "call_function"):
        assert content["rows" if tool == "read_rows" else "result"] == expected
    if changes:
        assert after_call == _rows(service)
        service.database.execute(RESET)


def _rows(api: Service) -> list[Any]:
    parts = [f"(select jsonb_agg(t order by t.id) from {name} t)" for name in TABLES[:4]]
    return api.database.execute(f"select {', '.join(parts)}")


async def test_rows_of_others_stay_hidden(api: Service) -> None:
    agent = Agent(api, "authenticated")
    assert (await agent.call("read_rows", table="owned", count="exact"))["total"] == 1
    changed = await agent.call("update_rows", table="owned", set={"id": 5}, filters={}, max_affected=10)
    assert changed["affected"] == 1
    assert (await agent.call("delete_rows", table="owned", filters={"id": "eq.2"}))["affected"] == 0


async def test_new_grants_apply_without_a_restart(api: Service) -> None:
    agent = Agent(api, "anon")
    assert (await agent.fail("read_rows", table="closed"))["code"] == "42501"
    await api.execute("grant select on closed to anon")
    try:
        assert (await agent.call("read_rows", table="closed"))["rows"] == []
        names = [each["name"] for each in (await agent.call("list_tables"))["tables"]]
        assert "closed" in names
    finally:
        await api.execute("revoke select on closed from anon")
    assert (await agent.fail("describe_table", table="closed"))["code"] == "42501"


async def test_cost_limits_of_a_role_and_a_function_apply(api: Service) -> None:
    """Both limits are settings of the transaction, as for REST requests."""
    name = "plan_filter.statement_cost_limit"
    limits = f"alter role anon set {name} = 1000; alter function greet(text) set {name} = 500"
    await api.execute(limits)
    try:
        agent = Agent(api)
        await agent.call("read_rows", table="shared", select="id")
        await agent.call("call_function", function="greet", arguments={"name": "x"})
        sent = [dict(answer.messages[0].settings) for answer in agent.answers]
        assert [settings.get(name) for settings in sent] == ["1000", "500"]
    finally:
        await api.execute(f"alter role anon reset {name}; alter function greet(text) reset {name}")


async def test_time_limit_of_a_role_applies(api: Service) -> None:
    api.database.execute("alter role anon set statement_timeout = '1ms'")
    try:
        await api.reload()
        slow = await api.execute(
            "create function slow() returns void language sql as 'select pg_sleep(9)';"
            "grant execute on function slow() to anon"
        )
        assert slow == []
        assert (await Agent(api).fail("call_function", function="slow"))["code"] == "57014"
    finally:
        api.database.execute("alter role anon reset statement_timeout")
        await api.execute("drop function slow()")
