"""Runs the requests of a batch in one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from dataapi.auth.caller import Caller, isolation_of, strictest
from dataapi.auth.transaction import MultiMessageTransaction, MultiMessageTransactions, retried
from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound, explained
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from dataapi.rest import respond
from dataapi.rest.execute import execute
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.plan.role import Planned, StreamPlan
from dataapi.rest.statements import TOO_LARGE
from dataapi.rest.stream import complete
from dataapi.sql.dialect import dialect_of

Part = tuple[Request, ApiRequest, Planned]
"""One request of a batch with its plan."""


async def run_batch(
    transactions: MultiMessageTransactions,
    http: Request,
    caller: Caller,
    catalog: Catalog,
    parts: Sequence[Part],
    max_bytes: int,
) -> list[Reply]:
    """Run the parts of a batch in one transaction and return their replies, in order.

    It is run again when it lost to a concurrent one, as a single request is.

    :param max_bytes: the most that the bodies of all replies may have together.
    :raises ApiError: the batch was undone; ``index`` names the request that failed, where one did.
    """
    planned = [each for _, _, each in parts if not isinstance(each, Reply)]
    plans = [each if isinstance(each, StreamPlan) else each.plan for each in planned]
    read_only = all(isinstance(plan, StreamPlan) or plan.read_only for plan in plans)
    settings = strictest(isolation_of(plan.settings) for plan in plans)

    async def attempt() -> list[Reply]:
        async with transactions.begin(
            catalog, http, caller, read_only=read_only, settings=settings
        ) as transaction:
            return await _replies(transaction, catalog, parts, max_bytes)

    return await retried(attempt)


async def _replies(
    transaction: MultiMessageTransaction, catalog: Catalog, parts: Sequence[Part], max_bytes: int
) -> list[Reply]:
    replies, size = list[Reply](), 0
    for index, (http, request, planned) in enumerate(parts):
        try:
            reply = await _part(transaction, catalog, http, request, planned)
            if http.method == "HEAD":
                reply = reply._replace(body=b"")
            size += len(reply.body)
            if size > max_bytes:
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
        return await complete(planned, rows)

    async def estimate(statement: Bound) -> int:
        dialect = dialect_of(catalog)
        [[found]] = await transaction.run(
            http, (explained(statement),), read_only=True, settings=dialect.of_planner, again=True
        )
        return dialect.planned_rows(json.loads(found))

    plan = planned.plan
    run_part = partial(transaction.run, http, read_only=plan.read_only, settings=plan.settings)
    return await execute(request, planned, run_part, estimate)
