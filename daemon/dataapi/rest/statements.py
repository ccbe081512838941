"""Statements that return a REST response in a single row: body, number of rows, headers and status.

The columns are those of ``ResultRow``. PostgreSQL builds the body in the negotiated media type. The statement
also rejects responses that are too large, because they would fill the daemon's memory and delay other
requests.
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
"""Error code for a response that is too large."""

SCALAR = "pgrst_scalar"
"""Column name of single values that a function returns. Clients rely on this name."""

UPDATED = "dataapi.updated"
"""Transaction setting in which an upsert counts updated rows. Its initial value must be "0"."""


class Total(Enum):
    """How to count all matching rows, including those outside the page."""

    NONE = "none"
    EXACT = "exact"
    BOUNDED = "bounded"
    """Counts up to ``bound + 1`` (see ``compile_result``). Larger totals are estimated."""


class ResultRow(NamedTuple):
    """The result row of a statement.

    :ivar body: bytes of JSON, text of other media types.
    :ivar total: number of matching rows, None if not counted.
    :ivar response_headers: the setting ``response.headers``, empty or None if not set.
    :ivar response_status: the setting ``response.status``, empty or None if not set.
    :ivar location: for an insert of one row, JSON object with the row's key values as text.
    :ivar inserted: for an upsert, number of rows inserted rather than updated.
    """

    body: bytes | str | None
    rows: int
    total: int | None
    response_headers: str | None
    response_status: str | None
    location: str | None = None
    inserted: int | None = None


PENDING_ROW = ResultRow(None, 0, None, None, None)
"""Placeholder for the result row while the headers of a streamed response are sent."""
RESPONSE_SETTINGS = (
    "pg_catalog.current_setting('response.headers', true)",
    "pg_catalog.current_setting('response.status', true)",
)
"""SQL of the settings that functions use to change the response. It must be evaluated after all rows."""


# ---------------------------------------------------------------- reads and calls


def compile_result(
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
    """Return the statement that returns rows. Its columns are the first five of ``ResultRow``.

    A volatile function is called exactly once.

    :param output: a ``Record`` of each row, or a function's value (``ColumnRef(SCALAR)``).
    :param bound: ``bigint`` parameter with the limit of ``Total.BOUNDED``.
    :param max_bytes: maximum size of the body in bytes. A larger body raises ``TOO_LARGE`` with its size.
    """
    writer = dialect.writer()
    rows, output = dialect.rewrite_result(rows, output)
    source = _Source(writer, rows)
    counted = _total_sql(writer, source, output, total, bound)
    body_sql, item = body_parts(writer, output, source.page(), body)
    columns = (body_sql, "pg_catalog.count(*)", counted, *RESPONSE_SETTINGS)
    checks: list[Check] = [] if max_bytes is None else [partial(_size_checked, max_bytes)]
    if guard is not None:
        checks.append(partial(_guard_checked, writer, guard))
    query = ResultQuery(_RESULT_COLUMNS, columns, item, source.with_clause())
    return compiled(dialect.checked(writer, query, checks), writer)


_RESULT_COLUMNS = ('"body"', '"count"', '"total"', '"headers"', '"status"')


def _size_checked(maximum: int, size: str, _number: str, value: str) -> str:
    return f"case when {size} {GREATER} {maximum} then {raise_sql(TOO_LARGE, size)} else {value} end"


def _guard_checked(writer: Writer, guard: Guard, _size: str, number: str, value: str) -> str:
    violated, raised = guard.violated_sql(writer, number), raise_sql(guard.reason, number)
    return f"case when {violated} then {raised} else {value} end"


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
    """Return the statements of a function call. The last one returns the result; see ``compile_result``.

    A separate statement calls a volatile function if the output also contains computed or related values.
    """
    calling: tuple[Compiled, ...] = ()
    call, plain = rows.call, reads_only_columns((output, rows.where, rows.order))
    volatile = call is not None and call.function.volatility is Volatility.VOLATILE
    if volatile and rows.table is not None and dialect.reads_written_rows and not plain:
        first, rows = call_first(dialect.writer(), rows, _STORED_ROWS)
        calling = (first,)
    return (
        *calling,
        compile_result(rows, output, body, total, max_bytes=max_bytes, guard=guard, dialect=dialect),
    )


def compile_lines(
    rows: Rows,
    output: Output,
    form: Form,
    max_bytes: int | None = None,
    dialect: Dialect = POSTGRESQL,
) -> Compiled:
    """Return a statement whose rows are the lines of a streamed response.

    :param form: ``ARRAY`` or ``STRIPPED`` for JSON values, ``CSV`` for CSV lines.
    :param max_bytes: maximum size of a line in bytes. A larger line raises ``TOO_LARGE`` with its size.
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
    within_limit = (
        f"case when {size} {GREATER} {max_bytes} then {raise_sql(TOO_LARGE, size)} {EQUAL} 0 else true end"
    )
    # Without the offset, PostgreSQL would compute each line twice.
    lines = f'(select {line} from {item} offset 0) as "lines"("line")'
    text = f'select "line" from {lines} where {within_limit}'
    return compiled(text, writer)


