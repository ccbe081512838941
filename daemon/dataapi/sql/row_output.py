"""Outputs of rows: JSON of each row, or a row with a column per member, of which any other form can be made.

Two queries stand within one another.  The inner one selects the rows: conditions, order, page.  The outer
one makes the members of those rows, so that nothing is computed for rows that are not in the answer.
Where rows are grouped it is the outer one that has order and page, being those of the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from dataapi.database.sql_text import MAX_IDENTIFIER_BYTES, quote_identifier
from dataapi.sql.algebra import Expression, Rows
from dataapi.sql.expressions import expression_sql, source_parts
from dataapi.sql.outputs import (
    InnerOutput,
    Json,
    JsonPiece,
    JsonQuery,
    Key,
    Object,
    Output,
    Text,
    Value,
    array_json,
    json_sql,
    nullable_sql,
    object_json,
    split_json,
    value_json,
)
from dataapi.sql.page_source import (
    OPERAND,
    RowSource,
    aggregate_in,
    groupable,
    page_parts,
    row_source,
    with_operand,
)
from dataapi.sql.statement import Row, RowDialect, Writer

MAX_JOINS = 5
"""Related rows joined to the rows of one page.

PostgreSQL weighs the orders of up to eight joins (its ``join_collapse_limit``), which for pages of few rows
takes longer than the queries that joins save.
"""

_JSON = '"json"'
"""The column of rows that are JSON text."""

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

    def json(self, writer: Writer, row: Row | None) -> Json:
        text, item = json_rows(writer, self.output, row_source(writer, self.rows, row, one=True))
        return (f"coalesce((select {json_sql(text)} from {item}), 'null')",)

    def related(self) -> Rows:
        return self.rows


@dataclass(frozen=True, slots=True)
class Many(Output):
    """A JSON array with an output of each row."""

    rows: Rows
    output: Output

    def json(self, writer: Writer, row: Row | None) -> Json:
        """Return a query of the array."""
        text, item = json_rows(writer, self.output, row_source(writer, self.rows, row))
        return (JsonQuery(array_json(text), item),)

    def related(self) -> Rows:
        return self.rows


# ---------------------------------------------------------------- rows as JSON, and with a column per member


def json_rows(writer: Writer, output: Output, source: RowSource) -> tuple[Json, str]:
    """Return the JSON of a row's output, and the ``from`` item of which it is made."""
    record = as_record(output)
    if record is not None and is_grouped(record):
        rows = output_rows(writer, output, source)
        values = [(key, value_json(rows.column(place))) for place, (key, _) in enumerate(rows.columns)]
        return object_json(writer, values), rows.item
    page = page_dialect(writer).page(writer, source.rows, lambda: source.row, many=source.is_page)
    json = page.json(output)
    item, after = page.parts(source)
    if not after:
        return json, item
    begin, middle, end = split_json(json)
    alias = writer.alias()
    ordered = f"(select {json_sql(middle)} as {_JSON} from {item}{after}) as {alias}"
    return (JsonPiece(begin), f"{alias}.{_JSON}", JsonPiece(end)), ordered


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Rows with a column per member: a ``from`` item of which a query makes any form.

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


@dataclass(frozen=True, slots=True)
class MemberColumn:
    """A member of an output row.

    :ivar key: None for the value of rows that are not objects.
    :ivar value: its JSON; or one piece of SQL, where rows do not become JSON, being its value or that of its
        aggregate's operand where that has still to be applied.
    :ivar aggregated: whether the value is an aggregate of the group.
    :ivar hoisted: the aggregate to apply where the rows are grouped, over a column ``OPERAND``.
    """

    key: Key | None
    value: Json
    aggregated: bool = False
    hoisted: Expression | None = None


def output_rows(writer: Writer, output: Output, source: RowSource) -> OutputRows:
    """Return an output of each row of a source, with a column per member."""
    record = as_record(output)
    grouped = record is not None and is_grouped(record)
    page = page_dialect(writer).page(
        writer, source.rows, lambda: source.row, many=source.is_page, columns=True, grouped=grouped
    )
    members = (
        [MemberColumn(None, (output.sql(writer, page.row),))] if record is None else page.members(record)
    )
    groups = None
    if grouped:  # by all members but the aggregates
        places = [str(place) for place, member in enumerate(members, 1) if not member.aggregated]
        groups = f" group by {', '.join(places)}" if places else ""
    item, after = page.parts(source, groups)
    alias, texts = writer.alias(), {each.key.text for each in members if isinstance(each.key, Text)}
    # Columns have the names of members, unless one is a client's, does not fit, or stands twice.
    named = len(texts) == len(members) and all(
        0 < len(text.encode()) <= MAX_IDENTIFIER_BYTES for text in texts
    )
    names = [
        member.key.text if named and isinstance(member.key, Text) else _place(place)
        for place, member in enumerate(members)
    ]
    query = f"(select {_columns_sql(members, names)} from {item}{after}) as {alias}"
    return OutputRows(alias, query, tuple(zip([member.key for member in members], names, strict=True)), named)


