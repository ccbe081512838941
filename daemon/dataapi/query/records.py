"""SQL of rows as REST shows them: each is a row with a column per member, of which any form can be made.

Two queries stand within one another.  The inner one picks the rows: conditions, order, page.  The outer one
makes the members of those that were picked, so that nothing is computed for rows that are not shown.
Where rows are grouped it is the outer one that has order and page, being those of the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dataapi.catalog.model import Table
from dataapi.database.quoting import LONGEST_IDENTIFIER, quote_identifier
from dataapi.query.algebra import Expression, OrderTerm, RelatedOf, Rows
from dataapi.query.expressions import expression_sql, limit_sql, one_sql, order_sql, term_sql
from dataapi.query.grouping import OPERAND, aggregate_in, groupable, operand_sql, with_operand
from dataapi.query.results import Key, One, Output, Record, Spread, Text, Value
from dataapi.query.shown import Shown, Source, rows_source
from dataapi.query.writer import Row, Writer

FOUND = quote_identifier("~found")
"""A column that is true in every row."""

Write = Callable[[Writer, Output, Row], str]
"""Makes the SQL of a member's value in the scope of a row (``outputs.output_sql``)."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of the rows that are picked.

    :ivar key: None for the value of rows that are no objects.
    :ivar sql: its value, or that of its aggregate's operand where that has still to be applied.
    :ivar aggregated: whether the value is an aggregate of the group.
    :ivar hoisted: the aggregate to apply where the rows are grouped, over a column ``OPERAND``.
    """

    key: Key | None
    sql: str
    aggregated: bool = False
    hoisted: Expression | None = None


def shown_sql(writer: Writer, write: Write, output: Output, source: Source, *, marked: bool = False) -> Shown:
    """Return the shown rows of a source.

    :param marked: add a column ``FOUND`` where a row cannot be told from one of nulls by itself.
    """
    record = output if isinstance(output, Record) else None
    picked = Row(writer.alias(), derived=True)
    grouped = record is not None and is_grouped(record)
    picking = _Picking(writer, write, source.rows.table, picked, grouped=grouped)
    members = [_Member(None, write(writer, output, picked))] if record is None else picking.members(record)
    alias = writer.alias()
    named = all(isinstance(member.key, Text) and _fits(member.key.text) for member in members)
    names = [
        member.key.text if named and isinstance(member.key, Text) else _place(place)
        for place, member in enumerate(members)
    ]
    columns = [
        f"{member.sql} as {quote_identifier(name)}" for member, name in zip(members, names, strict=True)
    ]
    if marked and not (named and members):
        columns.append(f"true as {FOUND}")
    groups = _groups_sql(members) if grouped else None
    found = _picked_sql(writer, source, picked, picking.joins_sql(), groups)
    item = f"(select {', '.join(columns) or '1'} from {found}) as {alias}"
    return Shown(alias, item, tuple((m.key, name) for m, name in zip(members, names, strict=True)), named)


def _picked_sql(writer: Writer, source: Source, picked: Row, joins: str, groups: str | None) -> str:
    """Return the query of the picked rows with what is joined to them, in the right order.

    :param groups: the ``group by`` clause of rows that are grouped.
    """
    rows, items, order, outside = source.rows, "", "", ""
    if groups is not None:
        items, ordered = _group_order(writer, rows.order, source.row, picked)
        outside = groups + ordered + (one_sql if source.one else limit_sql)(writer, rows)
    elif joins and rows.order and not source.one:
        # Joins may lose the order in which the rows were picked.
        items, order, outside = _order_twice(writer, rows.order, source.row, picked)
        paged = rows.limit is not None or rows.offset is not None
        order = order + limit_sql(writer, rows) if paged else ""
    else:
        order = _page_sql(writer, source)
    # What must be selected is known only now that everything else is written.
    selection = picked.selection_from(source.row) + items
    return f"(select {selection} from {source.sql}{order}) as {picked.alias}{joins}{outside}"


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


def is_grouped(record: Record) -> bool:
    """Whether the rows of a record are grouped, be it for an aggregate behind a spread."""
    return record.grouped or any(
        isinstance(member, Spread) and not member.many and is_grouped(member.record)
        for member in record.members
    )


def _joins(one: One) -> bool:
    """Whether one related row can be joined: there is never a second one, and it is no group."""
    return _is_single(one.rows) and isinstance(one.output, Record) and not is_grouped(one.output)


def _is_single(rows: Rows) -> bool:
    """Whether PostgreSQL itself sees to it that at most one row matches; a comment's word is not enough."""
    if not rows.unique or rows.join is None or rows.table is None:
        return False
    columns = {own for own, _ in rows.join.pairs}
    return any(columns.issuperset(key.columns) for key in rows.table.unique_keys)


def _fits(name: str) -> bool:
    return 0 < len(name.encode()) <= LONGEST_IDENTIFIER


def _place(place: int) -> str:
    return f"~{place + 1}"


