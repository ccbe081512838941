"""Which requests get a line, and what is on it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from dataapi.logs import Record
from dataapi.metrics import RequestFigures
from dataapi.requestlog import request_observer


@dataclass
class Answered:
    """A request that was answered."""

    status: int
    area: str = "rest"
    request_id: str = "r-1"
    method: str = "GET"
    path: str = "/rest/v1/blog"
    seconds: float = 0.0123456
    size: int = 42


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
    lines: list[Record] = []
    observe = request_observer(RequestFigures(), level, lines.append)
    for status in (200, 304, 400, 404, 499, 500, 503):
        observe(Answered(status))
    assert [line.fields["status"] for line in lines] == logged


def test_every_request_is_counted_whether_logged_or_not() -> None:
    """The figures count what is not logged too."""
    figures = RequestFigures()
    request_observer(figures, "crit", lambda _record: None)(Answered(200))
    assert figures.snapshot()["dataapi_requests_total"] == {("rest", "2xx"): 1}


def test_a_line_says_what_was_asked_and_how_it_went() -> None:
    """A request's line has its id, method, path, status, duration and size, at the status's level."""
    lines: list[Record] = []
    request_observer(RequestFigures(), "info", lines.append, lambda: 5.0)(Answered(404))
    assert lines == [
        Record(
            5.0, "warn", "dataapi.requests", "GET /rest/v1/blog 404", "r-1",
            {"method": "GET", "path": "/rest/v1/blog", "status": 404, "milliseconds": 12.346, "bytes": 42},
        )
    ]  # fmt: skip
