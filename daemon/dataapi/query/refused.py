"""Answers that are refused by their statement, so that nothing of what it did stays done."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dataapi.query.algebra import Parameter
from dataapi.query.changes import raised_sql
from dataapi.query.sql import Compiled


@dataclass(frozen=True, slots=True)
class Refusal:
    """A number of rows with which nothing happens.

    :ivar code: what the statement raises, with the number of rows (see ``changes.RAISED``).
    :ivar most: a ``bigint`` parameter: more rows are refused; None refuses any number but one.
    """

    code: str
    most: Parameter | None = None


def refusing(answer: Compiled, refusal: Refusal) -> Compiled:
    """Return the statement of an answer that raises ``code`` and the number of rows where it is refused."""
    statement, sources = answer.statement, answer.sources
    types, fails = statement.types, '"count" <> 1'
    if refusal.most is not None:
        types, sources = (*types, refusal.most.type), (*sources, refusal.most.source)
        fails = f'"count" > ${len(types)}'
    told = raised_sql(refusal.code, '"count"')
    text = (
        f'select "body", case when {fails} then {told} else "count" end, "total", "headers", "status" '
        f'from ({statement.text}) as "answer"("body", "count", "total", "headers", "status")'
    )
    return Compiled(replace(statement, text=text, types=types), sources)
