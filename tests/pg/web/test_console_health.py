"""What the console shows of a project's health (docs/console.md, Health)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dataapi.http.messages import Request
from dataapi.telemetry.requests import AnsweredRequest, RequestMetrics, request_observer

if TYPE_CHECKING:
    from support.service import Service

SCHEMA = "create table item (id int primary key);"


def answered(service: Service, path: str, seconds: float, project: str = "") -> None:
    """Have a request observed that took so long."""
    request = Request("id", "GET", path, "apikey=secret", {}, b"")
    request.facts.role, request.facts.database = "anon", seconds / 2
    observe = request_observer(RequestMetrics(), "crit", lambda _record: None, slow=service.slow)
    observe(AnsweredRequest("rest", request, 200, seconds, 0, project or service.project.ref))


async def test_service_role_sees_state_pool_and_slow_requests_of_its_project_alone(service: Service) -> None:
    """Latest first, without query strings, which may hold keys."""
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
    """Nothing of it is public."""
    refused = await service.console("health", role=role)
    assert (refused.status, set(refused.body)) == (403, {"code", "message", "details", "hint"})
