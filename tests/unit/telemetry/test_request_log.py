"""Which requests get a line, and what is on it."""

from __future__ import annotations

import pytest
from dataapi.http.messages import Fact, Identity, Operation, QueueWait, Request, RequestContext, RoundTrip
from dataapi.telemetry.log_record import LogRecord
from dataapi.telemetry.requests import CompletedRequest, RequestMetrics, request_observer, summary_of
from dataapi.telemetry.tracing import Tracing
from twisted.logger import capturedLogs


def answered(status: int, code: str = "", facts: tuple[Fact, ...] = ()) -> CompletedRequest:
    """Return a request that was answered so."""
    context = RequestContext("/rest/v1/{resource}")
    request = Request(
        "r-1", "GET", "/rest/v1/blog", "", {}, b"", client="192.0.2.7" if facts else "", context=context
    )
    project = "p" if facts else ""
    return CompletedRequest("rest", request, status, 0.0123456, 42, project, code, facts=facts)


KNOWN = (
    Identity("authenticated", "alice"), Operation("Blogs"), QueueWait(1.0, 1.001),
    RoundTrip(2.0, 2.0021234, "select", "42501"), RoundTrip(3.0, 3.0),
)  # fmt: skip
"""What the steps of a request report whose statement PostgreSQL refuses, and is rolled back."""


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
def test_the_level_decides_which_requests_are_logged(level: str, logged: list[int]) -> None:
    """``error`` logs answers from 500 on, ``warn`` from 400 on, ``info`` all of them, ``crit`` none."""
    lines: list[LogRecord] = []
    observe = request_observer(RequestMetrics(), level, lines.append)
    for status in (200, 304, 400, 404, 499, 500, 503):
        observe(answered(status))
    assert [line.fields["status"] for line in lines] == logged


def test_every_request_is_counted_whether_logged_or_not() -> None:
    """The metrics count what is not logged too."""
    metrics = RequestMetrics()
    request_observer(metrics, "crit", lambda _record: None)(answered(200))
    series = ("rest", "GET", "/rest/v1/{resource}", "200", "")
    assert metrics.snapshot()["dataapi_requests_total"] == {series: 1}


def test_a_log_line_says_what_was_requested_and_how_it_ended() -> None:
    """A request's line has its id, method, path, status, duration and size, at the status's level."""
    lines: list[LogRecord] = []
    request_observer(RequestMetrics(), "info", lines.append, lambda: 5.0)(answered(404))
    assert lines == [
        LogRecord(
            5.0, "warn", "dataapi.requests", "GET /rest/v1/blog 404", "r-1",
            {"method": "GET", "path": "/rest/v1/blog", "status": 404, "milliseconds": 12.346, "bytes": 42},
        )
    ]  # fmt: skip


def test_an_error_in_a_graphql_answer_counts_as_one() -> None:
    """Though its status is 200: it is counted, and logged as a warning with all that is known of it."""
    lines: list[LogRecord] = []
    metrics = RequestMetrics()
    observe = request_observer(metrics, "warn", lines.append)
    observe(answered(200))
    observe(answered(200, "42501", KNOWN))
    [line] = lines
    assert line.level == "warn"
    assert line.fields == {
        "method": "GET", "path": "/rest/v1/blog", "status": 200, "milliseconds": 12.346, "bytes": 42,
        "client": "192.0.2.7", "project": "p", "role": "authenticated", "operation": "Blogs", "code": "42501",
        "sqlstate": "42501", "database_milliseconds": 2.123, "queue_milliseconds": 1.0,
    }  # fmt: skip
    assert metrics.snapshot()["dataapi_request_errors_total"] == {("rest",): 1}


def test_a_line_says_who_the_caller_is_where_that_is_asked_for() -> None:
    """The claim ``sub`` may be personal data, so that it is left out by default."""
    lines: list[LogRecord] = []
    request_observer(RequestMetrics(), "info", lines.append, subjects=True)(answered(200, "", KNOWN))
    assert lines[0].fields["sub"] == "alice"


def test_a_statement_that_was_run_again_with_success_leaves_no_error() -> None:
    """An SQLSTATE belongs to the error that was answered."""
    lines: list[LogRecord] = []
    request_observer(RequestMetrics(), "info", lines.append)(answered(200, "", KNOWN))
    assert "sqlstate" not in lines[0].fields


def test_a_span_that_cannot_be_made_costs_no_line_and_is_reported_once() -> None:
    """The log and the metrics do not depend on traces."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra otel is not installed")

    class Broken(sdk.SpanProcessor):  # type: ignore[misc, name-defined]
        def on_start(self, *_: object, **__: object) -> None:
            raise RuntimeError("no span")

    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    lines: list[LogRecord] = []
    observe = request_observer(RequestMetrics(), "info", lines.append, trace=Tracing(provider).request)
    with capturedLogs() as reported:
        observe(answered(200))
        observe(answered(404))
    assert [line.fields["status"] for line in lines] == [200, 404]
    assert [event["log_namespace"] for event in reported] == ["dataapi.tracing"]


def test_a_repeated_statement_that_succeeds_leaves_no_sqlstate() -> None:
    """What a replica refused and the primary answered is no error of the request; times add up."""
    summary = summary_of((RoundTrip(1.0, 2.0, "select", "40001"), RoundTrip(3.0, 5.0, "select")))
    assert (summary.sqlstate, summary.database) == ("", 3.0)
