"""Statements: what an output of the algebra becomes, with the sources of its slots, and guards within it.

A guard is a bound for a number, beyond which a statement raises, so that nothing of what it did stays done.
It raises by casting a text to an integer: that takes no function that a database would have to hold, and
PostgreSQL's message has the text, which says why and with which number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from dataapi.database.message import Bound, Statement
from dataapi.database.sql_text import inlined, quote_literal
from dataapi.sql.algebra import Parameter, Rows, SlotSource
from dataapi.sql.expressions import source_sql
from dataapi.sql.outputs import Output, json_query
from dataapi.sql.writer import Row, Writer

MOST_PAGE_SIZES = 4
"""Combinations of page sizes for which a statement has a text of its own."""


_PageSizes = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement and where each of its slots takes its value.

    PostgreSQL plans a prepared statement anew for each execution while it thinks that to pay, as it does
    where it knows no page size: it takes a tenth of the table for one.  Planning joins takes longer than
    reading a page, so that the page sizes in use stand in the statement itself.

    :ivar readings: see ``Writer.readings``.
    :ivar limits: see ``Writer.limits``.
    """

    statement: Statement
    sources: tuple[SlotSource, ...]
    readings: tuple[Compiled, ...] = ()
    limits: tuple[int, ...] = ()
    _sized: dict[_PageSizes, Statement] = field(default_factory=dict, init=False, compare=False, repr=False)

    def bind(self, values: Any) -> Bound:
        """Return the statement with the values that its sources find among those of one request."""
        bound = tuple([source.bind(values) for source in self.sources])
        if self.limits and self.statement.prepared:
            return Bound(self._for_sizes(tuple([bound[place] for place in self.limits])), bound)
        return Bound(self.statement, bound)

    def _for_sizes(self, sizes: _PageSizes) -> Statement:
        statement = self._sized.get(sizes)
        if statement is not None:
            return statement
        if len(self._sized) == MOST_PAGE_SIZES or not all(
            size and size.isascii() and size.isdecimal() for size in sizes
        ):
            return self.statement
        known = dict(zip(self.limits, sizes, strict=True))
        template = inlined(self.statement.text, self.statement.types)
        text = template.text % tuple([known.get(place, f"${place + 1}") for place in template.order])
        statement = self._sized[sizes] = replace(self.statement, text=text)
        return statement

    def unprepared(self) -> Compiled:
        """Return the same with a statement that is not prepared."""
        return replace(self, statement=replace(self.statement, prepared=False))


def compiled(text: str, writer: Writer) -> Compiled:
    """Return the statement of a text with the slots that were written into it."""
    readings = tuple(
        Compiled(Statement(reading, (parameter.type,), prepared=False), (parameter.source,))
        for reading, parameter in writer.readings
    )
    statement = Statement(text, tuple(writer.types))
    return Compiled(statement, tuple(writer.sources), readings, tuple(writer.limits))


def compile_query(output: Output) -> Compiled:
    """Return the statement whose single row and column is the output's JSON text."""
    writer = Writer()
    return compiled(json_query(output.json(writer, None)), writer)


def compile_matching(rows: Rows) -> Compiled:
    """Return the statement of all rows that match, whatever the page, for a look at its plan."""
    writer = Writer()
    return compiled(f"select 1 from {source_sql(writer, rows, Row(writer.alias()), None)}", writer)


# ---------------------------------------------------------------- guards

_MARK = "~dataapi~"
_INVALID_TEXT = "22P02"
# A client's own value may look so too: no more digits than a number of rows has.
_RAISED = re.compile(f"{_MARK}([^~]+){_MARK}([0-9]{{1,9}}){_MARK}([0-9]{{1,19}})(?![0-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Guard:
    """A bound for a number of rows.

    :ivar reason: what the statement raises; without ``~``.
    :ivar at_most: a ``bigint`` parameter, or None where there must be exactly one row.
    """

    reason: str
    at_most: Parameter | None = None

    def violated_sql(self, writer: Writer, count: str) -> str:
        """Return the condition under which a number of rows is out of bounds."""
        return f"{count} <> 1" if self.at_most is None else f"{count} > {writer.slot(self.at_most)}"


@dataclass(frozen=True, slots=True)
class Violation:
    """What a statement raised.

    :ivar reason: the guard's.
    :ivar place: which of several changes of one request it was, from 0.
    :ivar number: the number that is out of bounds.
    """

    reason: str
    place: int
    number: int


def raise_sql(reason: str, number: str, place: int = 0) -> str:
    """Return SQL of type ``int`` that raises; it depends on the number, so that planning does not raise."""
    return f"({quote_literal(f'{_MARK}{reason}{_MARK}{place}{_MARK}')} || {number})::int"


def violation_in(code: str, message: str) -> Violation | None:
    """Return what an error of PostgreSQL says of a guard, None for any other error.

    :param code: its SQLSTATE.
    """
    match = _RAISED.search(message) if code == _INVALID_TEXT else None
    return None if match is None else Violation(match[1], int(match[2]), int(match[3]))
