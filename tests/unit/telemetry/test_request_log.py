"""The request log: selected requests and their fields."""

from __future__ import annotations

import pytest
from dataapi.http.messages import Fact, Identity, Operation, QueueWait, Request, RequestContext, RoundTrip
from dataapi.telemetry.log_record import LogRecord
from dataapi.telemetry.requests import CompletedRequest, RequestMetrics, request_observer, summary_of
from dataapi.telemetry.tracing import Tracing
from twisted.logger import capturedLogs


def completed(status: int, code: str = "", facts: tuple[Fact, ...] = ()) -> CompletedRequest:
    context = RequestContext("/rest/v1/{resource}")
    request = Request(
        "r-1", "GET", "/rest/v1/blog", "", {}, b"", client="192.0.2.7" if facts else "", context=context
    )
    project = "p" if facts else ""
    return CompletedRequest("rest", request, status, 0.0123456, 42, project, code, facts=facts)


FACTS = (
    Identity("authenticated", "alice"), Operation("Blogs"), QueueWait(1.0, 1.001),
    RoundTrip(2.0, 2.0021234, "select", "42501"), RoundTrip(3.0, 3.0),
)  # fmt: skip
"""Facts recorded during a request whose statement fails and is rolled back."""


@pytest.mark.parametrize(
    ("level", "logged"),
    [
        ("crit", []),
        ("error", [500, 503]),
        ("warn", [400, 404, 499, 500, 503]),
        ("info", [200, 304, 400, 404, 499, 500, 503]),
        ("debug", [200, 304, 400, 404, 499, 500, 503]),
    ],
)
def test_log_level_selects_logged_requests(level: str, logged: list[int]) -> None:
    lines: list[LogRecord] = []
    observe = request_observer(RequestMetrics(), level, lines.append)
    for status in (200, 304, 400, 404, 499, 500, 503):
        observe(completed(status))
    assert [line.fields["status"] for line in lines] == logged


def test_requests_are_counted_even_if_not_logged() -> None:
    metrics = RequestMetrics()
    request_observer(metrics, "crit", lambda _record: None)(completed(200))
    series = ("rest", "GET", "/rest/v1/{resource}", "200", "")
    assert metrics.snapshot()["dataapi_requests_total"] == {series: 1}


def test_log_line_contains_request_and_result() -> None:
    lines: list[LogRecord] = []
    request_observer(RequestMetrics(), "info", lines.append, lambda: 5.0)(completed(404))
    assert lines == [
        LogRecord(
            5.0, "warn", "dataapi.requests", "GET /rest/v1/blog 404", "r-1",
            {"method": "GET", "path": "/rest/v1/blog", "status": 404, "milliseconds": 12.346, "bytes": 42},
        )
    ]  # fmt: skip


def test_graphql_error_with_status_200_is_counted_and_logged() -> None:
    lines: list[LogRecord] = []
    metrics = RequestMetrics()
    observe = request_observer(metrics, "warn", lines.append)
    observe(completed(200))
    observe(completed(200, "42501", FACTS))
    [line] = lines
    assert line.level == "warn"
    assert line.fields == {
        "method": "GET", "path": "/rest/v1/blog", "status": 200, "milliseconds": 12.346, "bytes": 42,
        "client": "192.0.2.7", "project": "p", "role": "authenticated", "operation": "Blogs", "code": "42501",
        "sqlstate": "42501", "database_milliseconds": 2.123, "queue_milliseconds": 1.0,
    }  # fmt: skip
    assert metrics.snapshot()["dataapi_request_errors_total"] == {("rest",): 1}


def test_subject_is_logged_only_if_enabled() -> None:
    """The claim ``sub`` may be personal data."""
    lines: list[LogRecord] = []
    request_observer(RequestMetrics(), "info", lines.append, subjects=True)(completed(200, "", FACTS))
    assert lines[0].fields["sub"] == "alice"


def test_sqlstate_is_not_logged_if_the_response_is_no_error() -> None:
    lines: list[LogRecord] = []
    request_observer(RequestMetrics(), "info", lines.append)(completed(200, "", FACTS))
    assert "sqlstate" not in lines[0].fields


def test_failed_span_is_reported_once_and_requests_are_logged() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra otel is not installed")

    class Broken(sdk.SpanProcessor):  # type: ignore[misc, name-defined]
        def on_start(self, *_: object, **__: object) -> None:
            raise RuntimeError("no span")

    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    lines: list[LogRecord] = []
    observe = request_observer(RequestMetrics(), "info", lines.append, trace=Tracing(provider).request)
    with capturedLogs() as events:
        observe(completed(200))
        observe(completed(404))
    assert [line.fields["status"] for line in lines] == [200, 404]
    assert [event["log_namespace"] for event in events] == ["dataapi.tracing"]


def test_successful_retry_clears_the_sqlstate() -> None:
    summary = summary_of((RoundTrip(1.0, 2.0, "select", "40001"), RoundTrip(3.0, 5.0, "select")))
    assert (summary.sqlstate, summary.database) == ("", 3.0)
