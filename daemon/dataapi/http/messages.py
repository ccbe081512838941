"""Requests and replies as values, so that handlers never touch the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

Stream = AsyncGenerator[bytes, None]
"""Pieces of a body that is produced while it is sent. Production pauses while the client is not reading."""

MAX_TARGET_BYTES = 131_072
"""Maximum length of a request target, in bytes as received."""

STAGES = ("jwt", "parse", "plan", "transaction", "response")


class StageEnd(NamedTuple):
    """The end of a stage, by ``time.perf_counter``. A stage begins when the previous stage ends."""

    name: str
    ended: float


class Identity(NamedTuple):
    """The role and the token's ``sub`` ("" if none) of an authenticated caller."""

    role: str
    subject: str


class Operation(NamedTuple):
    """The name of the requested GraphQL operation or MCP tool."""

    name: str


class QueueWait(NamedTuple):
    """The time spent waiting for a database connection, by ``time.perf_counter``."""

    began: float
    ended: float


class RoundTrip(NamedTuple):
    """Times of one message to PostgreSQL and its response, by ``time.perf_counter``.

    :ivar text: SQL of the statements, "" if they only continue or end earlier ones.
    :ivar sqlstate: SQLSTATE if the statements failed, else "".
    """

    began: float
    ended: float
    text: str = ""
    sqlstate: str = ""


class Commit(NamedTuple):
    """The write-ahead log position after the request's commit, "" if unknown."""

    position: str


Fact = StageEnd | Identity | Operation | QueueWait | RoundTrip | Commit
"""A fact about a request, reported for logs, metrics, spans and headers."""


def ignore(_fact: Fact) -> None:
    pass


class RequestContext(NamedTuple):
    """The parts of a request that are passed along with its statements.

    :ivar route: route pattern such as ``/rest/v1/{resource}``, "" if no route matched.
    :ivar traceparent: the caller's valid ``traceparent`` (W3C Trace Context), or "".
    :ivar report: called with each ``Fact`` immediately, because a failed or cancelled step returns nothing.
    :ivar background: whether no client waits for the response, as when a live query runs again.
    :ivar read_only: whether the transaction must not write, regardless of the request.
    :ivar nested_inserts: whether rows to insert may contain related rows, if that is configured.
    """

    route: str = ""
    traceparent: str = ""
    report: Callable[[Fact], None] = ignore
    background: bool = False
    read_only: bool = False
    nested_inserts: bool = True

    @property
    def trace_id(self) -> str:
        return self.traceparent[3:35]


NO_CONTEXT = RequestContext()


def server_timing(started: float, facts: Iterable[Fact], ended: float, *, failed: bool) -> str:
    """Return the value of ``Server-Timing``: stages in order, in milliseconds.

    The times of repeated stages, as in a batch, are added up. A stage ``transaction`` ends with each
    successful round trip to PostgreSQL. See docs/reference/rest.md, Headers.

    :param failed: whether the request failed in its current stage.
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
    """An HTTP request with its complete body.

    :ivar id: request ID, as in the log and ``X-Request-Id``.
    :ivar path: path decoded by ``query_string.path``, without the query string.
    :ivar query: raw query string, without the question mark.
    :ivar headers: lower-case names; repeated headers are joined by ``", "``.
    :ivar peer: address of the connection's peer, "" for a Unix socket.
    :ivar client: address of the client, as determined by ``client_address``.
    :ivar secure: whether the connection uses TLS.
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
    secure: bool = False


class Chunk:
    """A piece of a response body as an encoded chunk (RFC 9112 section 7.1). Several clients may share it."""

    __slots__ = ("__weakref__", "framed", "plain")

    def __init__(self, data: bytes) -> None:
        self.framed = b"%x\r\n%b\r\n" % (len(data), data)
        self.plain = memoryview(self.framed)[-2 - len(data) : -2]

    def __len__(self) -> int:
        return len(self.plain)


class Outlet(Protocol):
    """The response that a ``Feed`` writes to."""

    @property
    def waits(self) -> bool:
        """Whether some written data has not been sent yet."""

    @property
    def progressed(self) -> float:
        """When pending data was last sent, by the reactor's clock."""

    def write(self, piece: Chunk) -> None:
        pass

    def abort(self) -> None:
        pass


class Feed(Protocol):
    """An open-ended body that is written whenever data is available."""

    async def write_to(self, outlet: Outlet) -> None:
        """Write until the body ends. Cancelled when the client disconnects."""

    def resume(self) -> None:
        """Continue writing, because the client has received everything so far."""

    def leave(self) -> None:
        """Stop writing. Called once: when the connection closes, or if the feed never started."""


class Reply(NamedTuple):
    """An HTTP response.

    :ivar stream: rest of the body after ``body``, produced while it is sent. An error before the first piece
        becomes an error response; a later error truncates the body. Not run for ``HEAD``.
    :ivar feed: rest of an open-ended body.
    :ivar reason: reason phrase of the status line, or None for the standard phrase.
    :ivar code: error code for the log, "" if there was no error.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    stream: Stream | None = None
    feed: Feed | None = None
    reason: str | None = None
    code: str = ""
