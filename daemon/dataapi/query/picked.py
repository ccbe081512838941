"""SQL of picked rows: the query of those that are shown, in their order and page, and what is joined."""

from __future__ import annotations

from collections.abc import Iterable

from dataapi.database.quoting import quote_identifier
from dataapi.query.algebra import ColumnOf, OrderTerm, RelatedOf, Rows
from dataapi.query.conditions import And, Compare, Condition, Operator
from dataapi.query.expressions import expression_sql, limit_sql, one_sql, order_sql, term_sql
from dataapi.query.shown import Source
from dataapi.query.writer import Row, Writer


class Joins:
    """What is joined to picked rows by what is written of them.

    :ivar rows: how many other rows are; joining them may lose the order of the picked ones.
    """

    def __init__(self) -> None:
        self._items: list[str] = []
        self.rows = 0

    def add(self, item: str) -> None:
        """Add another row: a join with its condition, that gives exactly one row for each picked one."""
        self.rows += 1
        self._items.append(item)

    def add_object(self, item: str) -> None:
        """Add what is made of a row itself: a query without a ``from`` clause."""
        self._items.append(f" cross join lateral {item}")

    def sql(self) -> str:
        """Return the joins, each with its leading blank."""
        return "".join(self._items)


def is_one(rows: Rows) -> bool:
    """Whether at most one row can be picked, as PostgreSQL itself sees to."""
    return rows.unique or (
        rows.table is not None and rows.call is None and rows.table.is_unique(_given(rows.where))
    )


def _given(condition: Condition | None) -> Iterable[str]:
    """Yield the columns of which a condition gives the value."""
    match condition:
        case And(conditions):
            for each in conditions:
                yield from _given(each)
        case Compare(ColumnOf(name), Operator.EQ, quantifier=None):
            yield name


def picked_sql(writer: Writer, source: Source, picked: Row, joins: Joins, groups: str | None) -> str:
    """Return the query of the picked rows with what is joined to them, in the right order.

    :param groups: the ``group by`` clause of rows that are grouped.
    """
    rows, items, order, outside = source.rows, "", "", ""
    if groups is not None:
        items, ordered = _group_order(writer, rows.order, source.row, picked)
        outside = groups + ordered + (one_sql if source.one else limit_sql)(writer, rows)
    elif joins.rows and rows.order and not source.one:
        # Joins may lose the order in which the rows were picked.
        items, order, outside = _order_twice(writer, rows.order, source.row, picked)
        paged = rows.limit is not None or rows.offset is not None
        order = order + limit_sql(writer, rows) if paged else ""
    else:
        order = _page_sql(writer, source)
    # What must be selected is known only now that everything else is written.
    selection = picked.selection_from(source.row) + items
    return f"(select {selection} from {source.sql}{order}) as {picked.alias}{joins.sql()}{outside}"


def _order_twice(writer: Writer, order: tuple[OrderTerm, ...], row: Row, picked: Row) -> tuple[str, str, str]:
    """Return the order's terms as columns, and clauses that order by them: within the query, and outside."""
    named = [(quote_identifier(f"~order{place}"), term) for place, term in enumerate(order)]
    items = [f", {expression_sql(writer, term.expression, row)} as {name}" for name, term in named]
    inside = ", ".join(term_sql(name, term) for name, term in named)
    outside = ", ".join(term_sql(f"{picked.alias}.{name}", term) for name, term in named)
    return "".join(items), f" order by {inside}", f" order by {outside}"


def _group_order(writer: Writer, order: tuple[OrderTerm, ...], row: Row, picked: Row) -> tuple[str, str]:
    """Return what a query must give besides, and the clause that orders groups of its rows.

    A related row's value is no key of the groups; that of any row of a group stands for it.
    """
    items, terms = "", []
    for place, term in enumerate(order):
        if isinstance(term.expression, RelatedOf):
            name = quote_identifier(f"~order{place}")
            items += f", {expression_sql(writer, term.expression, row)} as {name}"
            key = f"(pg_catalog.array_agg({picked.alias}.{name}))[1]"
        else:
            key = expression_sql(writer, term.expression, picked)
        terms.append(term_sql(key, term))
    return items, f" order by {', '.join(terms)}" if terms else ""


def _page_sql(writer: Writer, source: Source) -> str:
    rows, row = source.rows, source.row
    if source.one:
        return "" if rows.unique else order_sql(writer, rows.order, row) + one_sql(writer, rows)
    return order_sql(writer, rows.order, row) + limit_sql(writer, rows)
