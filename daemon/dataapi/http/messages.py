"""A request and its answer as values, so that handlers never touch the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

Stream = AsyncGenerator[bytes, None]
"""The pieces of a body that is sent while it is made; none is asked for while the client does not read."""

LONGEST_TARGET = 131_072
"""Bytes of a request target as received."""

STAGES = ("jwt", "parse", "plan", "transaction", "response")
"""The stages of a request that ``Server-Timing`` reports, in this order."""


class Timing:
    """How long each stage of one request took, each from the end of the one before.

    See docs/reference/rest.md, Headers.

    :param seconds: the clock that durations are measured by.
    """

    __slots__ = ("_failed", "_last", "_seconds", "_stages")

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._last = seconds()
        self._stages: dict[str, float] = {}
        self._failed = False

    def mark(self, stage: str) -> None:
        """End a stage now; one that is repeated, as in a batch, adds up."""
        now = self._seconds()
        self._stages[stage] = self._stages.get(stage, 0.0) + now - self._last
        self._last = now

    def fail(self) -> None:
        """End the current stage as the last one, because the request failed in it."""
        self.mark(next((stage for stage in STAGES if stage not in self._stages), STAGES[-1]))
        self._failed = True

    def header(self) -> str:
        """Return the value of ``Server-Timing``: the stages in order, in milliseconds.

        Calling it ends the stage ``response``.
        """
        if not self._failed:
            self.mark(STAGES[-1])
        measured = ((stage, self._stages[stage]) for stage in STAGES if stage in self._stages)
        return ", ".join(f"{stage};dur={seconds * 1000:.3f}" for stage, seconds in measured)


class Interval(NamedTuple):
    """A part of a request's time, by ``time.perf_counter``; ``text`` is the SQL of a statement."""

    name: str
    began: float
    ended: float
    text: str = ""


class RequestFacts:
    """What logs, metrics and headers say of a request, as it becomes known.

    :ivar route: the form of its path, such as ``/rest/v1/{resource}``; "" without a handler.
    :ivar traceparent: of the caller's trace (W3C Trace Context), "" without a valid one.
    :ivar role: that the request runs under, "" before the caller is known.
    :ivar subject: the ``sub`` of the caller's token, "" without one.
    :ivar operation: the name of the GraphQL operation, "" without one.
    :ivar queued: seconds that it waited for a database connection.
    :ivar database: seconds that its statements took there and back.
    :ivar sqlstate: of the last statement that PostgreSQL refused, "" without one.
    :ivar position: where the WAL of the database was after the request's commit, "" where unasked.
    :ivar intervals: the parts of its time, None where no spans are made of them.
    """

    # Attributes of the class serve as defaults: setting each one for every request takes time.
    route = ""
    traceparent = ""
    role = ""
    subject = ""
    operation = ""
    queued = 0.0
    database = 0.0
    sqlstate = ""
    position = ""
    intervals: list[Interval] | None = None

    def add_queued(self, began: float, ended: float) -> None:
        """Add a wait for a database connection, from and until these times of ``time.perf_counter``."""
        self.queued += ended - began
        if self.intervals is not None:
            self.intervals.append(Interval("queue", began, ended))

    @property
    def trace_id(self) -> str:
        """The id of the caller's trace, "" without one."""
        return self.traceparent[3:35]


NO_FACTS = RequestFacts()
"""The facts of statements that belong to no request; never read."""


@lru_cache(maxsize=1024)
def _is_public(address: str) -> bool:
    """Whether an address is on the Internet; a unix socket has none.  Cached, as each request asks."""
    try:
        return ip_address(address).is_global
    except ValueError:
        return False


class Request(NamedTuple):
    """One HTTP request whose body was read and is within the limit.

    :ivar id: the request id that the log and ``X-Request-Id`` carry.
    :ivar path: the path as ``query_string.path`` decodes it, without the query string.
    :ivar query: the raw query string, without the question mark.
    :ivar headers: names in lower case; the values of repeated headers are joined by ``", "``.
    :ivar peer: the client's address, "" where the connection has none.
    :ivar timing: measures the stages, None when ``server-timing-enabled`` is off.
    """

    id: str
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    timing: Timing | None = None
    peer: str = ""
    facts: RequestFacts = NO_FACTS

    @property
    def client(self) -> str:
        """The client's address: the one that a proxy names, if the proxy's own is not public."""
        named = self.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return named if named and not _is_public(self.peer) else self.peer


class Reply(NamedTuple):
    """One HTTP answer.

    :ivar stream: the rest of the body after ``body``, sent while it is made.  An error before its first
        piece is answered like any other; a later one cuts the answer off.  ``HEAD`` does not run it.
    :ivar reason: the reason phrase of the status line, None for the standard one.
    :ivar code: that of the error that it reports, for the log; "" without an error.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    stream: Stream | None = None
    reason: str | None = None
    code: str = ""
