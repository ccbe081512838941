"""Counts and logs answered requests."""

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
    """An answered request, as logs and metrics see it.

    :ivar area: ``graphql``, ``rest``, ``webhooks`` or ``other``; a label of metrics.
    :ivar status: of the answer; 499 when the client went away before it.
    :ivar seconds: from the request's last byte to its answer.
    :ivar size: bytes of the answer's body.
    :ivar project: the reference of its project, "" where there is none.
    :ivar code: that of the error which was answered, "" without one; GraphQL answers most of them with
        status 200.
    :ivar began: when its last byte was read, by ``time.perf_counter``.
    :ivar facts: those that its steps reported.
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
    """The summary of the facts that the steps of a request reported.

    :ivar role: that it runs under, "" before the caller is known.
    :ivar subject: the ``sub`` of the caller's token, "" without one.
    :ivar operation: the name of the GraphQL operation, "" without one.
    :ivar queued: seconds that it waited for a database connection.
    :ivar database: seconds that its statements took there and back.
    :ivar sqlstate: of its last statements, if PostgreSQL refused them, else "".
    """

    role: str = ""
    subject: str = ""
    operation: str = ""
    queued: float = 0.0
    database: float = 0.0
    sqlstate: str = ""


def summary_of(facts: Iterable[Fact]) -> Summary:
    """Return the summary of a request's facts.  Runs for every request, so it is written for speed."""
    role = subject = operation = sqlstate = ""
    queued = database = 0.0
    for fact in facts:
        if isinstance(fact, StageEnd):
            continue
        if isinstance(fact, RoundTrip):
            began, ended, text, refused = fact
            database += ended - began
            if text or refused:
                sqlstate = refused
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
"""Series beyond which errors are counted without their codes, of which SQL can raise any."""


_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
"""All others, of which clients can make up any, are counted together."""


_MAX_NOTED = 256
"""Requests whose times are noted until they are counted together, which takes a fraction of the work."""
_PARTS = ("duration", "queue", "database", "daemon")


class _Times:
    """Where the requests of one area spent their time: seconds that are noted, and what was counted."""

    __slots__ = ("_counted", "daemon", "database", "duration", "queue")

    def __init__(self) -> None:
        # Only numbers, as objects that hold others would keep the garbage collector busy.
        self.duration: list[float] = []
        self.queue: list[float] = []
        self.database: list[float] = []
        self.daemon: list[float] = []
        self._counted = {name: RunningHistogram() for name in _PARTS}

    def counted(self) -> Mapping[str, RunningHistogram]:
        """Count what was noted, and return all that was counted."""
        for name, histogram in self._counted.items():
            noted: list[float] = getattr(self, name)
            histogram.add_all(noted)
            noted.clear()
        return self._counted


class RequestMetrics:
    """Counts requests and their times."""

    def __init__(self) -> None:
        self._counts: dict[_Series, int] = {}
        self._times: dict[str, _Times] = {}

    def observe(self, answered: CompletedRequest, queued: float = 0.0, database: float = 0.0) -> None:
        """Count one answered request.  Runs for every request, so it is written for speed.

        :param queued: seconds that it waited for a connection; ``database``, that its statements took.
        """
        area, request, status, seconds, _, _, code, _, _ = answered
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
        if len(times.duration) >= _MAX_NOTED:
            times.counted()

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
                    (area,): times.counted()[name].counts() for area, times in self._times.items()
                }
                for name in _PARTS
            },
        }


LOWEST_STATUS: Mapping[str, int] = MappingProxyType(
    {"crit": 1000, "error": 500, "warn": 400, "info": 0, "debug": 0}
)
"""The lowest status that each ``log-level`` logs, as PostgREST does."""


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
    """Return the function that counts every answered request and logs those of the level.

    :param subjects: whether lines say who the caller is.
    :param slow: gets those that are slow.
    :param trace: makes the spans of a request, None for none.
    """
    lowest = LOWEST_STATUS[level]
    lowest_error = 0 if lowest <= LOWEST_STATUS["warn"] else lowest

    def observe(answered: CompletedRequest) -> None:
        summary = summary_of(answered.facts)
        metrics.observe(answered, summary.queued, summary.database)
        if answered.seconds >= SLOW and slow is not None:
            slow.add(answered.project, _slow_request(answered, summary, now()))
        if answered.status >= lowest or (answered.code and answered.status >= lowest_error):
            put(_request_record(answered, summary, now(), subjects=subjects))
        if trace is not None:
            trace(answered, summary)

    return observe


def _slow_request(answered: CompletedRequest, summary: Summary, at: float) -> SlowRequest:
    request = answered.request
    return SlowRequest(
        request.id, at, request.method, request.path, summary.operation, summary.role, answered.status,
        answered.seconds, summary.queued, summary.database,
    )  # fmt: skip


def _request_record(
    answered: CompletedRequest, summary: Summary, time_of: float, *, subjects: bool
) -> LogRecord:
    request = answered.request
    level = "error" if answered.status >= 500 else "info"
    if answered.status < 500 and (answered.code or answered.status >= 400):
        level = "warn"
    known = {
        "client": request.client,
        "project": answered.project,
        "role": summary.role,
        "sub": summary.subject if subjects else "",
        "operation": summary.operation,
        "trace_id": request.context.trace_id,
        "code": answered.code,
        "sqlstate": summary.sqlstate if answered.code else "",
        "database_milliseconds": _milliseconds(summary.database),
        "queue_milliseconds": _milliseconds(summary.queued),
    }
    fields = {
        "method": request.method,
        "path": request.path,
        "status": answered.status,
        "milliseconds": _milliseconds(answered.seconds),
        "bytes": answered.size,
        **{name: value for name, value in known.items() if value},
    }
    message = f"{request.method} {request.path} {answered.status}"
    return LogRecord(time_of, level, "dataapi.requests", message, request.id, fields)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
