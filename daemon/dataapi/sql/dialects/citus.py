"""How SQL is written where Citus distributes rows over servers.

A statement about one tenant is sent as it is to the server that has the tenant's rows: see ``tenants``.  Any
other one is taken apart, and a part is sent to each shard.  Citus refuses a subquery about rows that it has
gathered, so rows related to those of all shards are made on the shards, before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from dataapi.catalog.model import Catalog, Table, Volatility
from dataapi.database.citus import propagate_settings
from dataapi.database.sql_text import PLUS, quote_identifier
from dataapi.http.errors import DatabaseError
from dataapi.sql.algebra import ColumnOf, FunctionCall, Rows
from dataapi.sql.dialect import Answer, Change, ChangeOf, Check, Dialect
from dataapi.sql.dialects import lone_changes
from dataapi.sql.dialects.shard_names import naming_tables
from dataapi.sql.dialects.tenants import pinned, tenant_in
from dataapi.sql.outputs import (
    NEIGHBOURS,
    Json,
    JsonPiece,
    Key,
    Output,
    Text,
    Value,
    WireForm,
    json_parts,
    json_sql,
    key_json,
    object_json,
    split_json,
)
from dataapi.sql.page_source import RowSource, at_most_one
from dataapi.sql.parts import reads_only_columns
from dataapi.sql.row_output import MemberColumn, MemberWriter, Spread, arrays_of, as_record, one_of
from dataapi.sql.statement import Row, Writer, qualified

T = TypeVar("T")


class _CitusWriter(Writer):
    """The names of a statement for Citus.

    :ivar size: SQL of the size of the answer's body where that is known without the body.
    """

    size: str | None = None


class Citus(Dialect):
    """The dialect of a coordinator of Citus."""

    writing = _CitusWriter
    # Without a limit Citus asks each shard for an aggregate over its part of ordered rows.
    unlimited = " offset 0"
    sends_apart = True
    reads_after = False
    # What the function chose for the answer is copied to where the statement that answers may read it.
    after_pre_request = (propagate_settings("response.headers", "response.status"),)
    # Makes Citus show the plan of every shard, not of one only.
    of_planner = (("citus.explain_all_tasks", "on"),)

    def rewritten(self, value: T) -> T:
        return pinned(value)

    def answered(self, rows: Rows, output: Output) -> tuple[Rows, Output]:
        rows = pinned(rows)
        output = pinned(output, tenant_in(rows))
        return (_LoneRow.of(rows) if _is_one(rows) and _values(output) is not None else rows), output

    def whole(self, rows: Rows, row: Row, /) -> str:
        """Return a record of the table's type: that of a shard is another one, and so is a numbered one."""
        table = rows.table
        if table is None or (table.distributed_by is None and not _is_opaque(rows.call)):
            return row.alias
        columns = ", ".join(f"{row.alias}.{quote_identifier(each.name)}" for each in table.columns)
        return f"row({columns})::{qualified(table)}"

    def called(self, call: FunctionCall, sql: str, /) -> str:
        return f"{sql} with ordinality" if _is_opaque(call) else sql

    def page(
        self,
        writer: Writer,
        rows: Rows,
        source: Callable[[], Row],
        /,
        *,
        many: bool,
        columns: bool = False,
        grouped: bool = False,
    ) -> MemberWriter:
        if isinstance(rows, _LoneRow) and not columns:
            assert rows.table is not None, "a tenant has rows of a table"
            return _LoneMembers(writer, source(), rows.table)
        page = super().page(writer, rows, source, many=many, columns=columns, grouped=grouped)
        if not many and not columns and rows.table is not None and rows.table.distributed_by is not None:
            # SQL for a type runs faster and is longer: of one row Citus takes longer to read than to run it.
            page.row.table = None
        if rows.table is None or not rows.table.colocated or rows.call is not None or tenant_in(rows):
            return page
        row = source()
        return page if row.derived else _ShardMembers(page, row, rows.table)

    def change(self, writer: Writer, asked: ChangeOf) -> Change:
        if asked.mutation.table.distributed_by is None:
            return super().change(writer, asked)
        return lone_changes.change(self, writer, asked)

    def checked(self, writer: Writer, answer: Answer, checks: Sequence[Check], /) -> str:
        assert isinstance(writer, _CitusWriter), "it is of this dialect"
        if writer.size is None:
            return super().checked(writer, answer, checks)
        body, count, *others = answer.columns
        found = count
        for check in checks:
            found = check(writer.size, count, found)
        return replace(answer, columns=(body, found, *others)).sql()

    def planned_rows(self, plans: Any) -> int:
        """Return how many rows are expected of all shards together, where some are asked."""
        plan = plans[0]["Plan"]
        if "Distributed Query" not in plan:
            return super().planned_rows(plans)
        tasks = plan["Distributed Query"]["Job"]["Tasks"]
        shards = [remote[0]["Plan"] for task in tasks for remote in task["Remote Plan"]]
        # PostgreSQL never expects less than one row, not even of a shard that is empty.
        return sum(int(shard["Plan Rows"]) for shard in shards if shard["Total Cost"] > 0)

    def error(self, error: DatabaseError, catalog: Catalog, /) -> DatabaseError:
        return naming_tables(error, catalog)


