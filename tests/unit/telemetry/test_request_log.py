"""Which requests get a line, and what is on it."""

from __future__ import annotations

import pytest
from dataapi.telemetry.logs import AnsweredRequest, LogRecord, request_observer
from dataapi.telemetry.metrics import RequestMetrics


def answered(status: int) -> AnsweredRequest:
    return AnsweredRequest("rest", "r-1", "GET", "/rest/v1/blog", status, 0.0123456, 42)


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
    assert metrics.snapshot()["dataapi_requests_total"] == {("rest", "2xx"): 1}


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
    facts = {"client": "192.0.2.7", "project": "p", "role": "anon", "operation": "Blogs", "code": "42501"}
    observe(AnsweredRequest("graphql", "r-1", "POST", "/graphql/v1", 200, 0.01, 42))
    observe(AnsweredRequest("graphql", "r-2", "POST", "/graphql/v1", 200, 0.01, 42, **facts))
    [line] = lines
    assert (line.level, line.request_id) == ("warn", "r-2")
    assert facts.items() <= line.fields.items()
    assert metrics.snapshot()["dataapi_request_errors_total"] == {("graphql",): 1}
