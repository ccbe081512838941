"""Outputs of rows: each is a row with a column per member, of which any form can be made.

Two queries stand within one another.  The inner one selects the rows: conditions, order, page.  The outer
one makes the members of those rows, so that nothing is computed for rows that are not in the answer.
Where rows are grouped it is the outer one that has order and page, being those of the groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dataapi.catalog.model import Table
from dataapi.database.sql_text import LONGEST_IDENTIFIER, quote_identifier
from dataapi.sql.algebra import Expression, Rows
from dataapi.sql.expressions import expression_sql, source_parts
from dataapi.sql.grouping import OPERAND, aggregate_in, groupable, operand_sql, with_operand
from dataapi.sql.outputs import InnerOutput, Key, Object, Output, Text, Value, build_object, key_sql
from dataapi.sql.page_source import Joins, RowSource, at_most_one, page_sql, row_source
from dataapi.sql.writer import Row, Writer

MOST_COLUMNS = 1600
"""PostgreSQL's limit for the columns of a row."""

MOST_JOINS = 5
"""Related rows joined to the rows of one page.

PostgreSQL weighs the orders of up to eight joins (its ``join_collapse_limit``), which for pages of few rows
takes longer than the queries that joins save.
"""

# ---------------------------------------------------------------- the outputs


@dataclass(frozen=True, slots=True)
class Spread:
    """Members of related rows among the members of the row itself.

    :ivar many: each member is an array with the values of all related rows, in their order;
        else there is at most one related row, and they are null where there is none.
    """

    rows: Rows
    record: Record
    many: bool = False


@dataclass(frozen=True, slots=True)
class Record(InnerOutput):
    """A row as an object: members in order, of the row itself and of spread relationships.

    :ivar grouped: some of the values are aggregates (also behind spreads of one row); the rows are grouped
        by all others.
    """

    members: tuple[tuple[Key, Output] | Spread, ...]
    grouped: bool = False


@dataclass(frozen=True, slots=True)
class One(Output):
    """An output of the one row, null when there is none."""

    rows: Rows
    output: Output

    def sql(self, writer: Writer, row: Row | None) -> str:
        """Return a query of the row's JSON."""
        found = output_rows(writer, self.output, row_source(writer, self.rows, row, one=True))
        return f"(select {found.json_sql(writer)} from {found.item})"


@dataclass(frozen=True, slots=True)
class Many(Output):
    """A JSON array with an output of each row."""

    rows: Rows
    output: Output

    def sql(self, writer: Writer, row: Row | None) -> str:
        """Return a query of the array."""
        found = output_rows(writer, self.output, row_source(writer, self.rows, row))
        return f"(select {found.array_sql(writer)} from {found.item})"


# ---------------------------------------------------------------- rows with a column per member


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Rows with a column per member: a ``from`` item of which a query makes JSON or another form.

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
class MemberColumn:
    """A member of an output row, with its SQL.

    :ivar key: None for the value of rows that are not objects.
    :ivar sql: its value, or that of its aggregate's operand where that has still to be applied.
    :ivar aggregated: whether the value is an aggregate of the group.
    :ivar hoisted: the aggregate to apply where the rows are grouped, over a column ``OPERAND``.
    """

    key: Key | None
    sql: str
    aggregated: bool = False
    hoisted: Expression | None = None


def output_rows(writer: Writer, output: Output, source: RowSource) -> OutputRows:
    """Return an output of each row of a source."""
    record = _record(output)
    page = Row(writer.alias(), derived=True)
    grouped = record is not None and is_grouped(record)
    joining = not source.one and not at_most_one(source.rows)
    writing = MemberWriter(writer, source.rows.table, page, joining=joining, grouped=grouped)
    members = [MemberColumn(None, output.sql(writer, page))] if record is None else writing.members(record)
    if isinstance(output, Object) and len(members) > MOST_COLUMNS:
        members = [MemberColumn(None, _built(writer, members))]
    groups = _groups_sql(members) if grouped else None
    return _rows_of(writer, members, f" from {page_sql(writer, source, page, writing.joins, groups)}")


def _record(output: Output) -> Record | None:
    """Return an object or a record as a record; None for plain values."""
    match output:
        case Record():
            return output
        case Object(members):
            return Record(members)
        case _:
            return None