CITUS = Citus()


def _is_opaque(call: FunctionCall | None) -> bool:
    """Whether PostgreSQL must not put the body of a called function into the statement.

    It does so once Citus has looked for distributed tables: their rows would be missing without an error.
    """
    if call is None or not call.function.returns_set:
        return False
    return call.function.volatility is not Volatility.VOLATILE


# ---------------------------------------------------------------- one row of a tenant


@dataclass(frozen=True, slots=True)
class _LoneRow(Rows):
    """The one row of an answer, of a tenant, of which nothing but columns is asked for.

    It is answered by a query of its table with no other query in it, which Citus plans in a fraction of the
    time that one with subqueries takes it: it looks for nothing but a table and a constant.
    """

    @classmethod
    def of(cls, rows: Rows) -> _LoneRow:
        return cls(**{each.name: getattr(rows, each.name) for each in fields(Rows) if each.name != "limit"})


def _is_one(rows: Rows) -> bool:
    """Whether at most one row matches, of a tenant, and the page has it."""
    wanted = rows.offset is None and (rows.limit is None or (isinstance(rows.limit, int) and rows.limit > 0))
    return wanted and tenant_in(rows) is not None and at_most_one(rows)


def _values(output: Output) -> list[tuple[Key, Value]] | None:
    """Return the members of an object that is made of nothing but columns, None of another output."""
    record, found = as_record(output), list[tuple[Key, Value]]()
    if record is None or not reads_only_columns(record):
        return None
    for member in record.members:
        if isinstance(member, Spread) or not isinstance(value := member[1], Value):
            return None
        found.append((member[0], value))
    return found


_LONGEST = {16: 5, 20: 20, 21: 6, 23: 11, 26: 10, 700: 16, 701: 26, 1082: 17, 1114: 40, 1184: 48, 2950: 38}
"""The most bytes that the JSON of a value has, by the oid of its type, where all are short."""


class _LoneMembers(MemberWriter):
    """Writes the JSON of one row with no query of a page around it.

    Most of what is left of Citus' time grows with the text, which it writes again for each request and which
    the worker parses and plans: values are written by the shortest SQL, and the size of the answer is that of
    its parts.
    """

    def __init__(self, writer: Writer, row: Row, table: Table) -> None:
        super().__init__(writer, row, joining=False)
        self._table = table

    def json(self, output: Output) -> Json:
        writer, values = self.writer, _values(output)
        assert isinstance(writer, _CitusWriter), "it is of this dialect"
        assert values is not None, "nothing else is asked of a lone row"
        members = [(key, value, value.json(writer, self.row)) for key, value in values]
        writer.size = self._size_sql(members)
        return _by_calls(object_json(writer, [(key, json) for key, _, json in members]))

    def parts(self, source: RowSource, _groups: str | None = None) -> tuple[str, str]:
        return source.sql, ""

    def _size_sql(self, members: Sequence[tuple[Key, Value, Json]]) -> str:
        """Return an aggregate: the answer's bytes, of which values that are always short have their most."""
        measured, short = list[Json](), len("[{}]")
        for key, value, json in members:
            short += len(",:")
            if isinstance(key, Text):
                short += len(key.text.encode()) + len('""')
            else:
                measured.append(key_json(self.writer, key))
            of = value.expression
            column = self._table.column(of.name) if isinstance(of, ColumnOf) else None
            if column is not None and value.form is WireForm.JSON and column.type in _LONGEST:
                short += _LONGEST[column.type]
            else:
                measured.append(json)
        lengths = f" {PLUS} ".join(f"pg_catalog.octet_length({json_sql(json)})" for json in measured)
        return f"(coalesce(pg_catalog.max({lengths}), 0) {PLUS} {short})" if lengths else f"{short}"


