"""Response headers and errors: timing, tracing, CORS, request IDs and error details."""

from __future__ import annotations

import re
from dataclasses import replace
from time import perf_counter
from typing import Any

import pytest
from dataapi.http.errors import ApiError
from dataapi.http.messages import Fact, Reply, Request, RoundTrip, StageEnd, server_timing
from support.memory_http import PROJECT, Response, Web, empty_list, typename

APP = "https://app.example.org"
NARROW = replace(PROJECT, server_cors_allowed_origins=(APP, "http://localhost:3000"))
REFUSAL = ApiError(
    400, "PGRST200", "Could not find a relationship", details=[{"embedding": "a with b"}], hint="Look again"
)


async def refused(_request: Request, _caller: Any) -> Reply:
    raise REFUSAL


def rest(web: Web, *headers: tuple[str, str], method: str = "GET") -> Response:
    return web.request(method, "/rest/v1/blog", headers=headers)


# ---------------------------------------------------------------- Server-Timing


def test_server_timing_lists_consecutive_stages() -> None:
    ends: list[Fact] = [
        StageEnd("jwt", 0.001), StageEnd("parse", 0.0035), StageEnd("plan", 0.0035),
        RoundTrip(0.09, 0.1, "select"), StageEnd("plan", 0.1005),
    ]  # fmt: skip
    value = "jwt;dur=1.000, parse;dur=2.500, plan;dur=0.500, transaction;dur=96.500, response;dur=2.000"
    assert server_timing(0.0, ends, 0.1025, failed=False) == value
    assert (
        server_timing(0.0, ends[:2], 0.1025, failed=True) == "jwt;dur=1.000, parse;dur=2.500, plan;dur=99.000"
    )


def test_enabled_server_timing_lists_all_stages() -> None:
    async def handler(request: Request, _caller: Any) -> Reply:
        for stage in ("parse", "plan"):
            request.context.report(StageEnd(stage, perf_counter()))
        request.context.report(RoundTrip(perf_counter(), perf_counter(), "select"))
        return Reply(200, (), b"[]")

    web = Web(typename, handler, replace(PROJECT, server_timing_enabled=True))
    value = rest(web).headers["server-timing"]
    stages = re.findall(r"([a-z]+);dur=\d+\.\d{3}(?:, |$)", value)
    assert stages == ["jwt", "parse", "plan", "transaction", "response"]


def test_rejected_request_lists_its_completed_stages() -> None:
    web = Web(typename, refused, replace(PROJECT, server_timing_enabled=True))
    assert re.fullmatch(r"jwt;dur=[\d.]+, parse;dur=[\d.]+", rest(web).headers["server-timing"])


def test_server_timing_is_off_by_default() -> None:
    web = Web()
    assert "server-timing" not in rest(web).headers


# ---------------------------------------------------------------- trace header


@pytest.mark.parametrize("status", [200, 400])
def test_trace_header_is_returned_with_results_and_errors(status: int) -> None:
    project = replace(PROJECT, server_trace_header="X-Trace")
    web = Web(typename, refused if status == 400 else empty_list, project)
    response = rest(web, ("x-trace", "abc 123"))
    assert (response.status, response.headers["x-trace"]) == (status, "abc 123")
    assert "x-trace" not in rest(web).headers


def test_request_id_as_trace_header_is_sent_once() -> None:
    web = Web(typename, empty_list, replace(PROJECT, server_trace_header="X-Request-Id"))
    assert rest(web, ("X-Request-Id", "mine-1")).headers["x-request-id"] == "mine-1"


# ---------------------------------------------------------------- origins


@pytest.mark.parametrize("path", ["/rest/v1/blog", "/rest/v1/a/b/c?x", "/nowhere"])
def test_only_allowed_origins_can_read_responses(path: str) -> None:
    web = Web(typename, empty_list, NARROW)
    allowed = web.request("GET", path, headers=[("Origin", APP)], key=None)
    assert allowed.headers["access-control-allow-origin"] == APP
    assert allowed.headers["access-control-allow-credentials"] == "true"
    assert "Content-Range" in allowed.headers["access-control-expose-headers"]
    for headers in ([("Origin", "https://evil.example.org")], []):
        other = web.request("GET", path, headers=headers, key=None)
        assert not any(name.startswith("access-control") for name in other.headers)
        assert other.headers["vary"] == allowed.headers["vary"] == "Origin"


def test_preflight_of_other_origin_allows_nothing() -> None:
    web = Web(typename, empty_list, NARROW)
    asking = ("Access-Control-Request-Method", "POST")
    allowed = rest(web, ("Origin", APP), asking, method="OPTIONS")
    assert allowed.headers["access-control-allow-origin"] == APP
    assert "POST" in allowed.headers["access-control-allow-methods"]
    other = rest(web, ("Origin", "null"), asking, method="OPTIONS")
    assert (allowed.status, other.status) == (200, 200)
    assert not any(name.startswith("access-control") for name in other.headers)


