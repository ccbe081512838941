"""The schema that the console shows to a role (docs/console.md, Schema)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database
    from support.service import Service

SCHEMA = """
create table author (id int primary key, name text not null, password text);
create table book (
    id int generated always as identity primary key,
    author_id int not null references author,
    title text default 'untitled',
    length int generated always as (char_length(title)) stored
);
create table hidden (id int primary key, book_id int references book);
create view titles as select id, title from book;
comment on table author is e'@graphql({"totalCount": {"enabled": true}})\\nWho writes.';
comment on column book.title is 'On the cover';
comment on table hidden is '@graphql({"name": 7})';
alter table book enable row level security;
create policy "own" on book for select to anon using (author_id = 1);
create policy "secret" on hidden using (true);
grant select (id, name) on author to anon;
grant select, insert (author_id, title) on book to anon;
grant select on titles to anon;
grant all on author, book, titles to service_role;
"""


async def shown(service: Service, role: str = "anon") -> Any:
    """Return the schema that a role is shown."""
    answer = await service.console("schema", role=role)
    assert answer.status == 200, answer.text
    return answer.body


async def test_a_role_is_shown_what_it_may_use_and_nothing_else(service: Service) -> None:
    answer = await service.console("schema")
    assert {table["name"] for table in answer.body["tables"]} == {"author", "book", "titles"}
    for secret in ("hidden", "password", "own", "policies", "grants", "rowSecurity", "estimatedRows"):
        assert secret not in answer.text
    assert answer.body["complete"] is False
    assert answer.headers["cache-control"] == "no-store"


async def test_a_table_has_its_columns_and_its_names_in_both_apis(service: Service) -> None:
    tables = {table["name"]: table for table in (await shown(service))["tables"]}
    book = tables["book"]
    columns = {column.pop("name"): column for column in book["columns"]}
    assert list(columns) == ["id", "author_id", "title", "length"]
    assert columns["title"] == {
        "type": "text", "nullable": True, "default": "'untitled'::text", "generated": False, "derived": False,
        "identity": None, "comment": "On the cover", "privileges": ["SELECT", "INSERT"],
        "graphql": "title",
    }  # fmt: skip
    assert (columns["id"]["identity"], columns["length"]["generated"]) == ("always", True)
    assert book["key"] == ["id"]
    assert book["rest"] == {"name": "book", "profile": None, "methods": ["GET", "POST"], "star": True}
    assert book["graphql"]["fields"] == ["bookCollection", "bookByPk", "insertIntobookCollection"]
    author = tables["author"]
    assert (author["comment"], author["directives"]) == ("Who writes.", {"totalCount": True})
    assert author["rest"] == {"name": "author", "profile": None, "methods": ["GET"], "star": False}
    assert (tables["titles"]["kind"], tables["titles"]["graphql"]) == ("view", None)


async def test_entry_points_are_those_of_the_role_s_graphql_schema(service: Service) -> None:
    """The page and the API name the same fields."""
    described = await shown(service)
    fields = [
        name for table in described["tables"] for name in (table["graphql"] or {"fields": []})["fields"]
    ]
    queries = {name for name in fields if not name.startswith(("insertInto", "update", "deleteFrom"))}
    assert queries == service.collections()


async def test_relationships_lead_between_columns_that_the_role_sees(service: Service) -> None:
    [key] = (await shown(service))["relationships"]
    assert key == {
        "name": "book_author_id_fkey",
        "from": {"schema": "public", "table": "book", "columns": ["author_id"]},
        "to": {"schema": "public", "table": "author", "columns": ["id"]},
        "unique": False,
        "origin": "constraint",
        "graphql": {"from": "author", "to": "bookCollection"},
    }


async def test_service_role_also_sees_grants_policies_and_problems(service: Service) -> None:
    described = await shown(service, "service_role")
    tables = {table["name"]: table for table in described["tables"]}
    assert described["complete"] is True
    assert set(tables) == {"author", "book", "titles"}
    grants = {grant["role"]: grant["privileges"] for grant in tables["author"]["grants"]}
    assert grants["anon"] == {"SELECT": ["id", "name"]}
    assert grants["service_role"] == {"SELECT": None, "INSERT": None, "UPDATE": None, "DELETE": None}
    assert "authenticated" not in grants
    assert (tables["book"]["rowSecurity"], tables["author"]["rowSecurity"]) == (True, False)
    assert described["policies"] == [
        {
            "schema": "public", "table": "book", "name": "own", "command": "SELECT", "permissive": True,
            "roles": ["anon"], "using": "(author_id = 1)", "check": None,
        }
    ]  # fmt: skip
    assert [problem["place"] for problem in described["problems"]] == ["table public.hidden"]


async def test_the_schema_is_refused_as_the_apis_refuse(service: Service) -> None:
    """An API key is needed, a role that may not be assumed is refused, and so are other origins."""
    assert (await service.console("schema", headers={"apikey": "wrong"})).status == 401
    assert (await service.console("schema", role="postgres")).status == 403
    foreign = await service.console("schema", headers={"origin": "https://evil.example"})
    assert foreign.status == 403
    assert "access-control-allow-origin" not in foreign.headers


@pytest.fixture
def undescribed(reactor: Any, database: Database) -> Iterator[Service]:
    """Serve the schema without descriptions."""
    database.execute(SCHEMA)
    with serving(reactor, database, openapi_mode="disabled") as service:
        yield service


async def test_only_service_role_sees_the_schema_where_descriptions_are_off(undescribed: Service) -> None:
    refused = await undescribed.console("schema")
    assert (refused.status, refused.body["code"]) == (404, "PGRST126")
    assert len((await shown(undescribed, "service_role"))["tables"]) == 3
