"""Functions that change data and give rows: called once, before the statement that answers from their rows.

An answer may need a page, a count and relationships of the rows.  Asked for in the calling
statement itself, it would call the function anew for each of them, and would see related
rows as they were before the call.
"""

from __future__ import annotations

from dataclasses import replace

from dataapi.catalog.model import Volatility
from dataapi.database.quoting import quote_literal
from dataapi.query.algebra import ColumnOf, Rows
from dataapi.query.expressions import source_sql
from dataapi.query.results import AffectedCount, Connection, NodeId, Object, One, Output, Records, Text, Value
from dataapi.query.sql import Compiled, compiled
from dataapi.query.writer import Row, Writer


def keep_rows(output: Output, setting: str) -> tuple[Compiled, Output] | None:
    """Return the statement that calls the function and keeps its rows, and the output over these.

    None when the call may stand in the answer itself: it changes nothing, or only the own columns of
    one row are asked for.

    :param setting: the name of the transaction's setting that holds the rows.
    """
    match output:
        case One(rows, inner) if _changes(rows) and not shows_only_itself(inner):
            return _keeping(rows, setting), replace(output, rows=_kept(rows, setting))
        case Connection(rows) if _changes(rows):
            return _keeping(rows, setting), replace(output, rows=_kept(rows, setting))
        case _:
            return None


def _changes(rows: Rows) -> bool:
    return rows.call is not None and rows.call.function.volatility is Volatility.VOLATILE


def shows_only_itself(output: Output) -> bool:
    """Whether an output needs nothing but the row's own columns."""
    match output:
        case Object(members):
            return all(shows_only_itself(value) for _, value in members)
        case Records(inner):
            return shows_only_itself(inner)
        case Value(ColumnOf()) | Text() | NodeId() | AffectedCount():
            return True
        case _:
            return False


def _kept(rows: Rows, setting: str) -> Rows:
    return replace(rows, call=None, kept=setting)


def _keeping(rows: Rows, setting: str) -> Compiled:
    writer = Writer()
    row = Row(writer.alias())
    source = source_sql(writer, Rows(rows.table, call=rows.call), row, None)
    kept = f"coalesce(pg_catalog.array_agg({row.whole()})::text, '{{}}')"
    text = f"select pg_catalog.set_config({quote_literal(setting)}, {kept}, true) from {source}"
    return compiled(text, writer)
