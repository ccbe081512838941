"""What a request can ask to be told in ``extensions``: PostgreSQL's plans, and the operation's cost."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.catalog import watcher
from support.service import Answer, Service, run, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

GRAPHQL = "application/graphql-response+json"
LIMIT = 5_000

QUERY = """
query ($id: Int!) {
    artistByPk(artistId: $id) { name albumCollection(first: 3) { edges { node { title } } } }
}
"""
CHANGES = """
mutation {
    insertIntoGenreCollection(objects: [{genreId: 900, name: "Skiffle"}]) {
        records { name trackCollection { edges { node { name } } } } }
    updateGenreCollection(set: {name: "Polka"}, filter: {genreId: {eq: 900}}) {
        affectedCount records { name } }
    deleteFromGenreCollection(filter: {genreId: {eq: 900}}) { records { name } }
}
"""
NESTED = """
query ($n: Int) {
    artistCollection(first: 10) { edges { node {
        albumCollection(first: $n) { edges { node { title } } } } } }
}
"""
ARTISTS = "{ artistCollection { edges { node { name } } } }"
THREE_DEEP = """
{ artistCollection(first: 30) { edges { node {
    albumCollection(first: 30) { edges { node {
        trackCollection(first: 30) { edges { node { name } } } } } } } } } }
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_chinook()
    database.execute("comment on schema public is '@graphql({\"inflect_names\": true})'")
    with serving(reactor, database, graphql_max_cost=LIMIT) as service:
        yield service


async def ask(api: Service, query: str, *, role: str = "service_role", **members: Any) -> Answer:
    return await api.send(
        json.dumps({"query": query, **members}).encode(), role=role, headers={"accept": GRAPHQL}
    )


def nodes(plan: Any) -> Iterator[Any]:
    """Yield a plan's nodes."""
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


async def test_explain_gives_the_plan_beside_the_data(api: Service) -> None:
    """One plan per statement, with the statement as it is prepared."""
    answer = await ask(api, QUERY, variables={"id": 1}, extensions={"explain": True})
    assert answer.status == 200
    assert answer.data["artistByPk"]["name"] == "AC/DC"
    [explained] = answer.body["extensions"]["explain"]
    assert explained["statement"] == answer.statements[-1]
    assert "$1" in explained["statement"]
    [plan] = explained["plan"]
    assert {"artist", "album"} <= {
        scan["Relation Name"] for scan in nodes(plan["Plan"]) if "Relation Name" in scan
    }


async def test_explain_never_runs_a_mutation_twice(api: Service) -> None:
    """The statements are explained in transactions that refuse to write, then run once."""
    answer = await ask(api, CHANGES, extensions={"explain": True})
    data = answer.data
    assert data["updateGenreCollection"] == {"affectedCount": 1, "records": [{"name": "Polka"}]}
    assert data["deleteFromGenreCollection"] == {"records": [{"name": "Polka"}]}
    *explaining, running = answer.messages
    assert len(explaining) == len(running.statements) == len(answer.body["extensions"]["explain"])
    assert all(message.read_only and len(message.statements) == 1 for message in explaining)
    assert not running.read_only
    plans = [plan["Plan"] for told in answer.body["extensions"]["explain"] for plan in told["plan"]]
    operations = {node.get("Operation") for plan in plans for node in nodes(plan)}
    assert {"Insert", "Update", "Delete"} <= operations


async def test_explaining_happens_as_the_caller(api: Service) -> None:
    """No statement is sent without the caller's role and claims in the same message."""
    answer = await ask(api, QUERY, variables={"id": 1}, extensions={"explain": True})
    assert {message.role for message in answer.messages} == {"service_role"}
    explaining, running = answer.messages
    assert explaining.settings == running.settings


async def test_a_volatile_function_is_planned_and_run_once(api: Service) -> None:
    """Explaining must not have its effects."""
    await api.execute("""
        create sequence if not exists ticks;
        grant usage on sequence ticks to service_role;
        create or replace function tick() returns int volatile
            language sql as $$ select nextval('ticks')::int $$;
    """)
    first = (await ask(api, "mutation { tick }", extensions={"explain": True})).data["tick"]
    second = (await ask(api, "mutation { tick }", extensions={"explain": True})).data["tick"]
    assert second == first + 1


