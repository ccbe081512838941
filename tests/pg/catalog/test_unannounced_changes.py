"""The database changes and nobody says so: requests meet it as it is."""

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
    """Let each request compare the catalog, as if the last one were two seconds old."""
    monkeypatch.setattr(watcher, "REFRESH_INTERVAL", 0.0)


@pytest.fixture
def restored(service: Service) -> Service:
    """Give the service, its database as it is at first, and its catalog outdated."""
    service.database.execute(
        f"drop schema public cascade; create schema public; grant usage on schema public to public; {SCHEMA}"
    )
    return service


def count_fetches(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of what the database is asked about itself from now on."""
    asked: list[str] = []
    fetch = service._watcher._fetch

    async def counted(text: str, values: Any) -> Any:
        asked.append(text)
        return await fetch(text, values)

    monkeypatch.setattr(service._watcher, "_fetch", counted)
    return asked


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
async def test_rest_answers_by_the_types_that_columns_have(
    restored: Service, change: str, method: str, target: str, body: Any, rows: Any
) -> None:
    """PostgreSQL's error about a value of the former type does not reach the client."""
    await restored.reload()
    await restored.rest(method, target, body, headers={"Prefer": "return=representation"})
    restored.database.execute(f"alter table note {change}")
    answer = await restored.rest(method, target, body, headers={"Prefer": "return=representation"})
    assert (answer.status, answer.body) == (200, rows)


async def test_graphql_answers_by_the_types_that_columns_have(restored: Service) -> None:
    await restored.execute("alter table note alter a type timestamp using now()")
    restored.database.execute("alter table note alter a type text using 'one'")
    answer = await restored.ask('{ noteCollection(filter: {a: {neq: "x"}}) { edges { node { id } } } }')
    assert answer.data == {"noteCollection": {"edges": [{"node": {"id": 1}}]}}
    await restored.execute("alter table note alter a type date using now()")
    restored.database.execute("alter table note alter a type text using 'one'")
    answer = await restored.ask(
        'mutation { updatenoteCollection(set: {a: "x"}, filter: {id: {eq: 1}}) { records { a } } }'
    )
    assert answer.data == {"updatenoteCollection": {"records": [{"a": "x"}]}}


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
async def test_rest_answers_by_the_database_as_it_is(
    restored: Service, change: str, method: str, target: str, body: Any, status: int
) -> None:
    """The first request after the change is answered, and what it writes is written once."""
    await restored.reload()
    restored.database.execute(change)
    answer = await restored.rest(method, target, body)
    assert answer.status == status, answer.body
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
async def test_graphql_answers_by_the_database_as_it_is(restored: Service, change: str, query: str) -> None:
    """Unknown fields and arguments are looked for in the database before they are refused."""
    await restored.reload()
    restored.database.execute(change)
    answer = await restored.ask(query)
    assert answer.status == 200
    assert "errors" not in answer.body


async def asked(service: Service, role: str, graphql: bool) -> Any:
    """Read a table under a role."""
    if graphql:
        return await service.ask("{ noteCollection { edges { node { id } } } }", role=role, check=False)
    return await service.rest("GET", "note", role=role)


@pytest.mark.parametrize("graphql", [False, True])
async def test_a_role_that_is_new_is_served(restored: Service, graphql: bool) -> None:
    """Creating one fires no event trigger; it belongs to the whole cluster."""
    await restored.reload()
    role = f"newcomer_{graphql}".lower()
    restored.database.execute(f"create role {role}; grant select on note to {role}")
    try:
        assert (await asked(restored, role, graphql)).status in (401, 403)
        restored.database.execute(f"grant {role} to authenticator")
        answer = await asked(restored, role, graphql)
        assert answer.status == 200, answer.body
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
def secretive(restored: Service) -> Iterator[Service]:
    """Give the service with what anonymous callers may not use."""
    restored.database.execute(f"revoke usage on schema public from public; {SECRETS}")
    yield restored
    restored.database.execute(FORGET_SECRETS)


@pytest.mark.parametrize(("grant", "method", "target", "status"), GRANTS)
async def test_a_grant_counts_at_once(
    secretive: Service, grant: str, method: str, target: str, status: int
) -> None:
    """Whether on a table, a column, a function or a schema."""
    if "schema" not in grant:
        secretive.database.execute("grant usage on schema public to anon")
    await secretive.reload()
    body = {"id": 1} if method == "POST" else None
    assert (await secretive.rest(method, target, body)).status == 401
    loads = secretive._watcher.loads
    secretive.database.execute(grant)
    answer = await secretive.rest(method, target, body)
    assert answer.status == status, answer.body
    assert secretive._watcher.loads == loads, "nothing else was read"


async def test_a_grant_counts_at_once_after_refusals(
    secretive: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short ago a request was refused the same."""
    monkeypatch.setattr(watcher, "REFRESH_INTERVAL", 3600.0)
    secretive.database.execute("grant usage on schema public to anon")
    await secretive.reload()
    for _ in range(2):
        assert (await secretive.rest("GET", "secret")).status == 401
    secretive.database.execute("grant select on secret to anon")
    assert (await secretive.rest("GET", "secret")).status == 200
    assert (await secretive.rest("POST", "secret", {"id": 1})).status == 401
    secretive.database.execute("grant insert on secret to anon")
    assert (await secretive.rest("POST", "secret", {"id": 1})).status == 201


async def test_grants_that_are_met_at_the_same_time_count_at_once(secretive: Service) -> None:
    """One request finds the grant on its table while the other one asks about another table."""
    secretive.database.execute("grant usage on schema public to anon")
    await secretive.reload()
    role, stale = "anon", secretive.catalog
    secretive.database.execute("grant select on secret, part to anon")
    tables = {table.name: table for table in stale.tables.values()}
    asked = [secretive._watcher.regrant(stale, role, tables[name]) for name in ("secret", "part")]
    await defer.gatherResults([defer.ensureDeferred(each) for each in asked])
    for target in ("secret", "part"):
        assert (await secretive.rest("GET", target)).status == 200


async def test_a_membership_counts_at_once(secretive: Service) -> None:
    """A role has what the roles have that it inherits from."""
    await secretive.reload()
    assert (await secretive.rest("GET", "secret", role="secret_guest")).status == 403
    secretive.database.execute("grant secret_reader to secret_guest")
    assert (await secretive.rest("GET", "secret", role="secret_guest")).status == 200


async def test_refusals_share_their_looks(secretive: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of them asks PostgreSQL ten times a second for each role and table, and changes nothing."""
    secretive.database.execute("grant usage on schema public to anon")
    await secretive.reload()
    asked = count_fetches(secretive, monkeypatch)
    generation = secretive.catalog.generation
    flood = [secretive.rest("GET", target) for _ in range(20) for target in ("secret", "part")]
    answers = await defer.gatherResults([defer.ensureDeferred(each) for each in flood])
    assert {answer.status for answer in answers} == {401}
    assert set(asked) == {GRANTS_QUERY}
    assert len(asked) <= 6, "the first one, and both of them after it"
    assert secretive.catalog.generation == generation


async def test_a_column_that_was_dropped_is_an_ordinary_error(restored: Service) -> None:
    """PostgreSQL's error about an outdated statement does not reach the client where the names are right."""
    await restored.reload()
    query = "{ noteCollection { edges { node { id a } } } }"
    assert (await restored.ask(query)).status == 200
    restored.database.execute("alter table note drop a")
    answer = await restored.ask(query, check=False)
    assert "Cannot query field 'a'" in answer.body["errors"][0]["message"]


async def test_misspelt_names_cost_one_comparison_and_are_refused_as_before(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of them neither reloads nor compares more than once in two seconds."""
    monkeypatch.setattr(watcher, "REFRESH_INTERVAL", 2.0)
    await service.reload()
    monkeypatch.setattr(service._watcher, "_compared_at", float("-inf"))
    asked = count_fetches(service, monkeypatch)
    generation = service.catalog.generation
    for _ in range(5):
        answer = await service.rest("GET", "nowhere")
        assert (answer.status, answer.body["code"]) == (404, "PGRST205")
        answer = await service.ask("{ nowhere }", check=False)
        assert "Cannot query field" in answer.body["errors"][0]["message"]
    assert asked == [FINGERPRINT]
    assert service.catalog.generation == generation


async def test_a_reload_that_finds_nothing_new_keeps_what_was_made(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans, documents and descriptions serve on under the new generation."""

    async def use() -> int:
        """Send one request of each kind; return how many plans were made until now."""
        await service.data("{ noteCollection { edges { node { id } } } }")
        assert (await service.rest("GET", "note?select=id")).status == 200
        assert (await service.rest("GET", "")).status == 200
        return service.engine.misses + service.handler.figures.misses

    made = await use()
    generation = service.catalog.generation
    monkeypatch.setattr(descriptions, "describe", None)
    await service.reload()
    assert service.catalog.generation == generation + 1
    assert await use() == made


def test_settings_of_a_role_in_another_database_are_no_change(server: Server, service: Service) -> None:
    """Where changes are looked for, they would have the catalogs of all projects of a cluster read again."""
    own, other = service.database, server.create_database()
    (before, _), *_ = own.execute(FINGERPRINT)
    setting = "alter role authenticator in database {} set app.mood = 'calm'"
    own.execute(setting.format(other.name))
    assert own.execute(FINGERPRINT) == [(before, False)]
    own.execute(setting.format(own.name))
    assert own.execute(FINGERPRINT) != [(before, False)]
    server.drop_database(other)
