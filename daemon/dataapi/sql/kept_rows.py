"""Rows that one statement of a transaction keeps in a setting, for a later statement to read.

All parts of a statement see the database as it was before the statement, and a volatile function is called
wherever it stands.  A later statement sees what was written, such as related rows.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from dataapi.catalog.model import Table
from dataapi.database.sql_text import quote_identifier, quote_literal
from dataapi.sql.algebra import Rows
from dataapi.sql.expressions import source_sql
from dataapi.sql.statement import Compiled, Row, Writer, compiled, qualified

_FIRST_OWN_TYPE = 16384
"""The smallest oid of a type that PostgreSQL does not bring, such as a domain that accepts no NULL."""


def may_lack(table: Table, known: Container[str]) -> bool:
    """Whether all columns but the known ones may be NULL in a value of the table's type."""
    return all(each.name in known or each.nullable or each.type < _FIRST_OWN_TYPE for each in table.columns)


def partial_row_sql(table: Table, row: str, known: Container[str]) -> str:
    """Return a value of the table's type with the known columns of a row, and NULL for others."""
    names = [each.name for each in table.columns]
    values = ",".join(f"{row}.{quote_identifier(name)}" if name in known else "null" for name in names)
    return f"row({values})::{qualified(table)}"


def keeping_sql(setting: str, row: str) -> str:
    """Return SQL that keeps all rows of a query.

    :param row: SQL of each row as a value of its table's type.
    """
    rows = f"coalesce(pg_catalog.array_agg({row})::text, '{{}}')"
    return f"pg_catalog.set_config({quote_literal(setting)}, {rows}, true)"


def kept_rows_sql(writer: Writer, table: Table, setting: str, row: Row) -> str:
    """Return the query of the rows that were kept.

    :param row: the query provides what was named of this row.
    """
    kept = Row(writer.alias())
    source = source_sql(writer, Rows(table, stored_in=setting), kept, None)
    return f"select {row.selection_from(kept)} from {source}"


def call_first(writer: Writer, rows: Rows, setting: str) -> tuple[Compiled, Rows]:
    """Return the statement that calls the function of rows and keeps its result, and the kept rows."""
    row = Row(writer.alias())
    source = source_sql(writer, Rows(rows.table, call=rows.call), row, None)
    text = f"select {keeping_sql(setting, row.whole())} from {source}"
    return compiled(text, writer), replace(rows, call=None, stored_in=setting)