@pytest.fixture
def noting(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a database whose pre-request function leaves a row for each time that it ran."""
    database = server.create_database("""
        create table hit (id int generated always as identity primary key);
        create function note() returns void volatile security definer
            language sql as 'insert into hit default values';
        grant select, delete on hit to service_role;
    """)
    with serving(reactor, database, db_pre_request="public.note") as service:
        yield service


async def test_explain_skips_the_pre_request_function(noting: Service) -> None:
    """It runs once for a request, before the statements that are run."""
    mutation = "mutation { deleteFromhitCollection(filter: {id: {eq: -1}}) { affectedCount } }"
    answer = await ask(noting, mutation, extensions={"explain": True})
    assert answer.data == {"deleteFromhitCollection": {"affectedCount": 0}}
    assert len(answer.body["extensions"]["explain"]) == 1
    assert noting.database.execute("select count(*) from hit") == [(1,)]


@pytest.fixture
def without_artists(api: Service) -> Iterator[None]:
    """Take a table away that the catalog has."""
    assert "artistCollection" in api.collections("service_role")
    api.database.execute("alter table artist rename to artist_away")
    yield
    run(api.execute("alter table artist_away rename to artist"))


@pytest.mark.usefixtures("without_artists")
async def test_what_cannot_be_planned_is_not_run(api: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the one that running would have given."""
    # Else a catalog of two seconds is compared with the database, as in the next test.
    monkeypatch.setattr(watcher, "REFRESH_INTERVAL", math.inf)
    answer = await ask(api, ARTISTS, extensions={"explain": True})
    assert answer.body["data"] is None
    assert answer.errors[0]["extensions"]["code"] == "42P01"
    assert len(answer.messages) == 1


@pytest.mark.usefixtures("without_artists")
async def test_what_cannot_be_planned_shows_that_the_catalog_is_outdated(
    api: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is answered by a new one, as it would be without ``explain``."""
    monkeypatch.setattr(watcher, "REFRESH_INTERVAL", 0.0)
    answer = await ask(api, ARTISTS, extensions={"explain": True})
    assert answer.status == 400
    assert answer.error.startswith("Cannot query field 'artistCollection'")
    assert "data" not in answer.body
    # Planning showed it, and nothing was run.
    assert len(answer.messages) == 1


@pytest.fixture
def unprepared(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve without prepared statements, as behind a transaction pooler."""
    database = server.create_chinook()
    with serving(reactor, database, db_prepared_statements=False) as service:
        yield service


async def test_explain_works_without_prepared_statements(unprepared: Service) -> None:
    """The search path goes along in each message, that of ``EXPLAIN`` included."""
    query = "query ($id: Int!) { artistByPk(artist_id: $id) { name } }"
    answer = await ask(unprepared, query, variables={"id": 1}, extensions={"explain": True})
    assert answer.data == {"artistByPk": {"name": "AC/DC"}}
    assert len(answer.body["extensions"]["explain"]) == 1


@pytest.mark.direct("what its connections have prepared is the pooler's")
async def test_explaining_prepares_nothing(api: Service) -> None:
    """Else each explained request would take a place of a statement that is used again."""
    held = "select count(*) from pg_prepared_statements"
    [[before]] = await api.pool.fetch(held)
    for _ in range(3):
        answer = await ask(api, "{ artistCollection(first: 7) { __typename } }", extensions={"explain": True})
        assert answer.status == 200
    [[after]] = await api.pool.fetch(held)
    assert after - before == 1


@pytest.mark.parametrize("role", ["anon", "authenticated"])
@pytest.mark.parametrize(("accept", "status"), [(GRAPHQL, 400), ("application/json", 200)])
async def test_explain_is_for_service_role(api: Service, role: str, accept: str, status: int) -> None:
    """Plans tell about rows that others may not see: nothing is run or planned."""
    body = json.dumps({"query": "{ __typename }", "extensions": {"explain": True}}).encode()
    answer = await api.send(body, role=role, headers={"accept": accept})
    assert answer.status == status
    assert answer.body == {
        "errors": [
            {
                "message": "extensions.explain is for service_role.",
                "extensions": {"code": "EXPLAIN_NOT_ALLOWED"},
            }
        ]
    }
    assert answer.messages == ()


async def test_an_operation_without_statements_has_no_plans(api: Service) -> None:
    """``__typename`` alone does not reach the database."""
    answer = await ask(api, "{ __typename }", extensions={"explain": True})
    assert answer.body == {"data": {"__typename": "Query"}, "extensions": {"explain": []}}


async def test_cost_is_reported_on_request(api: Service) -> None:
    """Pages times nested pages, with variables counted, for every role."""
    for size, rows in ((2, 30), (5, 60)):
        answer = await ask(api, NESTED, role="anon", variables={"n": size}, extensions={"cost": True})
        assert "data" in answer.body
        assert answer.body["extensions"] == {"cost": {"rows": rows, "limit": LIMIT}}


async def test_cost_is_reported_when_it_is_too_high(api: Service) -> None:
    """So that a client sees by how much."""
    answer = await ask(api, THREE_DEEP, role="anon", extensions={"cost": True})
    assert answer.status == 400
    assert "data" not in answer.body
    # Fewer than its pages allow where PostgreSQL has estimated already how many rows there are.
    rows = answer.body["extensions"]["cost"]["rows"]
    assert LIMIT < rows <= 27930
    assert answer.error.startswith(f"The operation may touch {rows} rows, more than the {LIMIT} allowed")
    assert answer.body["extensions"] == {"cost": {"rows": rows, "limit": LIMIT}}
    assert answer.messages == ()


@pytest.mark.parametrize(
    "extensions",
    [{}, {"tracing": True}, {"explain": False, "cost": None}, {"explain": "yes", "cost": 1}, None],
)
async def test_other_members_are_ignored(api: Service, extensions: Any) -> None:
    """Clients send members of their own; an answer has ``extensions`` only when something is told."""
    answer = await ask(api, "{ __typename }", role="anon", extensions=extensions)
    assert answer.body == {"data": {"__typename": "Query"}}


async def test_extensions_are_read_by_get_too(api: Service) -> None:
    """As the rest of a request."""
    members = {"query": "{ __typename }", "extensions": '{"cost": true, "explain": true}'}
    answer = await api.get(members, role="service_role")
    assert answer.body["extensions"] == {"cost": {"rows": 0, "limit": LIMIT}, "explain": []}
