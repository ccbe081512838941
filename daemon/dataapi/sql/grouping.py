"""Grouped rows: the aggregates in expressions, and values that PostgreSQL cannot group by as they are."""

from __future__ import annotations

from dataapi.sql.algebra import (
    AggregateOf,
    CastOf,
    ColumnOf,
    ComputedOf,
    Expression,
    FunctionOf,
    JsonbOf,
    JsonPathOf,
)
from dataapi.sql.expressions import expression_sql
from dataapi.sql.outputs import Output, Value, type_of
from dataapi.sql.writer import Row, Writer

OPERAND = "~operand"
"""The column that stands for the operand of an aggregate until it is known."""

_JSON = frozenset({114, 199})
"""Oids of ``json`` and its array."""
_WITHOUT_EQUALITY = frozenset(
    {142, 143, 600, 601, 602, 603, 604, 628, 718, 1017, 1018, 1019, 1020, 1027, 629, 719, 4072, 4073}
)
"""Oids of ``xml``, the geometric types and ``jsonpath``, and of their arrays: they cannot be grouped by."""


def aggregate_in(expression: Expression) -> AggregateOf | None:
    """Return the aggregate within an expression, inside casts and functions."""
    match expression:
        case AggregateOf():
            return expression
        case CastOf(inner) | FunctionOf(_, inner) | JsonbOf(inner) | JsonPathOf(inner):
            return aggregate_in(inner)
        case _:
            return None


def with_operand(expression: Expression, column: str) -> Expression:
    """Return the expression with the operand of its aggregate being a column."""
    match expression:
        case AggregateOf(function, _, distinct, builtin):
            return AggregateOf(function, ColumnOf(column), distinct, builtin)
        case CastOf(inner, type_):
            return CastOf(with_operand(inner, column), type_)
        case FunctionOf(function, inner):
            return FunctionOf(function, with_operand(inner, column))
        case JsonbOf(inner):
            return JsonbOf(with_operand(inner, column))
        case JsonPathOf(inner, json, steps, as_text):
            return JsonPathOf(with_operand(inner, column), json, steps, as_text)
        case _:
            return expression


def operand_sql(writer: Writer, aggregate: AggregateOf, row: Row) -> str:
    """Return the SQL of an aggregate's operand; for ``count(*)`` a value that is never NULL."""
    if aggregate.expression is None:
        return "true"
    return expression_sql(writer, aggregate.expression, row)


def groupable(sql: str, output: Output, row: Row) -> str:
    """Return the SQL of a value of a row, by which rows can be grouped.

    Values of ``json`` and some other types have no equality; those are taken as ``jsonb`` or text.
    """
    if not isinstance(output, Value):
        return f"({sql})::jsonb"
    match output.expression:
        case ColumnOf() | ComputedOf():
            type_ = type_of(output.expression, row)
            if type_ in _JSON:
                return f"pg_catalog.to_jsonb({sql})"
            return f"({sql})::text" if type_ in _WITHOUT_EQUALITY else sql
        case JsonPathOf(as_text=False):
            return f"({sql})::jsonb"
        case FunctionOf():
            return f"pg_catalog.to_jsonb({sql})"
        case CastOf(_, type_name) if type_name.removeprefix("pg_catalog.").strip('"') == "json":
            return f"({sql})::jsonb"
        case _:
            return sql