def _rows_of(writer: Writer, members: Sequence[MemberColumn], source: str) -> OutputRows:
    """Return rows with a column for each member.

    :param source: the ``from`` clause with its leading blank, or empty.
    """
    alias = writer.alias()
    named = _are_named(members)
    names = [
        member.key.text if named and isinstance(member.key, Text) else _place(place)
        for place, member in enumerate(members)
    ]
    columns = [
        f"{member.sql} as {quote_identifier(name)}" for member, name in zip(members, names, strict=True)
    ]
    item = f"(select {', '.join(columns) or '1'}{source}) as {alias}"
    keys = (member.key for member in members)
    return OutputRows(alias, item, tuple(zip(keys, names, strict=True)), named)


def _are_named(members: Sequence[MemberColumn]) -> bool:
    """Whether all members have names of the schema that columns can have."""
    return all(isinstance(member.key, Text) and _fits(member.key.text) for member in members)


def _built(writer: Writer, members: Sequence[MemberColumn]) -> str:
    """Return the SQL of an object that is made of its members one by one."""
    return build_object([(key_sql(writer, each.key), each.sql) for each in members if each.key is not None])


def is_grouped(record: Record) -> bool:
    """Whether the rows of a record are grouped, be it for an aggregate behind a spread."""
    return record.grouped or any(
        isinstance(member, Spread) and not member.many and is_grouped(member.record)
        for member in record.members
    )


def _is_guaranteed_single(rows: Rows) -> bool:
    """Whether a unique key guarantees that at most one row matches; a comment's word is not enough."""
    if not rows.unique or rows.join is None or rows.table is None:
        return False
    return rows.table.is_unique(own for own, _ in rows.join.pairs)


def _fits(name: str) -> bool:
    return 0 < len(name.encode()) <= LONGEST_IDENTIFIER


def _place(place: int) -> str:
    return f"~{place + 1}"


def _groups_sql(members: list[MemberColumn]) -> str:
    """Return the ``group by`` clause: all members but the aggregates, by their places."""
    places = [str(place) for place, member in enumerate(members, 1) if not member.aggregated]
    return f" group by {', '.join(places)}" if places else ""


