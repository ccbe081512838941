"""Runs the plans of REST requests: one alone, a batch in one transaction, or a stream of rows."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from dataapi.auth.caller import Caller, isolation_of, strictest
from dataapi.auth.transaction import (
    Batches,
    MultiMessageTransaction,
    MultiMessageTransactions,
    explained,
    retried,
)
from dataapi.catalog.model import Catalog
from dataapi.concurrency.tasks import next_item
from dataapi.database.message import Bound, Statement
from dataapi.database.open_transaction import FIRST_FETCH
from dataapi.http.errors import ApiError, DatabaseError
from dataapi.http.messages import Reply, Request, Stream
from dataapi.rest import respond
from dataapi.rest.negotiation import LINES, Explain
from dataapi.rest.parse.query import Values
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.plan.plans import Planned, StatementPlan, StreamPlan
from dataapi.rest.respond import VARY, content_range
from dataapi.rest.statements import TOO_LARGE, ResultRow

Rows = list[tuple[Any, ...]]
Run = Callable[[tuple[Bound, ...]], Awaitable[Rows]]
"""Runs statements and returns the last one's rows."""
Estimate = Callable[[Bound], Awaitable[int]]
"""Returns how many rows the planner expects of a statement."""


async def run_plan(
    transactions: MultiMessageTransactions,
    catalog: Catalog,
    http: Request,
    caller: Caller,
    request: ApiRequest,
    plan: StatementPlan,
    values: Values,
) -> Reply:
    """Run a plan in a transaction of its own and return its reply.

    :raises ApiError: a failure, as the client may read it.
    """

    async def run(statements: tuple[Bound, ...]) -> Rows:
        return await transactions.run(
            catalog, http, caller, statements,
            read_only=plan.read_only, settings=plan.settings, by_replica=plan.by_replica,
        )  # fmt: skip

    async def estimate(statement: Bound) -> int:
        more = _ALL_SHARDS if catalog.clustered else ()
        [found] = await transactions.explain(catalog, http, caller, (statement,), more)
        return expected_rows(found["plan"])

    return await _reply(http, request, plan, values, run, estimate)


BatchPart = tuple[Request, ApiRequest, Planned]
"""One request of a batch with its plan."""


async def run_batch(
    transactions: MultiMessageTransactions,
    http: Request,
    caller: Caller,
    catalog: Catalog,
    parts: Sequence[BatchPart],
    most_bytes: int,
) -> list[Reply]:
    """Run the parts of a batch in one transaction and return their replies, in order.

    It is run again when it lost to a concurrent one, as a single request is.

    :param most_bytes: the most that the bodies of all replies may have together.
    :raises ApiError: the batch was undone; ``index`` names the request that failed, where one did.
    """
    planned = [each for _, _, each in parts if not isinstance(each, Reply)]
    plans = [each if isinstance(each, StreamPlan) else each[0] for each in planned]
    read_only = all(isinstance(plan, StreamPlan) or plan.read_only for plan in plans)
    settings = strictest(isolation_of(plan.settings) for plan in plans)

    async def attempt() -> list[Reply]:
        async with transactions.begin(
            catalog, http, caller, read_only=read_only, settings=settings
        ) as transaction:
            return await _replies(transaction, catalog, parts, most_bytes)

    return await retried(attempt)


async def _replies(
    transaction: MultiMessageTransaction, catalog: Catalog, parts: Sequence[BatchPart], most_bytes: int
) -> list[Reply]:
    replies, size = list[Reply](), 0
    for index, (http, request, planned) in enumerate(parts):
        try:
            reply = await _part(transaction, catalog, http, request, planned)
            if http.method == "HEAD":
                reply = reply._replace(body=b"")
            size += len(reply.body)
            if size > most_bytes:
                raise respond.violated(TOO_LARGE, size)
        except ApiError as error:
            raise error.replaced(index=index) from error
        replies.append(reply)
    return replies


async def _part(
    transaction: MultiMessageTransaction,
    catalog: Catalog,
    http: Request,
    request: ApiRequest,
    planned: Planned,
) -> Reply:
    if isinstance(planned, Reply):
        return planned
    if isinstance(planned, StreamPlan):
        rows = await transaction.run(http, (planned.statement,), read_only=True, settings=planned.settings)
        return await _complete(planned, rows)
    plan, values = planned

    async def estimate(statement: Bound) -> int:
        more = _ALL_SHARDS if catalog.clustered else ()
        [[found]] = await transaction.run(
            http, (explained(statement),), read_only=True, settings=more, again=True
        )
        return expected_rows(json.loads(found))

    run = partial(transaction.run, http, read_only=plan.read_only, settings=plan.settings)
    return await _reply(http, request, plan, values, run, estimate)


