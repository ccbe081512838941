"""Changes of rows that Citus distributes: alone in a statement, or without what its workers do not do.

Citus plans a change fastest where it is the whole statement, with nothing in ``returning`` but columns.  For
an insert within a ``with`` it even stores what is returned in files, which takes several times as long.  So a
block runs the change and keeps its rows in a setting of the transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dataapi.catalog.model import Table
from dataapi.database.citus import BlockStatement
from dataapi.database.sql_text import EQUAL, PLUS, operator_sql, quote_identifier, quote_literal
from dataapi.sql.algebra import Condition, Parameter, Rows, SlotSource
from dataapi.sql.dialect import Change, ChangeOf, Dialect
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
from dataapi.sql.kept_rows import kept_rows_sql, may_lack, partial_row_sql
from dataapi.sql.mutations import (
    Delete,
    Insert,
    JsonColumn,
    JsonRows,
    MadeCell,
    MissingMember,
    Mutation,
    Update,
    ValueRows,
)
from dataapi.sql.outputs import null_if_sql
from dataapi.sql.page_source import at_most_one
from dataapi.sql.parts import reads_only_columns
from dataapi.sql.statement import Compiled, Row, Writer, compiled, qualified, raise_sql

_KEPT = "dataapi.changed_rows"
_COUNT = "dataapi.inserted"
"""The transaction's settings that have the rows, and how many of them an upsert inserted."""

_ROW, _ROWS, _NEW = '"~row"', '"~rows"', '"~new"'
"""Variables of the block."""

_INSERTED = '"~inserted"'
"""The column that says of a row whether it was inserted and not updated."""


def change(dialect: Dialect, writer: Writer, asked: ChangeOf) -> Change:
    """Return what changes rows of a distributed table."""
    counts, inserted = counter_of(asked.mutation) is not None, UNCOUNTED
    alone = compile_lone_change(dialect, asked)
    if alone is not None:
        checks = compile_matching_check(dialect, asked)
        kept = kept_rows_sql(writer, asked.mutation.table, _KEPT, asked.row)
        queries = f"{asked.name} as ({kept})"
        if counts:
            inserted = f"pg_catalog.current_setting({quote_literal(_COUNT)})::bigint"
        return Change(queries, inserted, (*checks, alone))
    mutation, row = asked.mutation, asked.row
    if counts:
        mutation, row = _uncounted(mutation), _WithInserted(row)
        inserted = f"(select pg_catalog.count(*) from {asked.name} where {_INSERTED})"
    elif isinstance(mutation, Update):
        mutation = _written(mutation)
    return Change(mutation_queries(writer, mutation, asked.name, row, asked.place), inserted)


class _WithInserted(Row):
    """A row that says whether an upsert inserted it: workers do not count updated ones in a setting."""

    def __init__(self, row: Row) -> None:
        super().__init__(row.alias)
        self.also(row)

    def selection_from(self, inner: Row) -> str:
        # A row that was inserted has no earlier version.
        return f"{super().selection_from(inner)}, {inner.alias}.xmax {EQUAL} 0 as {_INSERTED}"


def _uncounted(mutation: Mutation) -> Mutation:
    """Return an upsert that does not count its rows in a setting."""
    if not isinstance(mutation, Insert) or mutation.conflict is None:
        return mutation
    return replace(mutation, conflict=replace(mutation.conflict, counter=None))


# ---------------------------------------------------------------- alone in a statement


def compile_lone_change(dialect: Dialect, asked: ChangeOf) -> Compiled | None:
    """Return the statement that changes rows, and keeps them; None for what is not changed so."""
    row, table = asked.row, asked.mutation.table
    if not table.distributed_by or row.needs_whole or not reads_only_columns(asked.shown):
        return None
    mutation = _alone(asked.mutation, row)
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
    found = compiled(f"{text} returning {returned.selection_from(target)}", writer)
    kept = partial_row_sql(table, _ROW, row.columns)
    block = BlockStatement(
        found.statement.text,
        found.statement.types,
        before=f"declare {_ROW} record;{_ROWS} {type_}[] := '{{}}';{_NEW} bigint := 0;"
        f"begin for {_ROW} in execute ",
        after=f" loop {_ROWS} := pg_catalog.array_append({_ROWS},{kept});"
        f"{count}end loop;perform pg_catalog.set_config({quote_literal(_KEPT)},{_ROWS}::text,true),"
        f"pg_catalog.set_config({quote_literal(_COUNT)},{_NEW}::text,true);end",
    )
    return replace(found, statement=block)


