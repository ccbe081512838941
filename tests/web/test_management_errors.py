"""How errors look that the management API did not raise itself (docs/reference/webhooks.md, Errors)."""

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
    """Raises whatever it is told to."""

    enabled = True
    portal_origins = ()

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def handle(self, _request: Request, _path: str, _places: Mapping[str, str]) -> Reply:
        """Raise it."""
        raise self._error


def ask(error: Exception, *headers: tuple[str, str]) -> Response:
    """Send a request that fails."""
    web = Web()
    web.site = make_site(
        web.backends,
        web.clock,
        web.served.append,
        webhooks=Failing(error),
        now=lambda: NOW,
        ids=repeat("made"),
    )
    answer = web.request("GET", TARGET, headers=headers, key=None)
    assert web.served[0].area == "webhooks"
    return answer


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
def test_codes_of_other_protocols_do_not_show(error: Exception, status: int, code: str) -> None:
    """``code`` is a word of the management API, ``id`` the request's; causes are for the log alone."""
    answer = ask(error)
    assert answer.status == status
    assert set(answer.json()["error"]) == {"code", "message", "id"}
    assert (answer.json()["error"]["code"], answer.json()["error"]["id"]) == (code, "made")
    assert answer.headers["x-request-id"] == "made"
    assert b"PGRST" not in answer.body
    assert b"secret" not in answer.body


def test_headers_of_errors_are_sent() -> None:
    """``Retry-After`` tells when to come back."""
    error = DatabaseUnavailable(503, "PGRST001", "No connection", headers=(("Retry-After", "3"),))
    assert ask(error).headers["retry-after"] == "3"


def test_issues_name_a_member_a_parameter_or_nothing() -> None:
    """``meta`` has the place where there is one (errors)."""
    answer = ask(
        invalid(
            Issue(IssueCode.TYPE, "first", pointer="/data"),
            Issue(IssueCode.PARAMETER, "second", parameter="page"),
            Issue(IssueCode.JSON, "third"),
        )
    )
    assert json.loads(answer.body)["error"]["issues"] == [
        {"code": "type", "message": "first", "meta": {"pointer": "/data"}},
        {"code": "parameter", "message": "second", "meta": {"parameter": "page"}},
        {"code": "json", "message": "third"},
    ]


def test_without_webhooks_its_paths_lead_nowhere() -> None:
    """A site without the API answers 404 in the API's form."""
    answer = Web().request("GET", TARGET, key=None)
    assert (answer.status, answer.json()["error"]["code"]) == (404, "not_found")


def test_a_request_that_takes_too_long_is_a_gateway_timeout() -> None:
    """Whatever it waits for, it is answered after a minute, in the words of this API."""

    class Hanging(Failing):
        async def handle(self, _request: Request, _path: str, _places: Mapping[str, str]) -> Reply:
            await Deferred()
            raise self._error

    web = Web()
    api = Hanging(AssertionError())
    web.site = make_site(web.backends, web.clock, web.served.append, webhooks=api, now=lambda: NOW)
    connection = Connection(web)
    connection.send(raw("GET", TARGET, key=None))
    web.clock.advance(60)
    answer = connection.take()
    assert answer.status == 504
    assert answer.json()["error"]["code"] == "gateway_timeout"
