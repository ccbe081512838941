"""Runs conditional writes. A write changes rows only if they are still as the client last read them.

A transaction reads the rows, checks the condition and then writes. Its isolation level is ``REPEATABLE
READ``, so the read and the write see the same rows, and PostgreSQL rejects the write if another transaction
has changed one of the rows in the meantime. The transaction is then retried, and the condition is checked
against the new rows.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from dataapi.auth.caller import Caller, isolation_level, strictest_isolation
from dataapi.auth.transaction import MultiMessageTransaction, MultiMessageTransactions, with_retries
from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound, explained
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Reply, Request
from dataapi.rest import respond
from dataapi.rest.execute import Rows, execute
from dataapi.rest.parse.preconditions import Compared, precondition_failed, unsupported_condition
from dataapi.rest.parse.preferences import NO_PREFERENCES
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.plan.model import ReadResponse, StatementPlan
from dataapi.rest.statements import ResultRow
from dataapi.sql.dialect import dialect_of
from dataapi.sql.statement import Compiled

CONDITIONAL_RETRIES = 20
"""Maximum number of retries after other transactions have written the same rows."""


class TransactionExecution(NamedTuple):
    """Runs the statements of one request in a transaction of several messages.

    ``continued`` is true if the request has already run statements in this transaction.
    """

    transaction: MultiMessageTransaction
    catalog: Catalog
    http: Request
    continued: bool = False

    async def run(self, plan: StatementPlan, statements: tuple[Bound, ...]) -> Rows:
        return await self.transaction.run(
            self.http,
            statements,
            read_only=plan.read_only,
            settings=plan.settings,
            continued=self.continued,
        )

    async def estimate(self, statement: Bound) -> int:
        dialect = dialect_of(self.catalog)
        [[plan_text]] = await self.transaction.run(
            self.http,
            (explained(statement),),
            read_only=True,
            settings=dialect.planner_settings,
            continued=True,
        )
        return dialect.planned_rows(json.loads(plan_text))


def conditional_isolation(catalog: Catalog, caller: Caller) -> tuple[str | None, ...]:
    """Return candidate isolation levels. A conditional write uses the strictest one."""
    return "REPEATABLE READ", isolation_level(catalog.roles[caller.role].settings)


async def write_conditionally(
    transactions: MultiMessageTransactions,
    catalog: Catalog,
    http: Request,
    caller: Caller,
    request: ApiRequest,
    plan: StatementPlan,
    current: Compiled,
) -> Reply:
    """Run a conditional write in its own transaction. The statement ``current`` reads the current rows.

    :raises ApiError: The request failed, and nothing was changed. The error has the form that clients see.
    """
    settings = strictest_isolation(conditional_isolation(catalog, caller))

    async def attempt() -> Reply:
        async with transactions.begin(
            catalog, http, caller, read_only=False, settings=settings
        ) as transaction:
            execution = TransactionExecution(transaction, catalog, http)
            return await execute_conditionally(request, plan, current, execution)

    return await with_retries(attempt, CONDITIONAL_RETRIES)


async def execute_conditionally(
    request: ApiRequest, plan: StatementPlan, current: Compiled, execution: TransactionExecution
) -> Reply:
    """Check the conditions of a write and run it, in the same transaction.

    :raises ApiError: PRECONDITION_FAILED (412) if a condition is not met, PGRST127 (412) if it cannot be
        checked, or another error if the write failed.
    """
    try:
        # The transaction is not read-only, because the pre-request function runs here and may write.
        rows = await execution.run(plan, (current.bind(request.values),))
    except DatabaseError as error:
        raise respond.client_error(error) from None
    _check(request, plan, ResultRow(*rows[0]))
    request = request._replace(preconditions=None)
    return await execute(request, plan, execution._replace(continued=True))


def _check(request: ApiRequest, plan: StatementPlan, row: ResultRow) -> None:
    preconditions, tag = request.preconditions, None
    assert preconditions is not None, "the request is conditional"
    if request.input.compared is Compared.CONTENT:
        if row.total != row.rows:
            raise unsupported_condition(
                f"The write would change {row.total} rows, but a read returns {row.rows} rows."
            )
        if row.rows == 1 or not plan.media.single:
            reading = request._replace(
                input=request.input._replace(method="GET"), preferences=NO_PREFERENCES, preconditions=None
            )
            as_read = plan._replace(response=ReadResponse())
            tag = respond.entity_tag(respond.reply(as_read, reading, row._replace(total=None)))
    failed = preconditions.without_totals().failed(tag, exists=bool(row.total))
    if failed is not None:
        raise precondition_failed(failed)
