"""SQL of rows as REST shows them: each is a row with a column per member, of which any form can be made.

Two queries stand within one another.  The inner one picks the rows: conditions, order, page.  The outer one
makes the members of those that were picked, so that nothing is computed for rows that are not shown.
Where rows are grouped it is the outer one that has order and page, being those of the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dataapi.catalog.model import Table
from dataapi.database.quoting import quote_identifier
from dataapi.query.algebra import Expression, Rows
from dataapi.query.expressions import expression_sql, limit_sql, order_sql, source_sql
from dataapi.query.forms import build_object, key_sql
from dataapi.query.grouping import OPERAND, aggregate_in, groupable, operand_sql, with_operand
from dataapi.query.results import Key, Object, Output, Record, Spread, Text, Value
from dataapi.query.writer import Row, Writer

LONGEST_NAME = 63
"""PostgreSQL's limit for the bytes of a column's name."""

Write = Callable[[Writer, Output, Row], str]
"""Makes the SQL of a member's value in the scope of a row (``outputs.output_sql``)."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where shown rows come from.

    :ivar sql: a ``from`` item and what follows it up to ``where``, in which ``row`` stands.
    :ivar rows: their order and page.
    :ivar one: take at most one row, in place of the page.
    """

    row: Row
    sql: str
    rows: Rows
    one: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """Rows with a column per member.

    :ivar item: the ``from`` item, aliased as ``alias``.
    :ivar columns: each member's key and its column's name; the only one of a plain value has no key.
    :ivar named: whether each column has its key's name.
    """

    alias: str
    item: str
    columns: tuple[tuple[Key | None, str], ...]
    named: bool

    @property
    def scalar(self) -> bool:
        """Whether rows are plain values and no objects."""
        return len(self.columns) == 1 and self.columns[0][0] is None

    def column(self, place: int) -> str:
        """Return the SQL of a member's value."""
        return f"{self.alias}.{quote_identifier(self.columns[place][1])}"

    def value_sql(self, writer: Writer) -> str:
        """Return the SQL of a row as what becomes a JSON value: an object, or the plain value."""
        if self.scalar:
            return self.column(0)
        if self.named and self.columns:
            return self.alias
        members = [
            (key_sql(writer, key), self.column(place))
            for place, (key, _) in enumerate(self.columns)
            if key is not None
        ]
        return build_object(members)

    def json_sql(self, writer: Writer) -> str:
        """Return the SQL of a row as JSON."""
        value = self.value_sql(writer)
        return f"pg_catalog.row_to_json({value})" if value == self.alias else f"pg_catalog.to_json({value})"

    def array_sql(self, writer: Writer) -> str:
        """Return the SQL of all rows as a JSON array."""
        return f"coalesce(pg_catalog.json_agg({self.value_sql(writer)}), '[]'::json)"


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


def rows_source(writer: Writer, rows: Rows, parent: Row | None, *, one: bool = False) -> Source:
    """Return the rows of a table or a call as the source of shown ones."""
    row = Row(writer.alias())
    return Source(row, source_sql(writer, rows, row, parent), rows, one)


def shown_sql(writer: Writer, write: Write, output: Output, source: Source) -> Shown:
    """Return the shown rows of a source."""
    record = _record_of(output)
    rows = source.rows
    picked = Row(writer.alias(), derived=True)
    grouped = record is not None and is_grouped(record)
    picking = _Picking(writer, write, rows.table, picked, grouped=grouped)
    members = [_Member(None, write(writer, output, picked))] if record is None else picking.members(record)
    alias = writer.alias()
    named = all(isinstance(member.key, Text) and _fits(member.key.text) for member in members)
    names = [
        member.key.text if named and isinstance(member.key, Text) else _place(place)
        for place, member in enumerate(members)
    ]
    inside, outside = _page_sql(writer, source, source.row), ""
    if grouped:
        inside, outside = "", _groups_sql(members) + _page_sql(writer, source, picked)
    inner = f"(select {picked.selection_from(source.row)} from {source.sql}{inside}) as {picked.alias}"
    columns = ", ".join(
        f"{member.sql} as {quote_identifier(name)}" for member, name in zip(members, names, strict=True)
    )
    item = f"(select {columns or '1'} from {inner}{picking.joins_sql()}{outside}) as {alias}"
    return Shown(alias, item, tuple((m.key, name) for m, name in zip(members, names, strict=True)), named)


def is_grouped(record: Record) -> bool:
    """Whether the rows of a record are grouped, be it for an aggregate behind a spread."""
    return record.grouped or any(
        isinstance(member, Spread) and not member.many and is_grouped(member.record)
        for member in record.members
    )


def _record_of(output: Output) -> Record | None:
    match output:
        case Record():
            return output
        case Object(members):
            return Record(members)
        case _:
            return None


def _fits(name: str) -> bool:
    return 0 < len(name.encode()) <= LONGEST_NAME


def _place(place: int) -> str:
    return f"~{place + 1}"


def _page_sql(writer: Writer, source: Source, row: Row) -> str:
    rows = source.rows
    if source.one:
        return "" if rows.unique else order_sql(writer, rows.order, row) + " limit 1"
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
        aggregate = aggregate_in(output.expression) if isinstance(output, Value) else None
        if aggregate is not None and self._spread and isinstance(output, Value):
            operand = operand_sql(self._writer, aggregate, self._row)
            return _Member(key, operand, hoisted=with_operand(output.expression, OPERAND))
        sql = self._write(self._writer, output, self._row)
        if self._grouped and aggregate is None:
            sql = groupable(sql, output, self._table)
        return _Member(key, sql, aggregated=aggregate is not None)

    def _spread_one(self, spread: Spread) -> Iterator[_Member]:
        """Give the members of the one related row; NULL stands for each where there is none."""
        writer, alias = self._writer, self._writer.alias()
        # Always limited: PostgreSQL must not make a join of it that loses the order of the rows.
        source = rows_source(writer, spread.rows, self._row)
        picked = Row(writer.alias(), derived=True)
        inner = _Picking(
            writer, self._write, spread.rows.table, picked, grouped=self._grouped, spread=self._grouped
        )
        members = inner.members(spread.record)
        if not members:
            return
        columns = ", ".join(f"{m.sql} as {quote_identifier(_place(n))}" for n, m in enumerate(members))
        order = order_sql(writer, spread.rows.order, source.row)
        inside = f"(select {picked.selection_from(source.row)} from {source.sql}{order} limit 1)"
        query = f"(select {columns} from {inside} as {picked.alias}{inner.joins_sql()})"
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
