"""Runs what REST requests want of the database: one alone, or those of a batch in one transaction."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dataapi.access.caller import Caller
from dataapi.access.long import LongTransactions, Together
from dataapi.access.transaction import RETRIES, explained, isolation_of, strictest
from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound
from dataapi.errors import ApiError, DatabaseError
from dataapi.query.answers import Answered
from dataapi.rest import refusals
from dataapi.rest.context import Context, Planned, Streamed
from dataapi.rest.explaining import explaining, plan_reply
from dataapi.rest.streaming import gathered
from dataapi.web.messages import Reply, Request

Rows = list[tuple[Any, ...]]


async def run_alone(transactions: LongTransactions, context: Context, planned: Planned) -> Reply:
    """Run a plan in a transaction of its own and return its reply.

    :raises ApiError: for whatever a client may read of a failure.
    """

    async def run(statements: tuple[Bound, ...]) -> Rows:
        return await transactions.run(
            context.catalog,
            context.request,
            context.caller,
            statements,
            read_only=planned.read_only,
            settings=planned.settings,
        )

    async def estimate(statement: Bound) -> int:
        found = await transactions.explain(context.catalog, context.request, context.caller, (statement,))
        return _expected(found[0]["plan"])

    return await _finished(context, planned, run, estimate)


@dataclass(frozen=True, slots=True)
class Part:
    """One request of a batch; a ``Reply`` needs nothing of the database."""

    context: Context
    planned: Planned | Streamed | Reply


async def run_together(
    transactions: LongTransactions, request: Request, caller: Caller, catalog: Catalog, parts: Sequence[Part]
) -> list[Reply]:
    """Run the parts of a batch in one transaction and return their replies, in order.

    It is run again when it lost to a concurrent one, as a single request is.

    :raises ApiError: nothing of the batch happened; ``index`` says on account of which part, if of one.
    """
    plans = [part.planned for part in parts if not isinstance(part.planned, Reply)]
    read_only = all(isinstance(plan, Streamed) or plan.read_only for plan in plans)
    settings = strictest(isolation_of(plan.settings) for plan in plans)
    for attempt in range(RETRIES + 1):
        try:
            async with transactions.together(
                catalog, request, caller, read_only=read_only, settings=settings
            ) as together:
                return await _parts(together, parts)
        except DatabaseError as error:
            if not error.serializable_retry or attempt == RETRIES:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _parts(together: Together, parts: Sequence[Part]) -> list[Reply]:
    """Return the replies, as long as all of them together are no larger than one may be."""
    replies, size = list[Reply](), 0
    for index, part in enumerate(parts):
        reply = await _part(together, index, part)
        size += len(reply.body)
        if size > part.context.project.max_answer:
            error = refusals.too_large(size)
            error.index = index
            raise error
        replies.append(reply)
    return replies


async def _part(together: Together, index: int, part: Part) -> Reply:
    request = part.context.request
    try:
        reply = await _answered(together, part.context, part.planned)
    except ApiError as error:
        error.index = index
        raise
    return replace(reply, body=b"") if request.method == "HEAD" else reply


async def _answered(together: Together, context: Context, planned: Planned | Streamed | Reply) -> Reply:
    if isinstance(planned, Reply):
        return planned
    reading = isinstance(planned, Streamed) or planned.read_only

    async def run(statements: tuple[Bound, ...]) -> Rows:
        return await together.run(context.request, statements, read_only=reading, settings=planned.settings)

    async def estimate(statement: Bound) -> int:
        [[plan]] = await together.run(context.request, (explained(statement),), read_only=True, again=True)
        return _expected(json.loads(plan))

    if isinstance(planned, Streamed):
        return await gathered(planned, await run((planned.statement,)))
    return await _finished(context, planned, run, estimate)


async def _finished(
    context: Context,
    planned: Planned,
    run: Callable[[tuple[Bound, ...]], Awaitable[Rows]],
    estimate: Callable[[Bound], Awaitable[int]],
) -> Reply:
    media, statements = planned.media, planned.statements
    explain = None if media is None else media.explain
    if explain is not None:
        statements = explaining(statements, explain)
    try:
        rows = await run(statements)
    except DatabaseError as error:
        raise refusals.told(error) from None
    context.request.mark("transaction")
    if media is not None and explain is not None:
        return plan_reply(context, media, rows)
    [row] = rows
    answered = Answered.of(row)
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
