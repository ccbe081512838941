"""Query plans and costs in ``extensions`` of responses."""

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
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


async def test_explain_returns_the_plan_with_the_data(api: Service) -> None:
    response = await ask(api, QUERY, variables={"id": 1}, extensions={"explain": True})
    assert response.status == 200
    assert response.data["artistByPk"]["name"] == "AC/DC"
    [explained] = response.body["extensions"]["explain"]
    assert explained["statement"] == response.statements[-1]
    assert "$1" in explained["statement"]
    [plan] = explained["plan"]
    assert {"artist", "album"} <= {
        scan["Relation Name"] for scan in nodes(plan["Plan"]) if "Relation Name" in scan
    }


async def test_explain_never_runs_a_mutation_twice(api: Service) -> None:
    response = await ask(api, CHANGES, extensions={"explain": True})
    data = response.data
    assert data["updateGenreCollection"] == {"affectedCount": 1, "records": [{"name": "Polka"}]}
    assert data["deleteFromGenreCollection"] == {"records": [{"name": "Polka"}]}
    *explaining, running = response.messages
    assert len(explaining) == len(running.statements) == len(response.body["extensions"]["explain"])
    assert all(message.read_only and len(message.statements) == 1 for message in explaining)
    assert not running.read_only
    plans = [
        plan["Plan"] for explained in response.body["extensions"]["explain"] for plan in explained["plan"]
    ]
    operations = {node.get("Operation") for plan in plans for node in nodes(plan)}
    assert {"Insert", "Update", "Delete"} <= operations


async def test_explain_runs_with_the_role_of_the_caller(api: Service) -> None:
    response = await ask(api, QUERY, variables={"id": 1}, extensions={"explain": True})
    assert {message.role for message in response.messages} == {"service_role"}
    explaining, running = response.messages
    assert explaining.settings == running.settings


async def test_volatile_function_is_planned_and_run_once(api: Service) -> None:
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
    database = server.create_database("""
        create table hit (id int generated always as identity primary key);
        create function note() returns void volatile security definer
            language sql as 'insert into hit default values';
        grant select, delete on hit to service_role;
    """)
    with serving(reactor, database, db_pre_request="public.note") as service:
        yield service


async def test_explain_skips_the_pre_request_function(noting: Service) -> None:
    mutation = "mutation { deleteFromhitCollection(filter: {id: {eq: -1}}) { affectedCount } }"
    response = await ask(noting, mutation, extensions={"explain": True})
    assert response.data == {"deleteFromhitCollection": {"affectedCount": 0}}
    assert len(response.body["extensions"]["explain"]) == 1
    assert noting.database.execute("select count(*) from hit") == [(1,)]


@pytest.fixture
def without_artists(api: Service) -> Iterator[None]:
    """Rename a table, so that the catalog is outdated."""
    assert "artistCollection" in api.collections("service_role")
    api.database.execute("alter table artist rename to artist_away")
    yield
    run(api.execute("alter table artist_away rename to artist"))


@pytest.mark.usefixtures("without_artists")
async def test_operation_that_cannot_be_planned_does_not_run(
    api: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Keep the outdated catalog.
    monkeypatch.setattr(watcher, "REFRESH_INTERVAL", math.inf)
    response = await ask(api, ARTISTS, extensions={"explain": True})
    assert response.body["data"] is None
    assert response.errors[0]["extensions"]["code"] == "42P01"
    assert len(response.messages) == 1


@pytest.mark.usefixtures("without_artists")
async def test_planning_error_reveals_an_outdated_catalog(
    api: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "REFRESH_INTERVAL", 0.0)
    response = await ask(api, ARTISTS, extensions={"explain": True})
    assert response.status == 400
    assert response.error.startswith("Cannot query field 'artistCollection'")
    assert "data" not in response.body
    # EXPLAIN failed during planning, so the query was not sent.
    assert len(response.messages) == 1


@pytest.fixture
def unprepared(server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_chinook()
    with serving(reactor, database, db_prepared_statements=False) as service:
        yield service


async def test_explain_works_without_prepared_statements(unprepared: Service) -> None:
    query = "query ($id: Int!) { artistByPk(artist_id: $id) { name } }"
    response = await ask(unprepared, query, variables={"id": 1}, extensions={"explain": True})
    assert response.data == {"artistByPk": {"name": "AC/DC"}}
    assert len(response.body["extensions"]["explain"]) == 1


@pytest.mark.direct("what its connections have prepared is the pooler's")
async def test_explaining_prepares_nothing(api: Service) -> None:
    """Explained requests would otherwise evict prepared statements that are in use."""
    document = "{ artistCollection(first: 7) { __typename } }"
    prepared = "select statement from pg_prepared_statements where statement like '%artist%'"
    await ask(api, document)
    before = await api.pool.fetch(prepared)
    for _ in range(3):
        assert (await ask(api, document, extensions={"explain": True})).status == 200
    assert before
    assert set(await api.pool.fetch(prepared)) == set(before)


@pytest.mark.parametrize("role", ["anon", "authenticated"])
@pytest.mark.parametrize(("accept", "status"), [(GRAPHQL, 400), ("application/json", 200)])
async def test_explain_is_for_service_role(api: Service, role: str, accept: str, status: int) -> None:
    body = json.dumps({"query": "{ __typename }", "extensions": {"explain": True}}).encode()
    response = await api.send(body, role=role, headers={"accept": accept})
    assert response.status == status
    assert response.body == {
        "errors": [
            {
                "message": "extensions.explain requires the role service_role.",
                "extensions": {"code": "EXPLAIN_NOT_ALLOWED"},
            }
        ]
    }
    assert response.messages == ()


async def test_operation_without_statements_has_no_plans(api: Service) -> None:
    response = await ask(api, "{ __typename }", extensions={"explain": True})
    assert response.body == {"data": {"__typename": "Query"}, "extensions": {"explain": []}}


async def test_cost_is_reported_on_request(api: Service) -> None:
    for size, rows in ((2, 30), (5, 60)):
        response = await ask(api, NESTED, role="anon", variables={"n": size}, extensions={"cost": True})
        assert "data" in response.body
        assert response.body["extensions"] == {"cost": {"rows": rows, "limit": LIMIT}}


async def test_cost_is_reported_if_it_exceeds_the_limit(api: Service) -> None:
    response = await ask(api, THREE_DEEP, role="anon", extensions={"cost": True})
    assert response.status == 400
    assert "data" not in response.body
    # The cost is lower if PostgreSQL has row estimates.
    rows = response.body["extensions"]["cost"]["rows"]
    assert LIMIT < rows <= 27930
    assert response.error.startswith(f"The operation may touch {rows} rows, more than the {LIMIT} allowed")
    assert response.body["extensions"] == {"cost": {"rows": rows, "limit": LIMIT}}
    assert response.messages == ()


@pytest.mark.parametrize(
    "extensions",
    [{}, {"tracing": True}, {"explain": False, "cost": None}, {"explain": "yes", "cost": 1}, None],
)
async def test_other_members_are_ignored(api: Service, extensions: Any) -> None:
    response = await ask(api, "{ __typename }", role="anon", extensions=extensions)
    assert response.body == {"data": {"__typename": "Query"}}


async def test_get_requests_accept_extensions(api: Service) -> None:
    members = {"query": "{ __typename }", "extensions": '{"cost": true, "explain": true}'}
    response = await api.get(members, role="service_role")
    assert response.body["extensions"] == {"cost": {"rows": 0, "limit": LIMIT}, "explain": []}
