"""Results, errors and effects of MCP tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.agent import Agent, message

if TYPE_CHECKING:
    from support.service import Service

SCHEMA = """
create type mood as enum ('calm', 'angry');
create table author (id int primary key, name text not null, mood mood default 'calm');
comment on table author is 'Who writes';
comment on column author.name is 'As printed';
create table book (
    id int primary key, title text not null, author_id int references author, price numeric(12, 4)
);
create table employee (id int primary key, manager_id int references employee, name text);
create table "odd, name" ("a/b" int primary key, "limit" int, "tags" text[]);
create view cheap as select id, title from book where price < 10;
create table hidden (id int primary key);
create function add(a int, b int default 1) returns int language sql immutable as 'select a + b';
create function write_author(named text) returns int language sql volatile as
    'insert into author values (900, named) returning id';
create function sneaky() returns int language plpgsql stable as
    'begin return public.write_author(''sneaky''); end';
create function many(n int) returns setof int language sql immutable as 'select generate_series(1, n)';
create function books() returns setof book language sql stable as 'select * from book';
create function nothing() returns void language sql as 'select';
create function huge() returns text language sql volatile as 'select repeat(''x'', 300000)';
create function echo(items int[], data jsonb, "limit" int, note text) returns jsonb language sql immutable as
    'select jsonb_build_object(''items'', items, ''data'', data, ''limit'', "limit", ''note'', note)';
create domain "application/json" as text;
create function broken() returns "application/json" language sql immutable as
    'select ''1},"injected":{"a":1''::"application/json"';
create function renamed() returns json language plpgsql as $$ begin
    perform set_config('response.headers', '[{"Content-Type": "text/html"}]', true);
    return '{"a": 1}'; end $$;
