"""Runs the requests in a batch as one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dataapi.auth.caller import Caller, isolation_level, strictest_isolation
from dataapi.auth.transaction import (
    RETRIES,
    MultiMessageTransaction,
    MultiMessageTransactions,
    with_retries,
)
from dataapi.catalog.model import Catalog
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from dataapi.rest import respond
from dataapi.rest.conditional import (
    CONDITIONAL_RETRIES,
    TransactionExecution,
    conditional_isolation,
    execute_conditionally,
)
from dataapi.rest.execute import execute
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.plan.model import Plan, StatementPlan, StreamPlan
from dataapi.rest.statements import TOO_LARGE
from dataapi.rest.stream import complete, statement_of


class Part(NamedTuple):
    """One request of a batch, with its plan."""

    http: Request
    request: ApiRequest
    plan: Plan


async def run_batch(
    transactions: MultiMessageTransactions,
    http: Request,
    caller: Caller,
    catalog: Catalog,
    parts: Sequence[Part],
    max_bytes: int,
) -> list[Reply]:
    """Run the requests in a batch as one transaction and return their replies in order.

    The transaction is retried after a serialization failure, like that of a single request.

    :param max_bytes: maximum total size of the replies' bodies in bytes.
    :raises ApiError: The batch was rolled back. The error's ``index`` identifies the failed request, if any.
    """
    plans = [part.plan for part in parts if not isinstance(part.plan, Reply)]
    read_only = all(isinstance(plan, StreamPlan) or plan.read_only for plan in plans)
    conditional = any(isinstance(plan, StatementPlan) and plan.current is not None for plan in plans)
    levels = [isolation_level(plan.settings) for plan in plans]
    if conditional:
        levels += conditional_isolation(catalog, caller)
    settings = strictest_isolation(levels)

    async def attempt() -> list[Reply]:
        async with transactions.begin(
            catalog, http, caller, read_only=read_only, settings=settings
        ) as transaction:
            return await _replies(transaction, catalog, parts, max_bytes)

    return await with_retries(attempt, CONDITIONAL_RETRIES if conditional else RETRIES)


async def _replies(
    transaction: MultiMessageTransaction, catalog: Catalog, parts: Sequence[Part], max_bytes: int
) -> list[Reply]:
    replies, size = list[Reply](), 0
    for index, part in enumerate(parts):
        try:
            reply = await _reply(transaction, catalog, part)
            if part.http.method == "HEAD":
                reply = reply._replace(body=b"")
            size += len(reply.body)
            if size > max_bytes:
                raise respond.violated(TOO_LARGE, size)
        except ApiError as error:
            raise error.replaced(index=index) from error
        replies.append(reply)
    return replies


async def _reply(transaction: MultiMessageTransaction, catalog: Catalog, part: Part) -> Reply:
    http, request, plan = part
    if isinstance(plan, Reply):
        return plan
    if isinstance(plan, StreamPlan):
        statement = statement_of(request, plan)
        rows = await transaction.run(http, (statement,), read_only=True, settings=plan.settings)
        return await complete(request, plan, rows)
    execution = TransactionExecution(transaction, catalog, http)
    if plan.current is not None:
        return await execute_conditionally(request, plan, plan.current, execution)
    return await execute(request, plan, execution)
