"""Answers of one row of a tenant, made by a query of its table with no other query in it.

Citus plans such a query in a fraction of the time that one with subqueries takes it: it looks for nothing but
a table and a constant.  What is asked of the answer is said of its parts, so that none may take long.
"""

from __future__ import annotations

from dataapi.sql.algebra import CastOf, ColumnOf, JsonPathOf, Rows
from dataapi.sql.json_text import Json
from dataapi.sql.outputs import Output, Value
from dataapi.sql.page_source import aggregate_in, at_most_one, row_source
from dataapi.sql.row_output import MemberWriter, Spread, as_record
from dataapi.sql.shards import tenant_of
from dataapi.sql.statement import Writer


def flat_json(writer: Writer, output: Output, rows: Rows) -> tuple[Json, str] | None:
    """Return the JSON of the output of the one row, and what stands behind ``from``; None for other rows."""
    if not _is_flat(output) or not _is_one(rows):
        return None
    source = row_source(writer, rows, None)
    source.row.table = rows.table
    return MemberWriter(writer, source.row, joining=False).json(output), source.sql


def _is_one(rows: Rows) -> bool:
    """Whether at most one row matches, of a tenant, and the page has it."""
    wanted = rows.offset is None and (rows.limit is None or (isinstance(rows.limit, int) and rows.limit > 0))
    return wanted and tenant_of(rows, None)[0] is not None and at_most_one(rows)


def _is_flat(output: Output) -> bool:
    """Whether the output is made of nothing but columns."""
    record = as_record(output)
    return record is not None and all(
        not isinstance(member, Spread)
        and isinstance(member[1], Value)
        and isinstance(member[1].expression, ColumnOf | CastOf | JsonPathOf)
        and aggregate_in(member[1].expression) is None
        for member in record.members
    )
