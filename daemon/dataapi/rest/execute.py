"""Runs the plan of a request: binds its values, runs its statements and builds the reply."""

from __future__ import annotations

from typing import Any, Protocol

from dataapi.database.message import Bound
from dataapi.database.sql_text import ERROR_MARKER
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Reply
from dataapi.rest import respond
from dataapi.rest.explain import explain_statement
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.plan.model import StatementPlan
from dataapi.rest.respond import VARY, as_bytes
from dataapi.rest.statements import ResultRow

Rows = list[tuple[Any, ...]]


class Execution(Protocol):
    """Runs the statements of one request."""

    async def run(self, plan: StatementPlan, statements: tuple[Bound, ...]) -> Rows: ...

    async def estimate(self, statement: Bound) -> int: ...


async def execute(request: ApiRequest, plan: StatementPlan, execution: Execution) -> Reply:
    """Run the plan of a request.

    :raises ApiError: The request failed. The error has the form that clients see.
    """
    values, explain, preconditions = request.values, plan.media.explain, request.preconditions
    try:
        if explain is None:
            rows = await execution.run(plan, tuple([each.bind(values) for each in plan.statements]))
        else:
            rows = await execution.run(plan, (explain_statement(plan.explained.bind(values), explain),))
    except DatabaseError as error:
        if values.groups:
            from dataapi.rest.nested_errors import nested_error  # noqa: PLC0415 - only if configured

            raise nested_error(error, values.groups) from None
        raise respond.client_error(error) from None
    if explain is not None:
        # PostgreSQL returns one row per line of a text plan, and a single row for a JSON plan.
        headers = (("Content-Type", plan.media.content_type), *request.profile, VARY)
        plan_text = b"\n".join([as_bytes(line) for (line,) in rows])
        reply = Reply(200, headers, plan_text.replace(ERROR_MARKER.encode(), b"~"))
        if preconditions is None:
            return reply
        return respond.conditional_reply(preconditions, reply, exists=True)
    row = ResultRow(*rows[0])
    if plan.estimated is not None:
        threshold = plan.estimated_beyond
        if row.total is None or (threshold is not None and row.total > threshold):
            # The estimate may be less than the number of rows counted so far.
            total = max(row.total or 0, await execution.estimate(plan.estimated.bind(values)))
            row = row._replace(total=total)
    reply = respond.reply(plan, request, row)
    if preconditions is None:
        return reply
    return respond.conditional_reply(preconditions, reply, exists=row.rows > 0)