def as_record(output: Output) -> Record | None:
    """Return an object or a record as a record; None for plain values."""
    match output:
        case Record():
            return output
        case Object(members):
            return Record(members)
        case _:
            return None


def _columns_sql(members: Sequence[MemberColumn], names: Sequence[str]) -> str:
    columns = [
        f"{json_sql(member.value)} as {quote_identifier(name)}"
        for member, name in zip(members, names, strict=True)
    ]
    return ", ".join(columns) or "1"


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


def one_of(writer: Writer, spread: Spread, parent: Row) -> RowSource:
    """Return the source of the one related row of a spread."""
    rows = spread.rows if _is_guaranteed_single(spread.rows) else replace(spread.rows, unique=False)
    return row_source(writer, rows, parent, one=True)


def arrays_of(writer: Writer, spread: Spread, parent: Row) -> tuple[list[MemberColumn], str]:
    """Return an array for each member of a spread's related rows, and the ``from`` item of these."""
    related = output_rows(writer, spread.record, row_source(writer, spread.rows, parent))
    columns = enumerate(related.columns)
    return [
        MemberColumn(key, array_json(value_json(related.column(place)))) for place, (key, _) in columns
    ], related.item


def _place(place: int) -> str:
    return f"~{place + 1}"


@dataclass(slots=True)
class MemberWriter:
    """Writes the outputs of a page's rows, gathering what is joined to the rows for that.

    :ivar joining: whether related rows may be joined.  Those of a single row are found faster by queries
        of their own.
    :ivar columns: whether members become columns and not JSON.
    :ivar grouped: whether these are keys that rows are grouped by.
    :ivar spread: whether the rows are themselves spread into others, where the groups are.
    :ivar joins: each with its leading blank, to stand after the page's rows once everything is written; of
        a joined row those of the rows that it is joined to.
    """

    writer: Writer
    row: Row
    _: KW_ONLY
    joining: bool = True
    columns: bool = False
    grouped: bool = False
    spread: bool = False
    joins: list[str] = field(default_factory=list)

    def json(self, output: Output) -> Json:
        record = as_record(output)
        if record is not None:
            return object_json(self.writer, [(each.key, each.value) for each in self.members(record)])
        if isinstance(output, One) and self._may_join(output):
            return self._joined(output)
        return output.json(self.writer, self.row)

    def members(self, record: Record) -> list[MemberColumn]:
        found: list[MemberColumn] = []
        for member in record.members:
            if not isinstance(member, Spread):
                found.append(self._own(*member))
            elif member.many:
                found += self.spread_many(member)
            else:
                found += self.spread_one(member)
        return found

    def parts(self, source: RowSource, groups: str | None = None) -> tuple[str, str]:
        """Return the ``from`` items of the rows and the clauses to follow, once everything is written."""
        return page_parts(self.writer, source, self.row, self.joins, groups)

    def _own(self, key: Key, output: Output) -> MemberColumn:
        if not self.columns:
            return MemberColumn(key, self.json(output))
        aggregate = aggregate_in(output.expression) if isinstance(output, Value) else None
        if aggregate is not None and self.spread and isinstance(output, Value):
            operand = aggregate.expression  # without one, a value that is never NULL is counted
            sql = "true" if operand is None else expression_sql(self.writer, operand, self.row)
            return MemberColumn(key, (sql,), hoisted=with_operand(output.expression, OPERAND))
        sql = self.column(output)
        if self.grouped and aggregate is None:
            sql = groupable(sql, output, self.row)
        return MemberColumn(key, (sql,), aggregated=aggregate is not None)

    def column(self, output: Output) -> str:
        """Return an output as a column."""
        if isinstance(output, One) and self._may_join(output):
            return nullable_sql(self._joined(output))
        return output.sql(self.writer, self.row)

    def _may_join(self, one: One) -> bool:
        """Whether a related row is joined: that is faster than a query for each row where tables are small.

        PostgreSQL would read a small table again for each row, thinking that cheaper than its index.  A large
        one it may read as a whole for a join, though a page needs few of its rows; a query for each
        row uses the index.  (1,000 rows with one of 100: 1.5 ms instead of 7.5; 100 rows with
        one of 10,000: 1.6 ms instead of 0.4.)
        """
        record = as_record(one.output)
        single = _is_guaranteed_single(one.rows) and record is not None and not is_grouped(record)
        large = one.rows.table is not None and one.rows.table.large
        return single and not large and self.joining and len(self.joins) < MAX_JOINS

    def _joined(self, one: One) -> Json:
        """Return the object of the one related row, which is joined; null where there is none."""
        rows, related = one.rows, Row(self.writer.alias(), one.rows.table)
        relation, condition = source_parts(self.writer, rows, related, self.row)
        # Joins stand side by side: within one another PostgreSQL would take them for queries to be finished
        # first, where they are more than its join_collapse_limit.
        self.joins.append(f" left join {relation} on {condition}")
        inner = MemberWriter(self.writer, related, joins=self.joins)
        assert rows.join is not None, "only what equals columns of the row is joined"
        key = related.column(rows.join.pairs[0][0])
        # For composite types ``is not null`` means something else.
        made = json_sql(inner.json(one.output))
        return (f"case when {key} is distinct from null then {made} else 'null' end",)

    def spread_one(self, spread: Spread) -> Iterator[MemberColumn]:
        """Give the members of the one related row; NULL stands for each where there is none."""
        writer, alias = self.writer, self.writer.alias()
        source = one_of(writer, spread, self.row)
        page = Row(writer.alias(), source.rows.table, derived=True)
        inner = MemberWriter(
            writer,
            page,
            joining=self.joining,
            columns=self.columns,
            grouped=self.grouped,
            spread=self.grouped,
        )
        members = inner.members(spread.record)
        if not members:
            return
        item, after = inner.parts(source)
        columns = _columns_sql(members, [_place(place) for place in range(len(members))])
        self.joins.append(f" left join lateral (select {columns} from {item}{after}) as {alias} on true")
        for place, member in enumerate(members):
            yield self._hoisted(member, alias, _place(place))

    def _hoisted(self, member: MemberColumn, alias: str, column: str) -> MemberColumn:
        sql = f"{alias}.{quote_identifier(column)}"
        if not self.columns:
            return MemberColumn(member.key, (f"coalesce({sql}, 'null')",))
        if member.hoisted is None or self.spread:
            return MemberColumn(member.key, (sql,), hoisted=member.hoisted)
        applied = expression_sql(self.writer, with_operand(member.hoisted, column), Row(alias))
        return MemberColumn(member.key, (applied,), aggregated=True)

    def spread_many(self, spread: Spread) -> Iterator[MemberColumn]:
        """Give an array for each member of the related rows, empty where there are none."""
        writer, alias = self.writer, self.writer.alias()
        arrays, item = arrays_of(writer, spread, self.row)
        if not arrays:
            return
        columns = _columns_sql(arrays, [_place(place) for place in range(len(arrays))])
        self.joins.append(f" cross join lateral (select {columns} from {item}) as {alias}")
        for place, array in enumerate(arrays):
            sql = f"{alias}.{quote_identifier(_place(place))}"
            if self.columns:
                sql = f"({sql})::{'jsonb' if self.grouped else 'json'}"
            yield MemberColumn(array.key, (sql,))


class PageDialect(RowDialect):
    """How the members of the rows of a page are written, where relatives of PostgreSQL differ."""

    def page(
        self,
        writer: Writer,
        rows: Rows,
        _source: Callable[[], Row],
        /,
        *,
        many: bool,
        columns: bool = False,
        grouped: bool = False,
    ) -> MemberWriter:
        """Return what writes the members of the rows of a page.

        :param source: returns the row where it is selected.
        :param many: whether there may be more than one row.
        """
        page = Row(writer.alias(), rows.table, derived=True)
        return MemberWriter(writer, page, joining=many, columns=columns, grouped=grouped)


def page_dialect(writer: Writer) -> PageDialect:
    """Return the dialect of a writer."""
    assert isinstance(writer.dialect, PageDialect), "a dialect's writers have that dialect"
    return writer.dialect
