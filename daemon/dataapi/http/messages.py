"""A request and its answer as values, so that handlers never touch the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

Stream = AsyncGenerator[bytes, None]
"""The pieces of a body that is sent while it is made; none is asked for while the client does not read."""

LONGEST_TARGET = 131_072
"""Bytes of a request target as received."""

STAGES = ("jwt", "parse", "plan", "transaction", "response")
"""The stages of a request that ``Server-Timing`` reports, in this order."""


class StageEnd(NamedTuple):
    """The end of one of ``STAGES``, by ``time.perf_counter``; each began where the one before ended."""

    name: str
    ended: float


class Identity(NamedTuple):
    """The caller, as the request's key and token name it; ``subject`` is "" without one."""

    role: str
    subject: str


class Operation(NamedTuple):
    """The name of the GraphQL operation that the request names."""

    name: str


class QueueWait(NamedTuple):
    """A wait for a database connection, by ``time.perf_counter``."""

    began: float
    ended: float


class RoundTrip(NamedTuple):
    """Statements that went to PostgreSQL and back in one message, by ``time.perf_counter``.

    :ivar text: their SQL, "" where they only continue or end others.
    :ivar sqlstate: of the error that they came to, "" without one.
    """

    began: float
    ended: float
    text: str = ""
    sqlstate: str = ""


class Commit(NamedTuple):
    """The position of the write-ahead log after the request's commit, "" where it is unknown."""

    position: str


Fact = StageEnd | Identity | Operation | QueueWait | RoundTrip | Commit
"""A fact that a step reports about a request, for logs, metrics, spans and headers."""


def ignore(_fact: Fact) -> None:
    """Report nothing, for statements that belong to no request."""


class RequestContext(NamedTuple):
    """The part of a request that goes with its statements.

    :ivar route: the form of its path, such as ``/rest/v1/{resource}``; "" without a handler.
    :ivar traceparent: of the caller's trace (W3C Trace Context), "" without a valid one.
    :ivar report: takes facts as they become known.  A step reports them, because one that fails or is
        cancelled returns nothing.
    """

    route: str = ""
    traceparent: str = ""
    report: Callable[[Fact], None] = ignore

    @property
    def trace_id(self) -> str:
        """The id of the caller's trace, "" without one."""
        return self.traceparent[3:35]


NO_CONTEXT = RequestContext()


def server_timing(started: float, facts: Iterable[Fact], ended: float, *, failed: bool) -> str:
    """Return the value of ``Server-Timing``: the stages in order, in milliseconds.

    A stage that is repeated, as in a batch, adds up.  Statements end the stage ``transaction``.
    See docs/reference/rest.md, Headers.

    :param failed: whether the stage that was under way is the last one.
    """
    stages: dict[str, float] = {}

    def end(name: str, at: float) -> float:
        stages[name] = stages.get(name, 0.0) + at - began
        return at

    began = started
    for fact in facts:
        if isinstance(fact, StageEnd):
            began = end(*fact)
        elif isinstance(fact, RoundTrip) and fact.text and not fact.sqlstate:
            began = end("transaction", fact.ended)
    end(next((name for name in STAGES if name not in stages), STAGES[-1]) if failed else STAGES[-1], ended)
    return ", ".join(f"{name};dur={stages[name] * 1000:.3f}" for name in STAGES if name in stages)


class Request(NamedTuple):
    """One HTTP request whose body was read and is within the limit.

    :ivar id: the request id that the log and ``X-Request-Id`` carry.
    :ivar path: the path as ``query_string.path`` decodes it, without the query string.
    :ivar query: the raw query string, without the question mark.
    :ivar headers: names in lower case; the values of repeated headers are joined by ``", "``.
    :ivar peer: the address of the other end of the connection, "" for a Unix socket.
    :ivar client: the client's address, as ``client_address`` decides it.
    :ivar context: goes with its statements, and takes the facts that they report.
    """

    id: str
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    peer: str = ""
    client: str = ""
    context: RequestContext = NO_CONTEXT


class Chunk:
    """A piece of a body as RFC 9112, section 7.1, frames it. Several clients may share it."""

    __slots__ = ("__weakref__", "framed", "plain")

    def __init__(self, data: bytes) -> None:
        self.framed = b"%x\r\n%b\r\n" % (len(data), data)
        self.plain = memoryview(self.framed)[-2 - len(data) : -2]

    def __len__(self) -> int:
        return len(self.plain)


class Outlet(Protocol):
    """The response that a feed writes to."""

    @property
    def waits(self) -> bool:
        """Whether the client has not taken everything that was written."""

    @property
    def progressed(self) -> float:
        """When the client last took a part of what was waiting, by the reactor's clock."""

    def write(self, piece: Chunk) -> None:
        """Send a piece, or the rest of it when the client takes more."""

    def abort(self) -> None:
        """Close the connection without sending what is waiting."""


class Feed(Protocol):
    """The rest of a body, which is written whenever there is more of it."""

    async def write_to(self, outlet: Outlet) -> None:
        """Write until there is no more. Cancelled when the client disconnects."""

    def flushed(self) -> None:
        """Continue, now that the client has taken everything that was written."""

    def leave(self) -> None:
        """Write nothing more. Called once: when the connection is closed, or if the feed never began."""


class Reply(NamedTuple):
    """One HTTP answer.

    :ivar stream: the rest of the body after ``body``, sent while it is made.  An error before its first
        piece is answered like any other; a later one cuts the answer off.  ``HEAD`` does not run it.
    :ivar feed: the rest of a body that goes on for as long as the client likes.
    :ivar reason: the reason phrase of the status line, None for the standard one.
    :ivar code: that of the error that it reports, for the log; "" without an error.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    stream: Stream | None = None
    feed: Feed | None = None
    reason: str | None = None
    code: str = ""
