"""What the console shows of a project's health (docs/console.md, Health)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.http.errors import DatabaseUnavailable
from dataapi.http.messages import Identity, Request, RoundTrip
from dataapi.telemetry.readiness import WebhooksState
from dataapi.telemetry.requests import CompletedRequest, RequestMetrics, request_observer
from dataapi.telemetry.vitals import WorkersState
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server
    from support.service import Service

SCHEMA = "create table item (id int primary key);"


def answered(service: Service, path: str, seconds: float, project: str = "") -> None:
    """Have a request observed that took so long."""
    request = Request("id", "GET", path, "apikey=secret", {}, b"")
    facts = (Identity("anon", ""), RoundTrip(0.0, seconds / 2))
    observe = request_observer(RequestMetrics(), "crit", lambda _record: None, slow=service.vitals.slow)
    project = project or service.project.ref
    observe(CompletedRequest("rest", request, 200, seconds, 0, project, facts=facts))


async def test_service_role_sees_state_pool_and_slow_requests_of_its_project_alone(service: Service) -> None:
    answered(service, "/rest/v1/quick", 0.1)
    answered(service, "/rest/v1/slow", 0.6)
    answered(service, "/rest/v1/slower", 2.0)
    answered(service, "/rest/v1/foreign", 2.0, "tsrqponmlkjihgfedcba")
    answer = await service.console("health", role="service_role")
    assert answer.status == 200, answer.text
    assert answer.body["project"]["ready"] is True
    assert answer.body["project"]["pool"]["size"] == 1
    requests = answer.body["slow"]["requests"]
    assert [request["path"] for request in requests] == ["/rest/v1/slower", "/rest/v1/slow"]
    assert (requests[0]["database"], requests[0]["role"]) == (1.0, "anon")
    assert "secret" not in answer.text


@pytest.mark.parametrize("role", ["anon", "authenticated"])
async def test_no_other_role_sees_it(service: Service, role: str) -> None:
    refused = await service.console("health", role=role)
    assert (refused.status, set(refused.body)) == (403, {"code", "message", "details", "hint"})


@pytest.mark.parametrize(
    ("state", "told"),
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
async def test_workers_and_webhooks_are_shown_without_where_their_database_is(
    service: Service, state: WebhooksState, told: dict[str, Any]
) -> None:
    service.vitals.webhooks = lambda: state
    service.vitals.workers = WorkersState(2, 3, (1, 2), (3,))
    answer = await service.console("health", role="service_role")
    assert answer.body["webhooks"] == told
    assert answer.body["workers"] == {"own": 2, "configured": 3, "serving": [1, 2], "stuck": [3]}
    assert "internal" not in answer.text


@pytest.fixture
def guarded(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a database whose pre-request function refuses whoever does not say the word."""
    database = server.create_database("""
        create function guard() returns void language plpgsql as $$ begin
            if current_setting('request.headers', true)::json ->> 'x-word' is distinct from 'sesame' then
                raise sqlstate 'PT403' using message = 'the word is missing';
            end if; end $$;
    """)
    with serving(reactor, database, db_pre_request="public.guard") as service:
        yield service


@pytest.mark.parametrize("name", ["health", "documents", "schema"])
async def test_the_pre_request_function_decides_here_too(guarded: Service, name: str) -> None:
    refused = await guarded.console(name, role="service_role")
    assert (refused.status, refused.body["message"]) == (403, "the word is missing")
    answer = await guarded.console(name, role="service_role", headers={"x-word": "sesame"})
    assert answer.status == 200


async def test_health_is_shown_while_the_database_cannot_be_asked(
    guarded: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(_message: object) -> None:
        raise DatabaseUnavailable(503, "PGRST000", "Database connection error. Retrying.")

    monkeypatch.setattr(guarded.pool, "run", unavailable)
    assert (await guarded.console("health", role="service_role")).status == 200
    assert (await guarded.console("documents", role="service_role")).status == 503
