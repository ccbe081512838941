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
