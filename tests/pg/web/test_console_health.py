"""A project's health in the console (docs/console.md, Health)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.http.errors import DatabaseUnavailable
from dataapi.http.messages import Identity, Request, RoundTrip
from dataapi.service.inspection import read_advice
from dataapi.telemetry.readiness import WebhooksState
from dataapi.telemetry.requests import CompletedRequest, RequestMetrics, request_observer
from dataapi.telemetry.vitals import WorkersState
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server
    from support.service import Service

SCHEMA = """
create table item (id int primary key);
comment on table item is '@graphql({"nam": 1})';
create table open (id serial primary key);
grant insert on open to anon, service_role;
grant usage on sequence open_id_seq to service_role;
select setval('open_id_seq', 2000000000);
"""


def record_request(service: Service, path: str, seconds: float, project: str = "") -> None:
    request = Request("id", "GET", path, "apikey=secret", {}, b"")
    facts = (Identity("anon", ""), RoundTrip(0.0, seconds / 2))
    observe = request_observer(RequestMetrics(), "crit", lambda _record: None, slow=service.vitals.slow)
    project = project or service.project.ref
    observe(CompletedRequest("rest", request, 200, seconds, 0, project, facts=facts))


async def test_service_role_sees_health_of_its_project_only(service: Service) -> None:
    record_request(service, "/rest/v1/quick", 0.1)
    record_request(service, "/rest/v1/slow", 0.6)
    record_request(service, "/rest/v1/slower", 2.0)
    record_request(service, "/rest/v1/foreign", 2.0, "tsrqponmlkjihgfedcba")
    response = await service.console("health", role="service_role")
    assert response.status == 200, response.text
    assert response.body["project"]["ready"] is True
    assert response.body["project"]["pool"]["size"] == 1
    requests = response.body["slow"]["requests"]
    assert [request["path"] for request in requests] == ["/rest/v1/slower", "/rest/v1/slow"]
    assert (requests[0]["database"], requests[0]["role"]) == (1.0, "anon")
    assert "secret" not in response.text


@pytest.mark.parametrize("role", ["anon", "authenticated"])
@pytest.mark.parametrize("name", ["health", "advice"])
async def test_health_is_hidden_from_other_roles(service: Service, name: str, role: str) -> None:
    rejected = await service.console(name, role=role)
    assert (rejected.status, set(rejected.body)) == (403, {"code", "message", "details", "hint"})


async def test_advice_is_that_of_the_command(either: Service) -> None:
    await either.reload()
    response = await either.console("advice", role="service_role")
    assert response.status == 200, response.text
    assert response.body["findings"] == [finding.as_json() for finding in read_advice(either.project)]
    assert [finding["object"] for finding in response.body["findings"]] == [
        "table public.open",
        "sequence public.open_id_seq",
        "table public.item",
    ]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (WebhooksState(True, True), {"ready": True, "reason": None}),
        (
            WebhooksState(True, False, "permission denied for database internal"),
            {"ready": False, "reason": "see the log, or /ready on the admin listener"},
        ),
        (
            WebhooksState(False, True, "cannot be reached: host db.internal"),
            {"ready": False, "reason": "the database cannot be reached"},
        ),
    ],
)
async def test_health_shows_workers_and_webhooks_but_no_hosts(
    service: Service, state: WebhooksState, expected: dict[str, Any]
) -> None:
    service.vitals.webhooks = lambda: state
    service.vitals.workers = WorkersState(2, 3, (1, 2), (3,))
    response = await service.console("health", role="service_role")
    assert response.body["webhooks"] == expected
    assert response.body["workers"] == {"own": 2, "configured": 3, "serving": [1, 2], "stuck": [3]}
    assert "internal" not in response.text


@pytest.fixture
def guarded(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a database with a pre-request function that requires a header."""
    database = server.create_database("""
        create function guard() returns void language plpgsql as $$ begin
            if current_setting('request.headers', true)::json ->> 'x-word' is distinct from 'sesame' then
                raise sqlstate 'PT403' using message = 'the word is missing';
            end if; end $$;
    """)
    with serving(reactor, database, db_pre_request="public.guard") as service:
        yield service


@pytest.mark.parametrize("name", ["health", "advice", "documents", "schema"])
async def test_pre_request_function_applies_to_the_console(guarded: Service, name: str) -> None:
    rejected = await guarded.console(name, role="service_role")
    assert (rejected.status, rejected.body["message"]) == (403, "the word is missing")
    response = await guarded.console(name, role="service_role", headers={"x-word": "sesame"})
    assert response.status == 200


async def test_health_is_shown_while_the_database_is_down(
    guarded: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(_message: object) -> None:
        raise DatabaseUnavailable(503, "PGRST000", "Database connection error. Retrying.")

    monkeypatch.setattr(guarded.pool, "run", unavailable)
    assert (await guarded.console("health", role="service_role")).status == 200
    assert (await guarded.console("documents", role="service_role")).status == 503
