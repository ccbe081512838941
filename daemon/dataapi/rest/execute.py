"""Runs the plan of a REST request: binds its values, runs its statements, and has their row answered."""

from __future__ import annotations

from typing import Any, Protocol

from dataapi.database.message import Bound
from dataapi.database.sql_text import ERROR_MARKER
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Reply
from dataapi.rest import respond
from dataapi.rest.explain import explaining
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.plan.model import StatementPlan
from dataapi.rest.respond import VARY, as_bytes
from dataapi.rest.statements import ResultRow

Rows = list[tuple[Any, ...]]


class Execution(Protocol):
    """Runs the statements of one request."""

    async def run(self, plan: StatementPlan, statements: tuple[Bound, ...]) -> Rows:
        """Run the statements of a plan and return the last one's rows."""

    async def estimate(self, statement: Bound) -> int:
        """Return how many rows the planner expects of a statement."""


async def execute(request: ApiRequest, plan: StatementPlan, execution: Execution) -> Reply:
    """Run the plan of a request and return its reply.

    :raises ApiError: a failure, as the client may read it.
    """
    values, explain = request.values, plan.media.explain
    try:
        if explain is None:
            rows = await execution.run(plan, tuple([each.bind(values) for each in plan.statements]))
        else:
            rows = await execution.run(plan, (explaining(plan.explained.bind(values), explain),))
    except DatabaseError as error:
        raise respond.client_error(error) from None
    if explain is not None:
        # Text arrives as a row per line, JSON as a single row.
        headers = (("Content-Type", plan.media.content_type), *request.profile, VARY)
        plan_text = b"\n".join([as_bytes(line) for (line,) in rows])
        return Reply(200, headers, plan_text.replace(ERROR_MARKER.encode(), b"~"))
    row = ResultRow(*rows[0])
    if plan.estimated is not None:
        beyond = plan.estimated_beyond
        if row.total is None or (beyond is not None and row.total > beyond):
            # The planner may be wrong, but rows that were counted are there.
            total = max(row.total or 0, await execution.estimate(plan.estimated.bind(values)))
            row = row._replace(total=total)
    return respond.reply(plan, request, row)
