"""Runs what REST requests ask of the database: one plan, a batch in one transaction, or a stream of rows."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dataapi.auth.caller import Caller
from dataapi.auth.multi_message import Batches, MultiMessageTransaction, MultiMessageTransactions
from dataapi.auth.transaction import RETRIES, explained, isolation_of, strictest
from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound, Statement
from dataapi.database.session import FIRST_FETCH
from dataapi.http.errors import ApiError, DatabaseError
from dataapi.http.messages import Reply, Request, Stream
from dataapi.rest import respond
from dataapi.rest.negotiation import LINES, Explain, Media
from dataapi.rest.parse.query import content_range
from dataapi.rest.plan.plan import RestRequest, StatementPlan, StreamPlan
from dataapi.rest.respond import VARY
from dataapi.rest.statements import ResultRow

Rows = list[tuple[Any, ...]]


async def run_plan(
    transactions: MultiMessageTransactions, request: RestRequest, planned: StatementPlan
) -> Reply:
    """Run a plan in a transaction of its own and return its reply.

    :raises ApiError: a failure, as the client may read it.
    """

    async def run(statements: tuple[Bound, ...]) -> Rows:
        return await transactions.run(
            request.catalog,
            request.http,
            request.caller,
            statements,
            read_only=planned.read_only,
            settings=planned.settings,
        )

    async def estimate(statement: Bound) -> int:
        found = await transactions.explain(request.catalog, request.http, request.caller, (statement,))
        return _expected(found[0]["plan"])

    return await _finished(request, planned, run, estimate)


@dataclass(frozen=True, slots=True)
class BatchPart:
    """One request of a batch; a ``Reply`` needs nothing of the database."""

    request: RestRequest
    planned: StatementPlan | StreamPlan | Reply


async def run_batch(
    transactions: MultiMessageTransactions,
    http: Request,
    caller: Caller,
    catalog: Catalog,
    parts: Sequence[BatchPart],
) -> list[Reply]:
    """Run the parts of a batch in one transaction and return their replies, in order.

    It is run again when it lost to a concurrent one, as a single request is.

    :raises ApiError: the batch was undone; ``index`` names the request that failed, where one did.
    """
    plans = [part.planned for part in parts if not isinstance(part.planned, Reply)]
    read_only = all(isinstance(plan, StreamPlan) or plan.read_only for plan in plans)
    settings = strictest(isolation_of(plan.settings) for plan in plans)
    for attempt in range(RETRIES + 1):
        try:
            async with transactions.begin(
                catalog, http, caller, read_only=read_only, settings=settings
            ) as together:
                return await _parts(together, parts)
        except DatabaseError as error:
            if not error.serializable_retry or attempt == RETRIES:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _parts(together: MultiMessageTransaction, parts: Sequence[BatchPart]) -> list[Reply]:
    """Return the replies, as long as all of them together are no larger than one may be."""
    replies, size = list[Reply](), 0
    for index, part in enumerate(parts):
        reply = await _part(together, index, part)
        size += len(reply.body)
        if size > part.request.project.max_answer:
            error = respond.too_large(size)
            error.index = index
            raise error
        replies.append(reply)
    return replies


async def _part(together: MultiMessageTransaction, index: int, part: BatchPart) -> Reply:
    try:
        reply = await _answered(together, part.request, part.planned)
    except ApiError as error:
        error.index = index
        raise
    return replace(reply, body=b"") if part.request.http.method == "HEAD" else reply


async def _answered(
    together: MultiMessageTransaction, request: RestRequest, planned: StatementPlan | StreamPlan | Reply
) -> Reply:
    if isinstance(planned, Reply):
        return planned
    reading = isinstance(planned, StreamPlan) or planned.read_only

    async def run(statements: tuple[Bound, ...]) -> Rows:
        return await together.run(request.http, statements, read_only=reading, settings=planned.settings)

    async def estimate(statement: Bound) -> int:
        [[plan]] = await together.run(request.http, (explained(statement),), read_only=True, again=True)
        return _expected(json.loads(plan))

    if isinstance(planned, StreamPlan):
        return await complete_reply(planned, await run((planned.statement,)))
    return await _finished(request, planned, run, estimate)


async def _finished(
    request: RestRequest,
    planned: StatementPlan,
    run: Callable[[tuple[Bound, ...]], Awaitable[Rows]],
    estimate: Callable[[Bound], Awaitable[int]],
) -> Reply:
    media, statements = planned.media, planned.statements
    explain = None if media is None else media.explain
    if explain is not None:
        statements = explain_last(statements, explain)
    try:
        rows = await run(statements)
    except DatabaseError as error:
        raise respond.client_error(error) from None
    request.http.mark("transaction")
    if media is not None and explain is not None:
        return plan_reply(request, media, rows)
    [row] = rows
    answered = ResultRow.of(row)
    beyond = planned.estimated_beyond
    if planned.estimated is not None and (
        answered.total is None or (beyond is not None and answered.total > beyond)
    ):
        # The planner may be wrong, but rows that were counted are there.
        expected = max(answered.total or 0, await estimate(planned.estimated))
        answered = replace(answered, total=expected)
    return planned.finish(answered)


def _expected(plan: Any) -> int:
    """Return how many rows the planner expects."""
    return int(plan[0]["Plan"]["Plan Rows"])


def explain_last(statements: Sequence[Bound], explain: Explain) -> tuple[Bound, ...]:
    """Return the statements with the last one explained and not run, unless it is analyzed.

    An analyzed change is made, as everything in a transaction is that is not undone at its end.
    """
    *before, last = statements
    options = ", ".join([f"format {'json' if explain.as_json else 'text'}", *explain.options])
    text = f"explain ({options}) {last.statement.text}"
    return (*before, Bound(Statement(text, last.statement.types, prepared=False), last.values))


def plan_reply(request: RestRequest, media: Media, rows: Sequence[tuple[Any, ...]]) -> Reply:
    """Return the reply of a plan: text arrives as a row per line, JSON as a single row."""
    lines = [line if isinstance(line, bytes) else str(line).encode() for (line,) in rows]
    headers = (("Content-Type", media.content_type), *request.profile, VARY)
    return Reply(200, headers, b"\n".join(lines))


async def stream(transactions: MultiMessageTransactions, request: RestRequest, planned: StreamPlan) -> Reply:
    """Return the reply whose body is the rows of a read, sent while they come.

    Few rows are answered at once, with a ``Content-Range``.

    :raises ApiError: an error of the database before the first rows.
    """
    batches = transactions.stream(
        request.catalog, request.http, request.caller, planned.statement, planned.settings
    )
    try:
        first: list[tuple[Any, ...]] = await anext(batches, [])
    except DatabaseError as error:
        raise respond.client_error(error) from None
    request.http.mark("transaction")
    if len(first) < FIRST_FETCH:
        await batches.aclose()
        return await complete_reply(planned, first)
    return replace(planned.head, stream=_pieces(planned, _with_first(first, batches)))


async def _with_first(first: list[tuple[Any, ...]], others: Batches) -> Batches:
    try:
        yield first
        async for rows in others:
            yield rows
    finally:
        await others.aclose()


async def complete_reply(planned: StreamPlan, rows: list[tuple[Any, ...]]) -> Reply:
    """Return the reply of a read whose rows are all there."""

    async def at_once() -> Batches:
        yield rows

    body = b"".join([piece async for piece in _pieces(planned, at_once())])
    said = ("Content-Range", content_range(planned.offset, len(rows), None))
    return replace(planned.head, headers=(*planned.head.headers, said), body=body)


def _pieces(planned: StreamPlan, batches: Batches) -> Stream:
    is_json = any(name == "Content-Type" and value.startswith(LINES) for name, value in planned.head.headers)
    return stream_json_lines(batches) if is_json else stream_rows(batches, prefix=planned.prefix)


async def stream_rows(batches: Batches, *, prefix: bytes = b"") -> Stream:
    """Give the bytes of rows of one text column each as lines; closing it ends the transaction.

    As in an answer that is made at once, no line end comes behind the last row.

    :param prefix: what comes before the first row, such as a header line with its end.
    :raises ApiError: an error of the database; before the first piece it can still be answered.
    """
    before, begun = prefix, not prefix
    try:
        async for rows in batches:
            if rows:
                yield before + b"\n".join([_bytes(value) for (value,) in rows])
                before, begun = b"\n", True
        if not begun:
            yield prefix
    finally:
        await batches.aclose()


async def stream_json_lines(batches: Batches) -> Stream:
    """Give rows of one JSON value each as lines.

    A line end within such a value is white space between its tokens, as PostgreSQL keeps it in
    columns of type ``json``; within strings it is escaped.
    """
    try:
        async for rows in batches:
            yield b"".join([_line(value) for (value,) in rows])
    finally:
        await batches.aclose()


def _line(value: bytes | str | None) -> bytes:
    # A function's value that is NULL is a line too.
    line = _bytes(value) or b"null"
    if b"\n" in line or b"\r" in line:
        line = line.replace(b"\r", b" ").replace(b"\n", b" ")
    return line + b"\n"


def _bytes(value: bytes | str | None) -> bytes:
    # Columns of type json come as bytes, others as text.
    if isinstance(value, bytes):
        return value
    return value.encode() if value else b""
