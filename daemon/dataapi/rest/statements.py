"""Statements whose single row is a REST answer: the body, how many rows it has, and what functions set.

The columns are those of ``ResultRow``.  The body is made by PostgreSQL in the form that was negotiated.
What is too large is refused by the statement too: it would fill the daemon's memory, and hold up others
while it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import NamedTuple

from dataapi.catalog.model import Table, Volatility
from dataapi.database.sql_text import EQUAL, GREATER, PLUS, quote_identifier, quote_literal
from dataapi.rest.media_output import Body, Form, body_parts, csv_line_sql
from dataapi.sql.algebra import Condition, OrderTerm, Parameter, Rows
from dataapi.sql.dialect import POSTGRESQL, Check, Dialect, MutationPart, MutationSql, ResultQuery
from dataapi.sql.dml import UNCOUNTED
from dataapi.sql.expressions import condition_sql, source_sql
from dataapi.sql.mutations import Delete, Mutation
from dataapi.sql.outputs import Output, json_sql
from dataapi.sql.page_source import RowSource, row_source
from dataapi.sql.parts import reads_only_columns
from dataapi.sql.row_output import Record, is_grouped, json_rows, output_rows
from dataapi.sql.statement import Compiled, Guard, Row, Writer, compiled, raise_sql
from dataapi.sql.stored_rows import call_first, may_lack, partial_row_sql, store_rows_sql, stored_rows_sql

TOO_LARGE = "PGRST100"
"""The reason that a statement raises for an answer of too many bytes."""

SCALAR = "pgrst_scalar"
"""The column of rows that are single values of a function; clients know it by this name."""

UPDATED = "dataapi.updated"
"""The transaction's setting that counts the rows that an upsert updates; it must be "0" before."""


class Total(Enum):
    """How all matching rows are counted, not only those of the page."""

    NONE = "none"
    EXACT = "exact"
    BOUNDED = "bounded"
    """Up to one more than the bound of ``compile_answer``: an estimate takes over beyond it."""


class ResultRow(NamedTuple):
    """The row of an answer.

    :ivar body: bytes of JSON, and text of other forms.
    :ivar rows: how many are in the body.
    :ivar total: matching rows, None when they were not counted.
    :ivar response_headers, response_status: the settings ``response.headers`` and ``response.status``
        that functions made, empty or None where they did not.
    :ivar location: for an insert, a JSON object of the one inserted row's key with its values as text.
    :ivar inserted: for an upsert, how many rows were inserted and not updated.
    """

    body: bytes | str | None
    rows: int
    total: int | None
    response_headers: str | None
    response_status: str | None
    location: str | None = None
    inserted: int | None = None


TO_COME = ResultRow(None, 0, None, None, None)
"""The part of an answer that is known before its rows."""
SETTINGS = (
    "pg_catalog.current_setting('response.headers', true)",
    "pg_catalog.current_setting('response.status', true)",
)
"""SQL of what functions set for the answer, to stand where all rows were computed before."""


# ---------------------------------------------------------------- reads and calls


def compile_answer(
    rows: Rows,
    output: Output,
    body: Body,
    total: Total = Total.NONE,
    bound: Parameter | None = None,
    *,
    max_bytes: int | None = None,
    guard: Guard | None = None,
    dialect: Dialect = POSTGRESQL,
) -> Compiled:
    """Return the statement that answers with rows; its columns are the first five of ``ResultRow``.

    A function that may change something is called once, whatever is asked of its rows.

    :param output: a ``Record`` of each row, or a function's value (``ColumnOf(SCALAR)``).
    :param bound: a ``bigint`` parameter, for ``Total.BOUNDED``.
    :param max_bytes: raise ``TOO_LARGE`` and the size of a body of more.
    :param guard: raise where the number of rows is out of bounds.
    """
    writer = dialect.writer()
    rows, output = dialect.rewrite_result(rows, output)
    source = _Source(writer, rows)
    counted = _total_sql(writer, source, output, total, bound)
    made, item = body_parts(writer, output, source.page(), body)
    columns = (made, "pg_catalog.count(*)", counted, *SETTINGS)
    checks: list[Check] = [] if max_bytes is None else [partial(_within, max_bytes)]
    if guard is not None:
        checks.append(partial(_guarded, writer, guard))
    answer = ResultQuery(_NAMES, columns, item, source.with_call())
    return compiled(dialect.checked(writer, answer, checks), writer)


