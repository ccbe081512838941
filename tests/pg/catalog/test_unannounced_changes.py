"""Requests after schema changes that no notification announced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.catalog import watcher
from dataapi.catalog.reflect import FINGERPRINT
from dataapi.catalog.reflect import GRANTS as GRANTS_QUERY
from dataapi.rest.openapi import descriptions
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server
    from support.service import Service

SCHEMA = """
create table note (id int primary key, a text);
insert into note values (1, 'one');
create table tag (note int, name text);
insert into tag values (1, 'red');
grant all on note, tag to anon;
"""


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each request compare the catalog, regardless of the time of the last comparison."""
    monkeypatch.setattr(watcher, "REFRESH_INTERVAL", 0.0)


@pytest.fixture
def restored(service: Service) -> Service:
    """Recreate the schema; the service's catalog is outdated."""
    service.database.execute(
        f"drop schema public cascade; create schema public; grant usage on schema public to public; {SCHEMA}"
    )
    return service


def count_fetches(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the watcher's queries from now on."""
    queries: list[str] = []
    fetch = service._watcher._fetch

    async def counted(text: str, values: Any) -> Any:
        queries.append(text)
        return await fetch(text, values)

    monkeypatch.setattr(service._watcher, "_fetch", counted)
    return queries


TYPES: list[tuple[str, str, str, Any, Any]] = [
    ("alter column id type text", "GET", "note?select=a&id=eq.x", None, []),
    ("alter column id type bigint", "GET", "note?select=a&id=eq.3000000000", None, []),
    ("alter column id type bigint", "PATCH", "note?select=a&id=eq.3000000000", {"a": "x"}, []),
    ("alter column a type int using 1", "GET", "note?select=id&a=gt.0", None, [{"id": 1}]),
    ("alter column a type int[] using array[1]", "GET", "note?select=id&a=cs.{1}", None, [{"id": 1}]),
    ("alter column a type date using '2020-02-02'", "PATCH", "note?select=id", {"a": "2021-01-01"},
     [{"id": 1}]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "method", "target", "body", "rows"), TYPES)
async def test_rest_uses_the_new_type_of_a_column(
    restored: Service, change: str, method: str, target: str, body: Any, rows: Any
) -> None:
    await restored.reload()
    await restored.rest(method, target, body, headers={"Prefer": "return=representation"})
    restored.database.execute(f"alter table note {change}")
    response = await restored.rest(method, target, body, headers={"Prefer": "return=representation"})
    assert (response.status, response.body) == (200, rows)


async def test_graphql_uses_the_new_type_of_a_column(restored: Service) -> None:
    await restored.execute("alter table note alter a type timestamp using now()")
    restored.database.execute("alter table note alter a type text using 'one'")
    response = await restored.ask('{ noteCollection(filter: {a: {neq: "x"}}) { edges { node { id } } } }')
    assert response.data == {"noteCollection": {"edges": [{"node": {"id": 1}}]}}
    await restored.execute("alter table note alter a type date using now()")
    restored.database.execute("alter table note alter a type text using 'one'")
    response = await restored.ask(
        'mutation { updatenoteCollection(set: {a: "x"}, filter: {id: {eq: 1}}) { records { a } } }'
    )
    assert response.data == {"updatenoteCollection": {"records": [{"a": "x"}]}}


CHANGES: list[tuple[str, str, str, Any, int]] = [
    ("alter table note add b text default 'two'", "GET", "note?select=b", None, 200),
    ("alter table note add b text", "POST", "note", {"id": 2, "b": "x"}, 201),
    ("alter table note add b text", "PATCH", "note?b=is.null", {"b": "x"}, 204),
    ("alter table note rename a to b", "GET", "note?select=b", None, 200),
    ("alter table note drop a", "GET", "note", None, 200),
    ("alter table note rename to other", "GET", "other", None, 200),
    ("create function two(n int) returns int language sql as 'select 2'", "GET", "rpc/two?n=4", None, 200),
    ("alter table tag add foreign key (note) references note", "GET", "note?select=id,tag(name)", None, 200),
    ("create view other as select 1 as x; grant select on other to anon", "GET", "other", None, 200),
]  # fmt: skip


@pytest.mark.parametrize(("change", "method", "target", "body", "status"), CHANGES)
async def test_rest_request_reloads_an_outdated_catalog(
    restored: Service, change: str, method: str, target: str, body: Any, status: int
) -> None:
    await restored.reload()
    restored.database.execute(change)
    response = await restored.rest(method, target, body)
    assert response.status == status, response.body
    if method == "POST":
        assert restored.database.execute("select count(*) from note") == [(2,)]


@pytest.mark.parametrize(
    ("change", "query"),
    [
        ("alter table note add b text default 'two'", "{ noteCollection { edges { node { b } } } }"),
        ("alter table note add b text", 'mutation { insertIntonoteCollection(objects: [{id: 2, b: "x"}])'
         " { affectedCount } }"),
        ("alter table note rename a to b",
         '{ noteCollection(filter: {b: {eq: "one"}}) { edges { node { b } } } }'),
        ("create table other (id int primary key); grant select on other to anon",
         "{ otherCollection { edges { node { id } } } }"),
    ],
)  # fmt: skip
async def test_graphql_request_reloads_an_outdated_catalog(
    restored: Service, change: str, query: str
) -> None:
    await restored.reload()
    restored.database.execute(change)
    response = await restored.ask(query)
    assert response.status == 200
    assert "errors" not in response.body


async def read_notes(service: Service, role: str, graphql: bool) -> Any:
    if graphql:
        return await service.ask("{ noteCollection { edges { node { id } } } }", role=role, check=False)
    return await service.rest("GET", "note", role=role)


@pytest.mark.parametrize("graphql", [False, True])
async def test_new_role_is_served(restored: Service, graphql: bool) -> None:
    await restored.reload()
    role = f"newcomer_{graphql}".lower()
    restored.database.execute(f"create role {role}; grant select on note to {role}")
    try:
        assert (await read_notes(restored, role, graphql)).status in (401, 403)
        restored.database.execute(f"grant {role} to authenticator")
        response = await read_notes(restored, role, graphql)
        assert response.status == 200, response.body
    finally:
        restored.database.execute(f"drop owned by {role}; drop role {role}")


SECRETS = """
create table secret (id int primary key);
create table part (id int primary key, secret int references secret);
create function tell() returns int language sql as 'select 1';
revoke execute on function tell from public;
create role secret_reader;
grant select on secret to secret_reader;
create role secret_guest;
grant secret_guest to authenticator;
grant usage on schema public to secret_guest;
"""
FORGET_SECRETS = """
drop table part, secret;
drop owned by secret_reader, secret_guest;
drop role secret_reader, secret_guest;
"""
GRANTS = [
    ("grant select on secret to anon", "GET", "secret", 200),
    ("grant select (id) on secret to anon", "GET", "secret?select=id", 200),
    ("grant insert on secret to anon", "POST", "secret", 201),
    ("grant select on secret, part to anon", "GET", "secret?select=id,part(id)", 200),
    ("grant execute on function tell to anon", "GET", "rpc/tell", 200),
    ("grant usage on schema public to anon", "GET", "note", 200),
]


@pytest.fixture
def restricted(restored: Service) -> Iterator[Service]:
    """Return the service with objects that anonymous callers may not use."""
    restored.database.execute(f"revoke usage on schema public from public; {SECRETS}")
    yield restored
    restored.database.execute(FORGET_SECRETS)


@pytest.mark.parametrize(("grant", "method", "target", "status"), GRANTS)
async def test_grant_takes_effect_immediately(
    restricted: Service, grant: str, method: str, target: str, status: int
) -> None:
    if "schema" not in grant:
        restricted.database.execute("grant usage on schema public to anon")
    await restricted.reload()
    body = {"id": 1} if method == "POST" else None
    assert (await restricted.rest(method, target, body)).status == 401
    loads = restricted._watcher.loads
    restricted.database.execute(grant)
    response = await restricted.rest(method, target, body)
    assert response.status == status, response.body
    assert restricted._watcher.loads == loads, "only the grants were read"


async def test_grant_takes_effect_immediately_after_rejections(
    restricted: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "REFRESH_INTERVAL", 3600.0)
    restricted.database.execute("grant usage on schema public to anon")
    await restricted.reload()
    for _ in range(2):
        assert (await restricted.rest("GET", "secret")).status == 401
    restricted.database.execute("grant select on secret to anon")
    assert (await restricted.rest("GET", "secret")).status == 200
    assert (await restricted.rest("POST", "secret", {"id": 1})).status == 401
    restricted.database.execute("grant insert on secret to anon")
    assert (await restricted.rest("POST", "secret", {"id": 1})).status == 201


async def test_concurrent_reads_of_grants_all_take_effect(restricted: Service) -> None:
    restricted.database.execute("grant usage on schema public to anon")
    await restricted.reload()
    role, stale = "anon", restricted.catalog
    restricted.database.execute("grant select on secret, part to anon")
    tables = {table.name: table for table in stale.tables.values()}
    reads = [restricted._watcher.regrant(stale, role, tables[name]) for name in ("secret", "part")]
    await defer.gatherResults([defer.ensureDeferred(each) for each in reads])
    for target in ("secret", "part"):
        assert (await restricted.rest("GET", target)).status == 200


async def test_membership_takes_effect_immediately(restricted: Service) -> None:
    await restricted.reload()
    assert (await restricted.rest("GET", "secret", role="secret_guest")).status == 403
    restricted.database.execute("grant secret_reader to secret_guest")
    assert (await restricted.rest("GET", "secret", role="secret_guest")).status == 200


async def test_concurrent_rejections_share_queries_of_grants(
    restricted: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many rejected requests must not cause as many queries."""
    restricted.database.execute("grant usage on schema public to anon")
    await restricted.reload()
    queries = count_fetches(restricted, monkeypatch)
    generation = restricted.catalog.generation
    flood = [restricted.rest("GET", target) for _ in range(20) for target in ("secret", "part")]
    responses = await defer.gatherResults([defer.ensureDeferred(each) for each in flood])
    assert {response.status for response in responses} == {401}
    assert set(queries) == {GRANTS_QUERY}
    assert len(queries) <= 6, "one query for the first rejection, then one for each table"
    assert restricted.catalog.generation == generation


async def test_dropped_column_is_an_unknown_field(restored: Service) -> None:
    await restored.reload()
    query = "{ noteCollection { edges { node { id a } } } }"
    assert (await restored.ask(query)).status == 200
    restored.database.execute("alter table note drop a")
    response = await restored.ask(query, check=False)
    assert "Cannot query field 'a'" in response.body["errors"][0]["message"]


async def test_misspelt_names_cost_one_comparison(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "REFRESH_INTERVAL", 2.0)
    await service.reload()
    monkeypatch.setattr(service._watcher, "_compared_at", float("-inf"))
    queries = count_fetches(service, monkeypatch)
    generation = service.catalog.generation
    for _ in range(5):
        response = await service.rest("GET", "nowhere")
        assert (response.status, response.body["code"]) == (404, "PGRST205")
        response = await service.ask("{ nowhere }", check=False)
        assert "Cannot query field" in response.body["errors"][0]["message"]
    assert queries == [FINGERPRINT]
    assert service.catalog.generation == generation


async def test_reload_without_changes_keeps_cached_plans(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> int:
        """Send requests to GraphQL, REST and OpenAPI, and return the number of plans created so far."""
        await service.data("{ noteCollection { edges { node { id } } } }")
        assert (await service.rest("GET", "note?select=id")).status == 200
        assert (await service.rest("GET", "")).status == 200
        return service.engine.misses + service.handler.figures.misses

    plans = await use()
    generation = service.catalog.generation
    monkeypatch.setattr(descriptions, "describe", None)
    await service.reload()
    assert service.catalog.generation == generation + 1
    assert await use() == plans


def test_role_settings_in_another_database_do_not_change_the_fingerprint(
    server: Server, service: Service
) -> None:
    """Otherwise one setting would reload the catalogs of all projects in the cluster."""
    own, other = service.database, server.create_database()
    (before, _), *_ = own.execute(FINGERPRINT)
    setting = "alter role authenticator in database {} set app.mood = 'calm'"
    own.execute(setting.format(other.name))
    assert own.execute(FINGERPRINT) == [(before, False)]
    own.execute(setting.format(own.name))
    assert own.execute(FINGERPRINT) != [(before, False)]
    server.drop_database(other)