create schema other;
create table other.thing (id int primary key);
insert into author values (1, 'Ada', 'calm'), (2, 'Bo', 'angry');
insert into book values (1, 'One', 1, 12.5000), (2, 'Two', 1, 3), (3, 'Three', 2, 0.0001);
insert into employee values (1, null, 'Chief'), (2, 1, 'Clerk');
insert into "odd, name" values (1, 5, '{x}');
insert into other.thing values (1);
grant usage on schema other to anon, authenticated;
grant all on author, book, employee, "odd, name", cheap, other.thing to authenticated;
grant select on author, book to anon;
create view totals as select count(*) as n from book;
grant insert on totals to authenticated;
"""
PROJECT = {
    "db_schemas": ("public", "other"),
    "tools": True,
    "rest_features": frozenset({"nested-inserts"}),
}


@pytest.fixture
def agent(service: Service) -> Agent:
    return Agent(service, "authenticated")


async def test_rows_are_read_with_select_filters_order_and_limit(agent: Agent) -> None:
    rows = await agent.call(
        "read_rows",
        table="book",
        select="title,author(name)",
        filters={"price": ["gt.0.0001", "lt.100"], "or": "(id.eq.1,id.eq.2)"},
        order="title.desc",
        limit=1,
        offset=1,
        count="exact",
    )
    assert rows == {"rows": [{"title": "One", "author": {"name": "Ada"}}], "next_offset": 2, "total": 2}


async def test_list_has_the_rights_of_the_role(agent: Agent) -> None:
    listed = await agent.call("list_tables")
    assert {(each["schema"], each["name"]): each["can"] for each in listed["tables"]} == {
        ("public", "author"): ["read", "insert", "update", "delete"],
        ("public", "book"): ["read", "insert", "update", "delete"],
        ("public", "cheap"): ["read", "insert", "update", "delete"],
        ("public", "employee"): ["read", "insert", "update", "delete"],
        ("public", "odd, name"): ["read", "insert", "update", "delete"],
        ("other", "thing"): ["read", "insert", "update", "delete"],
    }
    author = next(each for each in listed["tables"] if each["name"] == "author")
    assert (author["kind"], author["comment"]) == ("ordinary", "Who writes")
    [add] = [each for each in listed["functions"] if each["name"] == "add"]
    assert add == {
        "name": "add",
        "schema": "public",
        "comment": None,
        "arguments": [
            {"name": "a", "type": "integer", "required": True},
            {"name": "b", "type": "integer", "required": False},
        ],
        "returns": "integer",
        "returns_set": False,
        "may_write": False,
    }


async def test_list_has_pages_and_can_be_limited_to_a_schema(agent: Agent) -> None:
    whole, found, offset = await agent.call("list_tables"), [], 0
    while offset is not None:
        page = await agent.call("list_tables", offset=offset, limit=4)
        found += page["tables"] + page["functions"]
        offset = page["next_offset"]
    assert found == whole["tables"] + whole["functions"]
    other = await agent.call("list_tables", schema="other")
    assert [each["name"] for each in other["tables"]] == ["thing"]


async def test_description_has_types_comments_and_relationships(agent: Agent) -> None:
    described = await agent.call("describe_table", table="author")
    assert described["primary_key"] == ["id"]
    identifier, name, mood = described["columns"]
    assert identifier["nullable"] is False
    assert (name["type"], name["comment"]) == ("text", "As printed")
    assert (mood["values"], mood["default"]) == (["calm", "angry"], "'calm'::public.mood")
    assert mood["can"] == ["read", "insert", "update"]
    [books] = described["relationships"]
    assert books == {
        "name": "book_author_id_fkey",
        "columns": ["id"],
        "schema": "public",
        "table": "book",
        "foreign_columns": ["author_id"],
        "many": True,
        "select": "book!book_author_id_fkey(*)",
    }


@pytest.mark.parametrize("table", ["author", "book", "employee"])
async def test_select_of_a_relationship_works_in_read_rows(agent: Agent, table: str) -> None:
    described = await agent.call("describe_table", table=table)
    assert described["relationships"]
    for each in described["relationships"]:
        rows = (await agent.call("read_rows", table=table, select=each["select"]))["rows"]
        [related] = rows[0].values()
        assert isinstance(related, list) is each["many"]


async def test_next_offset_follows_the_limit_that_applies(service: Service, agent: Agent) -> None:
    assert (await agent.call("read_rows", table="book", limit=2))["next_offset"] == 2
    assert (await agent.call("read_rows", table="book", limit=2, offset=2))["next_offset"] is None
    assert (await agent.call("read_rows", table="book", offset=3))["next_offset"] is None
    await service.execute("comment on table book is '@rest({\"max_rows\": 1})'")
    try:
        assert (await agent.call("read_rows", table="book"))["next_offset"] == 1
        assert (await agent.call("call_function", function="books"))["next_offset"] == 1
        assert (await agent.call("call_function", function="many", arguments={"n": 1}))["next_offset"] is None
    finally:
        await service.execute("comment on table book is null")


async def test_names_with_special_characters_work(agent: Agent) -> None:
    [column, *_] = (await agent.call("describe_table", table="odd, name"))["columns"]
    assert column["name"] == "a/b"
    rows = await agent.call("read_rows", table="odd, name", filters={'"a/b"': "eq.1", "tags": "cs.{x}"})
    assert rows["rows"] == [{"a/b": 1, "limit": 5, "tags": ["x"]}]


async def test_another_schema_is_selected(agent: Agent) -> None:
    assert (await agent.call("read_rows", table="thing", schema="other"))["rows"] == [{"id": 1}]
    assert (await agent.call("describe_table", table="thing", schema="other"))["name"] == "thing"
    error = await agent.fail("read_rows", table="thing", schema="pg_catalog")
    assert error["code"] == "PGRST106"


async def test_digits_of_numbers_are_preserved(service: Service, agent: Agent) -> None:
    assert '{"price":12.5000}' in (await _text(agent, "read_rows", table="book", select="price"))
    arguments = '{"table":"book","rows":[{"id":9,"title":"N","price":12345678.1000}]}'
    headers, body = _raw_call("insert_rows", arguments)
    assert (await service.post("/mcp", body, role="authenticated", headers=headers)).status == 200
    assert service.database.execute("delete from book where id = 9 returning price::text") == [
        ("12345678.1000",)
    ]


async def test_functions_are_called_with_typed_arguments(agent: Agent) -> None:
    assert await agent.call("call_function", function="add", arguments={"a": 2}) == {
        "result": 3, "next_offset": None,
    }  # fmt: skip
    given = {"items": [1, 2], "data": {"a": [None]}, "limit": 3, "note": "eq.5"}
    assert (await agent.call("call_function", function="echo", arguments=given))["result"] == given
    assert (await agent.call("call_function", function="nothing"))["result"] is None
    page = await agent.call("call_function", function="many", arguments={"n": 5}, limit=2, offset=1)
    assert page == {"result": [2, 3], "next_offset": 3}


async def test_result_that_is_not_json_cannot_change_the_response(agent: Agent) -> None:
    error = await agent.fail("call_function", function="broken")
    assert error["code"] == "PGRST107"
    renamed = await agent.call("call_function", function="renamed")
    assert renamed["result"] == '{"a": 1}'


async def test_rows_are_inserted_updated_and_deleted(service: Service, agent: Agent) -> None:
    rows = [{"id": 50, "name": "Cy"}, {"id": 51, "name": "Di"}]
    added = await agent.call("insert_rows", table="author", rows=rows, max_affected=2, returning="id")
    assert added == {"affected": 2, "rows": [{"id": 50}, {"id": 51}]}
    changed = await agent.call("update_rows", table="author", set={"mood": "angry"}, filters={"id": "eq.50"})
    assert changed == {"affected": 1, "rows": None}
    assert service.database.execute("select mood::text from author where id = 50") == [("angry",)]
    removed = await agent.call(
        "delete_rows", table="author", filters={"id": "gte.50"}, max_affected=2, returning="name"
    )
    assert removed == {"affected": 2, "rows": [{"name": "Cy"}, {"name": "Di"}]}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("insert_rows", {"rows": [{"id": 60, "name": "x"}, {"id": 61, "name": "y"}]}),
        ("update_rows", {"set": {"name": "x"}, "filters": {}}),
        ("delete_rows", {"filters": {"id": "gte.1"}}),
    ],
)
async def test_one_row_may_be_affected_by_default(
    service: Service, agent: Agent, tool: str, arguments: dict[str, object]
) -> None:
    before = service.database.execute("select * from author order by id")
    error = await agent.fail(tool, table="author", **arguments)
    assert (error["code"], error["details"]) == ("PGRST124", "The query affects 2 rows")
    assert service.database.execute("select * from author order by id") == before


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "named"),
    [
        ("list_tables", {"schema": "pg_catalog"}, "PGRST106", "public, other"),
        ("read_rows", {"table": "boook"}, "PGRST205", "book"),
        ("describe_table", {"table": "boook"}, "PGRST205", "book"),
        ("read_rows", {"table": "book", "select": "titel"}, "42703", "book.title"),
        ("read_rows", {"table": "book", "filters": {"id": "eq.x"}}, "22P02", "integer"),
        ("read_rows", {"table": "book", "filters": {"id": "5"}}, "PGRST100", "operator"),
        ("read_rows", {"table": "book", "filters": {"limit": "9"}}, "PGRST100", "limit"),
        ("read_rows", {"table": "book", "limit": 1001}, "PGRST102", "1000"),
        ("read_rows", {"table": "book", "limit": "5"}, "PGRST102", "limit"),
        ("read_rows", {"table": "book", "where": "1=1"}, "PGRST102", "where"),
        ("read_rows", {"table": "book", "filters": {"title": "eq.\ud800"}}, "PGRST100", "UTF-8"),
        ("read_rows", {}, "PGRST102", "table"),
        ("call_function", {"function": "add", "arguments": {"x": 1}}, "PGRST202", "public.add(a, b)"),
        ("insert_rows", {"table": "author", "rows": [{"id": 1, "name": "x"}]}, "23505", "id"),
        ("insert_rows", {"table": "author", "rows": []}, "PGRST102", "rows"),
    ],
)
async def test_errors_contain_the_correction(
    agent: Agent, tool: str, arguments: dict[str, object], code: str, named: str
) -> None:
    error = await agent.fail(tool, **arguments)
    assert error["code"] == code
    assert named in f"{error['message']} {error['details']} {error['hint']}"


async def test_related_rows_are_not_inserted(service: Service, agent: Agent) -> None:
    """They would not count towards ``max_affected``."""
    row = {"id": 70, "name": "Ed", "book": [{"id": 71, "title": "x"}, {"id": 72, "title": "y"}]}
    posted = await service.rest(
        "POST", "author", json.dumps({**row, "id": 73, "book": []}).encode(), role="authenticated"
    )
    assert posted.status == 201
    error = await agent.fail("insert_rows", table="author", rows=[row])
    assert error["code"] == "PGRST204"
    assert service.database.execute("delete from author where id >= 70 returning id") == [(73,)]


async def test_errors_equal_those_of_rest(service: Service, agent: Agent) -> None:
    error = await agent.fail("read_rows", table="boook", filters={"id": "eq.1"})
    assert error == (await service.rest("GET", "boook?id=eq.1", role="authenticated")).body


async def test_large_results_of_reads_fail_with_a_hint(service: Service, agent: Agent) -> None:
    service.database.execute(
        "insert into book select 1000 + i, repeat('x', 3000) from generate_series(1, 100) i"
    )
    try:
        error = await agent.fail("read_rows", table="book")
        assert (error["code"], error["hint"]) == ("PGRST100", "Select fewer columns, or set a lower limit.")
        assert len((await agent.call("read_rows", table="book", limit=50))["rows"]) == 50
    finally:
        service.database.execute("delete from book where id > 1000")


async def test_large_results_of_functions_are_left_out(agent: Agent) -> None:
    assert await agent.call("call_function", function="huge") == {
        "result": None, "next_offset": None, "omitted_bytes": 300002,
    }  # fmt: skip


async def test_view_that_can_neither_be_read_nor_changed_is_not_described(agent: Agent) -> None:
    assert (await agent.fail("describe_table", table="totals"))["code"] == "PGRST205"


async def test_large_list_fails_with_a_hint(service: Service, agent: Agent) -> None:
    await service.execute(f"comment on table book is '{'x' * 300_000}'")
    try:
        assert "lower limit" in (await agent.fail("list_tables"))["hint"]
    finally:
        await service.execute("comment on table book is null")


async def test_one_call_is_one_message(agent: Agent) -> None:
    await agent.call("read_rows", table="book", select="title,author(name)", limit=1)
    await agent.call("read_rows", table="book", select="title,author(name)", limit=2)
    assert len(agent.answers[-1].messages) == 1


async def _text(agent: Agent, tool: str, **arguments: object) -> str:
    await agent.call(tool, **arguments)
    return agent.answers[-1].text


def _raw_call(tool: str, arguments: str) -> tuple[dict[str, str], bytes]:
    headers, body = message("tools/call", {"name": tool, "arguments": "HERE"})
    return headers, body.replace(b'"HERE"', arguments.encode())
