"""A role's schema in the console (docs/console.md, Schema)."""

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


async def schema_for(service: Service, role: str = "anon") -> Any:
    """Return the schema that the console shows to a role."""
    response = await service.console("schema", role=role)
    assert response.status == 200, response.text
    return response.body


async def test_role_sees_only_what_it_may_use(service: Service) -> None:
    response = await service.console("schema")
    assert {table["name"] for table in response.body["tables"]} == {"author", "book", "titles"}
    for secret in ("hidden", "password", "own", "policies", "grants", "rowSecurity", "estimatedRows"):
        assert secret not in response.text
    assert response.body["complete"] is False
    assert response.headers["cache-control"] == "no-store"


async def test_table_has_columns_and_names_in_both_apis(service: Service) -> None:
    tables = {table["name"]: table for table in (await schema_for(service))["tables"]}
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


async def test_entry_points_match_the_graphql_schema(service: Service) -> None:
    described = await schema_for(service)
    fields = [
        name for table in described["tables"] for name in (table["graphql"] or {"fields": []})["fields"]
    ]
    queries = {name for name in fields if not name.startswith(("insertInto", "update", "deleteFrom"))}
    assert queries == service.collections()


async def test_relationships_need_visible_columns(service: Service) -> None:
    [key] = (await schema_for(service))["relationships"]
    assert key == {
        "name": "book_author_id_fkey",
        "from": {"schema": "public", "table": "book", "columns": ["author_id"]},
        "to": {"schema": "public", "table": "author", "columns": ["id"]},
        "unique": False,
        "origin": "constraint",
        "graphql": {"from": "author", "to": "bookCollection"},
    }


async def test_service_role_also_sees_grants_policies_and_problems(service: Service) -> None:
    described = await schema_for(service, "service_role")
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


async def test_schema_requires_a_key_a_role_and_the_same_origin(service: Service) -> None:
    assert (await service.console("schema", headers={"apikey": "wrong"})).status == 401
    assert (await service.console("schema", role="postgres")).status == 403
    foreign = await service.console("schema", headers={"origin": "https://evil.example"})
    assert foreign.status == 403
    assert "access-control-allow-origin" not in foreign.headers


@pytest.fixture
def undescribed(reactor: Any, database: Database) -> Iterator[Service]:
    """Serve the schema with OpenAPI descriptions disabled."""
    database.execute(SCHEMA)
    with serving(reactor, database, openapi_mode="disabled") as service:
        yield service


async def test_schema_is_hidden_if_descriptions_are_disabled(undescribed: Service) -> None:
    rejected = await undescribed.console("schema")
    assert (rejected.status, rejected.body["code"]) == (404, "PGRST126")
    assert len((await schema_for(undescribed, "service_role"))["tables"]) == 3
