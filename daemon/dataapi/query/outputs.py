"""SQL of outputs: JSON that PostgreSQL builds, so that no row is ever walked here."""

from __future__ import annotations

from dataapi.database.quoting import quote_literal
from dataapi.query.algebra import Rows
from dataapi.query.connections import ConnectionWriter
from dataapi.query.expressions import expression_sql
from dataapi.query.forms import base64_sql, build_object, form_sql, key_sql
from dataapi.query.records import shown_sql
from dataapi.query.relations import call_sql
from dataapi.query.results import (
    Connection,
    Cursor,
    FunctionValue,
    FunctionValues,
    FunctionVoid,
    Instant,
    JsonText,
    Labels,
    Many,
    NodeId,
    Null,
    Object,
    One,
    Output,
    Text,
    Value,
    WireForm,
)
from dataapi.query.shown import Shown, rows_source
from dataapi.query.writer import Row, Writer


def output_sql(writer: Writer, output: Output, row: Row | None) -> str:
    """Return the SQL of an output in the scope of a row (None at the root)."""
    match output:
        case Text(text):
            return f"{quote_literal(text)}::text"
        case Null():
            return "null::json"
        case Object(members):
            return build_object(
                [(key_sql(writer, key), output_sql(writer, value, row)) for key, value in members]
            )
        case Value(expression, form, labels):
            return form_sql(expression_sql(writer, expression, _in_scope(row)), form, labels)
        case FunctionValue(call, form, labels):
            return _function_value_sql(writer, call_sql(writer, call, row), form, labels)
        case FunctionValues(call, form, labels):
            alias = writer.alias()
            value = form_sql(f"{alias}.value", form, labels)
            source = f"{call_sql(writer, call, row)} as {alias}(value)"
            return f"(select coalesce(pg_catalog.json_agg({value}), '[]'::json) from {source})"
        case FunctionVoid(call):
            return f"(select null::json from {call_sql(writer, call, row)})"
        case JsonText(parameter):
            return writer.slot(parameter)
        case Instant():
            return "pg_catalog.now()"
        case NodeId(schema, table, key):
            names = [f"{quote_literal(schema)}::text", f"{quote_literal(table)}::text"]
            return base64_sql([*names, *(_in_scope(row).column(name) for name in key)])
        case Cursor(order):
            return base64_sql([expression_sql(writer, term.expression, _in_scope(row)) for term in order])
        case One(rows, inner):
            return _one_sql(writer, rows, inner, row)
        case Many(rows, inner):
            return _many_sql(writer, rows, inner, row)
        case Connection():
            return ConnectionWriter(writer, output, row, output_sql).sql()
        case _:
            raise TypeError(f"{type(output).__name__} lives only inside other outputs")


def _function_value_sql(writer: Writer, call: str, form: WireForm, labels: Labels) -> str:
    """Return the SQL of a call's result, whose form may name it twice though it must be called once."""
    if form not in (WireForm.ENUM, WireForm.ENUM_ARRAY):
        return form_sql(call, form, labels)
    alias = writer.alias()
    return f"(select {form_sql(f'{alias}.value', form, labels)} from {call} as {alias}(value))"


def _in_scope(row: Row | None) -> Row:
    assert row is not None, "an output of a row stands outside any row"
    return row


def _one_sql(writer: Writer, rows: Rows, output: Output, parent: Row | None) -> str:
    shown = record_rows(writer, rows, output, parent, one=True)
    return f"(select {shown.json_sql(writer)} from {shown.item})"


def _many_sql(writer: Writer, rows: Rows, output: Output, parent: Row | None) -> str:
    shown = record_rows(writer, rows, output, parent)
    return f"(select {shown.array_sql(writer)} from {shown.item})"


def record_rows(
    writer: Writer, rows: Rows, output: Output, parent: Row | None, *, one: bool = False
) -> Shown:
    """Return rows with a column per member of what is shown of them.

    :param one: take at most one row.
    """
    return shown_sql(writer, output_sql, output, rows_source(writer, rows, parent, one=one))