_ALL_SHARDS = (("citus.explain_all_tasks", "on"),)
"""Lets Citus show the plan of each shard, and not that of one alone."""


def expected_rows(plans: Any) -> int:
    """Return how many rows the planner expects, of all shards together where it asks some.

    :param plans: what ``EXPLAIN (FORMAT JSON)`` gives.
    """
    plan = plans[0]["Plan"]
    if "Distributed Query" not in plan:
        return int(plan["Plan Rows"])
    tasks = plan["Distributed Query"]["Job"]["Tasks"]
    shards = [remote[0]["Plan"] for task in tasks for remote in task["Remote Plan"]]
    # PostgreSQL never expects less than one row, not even of a shard that is empty.
    return sum(int(shard["Plan Rows"]) for shard in shards if shard["Total Cost"] > 0)


async def _reply(
    http: Request, request: ApiRequest, plan: StatementPlan, values: Values, run: Run, estimate: Estimate
) -> Reply:
    explain = plan.media.explain
    statements = tuple([each.bind(values) for each in plan.statements])
    try:
        if explain is not None:
            statements = (_explaining(statements[-2:][0], explain),)
        rows = await run(statements)
    except DatabaseError as error:
        raise respond.client_error(error) from None
    if http.timing is not None:
        http.timing.mark("transaction")
    if explain is not None:
        # Text arrives as a row per line, JSON as a single row.
        headers = (("Content-Type", plan.media.content_type), *request.profile, VARY)
        return Reply(200, headers, b"\n".join([_bytes(line) for (line,) in rows]))
    row = ResultRow(*rows[0])
    if plan.estimated is not None:
        beyond = plan.estimated_beyond
        if row.total is None or (beyond is not None and row.total > beyond):
            # The planner may be wrong, but rows that were counted are there.
            total = max(row.total or 0, await estimate(plan.estimated.bind(values)))
            row = row._replace(total=total)
    return respond.reply(plan, request, row)


def _explaining(bound: Bound, explain: Explain) -> Bound:
    """Return the statement that explains another one, which runs only if it is analyzed.

    An analyzed change is made, as everything in a transaction is that is not undone at its end.
    """
    options = ", ".join([f"format {'json' if explain.as_json else 'text'}", *explain.options])
    text = f"explain ({options}) {bound.statement.text}"
    return Bound(Statement(text, bound.statement.types, prepared=False), bound.values)


async def stream(
    transactions: MultiMessageTransactions, catalog: Catalog, http: Request, caller: Caller, plan: StreamPlan
) -> Reply:
    """Return the reply whose body is the rows of a read, sent while they come.

    Few rows are answered at once, with a ``Content-Range``.

    :raises ApiError: an error of the database before the first rows.
    """
    batches = transactions.stream(
        catalog, http, caller, plan.statement, plan.settings, by_replica=plan.by_replica
    )
    try:
        first: Rows = await next_item(batches, [])
    except DatabaseError as error:
        raise respond.client_error(error) from None
    if http.timing is not None:
        http.timing.mark("transaction")
    if len(first) < FIRST_FETCH:
        await batches.aclose()
        return await _complete(plan, first)
    return plan.head._replace(stream=_pieces(plan, _with_first(first, batches)))


async def _with_first(first: Rows, others: Batches) -> Batches:
    try:
        yield first
        async for rows in others:
            yield rows
    finally:
        await others.aclose()


async def _complete(plan: StreamPlan, rows: Rows) -> Reply:
    """Return the reply of a read whose rows are all there."""

    async def at_once() -> Batches:
        yield rows

    body = b"".join([piece async for piece in _pieces(plan, at_once())])
    header = ("Content-Range", content_range(plan.offset, len(rows), None))
    return plan.head._replace(headers=(*plan.head.headers, header), body=body)


def _pieces(plan: StreamPlan, batches: Batches) -> Stream:
    is_json = any(name == "Content-Type" and value.startswith(LINES) for name, value in plan.head.headers)
    return stream_json_lines(batches) if is_json else stream_rows(batches, prefix=plan.prefix)


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
