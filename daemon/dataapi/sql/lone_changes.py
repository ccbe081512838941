"""Changes of distributed rows that stand alone, and the rows that they leave for another statement.

Citus plans a change fastest where it is the whole statement, with nothing in ``returning`` but columns.  For
an insert within a ``with`` it even stores what is returned in files, which takes several times as long.  So a
block runs the change and keeps its rows in a setting of the transaction.
"""

from __future__ import annotations

from dataapi.catalog.model import Table
from dataapi.database.message import Block
from dataapi.database.sql_text import EQUAL, PLUS, quote_identifier, quote_literal
from dataapi.sql.algebra import Condition, Rows
from dataapi.sql.dml import (
    INSERTED,
    delete_sql,
    insert_sql,
    json_source_sql,
    members_are_simple,
    returns_inserted,
    sets_members,
    update_sql,
)
from dataapi.sql.expressions import condition_sql, source_sql
from dataapi.sql.mutations import Delete, Insert, JsonRows, MissingMember, Mutation, Update, ValueRows
from dataapi.sql.page_source import at_most_one
from dataapi.sql.shards import tenant_of
from dataapi.sql.statement import Compiled, Guard, Row, Writer, compiled, qualified, raise_sql

_KEPT = "dataapi.changed_rows"
_COUNT = "dataapi.inserted"
"""The transaction's settings that have the rows, and how many of them an upsert inserted."""

_FIRST_OWN_TYPE = 16384
"""The least oid of a type that is not PostgreSQL's own, as domains that take no NULL are."""

_ROW, _ROWS, _NEW = '"~row"', '"~rows"', '"~new"'
"""Variables of the block."""


def compile_lone_change(mutation: Mutation, row: Row) -> Compiled | None:
    """Return the statement that changes rows, and keeps them; None for what is not changed so.

    :param row: what was named of it is kept.
    """
    table = mutation.table
    if not table.distributed_by or row.needs_whole or not _stands_alone(mutation, row):
        return None
    writer = Writer()
    target, type_ = Row(writer.alias()), qualified(table)
    match mutation:
        case Insert():
            text = insert_sql(writer, mutation, target, alone=True)
        case Update():
            text = update_sql(writer, mutation, target)
        case Delete():
            text = delete_sql(writer, mutation, target)
    returned, count = [row.selection_from(target)], ""
    if returns_inserted(mutation):
        returned.append(f"{target.alias}.xmax {EQUAL} 0 as {INSERTED}")
        count = f"if {_ROW}.{INSERTED} then {_NEW} := {_NEW} {PLUS} 1; end if;"
    names = [each.name for each in table.columns]
    kept = [f"{_ROW}.{quote_identifier(name)}" if name in row.columns else "null" for name in names]
    block = Block(
        f"declare {_ROW} record;{_ROWS} {type_}[] := '{{}}';{_NEW} bigint := 0;begin for {_ROW} in execute ",
        f" loop {_ROWS} := pg_catalog.array_append({_ROWS},row({','.join(kept)})::{type_});{count}end loop;"
        f"perform pg_catalog.set_config({quote_literal(_KEPT)},{_ROWS}::text,true),"
        f"pg_catalog.set_config({quote_literal(_COUNT)},{_NEW}::text,true);end",
    )
    return compiled(f"{text} returning {', '.join(returned)}", writer, block)


def _stands_alone(mutation: Mutation, row: Row) -> bool:
    """Whether a change can be run so, and its rows kept as values of the table's type."""
    known = row.columns
    match mutation:
        case Insert(rows=ValueRows()):
            pass
        case Insert(rows=JsonRows(many=False, columns=columns, missing=missing) as rows) if columns:
            # Citus would compute a default that is not needed, too.
            if missing is MissingMember.DEFAULT and any(each.default for each in columns):
                return False
            if not members_are_simple(rows):
                known = {}
        case Update(table, values, where):
            if not (isinstance(values, ValueRows) or sets_members(mutation)) or not _is_one(table, where):
                return False
        case Delete(table, where):
            if not _is_one(table, where):
                return False
        case _:
            return False
    return _may_lack(mutation.table, known)


def _is_one(table: Table, where: Condition | None) -> bool:
    """Whether at most one row matches, of a tenant: keeping many costs more than Citus' planning."""
    rows = Rows(table, where=where)
    return tenant_of(rows, None)[0] is not None and at_most_one(rows)


def _may_lack(table: Table, known: dict[str, None]) -> bool:
    """Whether all columns but the known ones may be NULL in a value of the table's type."""
    return all(each.name in known or each.nullable or each.type < _FIRST_OWN_TYPE for each in table.columns)


def kept_rows_query(writer: Writer, table: Table, name: str, row: Row) -> str:
    """Return the ``with`` query of that name that has the rows.

    :param row: what was named of it is what the query gives.
    """
    kept = Row(writer.alias())
    source = source_sql(writer, Rows(table, stored_in=_KEPT), kept, None)
    return f"{name} as (select {row.selection_from(kept)} from {source})"


def kept_inserted_sql() -> str:
    """Return SQL of how many rows were inserted and not updated."""
    return f"pg_catalog.current_setting({quote_literal(_COUNT)})::bigint"


def compile_matching_check(insert: Mutation, guards: tuple[Guard, ...]) -> tuple[Compiled, ...]:
    """Return the statement that raises where the row to insert does not satisfy what it must, if anything."""
    if not isinstance(insert, Insert) or insert.matching is None or not isinstance(insert.rows, JsonRows):
        return ()
    writer, count = Writer(), "pg_catalog.count(*)"
    row = Row(writer.alias())
    source = json_source_sql(writer, insert.rows, row)
    cases = [
        f"when {guard.violated_sql(writer, count)} then {raise_sql(guard.reason, count)}"
        for guard in guards
        if guard.at_most is None
    ]
    matching = condition_sql(writer, insert.matching, row)
    return (compiled(f"select case {' '.join(cases)} end from {source} where {matching}", writer),)
