"""Answers of one row of a tenant, made by a query of its table with no other query in it.

Citus plans such a query in a fraction of the time that one with subqueries takes it: it looks for nothing but
a table and a constant.  Most of what is left grows with the text, which it writes again for each request and
which the worker parses and plans: values are written by the shortest SQL, and the size of an answer is that
of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataapi.database.sql_text import PLUS
from dataapi.sql.algebra import CastOf, ColumnOf, JsonPathOf, Rows
from dataapi.sql.outputs import Json, Key, Output, Text, Value, WireForm, json_sql, key_json, object_json
from dataapi.sql.page_source import aggregate_in, at_most_one, row_source
from dataapi.sql.row_output import Spread, as_record
from dataapi.sql.shards import tenant_of
from dataapi.sql.statement import Writer

_LONGEST = {16: 5, 20: 20, 21: 6, 23: 11, 26: 10, 700: 16, 701: 26, 1082: 17, 1114: 40, 1184: 48, 2950: 38}
"""The most bytes that the JSON of a value has, by the oid of its type, where all are short."""


@dataclass(frozen=True, slots=True)
class FlatJson:
    """The one row's JSON.

    :ivar source: what stands behind ``from``.
    :ivar size: SQL of an aggregate: its bytes, of which values that are always short have their most.
    """

    json: Json
    source: str
    size: str


def flat_json(writer: Writer, output: Output, rows: Rows) -> FlatJson | None:
    """Return the JSON of the output of the one row; None for other rows."""
    values = flat_values(output)
    if values is None or rows.table is None or not _is_one(rows):
        return None
    source = row_source(writer, rows, None)
    members = [(key, value.json(writer, source.row)) for key, value in values]
    measured, short = list[Json](), len("[{}]")
    for (key, value), (_, json) in zip(values, members, strict=True):
        short += len(",:")
        if isinstance(key, Text):
            short += len(key.text.encode()) + len('""')
        else:
            measured.append(key_json(writer, key))
        column = rows.table.column(value.expression.name) if isinstance(value.expression, ColumnOf) else None
        if column is not None and value.form is WireForm.JSON and column.type in _LONGEST:
            short += _LONGEST[column.type]
        else:
            measured.append(json)
    lengths = f" {PLUS} ".join(f"pg_catalog.octet_length({json_sql(json)})" for json in measured)
    size = f"(coalesce(pg_catalog.max({lengths}), 0) {PLUS} {short})" if lengths else f"{short}"
    return FlatJson(object_json(writer, members), source.sql, size)


def _is_one(rows: Rows) -> bool:
    """Whether at most one row matches, of a tenant, and the page has it."""
    wanted = rows.offset is None and (rows.limit is None or (isinstance(rows.limit, int) and rows.limit > 0))
    return wanted and tenant_of(rows, None)[0] is not None and at_most_one(rows)


def flat_values(output: Output) -> list[tuple[Key, Value]] | None:
    """Return the members of an output that is made of nothing but columns, None for another one."""
    record, found = as_record(output), list[tuple[Key, Value]]()
    for member in () if record is None else record.members:
        if isinstance(member, Spread):
            return None
        key, value = member
        if not isinstance(value, Value):
            return None
        plain = isinstance(value.expression, ColumnOf | CastOf | JsonPathOf)
        if not plain or aggregate_in(value.expression) is not None:
            return None
        found.append((key, value))
    return None if record is None else found