@pytest.mark.parametrize(
    "name",
    [
        "apikey",
        "authorization",
        "prefer",
        "accept-profile",
        "content-profile",
        "x-client-info",
        "content-type",
        "range",
        "accept",
        "x-retry-count",
        "traceparent",
        "tracestate",
        "baggage",
        "if-match",
        "if-none-match",
    ],
)
@pytest.mark.parametrize("path", ["/rest/v1/blog", "/graphql/v1"])
def test_preflight_allows_headers_that_clients_send(path: str, name: str) -> None:
    """docs/reference/rest.md, CORS, lists the headers of known clients."""
    headers = [("Origin", APP), ("Access-Control-Request-Method", "POST")]
    response = Web().request("OPTIONS", path, headers=headers, key=None)
    assert name in response.headers["access-control-allow-headers"].split(", ")
    assert response.headers["access-control-max-age"] == "86400"
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    "name",
    [
        "Content-Encoding",
        "Content-Location",
        "Content-Range",
        "Content-Type",
        "Date",
        "Location",
        "Server",
        "Transfer-Encoding",
        "Range-Unit",
    ],
)
@pytest.mark.parametrize("key", ["sb_publishable_for_tests", "wrong", None])
def test_headers_exposed_by_postgrest_are_exposed(name: str, key: str | None) -> None:
    response = Web().request("GET", "/rest/v1/blog", headers=[("Origin", APP)], key=key)
    assert name in response.headers["access-control-expose-headers"].split(", ")


def test_entity_tag_is_exposed() -> None:
    response = rest(Web(), ("Origin", APP))
    assert "ETag" in response.headers["access-control-expose-headers"].split(", ")


# ---------------------------------------------------------------- errors


def test_error_has_its_code_in_proxy_status() -> None:
    response = rest(Web(rest=refused))
    assert response.headers["proxy-status"] == "PostgREST; error=PGRST200"
    assert response.json() == {
        "code": "PGRST200",
        "message": "Could not find a relationship",
        "details": [{"embedding": "a with b"}],
        "hint": "Look again",
    }


def test_error_code_invalid_in_headers_is_only_in_the_body() -> None:
    async def odd(_request: Request, _caller: Any) -> Reply:
        raise ApiError(400, "a code, with\r\neverything", "m")

    response = rest(Web(rest=odd))
    assert "proxy-status" not in response.headers
    assert response.json()["code"] == "a code, with\r\neverything"


def test_minimal_errors_omit_details_and_hint() -> None:
    web = Web(typename, refused, replace(PROJECT, client_error_verbosity="minimal"))
    assert rest(web).json() == {"code": "PGRST200", "message": "Could not find a relationship"}
    assert web.request("GET", "/rest/v1/blog", key=None).json() == {"message": "No API key found in request"}
    assert web.request("GET", "/nowhere").json().keys() == {"code", "message"}
    assert web.graphql([]).json()["errors"][0]["extensions"].keys() == {"code"}


def test_minimal_errors_do_not_mention_the_log() -> None:
    async def broken(_request: Request, _caller: Any) -> Reply:
        raise RuntimeError("a mistake")

    web = Web(typename, broken, replace(PROJECT, client_error_verbosity="minimal"))
    assert rest(web).json() == {"code": "PGRSTX00", "message": "Internal server error"}


@pytest.mark.parametrize(
    ("reason", "phrase"),
    [("Page Expired", "Page Expired"), (None, "Unknown Status"), ("a\r\nSet-Cookie: b", "a  Set-Cookie: b")],
)
def test_error_can_set_its_reason_phrase(reason: str | None, phrase: str) -> None:
    async def expired(_request: Request, _caller: Any) -> Reply:
        raise ApiError(419, "1", "m", reason=reason)

    response = rest(Web(rest=expired))
    assert (response.status, response.reason) == (419, phrase)
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize(
    ("status", "phrase"), [(300, "Multiple Choices"), (406, "Not Acceptable"), (206, "Partial Content")]
)
def test_statuses_have_standard_reason_phrases(status: int, phrase: str) -> None:
    async def handler(_request: Request, _caller: Any) -> Reply:
        return Reply(status, (), b"[]")

    assert rest(Web(rest=handler)).reason == phrase


def test_server_header_does_not_contain_the_version() -> None:
    assert Web().request("GET", "/rest/v1/blog").headers["server"] == "dataapi"


@pytest.mark.parametrize(
    ("sent", "used"),
    [
        ("a-1.B_2:/+=@", True),
        ("x" * 128, True),
        ("", False),
        ("a b", False),
        ("x" * 129, False),
        ('"', False),
    ],
)
def test_valid_client_request_id_is_used(sent: str, used: bool) -> None:
    response = rest(Web(), ("X-Request-Id", sent))
    assert response.headers["x-request-id"] == (sent if used else "generated")