def _by_calls(json: Json) -> Json:
    """Return JSON whose pieces are put together by calls in place of operators.

    They are planned, begun and sent to a worker in a fraction of the time, but take longer for many rows.
    """
    begin, middle, end = split_json(json)
    parts = json_parts(middle)
    if len(parts) < 2:
        return json
    some = [parts[place : place + NEIGHBOURS] for place in range(0, len(parts), NEIGHBOURS)]
    return (JsonPiece(begin), *[f"pg_catalog.concat({', '.join(each)})" for each in some], JsonPiece(end))


# ---------------------------------------------------------------- rows of all shards


class _ShardPage(Row):
    """A row of a page that comes from all shards, with what each shard made of its own before that."""

    def __init__(self, row: Row) -> None:
        super().__init__(row.alias, row.table, derived=True)
        self._made: list[str] = []

    def make(self, sql: str) -> str:
        """Have the shards make a value; return its column of the page."""
        name = quote_identifier(f"~made{len(self._made)}")
        self._made.append(f", {sql} as {name}")
        return f"{self.alias}.{name}"

    def selection_from(self, inner: Row) -> str:
        return super().selection_from(inner) + "".join(self._made)


class _ShardMembers(MemberWriter):
    """Writes the members of rows of all shards, which make what is related to their rows.

    :param page: what writes the members of other rows.
    :param source: the row where it is selected.
    """

    def __init__(self, page: MemberWriter, source: Row, table: Table) -> None:
        self._page = _ShardPage(page.row)
        super().__init__(
            page.writer, self._page, joining=page.joining, columns=page.columns, grouped=page.grouped
        )
        self._source = source
        self._table = table

    def json(self, output: Output) -> Json:
        if as_record(output) is None and self._have(output.related()):
            return (self._page.make(json_sql(output.json(self.writer, self._source))),)
        return super().json(output)

    def column(self, output: Output) -> str:
        if self._have(output.related()):
            return self._page.make(output.sql(self.writer, self._source))
        return super().column(output)

    def spread_one(self, spread: Spread) -> Iterator[MemberColumn]:
        if self.columns or not self._have(spread.rows):
            yield from super().spread_one(spread)
            return
        source = one_of(self.writer, spread, self._source)
        page = Row(self.writer.alias(), source.rows.table, derived=True)
        inner = MemberWriter(self.writer, page, joining=self.joining)
        members = inner.members(spread.record)
        item, after = inner.parts(source)
        yield from self._made(members, f"{item}{after}")

    def spread_many(self, spread: Spread) -> Iterator[MemberColumn]:
        if self.columns or not self._have(spread.rows):
            yield from super().spread_many(spread)
        else:
            yield from self._made(*arrays_of(self.writer, spread, self._source))

    def _made(self, members: Sequence[MemberColumn], item: str) -> Iterator[MemberColumn]:
        """Have the shards make the members of a query's row as an array of texts, and give them."""
        if not members:
            return
        texts = ", ".join(json_sql(each.value) for each in members)
        made = self._page.make(f"(select array[{texts}] from {item})")
        for place, member in enumerate(members, 1):
            yield MemberColumn(member.key, (f"coalesce(({made})[{place}], 'null')",))

    def _have(self, rows: Rows | None) -> bool:
        """Whether the rows that are related to one of these are where that one is."""
        if rows is None or rows.table is None or rows.call is not None:
            return False
        if rows.through is not None:
            junction = _are_beside(rows.through.table, rows.through.near.pairs, self._table)
            far = tuple((theirs, own) for own, theirs in rows.through.far.pairs)
            return junction and _are_beside(rows.table, far, rows.through.table)
        return rows.join is not None and _are_beside(rows.table, rows.join.pairs, self._table)


def _are_beside(table: Table, pairs: Sequence[tuple[str, str]], other: Table) -> bool:
    """Whether a row is on the server that has the row of another table to which it is joined."""
    if table.colocated == 0:
        return True
    together = table.colocated is not None and table.colocated == other.colocated
    return together and (table.distributed_by, other.distributed_by) in pairs