def _total_sql(writer: Writer, source: _Source, output: Output, total: Total, bound: Parameter | None) -> str:
    if total is Total.NONE:
        return "null::bigint"
    if total is Total.BOUNDED:
        assert bound is not None, "a bounded count needs a bound"
        counted = (
            f"(select 1 from {source.all_rows()} limit {writer.slot(bound)} {PLUS} 1) as {writer.alias()}"
        )
        return f"(select pg_catalog.count(*) from {counted})"
    rows, grouped = source.rows, isinstance(output, Record) and is_grouped(output)
    if rows.limit is None and rows.offset is None and not grouped:
        return "pg_catalog.count(*)"
    return f"(select pg_catalog.count(*) from {source.all_rows()})"


class _Source:
    """Rows of a table or function. A volatile function is called in a ``with`` query.

    Other functions are called at each reference, because PostgreSQL can inline them and push down conditions.
    """

    def __init__(self, writer: Writer, rows: Rows) -> None:
        self.rows = rows
        self._writer = writer
        call = rows.call
        volatile = call is not None and call.function.volatility is Volatility.VOLATILE
        self._call_name = writer.alias() if call is not None and (volatile or call.value_column) else ""
        self._used: list[Row] = []

    def with_clause(self) -> str:
        """Return the ``with`` clause of the call. Call this method after everything else is written."""
        if not self._call_name:
            return ""
        call = self.rows.call
        assert call is not None, "only calls need a with clause"
        inner, needed = Row(self._writer.alias()), Row("", derived=True)
        for row in self._used:
            needed.reference_columns_of(row)
        if call.value_column:
            # PostgreSQL would not call the function if nothing referenced its value.
            needed.column(call.value_column)
        source = source_sql(self._writer, Rows(self.rows.table, call=call), inner, None)
        return (
            f"with {self._call_name} as materialized (select {needed.selection_from(inner)} from {source}) "
        )

    def page(self) -> RowSource:
        row = Row(self._writer.alias(), derived=bool(self._call_name))
        return RowSource(row, self._sql(row), self.rows)

    def all_rows(self) -> str:
        return self._sql(Row(self._writer.alias(), derived=bool(self._call_name)))

    def _sql(self, row: Row) -> str:
        if not self._call_name:
            return source_sql(self._writer, self.rows, row, None)
        self._used.append(row)
        rows, relation = replace(self.rows, call=None), f"{self._call_name} as {row.alias}"
        return source_sql(self._writer, rows, row, None, relation=relation)


def compile_matching(rows: Rows, dialect: Dialect = POSTGRESQL) -> Compiled:
    """Return a statement that reads all matching rows without limit and offset, to estimate their number."""
    writer = dialect.writer()
    source = source_sql(writer, dialect.rewrite(rows), Row(writer.alias()), None)
    return compiled(f"select 1 from {source}", writer)


# ---------------------------------------------------------------- mutations

_OTHER_COLUMNS = ('"total"', '"headers"', '"status"', '"location"', '"inserted"')


@dataclass(frozen=True, slots=True)
class Representation:
    """The written rows that a response contains, filtered by ``required`` if set."""

    table: Table
    record: Record
    body: Body
    order: tuple[OrderTerm, ...] = ()
    required: Condition | None = None


@dataclass(frozen=True, slots=True)
class MutationQuery:
    """A mutation and its response.

    :ivar representation: rows in the response. If None, the role needs no privilege to read.
    :ivar located: key columns for the ``Location`` header if exactly one row changed.
    :ivar max_bytes: maximum size of the body in bytes, None if only the plan is requested.
    :ivar reads_whole: whether the role may read all columns of the rows.
    """

    mutation: Mutation
    representation: Representation | None
    guards: tuple[Guard, ...] = ()
    located: tuple[str, ...] = ()
    max_bytes: int | None = 2**30
    reads_whole: bool = False


