"""Statements whose single row is a REST answer: the body, how many rows it has, and what functions set.

The columns are those of ``Answered``.  The body is made by PostgreSQL in the form that was negotiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from dataapi.catalog.model import Volatility
from dataapi.query.algebra import SCALAR, Parameter, Rows
from dataapi.query.bodies import Body, Form, body_sql, csv_line_sql
from dataapi.query.expressions import source_sql
from dataapi.query.outputs import output_sql, record_rows
from dataapi.query.records import is_grouped, shown_sql
from dataapi.query.results import Output, Record
from dataapi.query.shown import Source
from dataapi.query.sql import Compiled, compiled
from dataapi.query.writer import Row, Writer


class Total(Enum):
    """How the rows that match whatever the page are counted."""

    NONE = "none"
    EXACT = "exact"
    BOUNDED = "bounded"
    """Up to one more than the bound of ``compile_answer``: an estimate takes over beyond it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The row of an answer.

    :ivar count: rows in the body.
    :ivar total: matching rows, None when they were not counted.
    :ivar response_headers, response_status: the settings ``response.headers`` and ``response.status``
        that functions made, None where they did not.
    :ivar location: for an insert, a JSON object of the one inserted row's key with its values as text.
    :ivar inserted: for an upsert, how many rows were inserted and not updated.
    """

    body: bytes | None
    count: int
    total: int | None
    response_headers: str | None
    response_status: str | None
    location: str | None = None
    inserted: int | None = None

    @classmethod
    def of(cls, row: Sequence[Any]) -> Answered:
        """Return a statement's row as an answer; bodies that are not JSON come as text."""
        body, *others = row
        return cls(body.encode() if isinstance(body, str) else body, *others)


TO_COME = Answered(None, 0, None, None, None)
"""What is known of an answer before its rows."""

GUCS = (
    "nullif(pg_catalog.current_setting('response.headers', true), '')",
    "nullif(pg_catalog.current_setting('response.status', true), '')",
)
"""SQL of what functions set for the answer, to stand where all rows were computed before."""


def compile_answer(
    rows: Rows, output: Output, body: Body, total: Total = Total.NONE, bound: Parameter | None = None
) -> Compiled:
    """Return the statement that answers with rows; its columns are the first five of ``Answered``.

    A function that may change something is called once, whatever is asked of its rows.

    :param output: a ``Record`` of each row, or a function's value (``ColumnOf(SCALAR)``).
    :param bound: a ``bigint`` parameter, for ``Total.BOUNDED``.
    """
    writer = Writer()
    found = _Called(writer, rows) if _is_called_apart(rows) else _Read(writer, rows)
    counted = _total_sql(writer, found, output, total, bound)
    shown = shown_sql(writer, output_sql, output, found.source())
    columns = (body_sql(writer, shown, body), "pg_catalog.count(*)", counted, *GUCS)
    return compiled(f"{found.prefix()}select {', '.join(columns)} from {shown.item}", writer)


def compile_lines(rows: Rows, output: Output, form: Form) -> Compiled:
    """Return the statement that gives a row of one column for each row, to be sent while they come.

    :param form: ``ARRAY`` or ``STRIPPED`` for a JSON value each, ``CSV`` for a line each, without its end.
    """
    writer = Writer()
    shown = record_rows(writer, rows, output, None)
    line = csv_line_sql(shown) if form is Form.CSV else shown.json_sql(writer)
    if form is Form.STRIPPED:
        line = f"pg_catalog.json_strip_nulls({line})"
    return compiled(f"select {line} from {shown.item}", writer)


def _total_sql(writer: Writer, found: _Read, output: Output, total: Total, bound: Parameter | None) -> str:
    if total is Total.NONE:
        return "null::bigint"
    if total is Total.BOUNDED:
        assert bound is not None, "counting up to a bound needs one"
        counted = f"(select 1 from {found.again()} limit {writer.slot(bound)} + 1) as {writer.alias()}"
        return f"(select pg_catalog.count(*) from {counted})"
    rows, grouped = found.rows, isinstance(output, Record) and is_grouped(output)
    if rows.limit is None and rows.offset is None and not grouped:
        return "pg_catalog.count(*)"
    return f"(select pg_catalog.count(*) from {found.again()})"


class _Read:
    """The rows of a table, or of a function that may as well be called again."""

    def __init__(self, writer: Writer, rows: Rows) -> None:
        self.rows = rows
        self._writer = writer

    def prefix(self) -> str:
        """Return what the statement begins with."""
        return ""

    def source(self) -> Source:
        """Return the rows to show."""
        row = self._row()
        return Source(row, self._source_sql(row), self.rows)

    def again(self) -> str:
        """Return the ``from`` item of all rows, to count them."""
        return self._source_sql(self._row())

    def _row(self) -> Row:
        return Row(self._writer.alias())

    def _source_sql(self, row: Row) -> str:
        return source_sql(self._writer, self.rows, row, None)


def _is_called_apart(rows: Rows) -> bool:
    # What is not volatile is called where it stands: PostgreSQL can look into it, and apply conditions there.
    call = rows.call
    return call is not None and (call.scalar or call.function.volatility is Volatility.VOLATILE)


class _Called(_Read):
    """The rows of a function that is called once, in a ``with`` query of its own."""

    def __init__(self, writer: Writer, rows: Rows) -> None:
        super().__init__(writer, rows)
        self._called = writer.alias()
        self._used: list[Row] = []

    def prefix(self) -> str:
        inner, needed = Row(self._writer.alias()), Row("", derived=True)
        for row in self._used:
            needed.also(row)
        assert self.rows.call is not None
        if self.rows.call.scalar:
            # A value that nothing names would not be computed.
            needed.column(SCALAR)
        call = Rows(self.rows.table, call=self.rows.call)
        source = source_sql(self._writer, call, inner, None)
        return f"with {self._called} as materialized (select {needed.selection_from(inner)} from {source}) "

    def _row(self) -> Row:
        row = Row(self._writer.alias(), derived=True)
        self._used.append(row)
        return row

    def _source_sql(self, row: Row) -> str:
        rows = replace(self.rows, call=None)
        return source_sql(self._writer, rows, row, None, relation=f"{self._called} as {row.alias}")