def _page_sql(writer: Writer, source: Source) -> str:
    rows, row = source.rows, source.row
    if source.one:
        return "" if rows.unique else order_sql(writer, rows.order, row) + one_sql(writer, rows)
    return order_sql(writer, rows.order, row) + limit_sql(writer, rows)


def _groups_sql(members: list[_Member]) -> str:
    """Return the ``group by`` clause: all members but the aggregates, by their places."""
    places = [str(place) for place, member in enumerate(members, 1) if not member.aggregated]
    return f" group by {', '.join(places)}" if places else ""


class _Picking:
    """Writes the members of picked rows, gathering the joins that spread relationships need.

    :param table: what the rows are of.
    :param grouped: whether members become keys that rows are grouped by.
    :param spread: whether the rows are themselves spread into others, where the groups are.
    """

    def __init__(
        self,
        writer: Writer,
        write: Write,
        table: Table | None,
        row: Row,
        *,
        grouped: bool,
        spread: bool = False,
    ) -> None:
        self._writer = writer
        self._write = write
        self._table = table
        self._row = row
        self._grouped = grouped
        self._spread = spread
        self._joins: list[str] = []

    def joins_sql(self) -> str:
        return "".join(self._joins)

    def members(self, record: Record) -> list[_Member]:
        found: list[_Member] = []
        for member in record.members:
            if not isinstance(member, Spread):
                found.append(self._own(*member))
            elif member.many:
                found += self._spread_many(member)
            else:
                found += self._spread_one(member)
        return found

    def _own(self, key: Key, output: Output) -> _Member:
        if isinstance(output, One) and _joins(output):
            sql = self._joined(output)
            return _Member(key, f"({sql})::jsonb" if self._grouped else sql)
        aggregate = aggregate_in(output.expression) if isinstance(output, Value) else None
        if aggregate is not None and self._spread and isinstance(output, Value):
            operand = operand_sql(self._writer, aggregate, self._row)
            return _Member(key, operand, hoisted=with_operand(output.expression, OPERAND))
        sql = self._write(self._writer, output, self._row)
        if self._grouped and aggregate is None:
            sql = groupable(sql, output, self._table)
        return _Member(key, sql, aggregated=aggregate is not None)

    def _joined(self, one: One) -> str:
        """Return the object of the one related row, which is joined.

        For a join PostgreSQL chooses how to find the rows; a query within an expression would be run for
        each row alone, which for small tables means to read them as often.
        """
        source = rows_source(self._writer, one.rows, self._row, one=True)
        shown = shown_sql(self._writer, self._write, one.output, source, marked=True)
        self._joins.append(f" left join lateral {shown.item} on true")
        if shown.named and shown.columns:
            return shown.json_sql(self._writer)
        return f"case when {shown.alias}.{FOUND} then {shown.value_sql(self._writer)} end"

    def _spread_one(self, spread: Spread) -> Iterator[_Member]:
        """Give the members of the one related row; NULL stands for each where there is none."""
        writer, alias = self._writer, self._writer.alias()
        rows = spread.rows if _is_single(spread.rows) else replace(spread.rows, unique=False)
        source = rows_source(writer, rows, self._row, one=True)
        picked = Row(writer.alias(), derived=True)
        inner = _Picking(
            writer, self._write, spread.rows.table, picked, grouped=self._grouped, spread=self._grouped
        )
        members = inner.members(spread.record)
        if not members:
            return
        columns = ", ".join(f"{m.sql} as {quote_identifier(_place(n))}" for n, m in enumerate(members))
        query = f"(select {columns} from {_picked_sql(writer, source, picked, inner.joins_sql(), None)})"
        self._joins.append(f" left join lateral {query} as {alias} on true")
        for place, member in enumerate(members):
            yield self._hoisted(member, alias, _place(place))

    def _hoisted(self, member: _Member, alias: str, column: str) -> _Member:
        sql = f"{alias}.{quote_identifier(column)}"
        if member.hoisted is None or self._spread:
            return _Member(member.key, sql, hoisted=member.hoisted)
        applied = with_operand(member.hoisted, column)
        return _Member(member.key, expression_sql(self._writer, applied, Row(alias)), aggregated=True)

    def _spread_many(self, spread: Spread) -> Iterator[_Member]:
        """Give an array for each member of the related rows, empty where there are none."""
        writer, alias = self._writer, self._writer.alias()
        shown = shown_sql(writer, self._write, spread.record, rows_source(writer, spread.rows, self._row))
        if not shown.columns:
            return
        arrays = ", ".join(
            f"coalesce(pg_catalog.json_agg({shown.column(place)}), '[]'::json) as "
            + quote_identifier(_place(place))
            for place in range(len(shown.columns))
        )
        self._joins.append(f" cross join lateral (select {arrays} from {shown.item}) as {alias}")
        for place, (key, _) in enumerate(shown.columns):
            sql = f"{alias}.{quote_identifier(_place(place))}"
            yield _Member(key, f"({sql})::jsonb" if self._grouped else sql)