_NAMES = ('"body"', '"count"', '"total"', '"headers"', '"status"')


def _within(maximum: int, size: str, _number: str, found: str) -> str:
    """Return the number of rows of an answer, raising instead where its body has more bytes."""
    return f"case when {size} {GREATER} {maximum} then {raise_sql(TOO_LARGE, size)} else {found} end"


def _guarded(writer: Writer, guard: Guard, _size: str, number: str, found: str) -> str:
    """Return the number of rows, raising instead where it is out of bounds."""
    violated, raised = guard.violated_sql(writer, number), raise_sql(guard.reason, number)
    return f"case when {violated} then {raised} else {found} end"


def compile_call(
    rows: Rows,
    output: Output,
    body: Body,
    total: Total = Total.NONE,
    *,
    max_bytes: int | None = None,
    guard: Guard | None = None,
    dialect: Dialect = POSTGRESQL,
) -> tuple[Compiled, ...]:
    """Return the statements of a call, the last of which returns the answer; see ``compile_answer``.

    A volatile function is called by a statement of its own if the answer has more than columns of its rows.
    """
    calling: tuple[Compiled, ...] = ()
    call, plain = rows.call, reads_only_columns((output, rows.where, rows.order))
    volatile = call is not None and call.function.volatility is Volatility.VOLATILE
    if volatile and rows.table is not None and dialect.reads_written_rows and not plain:
        first, rows = call_first(dialect.writer(), rows, _KEPT_ROWS)
        calling = (first,)
    return (
        *calling,
        compile_answer(rows, output, body, total, max_bytes=max_bytes, guard=guard, dialect=dialect),
    )


def compile_lines(
    rows: Rows,
    output: Output,
    form: Form,
    max_bytes: int | None = None,
    dialect: Dialect = POSTGRESQL,
) -> Compiled:
    """Return the statement that gives a row of one column for each row, to be sent while they come.

    :param form: ``ARRAY`` or ``STRIPPED`` for a JSON value each, ``CSV`` for a line each, without its end.
    :param max_bytes: raise ``TOO_LARGE`` and the size of a line of more.
    """
    writer = dialect.writer()
    rows, output = dialect.rewrite_result(rows, output)
    source = row_source(writer, rows, None)
    if form is Form.CSV:
        result = output_rows(writer, output, source)
        line, item = csv_line_sql(result), result.item
    else:
        json, item = json_rows(writer, output, source)
        line = json_sql(json)
        if form is Form.STRIPPED:
            line = f"pg_catalog.json_strip_nulls(({line})::json)"
    if max_bytes is None:
        return compiled(f"select {line} from {item}", writer)
    size = 'pg_catalog.pg_column_size("line")'
    refused = (
        f"case when {size} {GREATER} {max_bytes} then {raise_sql(TOO_LARGE, size)} {EQUAL} 0 else true end"
    )
    # Without the offset PostgreSQL would make each line twice.
    lines = f'(select {line} from {item} offset 0) as "lines"("line")'
    text = f'select "line" from {lines} where {refused}'
    return compiled(text, writer)


def _total_sql(writer: Writer, source: _Source, output: Output, total: Total, bound: Parameter | None) -> str:
    if total is Total.NONE:
        return "null::bigint"
    if total is Total.BOUNDED:
        assert bound is not None, "counting up to a bound needs one"
        counted = (
            f"(select 1 from {source.all_rows()} limit {writer.slot(bound)} {PLUS} 1) as {writer.alias()}"
        )
        return f"(select pg_catalog.count(*) from {counted})"
    rows, grouped = source.rows, isinstance(output, Record) and is_grouped(output)
    if rows.limit is None and rows.offset is None and not grouped:
        return "pg_catalog.count(*)"
    return f"(select pg_catalog.count(*) from {source.all_rows()})"


