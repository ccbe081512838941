"""Mutations of distributed tables for Citus.

Citus plans a mutation fastest if it is a whole statement and ``returning`` contains only columns. For an
insert in a ``with`` query, Citus even writes the returned rows to files, which takes several times as long.
So a PL/pgSQL block runs the mutation as a standalone statement and stores its rows in a transaction setting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dataapi.catalog.model import Table
from dataapi.database.citus import BlockStatement
from dataapi.database.sql_text import EQUAL, PLUS, operator_sql, quote_identifier, quote_literal
from dataapi.sql.algebra import Condition, Parameter, Rows, SlotSource
from dataapi.sql.dialect import Dialect, MutationPart, MutationSql
from dataapi.sql.dialects.tenants import tenant_in
from dataapi.sql.dml import (
    UNCOUNTED,
    counter_of,
    delete_sql,
    insert_sql,
    json_source_sql,
    mutation_queries,
    update_sql,
)
from dataapi.sql.expressions import condition_sql
from dataapi.sql.mutations import (
    ComputedCell,
    Delete,
    Insert,
    JsonColumn,
    JsonRows,
    MissingMember,
    Mutation,
    Update,
    ValueRows,
)
from dataapi.sql.outputs import null_if_sql
from dataapi.sql.page_source import at_most_one
from dataapi.sql.parts import reads_only_columns
from dataapi.sql.statement import Compiled, Row, Writer, compiled, qualified, raise_sql
from dataapi.sql.stored_rows import may_lack, partial_row_sql, stored_rows_sql

_STORED = "dataapi.changed_rows"
_COUNT = "dataapi.inserted"
"""Transaction settings for the changed rows and for the number of rows that an upsert inserted."""

_ROW, _ROWS, _NEW = '"~row"', '"~rows"', '"~new"'

_INSERTED = '"~inserted"'


def mutation_sql(dialect: Dialect, writer: Writer, part: MutationPart) -> MutationSql:
    counts, inserted = counter_of(part.mutation) is not None, UNCOUNTED
    standalone = compile_standalone(dialect, part)
    if standalone is not None:
        checks = compile_matching_check(dialect, part)
        stored = stored_rows_sql(writer, part.mutation.table, _STORED, part.row)
        queries = f"{part.name} as ({stored})"
        if counts:
            inserted = f"pg_catalog.current_setting({quote_literal(_COUNT)})::bigint"
        return MutationSql(queries, inserted, (*checks, standalone))
    mutation, row = part.mutation, part.row
    if counts:
        mutation, row = _uncounted(mutation), _WithInserted(row)
        inserted = f"(select pg_catalog.count(*) from {part.name} where {_INSERTED})"
    elif isinstance(mutation, Update):
        mutation = _pushed_down(mutation)
    return MutationSql(mutation_queries(writer, mutation, part.name, row, part.index), inserted)


class _WithInserted(Row):
    """A row with an additional column that is true if an upsert inserted the row.

    The column replaces ``OnConflict.counter``: a worker cannot count in a setting of the coordinator.
    """

    def __init__(self, row: Row) -> None:
        super().__init__(row.alias)
        self.reference_columns_of(row)

    def selection_from(self, inner: Row) -> str:
        # xmax is 0 unless the row replaces an earlier version.
        return f"{super().selection_from(inner)}, {inner.alias}.xmax {EQUAL} 0 as {_INSERTED}"


def _uncounted(mutation: Mutation) -> Mutation:
    if not isinstance(mutation, Insert) or mutation.conflict is None:
        return mutation
    return replace(mutation, conflict=replace(mutation.conflict, counter=None))


# ---------------------------------------------------------------- standalone mutations


def compile_standalone(dialect: Dialect, part: MutationPart) -> Compiled | None:
    """Return a statement that runs a mutation and stores its rows, None if that is not possible."""
    row, table = part.row, part.mutation.table
    if not table.distributed_by or row.needs_whole or not reads_only_columns(part.output):
        return None
    mutation = _standalone(part.mutation, row)
    if mutation is None:
        return None
    counts = counter_of(mutation) is not None
    writer, type_, count = dialect.writer(), qualified(table), ""
    target, returned = Row(writer.alias()), row
    if counts:
        mutation, returned = _uncounted(mutation), _WithInserted(row)
        count = f"if {_ROW}.{_INSERTED} then {_NEW} := {_NEW} {PLUS} 1; end if;"
    match mutation:
        case Insert():
            text = insert_sql(writer, mutation, target)
        case Update():
            text = update_sql(writer, mutation, target)
        case Delete():
            text = delete_sql(writer, mutation, target)
    statement = compiled(f"{text} returning {returned.selection_from(target)}", writer)
    stored = partial_row_sql(table, _ROW, row.columns)
    block = BlockStatement(
        statement.statement.text,
        statement.statement.types,
        before=f"declare {_ROW} record;{_ROWS} {type_}[] := '{{}}';{_NEW} bigint := 0;"
        f"begin for {_ROW} in execute ",
        after=f" loop {_ROWS} := pg_catalog.array_append({_ROWS},{stored});"
        f"{count}end loop;perform pg_catalog.set_config({quote_literal(_STORED)},{_ROWS}::text,true),"
        f"pg_catalog.set_config({quote_literal(_COUNT)},{_NEW}::text,true);end",
    )
    return replace(statement, statement=block)


def _standalone(mutation: Mutation, row: Row) -> Mutation | None:
    known = row.columns
    match mutation:
        case Insert(rows=ValueRows()):
            pass
        case Insert(rows=JsonRows(many=False, columns=columns, missing=missing) as rows) if columns:
            # Citus evaluates the default even if it is not needed.
            if missing is MissingMember.DEFAULT and any(each.default for each in columns):
                return None
            if not _are_simple(rows):
                known = {}
            mutation = replace(mutation, rows=_members(rows, mutation.table))
        case Update(table, _, where) as update if _is_single(table, where):
            mutation = _pushed_down(update)
            if not isinstance(mutation.values, ValueRows):
                return None
        case Delete(table, where) if _is_single(table, where):
            pass
        case _:
            return None
    return mutation if may_lack(mutation.table, known) else None


def _is_single(table: Table, where: Condition | None) -> bool:
    """Whether at most one row of one tenant matches.

    Storing several rows in a setting would take more time than a standalone statement saves.
    """
    rows = Rows(table, where=where)
    return tenant_in(rows) is not None and at_most_one(rows)


def compile_matching_check(dialect: Dialect, part: MutationPart) -> tuple[Compiled, ...]:
    insert = part.mutation
    if not isinstance(insert, Insert) or insert.matching is None or not isinstance(insert.rows, JsonRows):
        return ()
    writer, count = dialect.writer(), "pg_catalog.count(*)"
    row = Row(writer.alias())
    source = json_source_sql(writer, insert.rows, row)
    cases = [
        f"when {guard.violated_sql(writer, count)} then {raise_sql(guard.reason, count)}"
        for guard in part.guards
        if guard.at_most is None
    ]
    matching = condition_sql(writer, insert.matching, row)
    return (compiled(f"select case {' '.join(cases)} end from {source} where {matching}", writer),)


# ---------------------------------------------------------------- members of one JSON object


def _pushed_down(update: Update) -> Update:
    """Return an update from one JSON object in a form that Citus runs on the worker with the rows.

    If possible, it sets members of the object directly, without joining another table. Otherwise the object
    is wrapped in an array, because Citus does not push down functions that return a single record.
    """
    rows = update.values
    if not isinstance(rows, JsonRows) or rows.many or not rows.columns:
        return update
    if rows.missing is not MissingMember.NULL:
        return update
    if _are_simple(rows) and not update.key:
        return replace(update, values=_members(rows, update.table))
    value = replace(rows.value, source=_InArray(rows.value.source))
    return replace(update, values=replace(rows, value=value, many=True))


@dataclass(frozen=True, slots=True)
class _InArray:
    source: SlotSource

    def bind(self, values: Any) -> str | None:
        text = self.source.bind(values)
        return None if text is None else f"[{text}]"


_JSON_TYPES = frozenset({'pg_catalog."json"', 'pg_catalog."jsonb"'})
_SCALARS = frozenset(
    f'pg_catalog."{name}"'
    for name in (
        *("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "money", "uuid", "bytea", "bit"),
        *("varbit", "text", "varchar", "bpchar", "date", "time", "timetz", "timestamp", "timestamptz"),
        *("interval", "inet", "cidr", "macaddr"),
    )
)
"""Built-in types whose only cast from text is their input function."""


def _are_simple(rows: JsonRows) -> bool:
    return all(each.type in _SCALARS or each.type in _JSON_TYPES for each in rows.columns)


def _members(rows: JsonRows, table: Table) -> ValueRows:
    cells = [Member(rows.value, each, table) for each in rows.columns]
    return ValueRows(tuple([each.name for each in rows.columns]), (tuple(cells),))


@dataclass(frozen=True, slots=True)
class Member(ComputedCell):
    """A column's value, read from a JSON object by an expression instead of a ``from`` item."""

    object: Parameter
    column: JsonColumn
    table: Table

    def sql(self, writer: Writer) -> str:
        column, slot = self.column, writer.slot(self.object)
        key = f"{quote_literal(column.key)}::text"
        member = f"{slot} {operator_sql('->')} {key}"
        if column.type in _SCALARS:
            value = f"({slot} {operator_sql('->>')} {key})::{column.type}"
        elif column.type in _JSON_TYPES:
            value = f"{null_if_sql(f'({member})::text', 'null')}::{column.type}"
        else:
            member_object = f"pg_catalog.json_build_object({quote_literal(column.name)}::text, {member})"
            record = f"pg_catalog.json_populate_record(null::{qualified(self.table)}, {member_object})"
            value = f"({record}).{quote_identifier(column.name)}"
        if column.function:
            value = f"{column.function}({value})"
        return f"{value}::{column.cast}" if column.cast else value
