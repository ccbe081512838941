"""Rows that one statement of a transaction stores in a setting for a later statement.

All parts of a statement see the database as it was before the statement, and a volatile function is called at
each reference. A later statement sees the written rows and their related rows.
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
"""Smallest OID of types that are not built in. Some of them may be domains that do not accept NULL."""


def may_lack(table: Table, known: Container[str]) -> bool:
    """Whether all columns except ``known`` may be NULL in a value of the table's row type."""
    return all(each.name in known or each.nullable or each.type < _FIRST_OWN_TYPE for each in table.columns)


def partial_row_sql(table: Table, row: str, known: Container[str]) -> str:
    names = [each.name for each in table.columns]
    values = ",".join(f"{row}.{quote_identifier(name)}" if name in known else "null" for name in names)
    return f"row({values})::{qualified(table)}"


def store_rows_sql(setting: str, row: str) -> str:
    rows = f"coalesce(pg_catalog.array_agg({row})::text, '{{}}')"
    return f"pg_catalog.set_config({quote_literal(setting)}, {rows}, true)"


def stored_rows_sql(writer: Writer, table: Table, setting: str, row: Row) -> str:
    stored = Row(writer.alias())
    source = source_sql(writer, Rows(table, stored_in=setting), stored, None)
    return f"select {row.selection_from(stored)} from {source}"


def call_first(writer: Writer, rows: Rows, setting: str) -> tuple[Compiled, Rows]:
    """Return a statement that calls the function of ``rows`` and stores its rows, and the stored ``Rows``."""
    row = Row(writer.alias())
    source = source_sql(writer, Rows(rows.table, call=rows.call), row, None)
    text = f"select {store_rows_sql(setting, row.whole())} from {source}"
    return compiled(text, writer), replace(rows, call=None, stored_in=setting)