class _Source:
    """The rows of a table or of a function; one that may change something is called in a ``with`` query.

    What is not volatile is called where it stands, as often as it is read: PostgreSQL can look into it, and
    apply conditions there.
    """

    def __init__(self, writer: Writer, rows: Rows) -> None:
        self.rows = rows
        self._writer = writer
        call = rows.call
        volatile = call is not None and call.function.volatility is Volatility.VOLATILE
        self._called = writer.alias() if call is not None and (volatile or call.value_column) else ""
        self._used: list[Row] = []

    def with_call(self) -> str:
        """Return what the statement begins with; what is read of the call is known only at the end."""
        if not self._called:
            return ""
        call = self.rows.call
        assert call is not None, "only a call is called apart"
        inner, needed = Row(self._writer.alias()), Row("", derived=True)
        for row in self._used:
            needed.reference_columns_of(row)
        if call.value_column:
            # A value that nothing names would not be computed.
            needed.column(call.value_column)
        source = source_sql(self._writer, Rows(self.rows.table, call=call), inner, None)
        return f"with {self._called} as materialized (select {needed.selection_from(inner)} from {source}) "

    def page(self) -> RowSource:
        row = Row(self._writer.alias(), derived=bool(self._called))
        return RowSource(row, self._sql(row), self.rows)

    def all_rows(self) -> str:
        """Return the ``from`` item of all rows, to count them."""
        return self._sql(Row(self._writer.alias(), derived=bool(self._called)))

    def _sql(self, row: Row) -> str:
        if not self._called:
            return source_sql(self._writer, self.rows, row, None)
        self._used.append(row)
        rows, relation = replace(self.rows, call=None), f"{self._called} as {row.alias}"
        return source_sql(self._writer, rows, row, None, relation=relation)


def compile_matching(rows: Rows, dialect: Dialect = POSTGRESQL) -> Compiled:
    """Return the statement of all rows that match, whatever the page, for a look at its plan."""
    writer = dialect.writer()
    source = source_sql(writer, dialect.rewrite(rows), Row(writer.alias()), None)
    return compiled(f"select 1 from {source}", writer)


# ---------------------------------------------------------------- mutations

_OTHERS = ('"total"', '"headers"', '"status"', '"location"', '"inserted"')


@dataclass(frozen=True, slots=True)
class Representation:
    """The part of the changed rows that an answer shows.

    :ivar required: shows only the rows that satisfy it.
    """

    table: Table
    record: Record
    body: Body
    order: tuple[OrderTerm, ...] = ()
    required: Condition | None = None


@dataclass(frozen=True, slots=True)
class MutationQuery:
    """A mutation and its answer.

    :ivar representation: None to show nothing, which takes no privilege to read.
    :ivar located: key columns of which the one changed row's values are answered.
    :ivar max_bytes: a larger body is refused; None where none is made, as only the plan is asked for.
    :ivar reads_whole: whether the role may read all columns of the rows.
    """

    mutation: Mutation
    representation: Representation | None
    guards: tuple[Guard, ...] = ()
    located: tuple[str, ...] = ()
    max_bytes: int | None = 2**30
    reads_whole: bool = False


def compile_mutation(query: MutationQuery, dialect: Dialect = POSTGRESQL) -> tuple[Compiled, ...]:
    """Return the statements of a mutation, the last of which returns the answer.

    PostgreSQL runs all parts of one statement on the same snapshot.  If the answer has more than columns of
    the changed rows, such as related rows, a second statement makes it, which sees what was written.
    """
    query, writer = dialect.rewrite(query), dialect.writer()
    changed = writer.alias()
    row = Row(writer.alias(), derived=True)
    body, page = _body_and_page(writer, query.representation, changed, row)
    location = _location_sql(writer, query.located, changed, row)
    count = _count_sql(writer, query.guards, changed)
    asked = MutationPart(query.mutation, changed, row, output=query.representation, guards=query.guards)
    if _reads_after(dialect, query, row):
        change = _change_first(dialect, writer, asked, whole=query.reads_whole)
    else:
        change = dialect.mutation_sql(writer, asked)
    columns = (body, count, "null::bigint", *SETTINGS, location, change.inserted)
    answer = f"select {', '.join(columns)} from {page}"
    if query.representation is None or query.max_bytes is None:
        return *change.before, compiled(f"with {change.queries} {answer}", writer)
    counted = _within(query.max_bytes, 'pg_catalog.pg_column_size("body")', '"count"', '"count"')
    bounded = f'select "body", {counted}, {", ".join(_OTHERS)}'
    named = f'"answer"("body", "count", {", ".join(_OTHERS)})'
    text = f'with {change.queries}, {named} as ({answer}) {bounded} from "answer"'
    return *change.before, compiled(text, writer)