def compile_mutation(query: MutationQuery, dialect: Dialect = POSTGRESQL) -> tuple[Compiled, ...]:
    """Return the statements of a mutation. The last one returns the result.

    If the response contains more than columns of the changed rows, such as related rows, a second statement
    builds it, because only a later statement sees the changes.
    """
    query, writer = dialect.rewrite(query), dialect.writer()
    changed = writer.alias()
    row = Row(writer.alias(), derived=True)
    body, page = _body_and_page(writer, query.representation, changed, row)
    location = _location_sql(writer, query.located, changed, row)
    count = _count_sql(writer, query.guards, changed)
    part = MutationPart(query.mutation, changed, row, output=query.representation, guards=query.guards)
    if _reads_written_rows(dialect, query, row):
        change = _mutate_first(dialect, writer, part, whole=query.reads_whole)
    else:
        change = dialect.mutation_sql(writer, part)
    columns = (body, count, "null::bigint", *RESPONSE_SETTINGS, location, change.inserted)
    result = f"select {', '.join(columns)} from {page}"
    if query.representation is None or query.max_bytes is None:
        return *change.before, compiled(f"with {change.queries} {result}", writer)
    counted = _size_checked(query.max_bytes, 'pg_catalog.pg_column_size("body")', '"count"', '"count"')
    bounded = f'select "body", {counted}, {", ".join(_OTHER_COLUMNS)}'
    named = f'"answer"("body", "count", {", ".join(_OTHER_COLUMNS)})'
    text = f'with {change.queries}, {named} as ({result}) {bounded} from "answer"'
    return *change.before, compiled(text, writer)


_STORED_ROWS, _INSERTED_COUNT = "dataapi.kept_rows", "dataapi.kept_inserted"
"""Transaction settings that pass the rows and the number of inserted rows to the next statement."""


def _reads_written_rows(dialect: Dialect, query: MutationQuery, row: Row) -> bool:
    """Whether a separate statement builds the response after the mutation.

    ``row`` has the columns that the response needs.
    """
    output, mutation = query.representation, query.mutation
    if output is None or isinstance(mutation, Delete) or not dialect.reads_written_rows:
        return False
    if reads_only_columns((output.record, output.order, output.required)):
        return False
    return query.reads_whole or row.needs_whole or may_lack(mutation.table, row.columns)


def _mutate_first(dialect: Dialect, writer: Writer, part: MutationPart, *, whole: bool) -> MutationSql:
    table = part.mutation.table
    first = dialect.writer()
    row = Row(first.alias(), derived=True)
    if whole:
        row.needs_whole = True
    else:
        row.reference_columns_of(part.row)
    changed = first.alias()
    change = dialect.mutation_sql(first, replace(part, name=changed, row=row))
    value = row.whole() if row.needs_whole else partial_row_sql(table, row.alias, row.columns)
    settings, inserted = [store_rows_sql(_STORED_ROWS, value)], UNCOUNTED
    if change.inserted != UNCOUNTED:
        setting = quote_literal(_INSERTED_COUNT)
        settings.append(f"pg_catalog.set_config({setting}, ({change.inserted})::text, true)")
        inserted = f"pg_catalog.current_setting({setting})::bigint"
    text = f"with {change.queries} select {', '.join(settings)} from {changed} as {row.alias}"
    queries = f"{part.name} as ({stored_rows_sql(writer, table, _STORED_ROWS, part.row)})"
    return MutationSql(queries, inserted, (*change.before, compiled(text, first)))


def _count_sql(writer: Writer, guards: tuple[Guard, ...], changed: str) -> str:
    listed, affected = "pg_catalog.count(*)", f"(select pg_catalog.count(*) from {changed})"
    cases = []
    for guard in guards:
        count = listed if guard.at_most is None else affected
        cases.append(f"when {guard.violated_sql(writer, count)} then {raise_sql(guard.reason, count)}")
    return f"case {' '.join(cases)} else {listed} end" if cases else listed


def _location_sql(writer: Writer, key: tuple[str, ...], changed: str, row: Row) -> str:
    if not key:
        return "null::json"
    only, member = writer.alias(), writer.alias()
    for name in key:
        row.column(name)
    columns = ", ".join(map(quote_identifier, key))
    listed = f"pg_catalog.json_object_agg({member}.key, {member}.value)"
    members = f"pg_catalog.json_each_text(pg_catalog.row_to_json({only})) as {member}"
    location = f"(select {listed} from (select {columns} from {changed} limit 1) as {only}, {members})"
    return f"case when pg_catalog.count(*) {EQUAL} 1 then {location} end"


def _body_and_page(
    writer: Writer, representation: Representation | None, changed: str, row: Row
) -> tuple[str, str]:
    source = f"{changed} as {row.alias}"
    if representation is None:
        return "null::text", source
    if representation.required is not None:
        source += f" where {condition_sql(writer, representation.required, row)}"
    rows = Rows(representation.table, order=representation.order)
    return body_parts(writer, representation.record, RowSource(row, source, rows), representation.body)
