"""Metrics and log records of completed requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dataapi.http.messages import Fact, Identity, Operation, QueueWait, Request, RoundTrip, StageEnd
from dataapi.telemetry.log_record import LogRecord
from dataapi.telemetry.metrics import RunningHistogram, Snapshot
from dataapi.telemetry.slow_requests import SLOW, SlowRequest, SlowRequests


class CompletedRequest(NamedTuple):
    """A completed request, for logs and metrics.

    :ivar area: ``graphql``, ``rest``, ``webhooks`` or ``other``; a label of metrics.
    :ivar status: response status; 499 if the client disconnected first.
    :ivar seconds: time from the last byte of the request to the end of the response.
    :ivar size: length of the response body in bytes.
    :ivar project: project reference, or "".
    :ivar code: error code, or "". GraphQL reports most errors with status 200.
    :ivar began: when the last byte of the request was read, by ``time.perf_counter``.
    """

    area: str
    request: Request
    status: int
    seconds: float
    size: int
    project: str = ""
    code: str = ""
    began: float = 0.0
    facts: Sequence[Fact] = ()


class Summary(NamedTuple):
    """Summary of the facts recorded about a request.

    :ivar role: role of the caller, "" before authentication.
    :ivar subject: ``sub`` of the caller's token, or "".
    :ivar queued: seconds spent waiting for a database connection.
    :ivar database: seconds spent on round trips to the database.
    :ivar sqlstate: SQLSTATE of the last statements if they failed, else "".
    """

    role: str = ""
    subject: str = ""
    operation: str = ""
    queued: float = 0.0
    database: float = 0.0
    sqlstate: str = ""


def summary_of(facts: Iterable[Fact]) -> Summary:
    """Summarize the facts recorded about a request. Optimized, because it runs for every request."""
    role = subject = operation = sqlstate = ""
    queued = database = 0.0
    for fact in facts:
        if isinstance(fact, StageEnd):
            continue
        if isinstance(fact, RoundTrip):
            began, ended, text, error_state = fact
            database += ended - began
            if text or error_state:
                sqlstate = error_state
        elif isinstance(fact, QueueWait):
            queued += fact.ended - fact.began
        elif isinstance(fact, Identity):
            role, subject = fact
        elif isinstance(fact, Operation):
            operation = fact.name
    return Summary(role, subject, operation, queued, database, sqlstate)


_Series = tuple[str, str, str, int, str]
"""Area, method, route, status and code."""

MAX_SERIES = 1000
"""Number of series beyond which errors are counted without their codes, because SQL can raise any code."""


_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
"""Methods that are counted separately. Clients can invent methods, so all others are counted together."""


_MAX_PENDING = 256
"""Number of durations to collect before adding them to the histograms. Bulk updates are cheaper."""
_PARTS = ("duration", "queue", "database", "daemon")


class _Times:
    __slots__ = ("_histograms", "daemon", "database", "duration", "queue")

    def __init__(self) -> None:
        # The lists contain only numbers, because the garbage collector would have to traverse other objects.
        self.duration: list[float] = []
        self.queue: list[float] = []
        self.database: list[float] = []
        self.daemon: list[float] = []
        self._histograms = {name: RunningHistogram() for name in _PARTS}

    def histograms(self) -> Mapping[str, RunningHistogram]:
        for name, histogram in self._histograms.items():
            pending: list[float] = getattr(self, name)
            histogram.add_all(pending)
            pending.clear()
        return self._histograms


class RequestMetrics:
    """Counts and times requests."""

    def __init__(self) -> None:
        self._counts: dict[_Series, int] = {}
        self._times: dict[str, _Times] = {}

    def observe(self, completed: CompletedRequest, queued: float = 0.0, database: float = 0.0) -> None:
        """Count a completed request. Optimized, because it runs for every request.

        ``queued`` and ``database`` are the seconds spent waiting for a connection and for round trips.
        """
        area, request, status, seconds, _, _, code, _, _ = completed
        series = (area, request.method, request.context.route, status, code)
        if series in self._counts:
            self._counts[series] += 1
        else:
            self._count_new(series)
        times = self._times.get(area) or self._times.setdefault(area, _Times())
        if database or queued:
            times.queue.append(queued)
            times.database.append(database)
        times.daemon.append(max(0.0, seconds - queued - database))
        times.duration.append(seconds)
        if len(times.duration) >= _MAX_PENDING:
            times.histograms()

    def _count_new(self, series: _Series) -> None:
        if series[1] not in _METHODS:
            series = (series[0], "other", *series[2:])
        if len(self._counts) >= MAX_SERIES and series[-1]:
            series = (*series[:-1], "other")
        self._counts[series] = self._counts.get(series, 0) + 1

    def snapshot(self) -> Snapshot:
        errors: dict[tuple[str, ...], float] = {(area,): 0.0 for area in self._times}
        for (area, *_, code), count in self._counts.items():
            if code:
                errors[(area,)] += count
        return {
            "dataapi_requests_total": {
                (area, method, route, str(status), code): float(count)
                for (area, method, route, status, code), count in self._counts.items()
            },
            "dataapi_request_errors_total": errors,
            **{
                f"dataapi_request_{name}_seconds": {
                    (area,): times.histograms()[name].counts() for area, times in self._times.items()
                }
                for name in _PARTS
            },
        }


LOWEST_STATUS: Mapping[str, int] = MappingProxyType(
    {"crit": 1000, "error": 500, "warn": 400, "info": 0, "debug": 0}
)
"""Lowest status that each ``log-level`` logs, as in PostgREST."""


def request_observer(
    metrics: RequestMetrics,
    level: str,
    put: Callable[[LogRecord], object],
    now: Callable[[], float] = time.time,
    *,
    subjects: bool = False,
    slow: SlowRequests | None = None,
    trace: Callable[[CompletedRequest, Summary], None] | None = None,
) -> Callable[[CompletedRequest], None]:
    """Return a function that counts completed requests and logs them according to the level.

    :param subjects: whether to log the ``sub`` of the caller's token.
    """
    lowest = LOWEST_STATUS[level]
    lowest_error = 0 if lowest <= LOWEST_STATUS["warn"] else lowest

    def observe(completed: CompletedRequest) -> None:
        summary = summary_of(completed.facts)
        metrics.observe(completed, summary.queued, summary.database)
        if completed.seconds >= SLOW and slow is not None:
            slow.add(completed.project, _slow_request(completed, summary, now()))
        if completed.status >= lowest or (completed.code and completed.status >= lowest_error):
            put(_request_record(completed, summary, now(), subjects=subjects))
        if trace is not None:
            trace(completed, summary)

    return observe


def _slow_request(completed: CompletedRequest, summary: Summary, at: float) -> SlowRequest:
    request = completed.request
    return SlowRequest(
        request.id, at, request.method, request.path, summary.operation, summary.role, completed.status,
        completed.seconds, summary.queued, summary.database,
    )  # fmt: skip


def _request_record(completed: CompletedRequest, summary: Summary, at: float, *, subjects: bool) -> LogRecord:
    request = completed.request
    level = "error" if completed.status >= 500 else "info"
    if completed.status < 500 and (completed.code or completed.status >= 400):
        level = "warn"
    known = {
        "client": request.client,
        "project": completed.project,
        "role": summary.role,
        "sub": summary.subject if subjects else "",
        "operation": summary.operation,
        "trace_id": request.context.trace_id,
        "code": completed.code,
        "sqlstate": summary.sqlstate if completed.code else "",
        "database_milliseconds": _milliseconds(summary.database),
        "queue_milliseconds": _milliseconds(summary.queued),
    }
    fields = {
        "method": request.method,
        "path": request.path,
        "status": completed.status,
        "milliseconds": _milliseconds(completed.seconds),
        "bytes": completed.size,
        **{name: value for name, value in known.items() if value},
    }
    message = f"{request.method} {request.path} {completed.status}"
    return LogRecord(at, level, "dataapi.requests", message, request.id, fields)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