_KEPT_ROWS, _KEPT_INSERTED = "dataapi.kept_rows", "dataapi.kept_inserted"
"""The transaction's settings that keep rows for the next statement, and how many an upsert inserted."""


def _reads_after(dialect: Dialect, query: MutationQuery, row: Row) -> bool:
    """Whether the answer is made by a statement after the change; deleted rows are output as they were.

    :param row: what the answer needs of a row was named of this one.
    """
    output, mutation = query.representation, query.mutation
    if output is None or isinstance(mutation, Delete) or not dialect.reads_written_rows:
        return False
    if reads_only_columns((output.record, output.order, output.required)):
        return False
    return query.reads_whole or row.needs_whole or may_lack(mutation.table, row.columns)


def _change_first(dialect: Dialect, writer: Writer, asked: MutationPart, *, whole: bool) -> MutationSql:
    """Return a change that a statement of its own makes, and the query of the rows that it keeps."""
    table = asked.mutation.table
    first = dialect.writer()
    row = Row(first.alias(), derived=True)
    if whole:
        row.needs_whole = True
    else:
        row.reference_columns_of(asked.row)
    changed = first.alias()
    change = dialect.mutation_sql(first, replace(asked, name=changed, row=row))
    value = row.whole() if row.needs_whole else partial_row_sql(table, row.alias, row.columns)
    kept, inserted = [store_rows_sql(_KEPT_ROWS, value)], UNCOUNTED
    if change.inserted != UNCOUNTED:
        setting = quote_literal(_KEPT_INSERTED)
        kept.append(f"pg_catalog.set_config({setting}, ({change.inserted})::text, true)")
        inserted = f"pg_catalog.current_setting({setting})::bigint"
    text = f"with {change.queries} select {', '.join(kept)} from {changed} as {row.alias}"
    queries = f"{asked.name} as ({stored_rows_sql(writer, table, _KEPT_ROWS, asked.row)})"
    return MutationSql(queries, inserted, (*change.before, compiled(text, first)))


def _count_sql(writer: Writer, guards: tuple[Guard, ...], changed: str) -> str:
    """Return the number of rows in the body, raising instead where a guard is violated."""
    listed, affected = "pg_catalog.count(*)", f"(select pg_catalog.count(*) from {changed})"
    cases = []
    for guard in guards:
        count = listed if guard.at_most is None else affected
        cases.append(f"when {guard.violated_sql(writer, count)} then {raise_sql(guard.reason, count)}")
    return f"case {' '.join(cases)} else {listed} end" if cases else listed


def _location_sql(writer: Writer, key: tuple[str, ...], changed: str, row: Row) -> str:
    """Return the key of the one row as a JSON object of texts, null when there is not one row."""
    if not key:
        return "null::json"
    only, member = writer.alias(), writer.alias()
    for name in key:
        row.column(name)
    columns = ", ".join(map(quote_identifier, key))
    listed = f"pg_catalog.json_object_agg({member}.key, {member}.value)"
    members = f"pg_catalog.json_each_text(pg_catalog.row_to_json({only})) as {member}"
    found = f"(select {listed} from (select {columns} from {changed} limit 1) as {only}, {members})"
    return f"case when pg_catalog.count(*) {EQUAL} 1 then {found} end"


def _body_and_page(
    writer: Writer, representation: Representation | None, changed: str, row: Row
) -> tuple[str, str]:
    """Return the body and the ``from`` item that it is made over; what is needed of a row is named."""
    source = f"{changed} as {row.alias}"
    if representation is None:
        return "null::text", source
    if representation.required is not None:
        source += f" where {condition_sql(writer, representation.required, row)}"
    rows = Rows(representation.table, order=representation.order)
    return body_parts(writer, representation.record, RowSource(row, source, rows), representation.body)