class MemberWriter:
    """Writes the outputs of a page's rows, gathering what is joined to the rows for that.

    :param table: what the rows are of.
    :param joins: those of the rows that this one is joined to; None for the page's own rows.
    :param joining: whether related rows may be joined.  Those of a single row are found faster by queries
        of their own.
    :param grouped: whether members become keys that rows are grouped by.
    :param spread: whether the rows are themselves spread into others, where the groups are.
    :ivar joins: to stand after the page's rows, once everything is written.
    """

    def __init__(
        self,
        writer: Writer,
        table: Table | None,
        row: Row,
        *,
        joins: Joins | None = None,
        joining: bool = True,
        grouped: bool = False,
        spread: bool = False,
    ) -> None:
        self.joins = Joins() if joins is None else joins
        self._is_joined = joins is not None
        self._writer = writer
        self._table = table
        self._row = row
        self._joining = joining
        self._grouped = grouped
        self._spread = spread

    def value_sql(self, output: Output) -> str:
        """Return the SQL of an output of a row, to be aggregated, or to stand in a column.

        An object whose members have names of the schema is written from a row with columns of these names:
        PostgreSQL does that faster than ``json_build_object``, and without blanks.
        """
        record = _record(output)
        if record is None:
            return output.sql(self._writer, self._row)
        members = self.members(record)
        if not members or len(members) > MOST_COLUMNS or not _are_named(members):
            return _built(self._writer, members)
        made = _rows_of(self._writer, members, "")
        if self._is_joined or self._grouped:
            # There may be no such row: then nothing of this is to be computed.
            return f"(select {made.json_sql(self._writer)} from {made.item})"
        self.joins.add_object(made.item)
        return made.alias

    def members(self, record: Record) -> list[MemberColumn]:
        """Return the members of a record of the rows."""
        found: list[MemberColumn] = []
        for member in record.members:
            if not isinstance(member, Spread):
                found.append(self._own(*member))
            elif member.many:
                found += self._spread_many(member)
            else:
                found += self._spread_one(member)
        return found

    def _own(self, key: Key, output: Output) -> MemberColumn:
        aggregate = aggregate_in(output.expression) if isinstance(output, Value) else None
        if aggregate is not None and self._spread and isinstance(output, Value):
            operand = operand_sql(self._writer, aggregate, self._row)
            return MemberColumn(key, operand, hoisted=with_operand(output.expression, OPERAND))
        if isinstance(output, One) and self._may_join(output):
            sql = self._joined(output)
        else:
            sql = self.value_sql(output)
        if self._grouped and aggregate is None:
            sql = groupable(sql, output, self._table)
        return MemberColumn(key, sql, aggregated=aggregate is not None)

    def _may_join(self, one: One) -> bool:
        """Whether a related row is joined: that is faster than a query for each row where tables are small.

        PostgreSQL would read a small table anew for each row, thinking that cheaper than its index.  A large
        one it may read as a whole for a join, though a page needs few of its rows; a query for each
        row uses the index.  (1,000 rows with one of 100: 1.5 ms instead of 7.5; 100 rows with
        one of 10,000: 1.6 ms instead of 0.4.)
        """
        record = _record(one.output)
        single = _is_guaranteed_single(one.rows) and record is not None and not is_grouped(record)
        large = one.rows.table is not None and one.rows.table.large
        return single and not large and self._joining and self.joins.rows < MOST_JOINS

    def _joined(self, one: One) -> str:
        """Return the object of the one related row, which is joined; null where there is none."""
        rows, related = one.rows, Row(self._writer.alias())
        relation, condition = source_parts(self._writer, rows, related, self._row)
        # Joins stand side by side: within one another PostgreSQL would take them for queries to be finished
        # first, where they are more than its join_collapse_limit.
        self.joins.add(f" left join {relation} on {condition}")
        inner = MemberWriter(self._writer, rows.table, related, joins=self.joins)
        assert rows.join is not None, "only what equals columns of the row is joined"
        key = related.column(rows.join.pairs[0][0])
        # For composite types ``is not null`` means something else.
        return f"case when {key} is distinct from null then {inner.value_sql(one.output)} end"

    def _spread_one(self, spread: Spread) -> Iterator[MemberColumn]:
        """Give the members of the one related row; NULL stands for each where there is none."""
        writer, alias = self._writer, self._writer.alias()
        rows = spread.rows if _is_guaranteed_single(spread.rows) else replace(spread.rows, unique=False)
        source = row_source(writer, rows, self._row, one=True)
        page = Row(writer.alias(), derived=True)
        inner = MemberWriter(
            writer,
            spread.rows.table,
            page,
            joining=self._joining,
            grouped=self._grouped,
            spread=self._grouped,
        )
        members = inner.members(spread.record)
        if not members:
            return
        columns = ", ".join(f"{m.sql} as {quote_identifier(_place(n))}" for n, m in enumerate(members))
        query = f"(select {columns} from {page_sql(writer, source, page, inner.joins, None)})"
        self.joins.add(f" left join lateral {query} as {alias} on true")
        for place, member in enumerate(members):
            yield self._hoisted(member, alias, _place(place))

    def _hoisted(self, member: MemberColumn, alias: str, column: str) -> MemberColumn:
        sql = f"{alias}.{quote_identifier(column)}"
        if member.hoisted is None or self._spread:
            return MemberColumn(member.key, sql, hoisted=member.hoisted)
        applied = with_operand(member.hoisted, column)
        return MemberColumn(member.key, expression_sql(self._writer, applied, Row(alias)), aggregated=True)

    def _spread_many(self, spread: Spread) -> Iterator[MemberColumn]:
        """Give an array for each member of the related rows, empty where there are none."""
        writer, alias = self._writer, self._writer.alias()
        related = output_rows(writer, spread.record, row_source(writer, spread.rows, self._row))
        if not related.columns:
            return
        arrays = ", ".join(
            f"coalesce(pg_catalog.json_agg({related.column(place)}), '[]'::json) as "
            + quote_identifier(_place(place))
            for place in range(len(related.columns))
        )
        self.joins.add(f" cross join lateral (select {arrays} from {related.item}) as {alias}")
        for place, (key, _) in enumerate(related.columns):
            sql = f"{alias}.{quote_identifier(_place(place))}"
            yield MemberColumn(key, f"({sql})::jsonb" if self._grouped else sql)
