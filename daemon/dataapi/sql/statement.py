"""Statements under construction (aliases, slots, rows in scope), compiled statements and guards.

A guard raises an error in PostgreSQL if a number of rows is out of bounds, so that the transaction is rolled
back. To raise an error without a function in the database, it casts an invalid text to an integer. The text
contains the guard's reason and the number of rows, and PostgreSQL's error message quotes it.
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
"""Maximum number of copies of a statement that contain page sizes instead of parameters."""
MAX_SEMIJOINS = 8
"""Maximum number of EXISTS conditions in a statement that PostgreSQL may turn into joins.

PostgreSQL considers every order of such joins, nested ones included. Planning thirty of them takes longer
than clients wait. Further conditions are evaluated for each row.
"""


def qualified(item: Table | Function | Type | MediaHandler | QualifiedName) -> str:
    return f"{quote_identifier(item.schema)}.{quote_identifier(item.name)}"


class RowDialect:
    """The part of ``Dialect`` that determines how rows are read.

    ``no_limit`` is SQL to append to an ordered subquery that has no LIMIT, so that its order is preserved.
    """

    no_limit = ""

    def whole_row(self, _rows: Rows, row: Row, /) -> str:
        return row.alias

    def call_source(self, _call: FunctionCall, sql: str, /) -> str:
        return sql


class Writer:
    """Numbers the slots and aliases of one statement.

    Aliases are numbered in order of use, so that equal queries have equal SQL text.

    :ivar input_checks: statements that only parse one parameter's value, ``$1``. They are run after an error,
        to find out whether PostgreSQL rejects the value.
    :ivar limits: indexes of the slots that limit a number of rows.
    :ivar volatile: whether the statement calls a volatile function, which sees the statement's own changes.
    """

    def __init__(self, dialect: RowDialect) -> None:
        self.dialect = dialect
        self.sources: list[SlotSource] = []
        self.types: list[str] = []
        self.input_checks: list[tuple[str, Parameter]] = []
        self.limits: list[int] = []
        self.volatile = False
        self._slots: dict[Parameter, str] = {}
        self._aliases = 0
        self._semijoins = 0

    def slot(self, parameter: Parameter) -> str:
        """Return the ``$n`` of a parameter.

        PostgreSQL infers one type per slot, so a parameter of type ``unknown`` gets a new slot at each use.
        """
        slot = self._slots.get(parameter)
        if slot is None or parameter.type == "unknown":
            self.sources.append(parameter.source)
            self.types.append(parameter.type)
            slot = self._slots[parameter] = f"${len(self.sources)}"
        return slot

    def limit(self, parameter: Parameter) -> str:
        slot = self.slot(parameter)
        index = int(slot[1:]) - 1
        if index not in self.limits:
            self.limits.append(index)
        return slot

    def function(self, function: Function) -> str:
        self.volatile |= function.volatility is Volatility.VOLATILE
        return qualified(function)

    def alias(self) -> str:
        """Return a new quoted alias, different from all column names.

        PostgreSQL resolves a bare alias to the whole row only if no column has this name.
        """
        self._aliases += 1
        return quote_identifier(f"{ALIAS}{self._aliases}")

    def joinable(self) -> bool:
        """Count an EXISTS condition and return whether PostgreSQL may turn it into a join."""
        self._semijoins += 1
        return self._semijoins <= MAX_SEMIJOINS


class Row:
    """A row in scope, and its referenced columns.

    An inner query selects a page and an outer query builds the output of its rows. The inner query selects
    only the columns that the outer query referenced, because a role may lack privileges on other columns.

    :ivar derived: whether the row comes from a subquery.
    :ivar value: SQL of the whole row as one composite value, unless the row is derived.
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
        column = None if self.table is None else self.table.column(name)
        return None if column is None else column.type

    def whole(self) -> str:
        if not self.derived:
            return self.value
        self.needs_whole = True
        return f"{self.alias}.{quote_identifier(self.WHOLE)}"

    def reference_columns_of(self, other: Row) -> None:
        self.columns.update(other.columns)
        self.needs_whole |= other.needs_whole

    def required_columns(self) -> list[str]:
        names = [quote_identifier(name) for name in self.columns]
        if self.needs_whole:
            names.append(quote_identifier(self.WHOLE))
        return names or ["1"]

    def selection_from(self, inner: Row) -> str:
        items = [inner.column(name) for name in self.columns]
        if self.needs_whole:
            items.append(f"{inner.whole()} as {quote_identifier(self.WHOLE)}")
        return ", ".join(items) or "1"


# ---------------------------------------------------------------- compiled statements


_PageSizes = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement and the source of each slot's value.

    PostgreSQL keeps replanning a prepared statement while it expects custom plans to be cheaper. It expects
    this if the page size is a parameter, because it then assumes that a page is a tenth of the table.
    Planning joins takes longer than reading a page, so the page sizes in use are written into the statement.
    """

    statement: Statement
    sources: tuple[SlotSource, ...]
    input_checks: tuple[Compiled, ...] = ()
    limits: tuple[int, ...] = ()
    _sized: dict[_PageSizes, Statement] = field(default_factory=dict, init=False, compare=False, repr=False)

    def bind(self, values: Any) -> Bound:
        bound = tuple([source.bind(values) for source in self.sources])
        if self.limits and self.statement.prepared:
            return Bound(self._for_sizes(tuple([bound[index] for index in self.limits])), bound)
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
        slots = [known.get(index) or f"${index + 1}" for index in range(len(types))]
        text = substitute_literals(self.statement.text, types, slots)
        statement = self._sized[sizes] = replace(self.statement, text=text)
        return statement

    def unprepared(self) -> Compiled:
        return replace(self, statement=replace(self.statement, prepared=False))


def compiled(text: str, writer: Writer) -> Compiled:
    input_checks = tuple(
        Compiled(Statement(check, (parameter.type,), prepared=False), (parameter.source,))
        for check, parameter in writer.input_checks
    )
    return Compiled(
        Statement(text, tuple(writer.types), shareable=not writer.volatile),
        tuple(writer.sources),
        input_checks,
        tuple(writer.limits),
    )


# ---------------------------------------------------------------- guards

_INVALID_TEXT = "22P02"
_RAISED = re.compile(f"{ERROR_MARKER}([^~]+)~([0-9]{{1,9}})~([0-9]{{1,19}})(?![0-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Guard:
    """A limit on a number of rows: at most a ``bigint`` parameter, or exactly one row.

    ``reason`` must not contain ``~``.
    """

    reason: str
    at_most: Parameter | None = None

    def violated_sql(self, writer: Writer, count: str) -> str:
        return (
            f"{count} {UNEQUAL} 1"
            if self.at_most is None
            else f"{count} {GREATER} {writer.slot(self.at_most)}"
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """Arguments of ``raise_sql``, parsed from PostgreSQL's error message."""

    reason: str
    index: int
    number: int


def raise_sql(reason: str, number: str, index: int = 0) -> str:
    """Return SQL of type ``int`` that raises an error.

    The SQL depends on ``number``, so that the planner does not evaluate it.
    """
    return f"({quote_literal(f'{ERROR_MARKER}{reason}~{index}~')} {CONCATENATE} {number})::int"


def violation_in(code: str, message: str) -> Violation | None:
    match = _RAISED.search(message) if code == _INVALID_TEXT else None
    return None if match is None else Violation(match[1], int(match[2]), int(match[3]))
