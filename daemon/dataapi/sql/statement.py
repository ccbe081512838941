"""Statements: while they are written (names, slots, rows in scope), and compiled; and the guards within them.

A guard is a bound for a number, beyond which a statement raises, so that nothing of what it did stays done.
It raises by casting a text to an integer: that takes no function that a database would have to hold, and
PostgreSQL's message has the text, which says why and with which number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from dataapi.catalog.model import Function, MediaHandler, QualifiedName, Table, Type, Volatility
from dataapi.database.message import Bound, Statement
from dataapi.database.sql_text import (
    ALIAS,
    CONCATENATE,
    ERROR_MARKER,
    GREATER,
    UNEQUAL,
    quote_identifier,
    quote_literal,
    substitute_literals,
)
from dataapi.sql.algebra import FunctionCall, Parameter, Rows, SlotSource

MAX_PAGE_SIZES = 4
"""Combinations of page sizes for which a statement has a text of its own."""
MAX_SEMIJOINS = 8
"""Conditions on whether rows exist that PostgreSQL may turn into joins, in one statement.

It weighs every order of such joins, nested ones included: planning thirty of them takes longer than clients
wait.  Conditions beyond that number are looked up for each row.
"""


def qualified(item: Table | Function | Type | MediaHandler | QualifiedName) -> str:
    """Return the quoted, schema-qualified name of a thing."""
    return f"{quote_identifier(item.schema)}.{quote_identifier(item.name)}"


class RowDialect:
    """How rows are read, where relatives of PostgreSQL differ; ``Dialect`` has the rest.

    :cvar unlimited: the clause that preserves the order of rows where no limit follows.
    """

    unlimited = ""

    def whole(self, _rows: Rows, row: Row, /) -> str:
        """Return the SQL of a whole row as one composite value."""
        return row.alias

    def called(self, _call: FunctionCall, sql: str, /) -> str:
        """Return a call as a ``from`` item without its alias."""
        return sql


class Writer:
    """Numbers the slots and aliases of one statement.

    Aliases are counted, not random, so that the same algebra always gives the same text.

    :ivar dialect: whose SQL it is; its ``writer()`` makes this.
    :ivar readings: statements that do nothing but read the value of a parameter, ``$1``, as this one does;
        they show whether a failure is the value's fault.
    :ivar limits: the slots that limit a number of rows, by their places from 0.
    :ivar volatile: whether a function is called that sees what the statement did so far.
    """

    def __init__(self, dialect: RowDialect) -> None:
        self.dialect = dialect
        self.sources: list[SlotSource] = []
        self.types: list[str] = []
        self.readings: list[tuple[str, Parameter]] = []
        self.limits: list[int] = []
        self.volatile = False
        self._slots: dict[Parameter, str] = {}
        self._aliases = 0
        self._semijoins = 0

    def slot(self, parameter: Parameter) -> str:
        """Return the ``$n`` of a parameter.

        PostgreSQL infers one type for each slot, so one that leaves its type open is used once.
        """
        slot = self._slots.get(parameter)
        if slot is None or parameter.type == "unknown":
            self.sources.append(parameter.source)
            self.types.append(parameter.type)
            slot = self._slots[parameter] = f"${len(self.sources)}"
        return slot

    def limit(self, parameter: Parameter) -> str:
        """Return the ``$n`` of a number of rows."""
        slot = self.slot(parameter)
        place = int(slot[1:]) - 1
        if place not in self.limits:
            self.limits.append(place)
        return slot

    def function(self, function: Function) -> str:
        """Return the name of a function to call."""
        self.volatile |= function.volatility is Volatility.VOLATILE
        return qualified(function)

    def alias(self) -> str:
        """Return an alias that this statement has not used yet, in quotes.

        No column is called so: a bare alias means the whole row only where no column has its name.
        """
        self._aliases += 1
        return quote_identifier(f"{ALIAS}{self._aliases}")

    def joinable(self) -> bool:
        """Count a condition on whether rows exist; whether PostgreSQL may still turn it into a join."""
        self._semijoins += 1
        return self._semijoins <= MAX_SEMIJOINS


class Row:
    """A row in scope: how to name its columns, and which of them were named.

    An inner query selects a page and an outer one makes the output of its rows; the inner one must select
    the columns that the outer one named, and no more, because a role may lack the privilege on others.

    :ivar table: what the row is of, None where that is not known.
    :ivar derived: whether it is of a query within the statement.
    :ivar value: SQL of the whole row as one composite value, where it is not derived.
    """

    WHOLE = "~row"

    def __init__(self, alias: str, table: Table | None = None, *, derived: bool = False) -> None:
        self.alias = alias
        self.table = table
        self.derived = derived
        self.value = alias
        self.columns: dict[str, None] = {}
        self.needs_whole = False

    def column(self, name: str) -> str:
        self.columns[name] = None
        return f"{self.alias}.{quote_identifier(name)}"

    def type(self, name: str) -> int | None:
        """Return the oid of a column's type, None where that is not known."""
        column = None if self.table is None else self.table.column(name)
        return None if column is None else column.type

    def whole(self) -> str:
        """Return the SQL of the row as one composite value."""
        if not self.derived:
            return self.value
        self.needs_whole = True
        return f"{self.alias}.{quote_identifier(self.WHOLE)}"

    def also(self, other: Row) -> None:
        """Name what was named of another row too."""
        self.columns.update(other.columns)
        self.needs_whole |= other.needs_whole

    def provided(self) -> list[str]:
        """Return the names of what the inner row must provide."""
        names = [quote_identifier(name) for name in self.columns]
        if self.needs_whole:
            names.append(quote_identifier(self.WHOLE))
        return names or ["1"]

    def selection_from(self, inner: Row) -> str:
        """Return the select list with which the inner row provides what was named of this one."""
        items = [inner.column(name) for name in self.columns]
        if self.needs_whole:
            items.append(f"{inner.whole()} as {quote_identifier(self.WHOLE)}")
        return ", ".join(items) or "1"


# ---------------------------------------------------------------- compiled statements


_PageSizes = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement and where each of its slots takes its value.

    PostgreSQL plans a prepared statement again for each execution while it thinks that to pay, as it does
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
        if len(self._sized) == MAX_PAGE_SIZES or not all(
            size and size.isascii() and size.isdecimal() for size in sizes
        ):
            return self.statement
        known = dict(zip(self.limits, sizes, strict=True))
        types = self.statement.types
        slots = [known.get(place) or f"${place + 1}" for place in range(len(types))]
        text = substitute_literals(self.statement.text, types, slots)
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
    return Compiled(
        Statement(text, tuple(writer.types)), tuple(writer.sources), readings, tuple(writer.limits)
    )


# ---------------------------------------------------------------- guards

_INVALID_TEXT = "22P02"
_RAISED = re.compile(f"{ERROR_MARKER}([^~]+)~([0-9]{{1,9}})~([0-9]{{1,19}})(?![0-9])", re.ASCII)


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
        return (
            f"{count} {UNEQUAL} 1"
            if self.at_most is None
            else f"{count} {GREATER} {writer.slot(self.at_most)}"
        )


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
    return f"({quote_literal(f'{ERROR_MARKER}{reason}~{place}~')} {CONCATENATE} {number})::int"


def violation_in(code: str, message: str) -> Violation | None:
    """Return the violation that an error of PostgreSQL reports, None for any other error.

    :param code: its SQLSTATE.
    """
    match = _RAISED.search(message) if code == _INVALID_TEXT else None
    return None if match is None else Violation(match[1], int(match[2]), int(match[3]))
