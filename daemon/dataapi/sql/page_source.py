"""SQL for the rows of a page: the inner query that selects and orders the rows, and its joins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dataapi.database.sql_text import quote_identifier
from dataapi.sql.algebra import (
    Aggregate,
    And,
    Cast,
    ColumnRef,
    Compare,
    ComputedValue,
    Condition,
    Expression,
    FunctionExpression,
    JsonPath,
    Operator,
    OrderTerm,
    RelatedValue,
    Rows,
)
from dataapi.sql.expressions import expression_sql, limit_sql, one_sql, order_sql, source_sql, term_sql
from dataapi.sql.outputs import Output, Value, type_of
from dataapi.sql.statement import Row, Writer

OPERAND = "~operand"
"""Placeholder column for the operand of a hoisted aggregate."""

_JSON = frozenset({114, 199})
_WITHOUT_EQUALITY = frozenset(
    {142, 143, 600, 601, 602, 603, 604, 628, 718, 1017, 1018, 1019, 1020, 1027, 629, 719, 4072, 4073}
)
"""OIDs of types that cannot be grouped by: ``xml``, the geometric types, ``jsonpath`` and their arrays."""


@dataclass(frozen=True, slots=True)
class RowSource:
    """Source of the rows of a page: a ``from`` item, aliased as ``row``, and the clauses up to ``where``.

    :ivar rows: algebra of the rows, with their order and page.
    :ivar one: whether to read at most one row and ignore the page.
    """

    row: Row
    sql: str
    rows: Rows
    one: bool = False

    @property
    def is_page(self) -> bool:
        return not self.one and not at_most_one(self.rows)


def row_source(writer: Writer, rows: Rows, parent: Row | None, *, one: bool = False) -> RowSource:
    row = Row(writer.alias())
    return RowSource(row, source_sql(writer, rows, row, parent), rows, one)


def at_most_one(rows: Rows) -> bool:
    return rows.unique or (
        rows.table is not None and rows.call is None and rows.table.is_unique(_equated(rows.where))
    )


def _equated(condition: Condition | None) -> Iterable[str]:
    match condition:
        case And(conditions):
            for each in conditions:
                yield from _equated(each)
        case Compare(ColumnRef(name), Operator.EQ, quantifier=None):
            yield name


def page_parts(
    writer: Writer,
    source: RowSource,
    page: Row,
    joins: list[str],
    groups: str | None,
) -> tuple[str, str]:
    """Return the ``from`` items of a page's rows, and the clauses that follow them.

    Each join yields exactly one row for each row of the page. ``groups`` is the ``group by`` clause, if any.
    """
    rows, items, order, outside = source.rows, "", "", ""
    if groups is not None:
        items, ordered = _group_order(writer, rows.order, source.row, page)
        page_sql = one_sql(writer, rows) if source.one else _limit_sql(writer, rows, ordered)
        outside = groups + ordered + page_sql
    elif joins and rows.order and not source.one:
        # A join need not preserve the order.
        items, order, outside = _order_twice(writer, rows.order, source.row, page)
        paged = rows.limit is not None or rows.offset is not None
        order = order + limit_sql(writer, rows) if paged else ""
        outside += writer.dialect.no_limit
    elif not source.one:
        order = order_sql(writer, rows.order, source.row)
        order += _limit_sql(writer, rows, order)
    elif not rows.unique:
        order = order_sql(writer, rows.order, source.row) + one_sql(writer, rows)
    # All references to the page's columns have been written by now.
    selection = page.selection_from(source.row) + items
    return f"(select {selection} from {source.sql}{order}) as {page.alias}{''.join(joins)}", outside


def _limit_sql(writer: Writer, rows: Rows, order: str) -> str:
    return limit_sql(writer, rows) or (writer.dialect.no_limit if order else "")


def _order_twice(writer: Writer, order: tuple[OrderTerm, ...], row: Row, page: Row) -> tuple[str, str, str]:
    named = [(quote_identifier(f"~order{index}"), term) for index, term in enumerate(order)]
    items = [f", {expression_sql(writer, term.expression, row)} as {name}" for name, term in named]
    inside = ", ".join(term_sql(name, term) for name, term in named)
    outside = ", ".join(term_sql(f"{page.alias}.{name}", term) for name, term in named)
    return "".join(items), f" order by {inside}", f" order by {outside}"


def _group_order(writer: Writer, order: tuple[OrderTerm, ...], row: Row, page: Row) -> tuple[str, str]:
    """Return further columns of the inner query, and the ``order by`` clause of the groups.

    A related row's value is not a grouping key, so the value of an arbitrary row of the group is used.
    """
    items, terms = "", []
    for index, term in enumerate(order):
        if isinstance(term.expression, RelatedValue):
            name = quote_identifier(f"~order{index}")
            items += f", {expression_sql(writer, term.expression, row)} as {name}"
            key = f"(pg_catalog.array_agg({page.alias}.{name}))[1]"
        else:
            key = expression_sql(writer, term.expression, page)
        terms.append(term_sql(key, term))
    return items, f" order by {', '.join(terms)}" if terms else ""


# ---------------------------------------------------------------- grouped rows


def aggregate_in(expression: Expression) -> Aggregate | None:
    match expression:
        case Aggregate():
            return expression
        case Cast(inner) | FunctionExpression(_, inner) | JsonPath(inner):
            return aggregate_in(inner)
        case _:
            return None


def with_operand(expression: Expression, column: str) -> Expression:
    match expression:
        case Aggregate():
            return replace(expression, expression=ColumnRef(column))
        case Cast(inner) | FunctionExpression(_, inner) | JsonPath(inner):
            return replace(expression, expression=with_operand(inner, column))
        case _:
            return expression


def groupable(sql: str, output: Output, row: Row) -> str:
    """Return SQL for grouping rows.

    Values of types without equality, such as ``json``, are converted to ``jsonb`` or text.
    """
    if not isinstance(output, Value):
        return f"({sql})::jsonb"
    match output.expression:
        case ColumnRef() | ComputedValue():
            type_ = type_of(output.expression, row)
            if type_ in _JSON:
                return f"pg_catalog.to_jsonb({sql})"
            return f"({sql})::text" if type_ in _WITHOUT_EQUALITY else sql
        case JsonPath(as_text=False):
            return f"({sql})::jsonb"
        case FunctionExpression():
            return f"pg_catalog.to_jsonb({sql})"
        case Cast(_, type_name) if type_name.removeprefix("pg_catalog.").strip('"') == "json":
            return f"({sql})::jsonb"
        case _:
            return sql
