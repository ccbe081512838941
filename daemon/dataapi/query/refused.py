"""Answers that are refused by their statement, so that nothing of what it did stays done.

What is too large is refused there too: it would fill the daemon's memory, and hold up others while
it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dataapi.query.algebra import Parameter
from dataapi.query.changes import raised_sql
from dataapi.query.sql import Compiled

TOO_LARGE = "PGRST100"
"""What is raised for an answer of too many bytes."""


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


def within(answer: Compiled, most: int) -> Compiled:
    """Return the statement of an answer that raises ``TOO_LARGE`` and the size of a body of more bytes."""
    statement = answer.statement
    text = (
        f'select "body", {counted_sql(most)}, "total", "headers", "status" '
        f'from ({statement.text}) as "answer"("body", "count", "total", "headers", "status")'
    )
    return replace(answer, statement=replace(statement, text=text))


def counted_sql(most: int) -> str:
    """Return the column ``count`` of an answer, raising instead where its ``body`` has more bytes."""
    size = 'pg_catalog.pg_column_size("body")'
    return f'case when {size} > {most} then {raised_sql(TOO_LARGE, size)} else "count" end'


def lines_within(lines: Compiled, most: int) -> Compiled:
    """Return the statement of lines that raises ``TOO_LARGE`` and the size where one has more bytes."""
    statement, size = lines.statement, 'pg_catalog.pg_column_size("line")'
    # Without the offset PostgreSQL would make each line twice.
    text = (
        f'select "line" from ({statement.text} offset 0) as "lines"("line") '
        f"where case when {size} > {most} then {raised_sql(TOO_LARGE, size)} = 0 else true end"
    )
    return replace(lines, statement=replace(statement, text=text))