def _alone(mutation: Mutation, row: Row) -> Mutation | None:
    """Return a change as it is run so, None where it cannot be, or its rows be values of the table's type."""
    known = row.columns
    match mutation:
        case Insert(rows=ValueRows()):
            pass
        case Insert(rows=JsonRows(many=False, columns=columns, missing=missing) as rows) if columns:
            # Citus would compute a default that is not needed, too.
            if missing is MissingMember.DEFAULT and any(each.default for each in columns):
                return None
            if not _are_simple(rows):
                known = {}
            mutation = replace(mutation, rows=_members(rows, mutation.table))
        case Update(table, _, where) as update if _is_one(table, where):
            mutation = _written(update)
            if not isinstance(mutation.values, ValueRows):
                return None
        case Delete(table, where) if _is_one(table, where):
            pass
        case _:
            return None
    return mutation if may_lack(mutation.table, known) else None


def _is_one(table: Table, where: Condition | None) -> bool:
    """Whether at most one row matches, of a tenant: keeping many costs more than Citus' planning."""
    rows = Rows(table, where=where)
    return tenant_in(rows) is not None and at_most_one(rows)


def compile_matching_check(dialect: Dialect, asked: ChangeOf) -> tuple[Compiled, ...]:
    """Return the statement that raises where the row to insert does not satisfy what it must, if anything."""
    insert = asked.mutation
    if not isinstance(insert, Insert) or insert.matching is None or not isinstance(insert.rows, JsonRows):
        return ()
    writer, count = dialect.writer(), "pg_catalog.count(*)"
    row = Row(writer.alias())
    source = json_source_sql(writer, insert.rows, row)
    cases = [
        f"when {guard.violated_sql(writer, count)} then {raise_sql(guard.reason, count)}"
        for guard in asked.guards
        if guard.at_most is None
    ]
    matching = condition_sql(writer, insert.matching, row)
    return (compiled(f"select case {' '.join(cases)} end from {source} where {matching}", writer),)


# ---------------------------------------------------------------- members of one JSON object


def _written(update: Update) -> Update:
    """Return an update by one JSON object as Citus runs it on the worker that has the rows.

    It sets members of the object where it can, which takes no table beside theirs.  Else the object is an
    array's: Citus sends no function of a single record to workers.
    """
    rows = update.values
    if not isinstance(rows, JsonRows) or rows.many or not rows.columns:
        return update
    if rows.missing is not MissingMember.NULL:
        return update
    if _are_simple(rows) and not update.key:
        return replace(update, values=_members(rows, update.table))
    value = replace(rows.value, source=_Listed(rows.value.source))
    return replace(update, values=replace(rows, value=value, many=True))


@dataclass(frozen=True, slots=True)
class _Listed:
    """A JSON value as the only one of an array."""

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
"""Types of PostgreSQL that have no cast from text but by reading it."""


def _are_simple(rows: JsonRows) -> bool:
    """Whether no member is read as a column of a whole row."""
    return all(each.type in _SCALARS or each.type in _JSON_TYPES for each in rows.columns)


def _members(rows: JsonRows, table: Table) -> ValueRows:
    """Return the row of one JSON object, member by member, as no query may stand in it."""
    cells = [Member(rows.value, each, table) for each in rows.columns]
    return ValueRows(tuple([each.name for each in rows.columns]), (tuple(cells),))


@dataclass(frozen=True, slots=True)
class Member(MadeCell):
    """A member of one JSON object, by functions of that alone."""

    object: Parameter
    column: JsonColumn
    table: Table

    def sql(self, writer: Writer) -> str:
        """Return what the column is set to."""
        column, slot = self.column, writer.slot(self.object)
        key = f"{quote_literal(column.key)}::text"
        member = f"{slot} {operator_sql('->')} {key}"
        if column.type in _SCALARS:
            value = f"({slot} {operator_sql('->>')} {key})::{column.type}"
        elif column.type in _JSON_TYPES:
            value = f"{null_if_sql(f'({member})::text', 'null')}::{column.type}"
        else:
            alone = f"pg_catalog.json_build_object({quote_literal(column.name)}::text, {member})"
            made = f"pg_catalog.json_populate_record(null::{qualified(self.table)}, {alone})"
            value = f"({made}).{quote_identifier(column.name)}"
        if column.function:
            value = f"{column.function}({value})"
        return f"{value}::{column.cast}" if column.cast else value
