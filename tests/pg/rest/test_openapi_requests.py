"""Requests for the OpenAPI description at the root of the REST API."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.auth.caller import Caller
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from dataapi.rest.handler import RestHandler
from dataapi.rest.openapi.description import Version
from dataapi.rest.openapi.descriptions import Descriptions
from dataapi.settings import Project
from openapi_spec_validator import OpenAPIV2SpecValidator, OpenAPIV31SpecValidator
from support.catalog import MadeUp, load_catalog
from support.service import Service, serving
from twisted.internet import defer, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

SCHEMA = """
create schema other;
grant usage on schema other to anon;
create table first (id integer primary key);
create table other.second (id integer primary key);
grant select on first, other.second to anon;
create table hidden (id integer primary key);
grant select on hidden to service_role;
create table placed (id integer, region text, name text not null, primary key (id, region));
create table half_placed (id integer primary key, name text);
create table unread (id integer primary key, name text);
create table reserved ("limit" integer primary key, name text);
grant insert, update on unread to service_role;
grant all on placed, reserved to service_role;
grant select, insert, update (name) on half_placed to service_role;
create function root() returns json language sql stable as $$ select '{"swagger": "2.0", "own": 1}'::json $$;
create function other.described() returns json language sql stable as $$ select '{"own": 2}'::json $$;
"""

PLAIN = "application/openapi+json"
REGISTERED = "application/vnd.oai.openapi+json"


NO_RUNNER: Any = None
"""Placeholder for the pool, because descriptions need no statements."""


@pytest.fixture(scope="module")
def served(server: Server) -> Iterator[Database]:
    """Return a database with two schemas. Tests must not change it."""
    database = server.create_database(SCHEMA)
    yield database
    server.drop_database(database)


def handler_for(database: Database, *schemas: str, **project: Any) -> RestHandler:
    """Return a REST handler without a database connection."""
    exposed = schemas or ("public",)
    settings = Project("a" * 20, "acme", database.uri, db_schemas=exposed, **project)
    catalog = load_catalog(database.uri, *exposed)
    return RestHandler(settings, NO_RUNNER, lambda: catalog)


async def fetch_root(
    handler: RestHandler, query: str = "", method: str = "GET", role: str = "anon", **headers: str
) -> Reply:
    named = {"host": "localhost:8000", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await handler.handle(Request("1", method, "/rest/v1/", query, named, b""), Caller(role, "{}"))


def header(reply: Reply, name: str) -> str | None:
    return dict(reply.headers).get(name)


@pytest.mark.parametrize(
    ("accept", "query", "content_type", "version"),
    [
        (None, "", PLAIN, "2.0"),
        ("*/*", "", PLAIN, "2.0"),
        ("application/json", "", PLAIN, "2.0"),
        (PLAIN, "", PLAIN, "2.0"),
        ("text/html, */*;q=0.1", "", PLAIN, "2.0"),
        (f"{PLAIN};version=3.1", "", f"{PLAIN}; version=3.1", "3.1.0"),
        (f"{REGISTERED};version=3.1", "", f"{REGISTERED}; version=3.1", "3.1.0"),
        (f'{REGISTERED}; version="3.1.0"', "", f"{REGISTERED}; version=3.1", "3.1.0"),
        (f"{REGISTERED};version=3.0, {PLAIN};q=0.5", "", PLAIN, "2.0"),
        (f"application/json;q=0.5, {REGISTERED};version=3.1", "", f"{REGISTERED}; version=3.1", "3.1.0"),
        (f"{REGISTERED};version=2.0", "", REGISTERED, "2.0"),
        (None, "openapi=3.1", f"{PLAIN}; version=3.1", "3.1.0"),
        (REGISTERED, "openapi=3.1", f"{REGISTERED}; version=3.1", "3.1.0"),
        (f"{PLAIN};version=3.1", "openapi=2.0", PLAIN, "2.0"),
    ],
)
async def test_client_selects_the_openapi_version(
    served: Database, accept: str | None, query: str, content_type: str, version: str
) -> None:
    """The Accept header or the query string selects the version (default: 2.0)."""
    headers = {} if accept is None else {"accept": accept}
    reply = await fetch_root(handler_for(served), query, **headers)
    document = json.loads(reply.body)
    assert reply.status == 200
    assert header(reply, "Content-Type") == f"{content_type}; charset=utf-8"
    assert document.get("swagger", document.get("openapi")) == version
    validator = OpenAPIV2SpecValidator if version == "2.0" else OpenAPIV31SpecValidator
    validator(document).validate()
    assert document["paths"].keys() == {"/", "/first", "/rpc/root"}


@pytest.mark.parametrize(
    ("named", "status", "code", "message"),
    [
        ({"accept": "text/csv"}, 406, "PGRST107", "None of these media types are available: text/csv"),
        (
            {"accept": f"{REGISTERED};version=3.0, text/html"},
            406,
            "PGRST107",
            f"None of these media types are available: {REGISTERED}, text/html",
        ),
        ({"query": "openapi=3.0"}, 400, "PGRST100", "Unsupported OpenAPI version: 3.0"),
        ({"method": "POST"}, 405, "PGRST117", "Unsupported HTTP method: POST"),
        ({"method": "DELETE"}, 405, "PGRST117", "Unsupported HTTP method: DELETE"),
        ({"accept_profile": "nope"}, 406, "PGRST106", "Invalid schema: nope"),
    ],
)
async def test_invalid_root_requests_are_rejected(
    served: Database, named: dict[str, str], status: int, code: str, message: str
) -> None:
    with pytest.raises(ApiError) as caught:
        await fetch_root(handler_for(served), **named)
    error = caught.value
    assert (error.status, error.code, error.message) == (status, code, message)


async def test_options_lists_the_methods_of_the_root(served: Database) -> None:
    reply = await fetch_root(handler_for(served), method="OPTIONS")
    assert (reply.status, header(reply, "Allow"), reply.body) == (200, "OPTIONS,GET,HEAD", b"")


async def test_head_has_the_headers_of_get(served: Database) -> None:
    handler = handler_for(served)
    assert (await fetch_root(handler, method="HEAD")).headers == (await fetch_root(handler)).headers


async def test_accept_profile_selects_the_described_schema(served: Database) -> None:
    handler = handler_for(served, "public", "other")
    first, second = await fetch_root(handler), await fetch_root(handler, accept_profile="other")
    assert "/first" in json.loads(first.body)["paths"]
    assert json.loads(second.body)["paths"].keys() == {"/", "/second", "/rpc/described"}
    assert header(first, "Content-Profile") == "public"
    assert header(second, "Content-Profile") == "other"
    assert header(await fetch_root(handler_for(served)), "Content-Profile") is None


async def test_each_role_gets_its_own_description(served: Database) -> None:
    handler = handler_for(served)
    pending = [
        defer.Deferred.fromCoroutine(fetch_root(handler, role=role))
        for role in ("anon", "service_role", "anon", "authenticated")
    ]
    bodies = [json.loads((await one).body)["paths"].keys() for one in pending]
    assert ["/first" in paths for paths in bodies] == [True, False, True, False]
    assert ["/hidden" in paths for paths in bodies] == [False, True, False, False]


async def test_descriptions_can_be_disabled(served: Database) -> None:
    handler = handler_for(served, openapi_mode="disabled")
    for method in ("GET", "HEAD", "OPTIONS"):
        with pytest.raises(ApiError) as caught:
            await fetch_root(handler, method=method)
        assert (caught.value.status, caught.value.code) == (404, "PGRST126")
        assert caught.value.message == "Root endpoint metadata is disabled"


async def test_new_catalog_gets_a_new_description(served: Database) -> None:
    catalogs = []
    for names in (["a"], ["a", "b"]):
        made = MadeUp()
        for name in names:
            made.table(name, "id")
        catalogs.append(made.catalog())
    assert catalogs[0].generation == catalogs[1].generation
    project = Project("a" * 20, "acme", served.uri, openapi_mode="ignore-privileges")
    roles = load_catalog(served.uri).roles
    snapshots = [
        replace(catalog, roles=roles, generation=number) for number, catalog in enumerate(catalogs, 1)
    ]
    current = snapshots[0]
    handler = RestHandler(project, NO_RUNNER, lambda: current)
    assert "/b" not in json.loads((await fetch_root(handler)).body)["paths"]
    current = snapshots[1]
    assert "/b" in json.loads((await fetch_root(handler)).body)["paths"]


async def test_describing_a_large_schema_does_not_block_the_reactor(reactor: Any) -> None:
    made = MadeUp()
    for number in range(300):
        made.table(f"item_{number}", "id", *(f"column_{other}" for other in range(10)))
    catalog = made.catalog()
    project = Project("a" * 20, "acme", "", openapi_mode="ignore-privileges")
    descriptions = Descriptions(project)
    beats = 0

    def beat() -> None:
        nonlocal beats
        beats += 1

    loop = task.LoopingCall(beat)
    loop.clock = reactor
    loop.start(0.001)
    pending = [
        defer.Deferred.fromCoroutine(descriptions.get(catalog, "anon", "public", Version.SWAGGER))
        for _ in range(3)
    ]
    pending[0].addErrback(lambda failure: failure.trap(defer.CancelledError))
    pending[0].cancel()
    second, third = await pending[1], await pending[2]
    loop.stop()
    assert second is third
    assert len(json.loads(second)["definitions"]) == 300
    assert beats > 10
    assert await descriptions.get(catalog, "anon", "public", Version.SWAGGER) is second


@pytest.fixture
def with_root(served: Database, make_pool: Callable[..., Pool]) -> Callable[..., Any]:
    """Return a function that requests the root from a handler with ``db-root-spec``."""

    async def send(name: str, **headers: str) -> Reply:
        pool = make_pool(uri=served.uri, size=1)
        await pool.start()
        exposed = ("public", "other")
        settings = Project("a" * 20, "acme", served.uri, db_schemas=exposed, db_root_spec=name)
        catalog = load_catalog(served.uri, *exposed)
        return await fetch_root(RestHandler(settings, pool, lambda: catalog), **headers)

    return send


@pytest.mark.parametrize(
    ("name", "accept", "content_type", "own"),
    [
        ("root", PLAIN, PLAIN, 1),
        ("root", "application/json", "application/json", 1),
        ("root", "*/*", "application/json", 1),
        ("other.described", PLAIN, PLAIN, 2),
    ],
)
async def test_root_function_replaces_the_description(
    with_root: Callable[..., Any], name: str, accept: str, content_type: str, own: int
) -> None:
    """``db-root-spec`` names the function."""
    reply = await with_root(name, accept=accept)
    assert reply.status == 200
    assert json.loads(reply.body)["own"] == own
    assert header(reply, "Content-Type") == f"{content_type}; charset=utf-8"


@pytest.fixture(scope="module")
def service(reactor: Any, served: Database) -> Iterator[Service]:
    with serving(reactor, served) as running:
        yield running


async def test_rows_can_be_put_as_described(service: Service) -> None:
    described = (await service.rest("GET", "?openapi=3.1", role="service_role")).body
    put = described["paths"]["/placed"]["put"]
    values: dict[str, Any] = {"id": 1, "region": "eu", "name": "a"}
    required = described["components"]["schemas"]["placed.put"]["required"]
    conditions = [part["name"] for part in put["parameters"] if part.get("required")]
    target = "placed?" + "&".join(f"{name}=eq.{values[name]}" for name in conditions)
    row = {name: values[name] for name in required}
    responses = [
        await service.rest("PUT", target, row, role="service_role", headers={"prefer": f"return={wish}"})
        for wish in ("representation", "representation", "minimal")
    ]
    assert [response.status for response in responses] == [201, 200, 204]
    assert {str(response.status) for response in responses} == put["responses"].keys() - {"default"}
    for missing in required:
        fewer = {name: value for name, value in row.items() if name != missing}
        assert (await service.rest("PUT", target, fewer, role="service_role")).status == 400
    for table in ("half_placed", "unread"):
        assert "put" not in described["paths"][f"/{table}"]
        refused = await service.rest("PUT", f"{table}?id=eq.1", {"id": 1}, role="service_role")
        assert (refused.status, refused.body["code"]) == (403, "42501")
    assert "put" not in described["paths"]["/reserved"], "a limit in a query string is not a filter"


async def test_description_is_served_over_http(service: Service) -> None:
    whole = await service.rest("GET", "", headers={"accept": PLAIN})
    assert (whole.status, whole.headers["content-type"]) == (200, f"{PLAIN}; charset=utf-8")
    assert whole.headers["vary"] == "Accept, Accept-Profile, Authorization, apikey"
    assert (whole.body["host"], whole.body["schemes"]) == (service.url.removeprefix("http://"), ["http"])
    secure = await service.rest("GET", "", headers={"accept": PLAIN, "x-forwarded-proto": "https"})
    assert secure.body["schemes"] == ["https"]
    assert whole.messages == ()
    head = await service.rest("HEAD", "", headers={"accept": PLAIN})
    assert (head.status, head.text) == (200, "")
    assert head.headers["content-type"] == whole.headers["content-type"]
    refused = await service.rest("GET", "", headers={"accept": "text/csv"})
    assert (refused.status, refused.body["code"]) == (406, "PGRST107")
    newer = await service.rest("GET", "?openapi=3.1")
    assert newer.body["servers"] == [{"url": "/rest/v1"}]
