"""Management API errors that other layers raise (docs/reference/webhooks.md, Errors)."""

from __future__ import annotations

import json
from itertools import repeat
from typing import TYPE_CHECKING

import pytest
from dataapi.http.errors import ApiError, DatabaseUnavailable
from dataapi.http.messages import Reply, Request
from dataapi.web.app import make_site
from dataapi.webhooks.management.errors import Issue, IssueCode, invalid
from support.memory_http import NOW, Connection, Response, Web, raw
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Mapping

TARGET = "/v2/organizations/acme/webhooks/endpoints"


class Failing:
    """A fake API that raises an error."""

    enabled = True
    portal_origins = ()

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def handle(self, _request: Request, _path: str, _parameters: Mapping[str, str]) -> Reply:
        raise self._error


def send(error: Exception, *headers: tuple[str, str]) -> Response:
    web = Web()
    web.site = make_site(
        web.backends,
        web.clock,
        web.served.append,
        webhooks=Failing(error),
        now=lambda: NOW,
        ids=repeat("made"),
    )
    response = web.request("GET", TARGET, headers=headers, key=None)
    assert web.served[0].area == "webhooks"
    return response


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DatabaseUnavailable(503, "PGRST001", "No connection"), 503, "service_unavailable"),
        (DatabaseUnavailable(504, "PGRST003", "Timed out"), 504, "gateway_timeout"),
        (ApiError(400, "PGRST100", "Not UTF-8"), 400, "bad_request"),
        (ApiError(418, "PGRST999", "A teapot"), 418, "error"),
        (RuntimeError("a secret"), 500, "internal_server_error"),
    ],
)
def test_error_codes_of_other_apis_are_translated(error: Exception, status: int, code: str) -> None:
    """Responses contain neither error codes of other APIs nor causes of failures. The log contains both."""
    response = send(error)
    assert response.status == status
    assert set(response.json()["error"]) == {"code", "message", "id"}
    assert (response.json()["error"]["code"], response.json()["error"]["id"]) == (code, "made")
    assert response.headers["x-request-id"] == "made"
    assert b"PGRST" not in response.body
    assert b"secret" not in response.body


def test_error_headers_are_sent() -> None:
    error = DatabaseUnavailable(503, "PGRST001", "No connection", headers=(("Retry-After", "3"),))
    assert send(error).headers["retry-after"] == "3"


def test_issues_identify_their_member_or_parameter() -> None:
    response = send(
        invalid(
            Issue(IssueCode.TYPE, "first", pointer="/data"),
            Issue(IssueCode.PARAMETER, "second", parameter="page"),
            Issue(IssueCode.JSON, "third"),
        )
    )
    assert json.loads(response.body)["error"]["issues"] == [
        {"code": "type", "message": "first", "meta": {"pointer": "/data"}},
        {"code": "parameter", "message": "second", "meta": {"parameter": "page"}},
        {"code": "json", "message": "third"},
    ]


def test_management_paths_return_404_without_webhooks() -> None:
    response = Web().request("GET", TARGET, key=None)
    assert (response.status, response.json()["error"]["code"]) == (404, "not_found")


def test_request_timeout_is_a_gateway_timeout() -> None:
    class Hanging(Failing):
        async def handle(self, _request: Request, _path: str, _parameters: Mapping[str, str]) -> Reply:
            await Deferred()
            raise self._error

    web = Web()
    api = Hanging(AssertionError())
    web.site = make_site(web.backends, web.clock, web.served.append, webhooks=api, now=lambda: NOW)
    connection = Connection(web)
    connection.send(raw("GET", TARGET, key=None))
    web.clock.advance(60)
    response = connection.take()
    assert response.status == 504
    assert response.json()["error"]["code"] == "gateway_timeout"
