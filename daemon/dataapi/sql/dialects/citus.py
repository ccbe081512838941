"""SQL for Citus, an extension that distributes rows over servers.

A statement about one tenant is sent unchanged to the server with the tenant's rows: see ``tenants``. Other
statements are split into a query per shard. Citus rejects subqueries over rows that it has gathered from
shards, so related rows are computed on the shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from dataapi.catalog.model import Catalog, Table, Volatility
from dataapi.database.citus import propagate_settings
from dataapi.database.sql_text import PLUS, quote_identifier
from dataapi.http.errors import DatabaseError
from dataapi.sql.algebra import ColumnRef, FunctionCall, Rows
from dataapi.sql.dialect import Check, Dialect, MutationPart, MutationSql, ResultQuery
from dataapi.sql.dialects import standalone_mutations
from dataapi.sql.dialects.shard_names import naming_tables
from dataapi.sql.dialects.tenants import pinned, tenant_in
from dataapi.sql.outputs import (
    MAX_OPERANDS,
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
    """Writer for Citus. ``size`` is SQL for the size of the response body, None to measure the body."""

    size: str | None = None


class Citus(Dialect):
    """The dialect of a Citus coordinator."""

    writer_class = _CitusWriter
    # Without a limit, Citus pushes the aggregate over ordered rows down to each shard.
    no_limit = " offset 0"
    separate_messages = True
    reads_written_rows = False
    # Copies the response settings of the pre-request function to the workers, where the final statement reads
    # them.
    after_pre_request = (propagate_settings("response.headers", "response.status"),)
    # By default, Citus shows the plan of only one shard.
    planner_settings = (("citus.explain_all_tasks", "on"),)

    def rewrite(self, value: T) -> T:
        return pinned(value)

    def rewrite_result(self, rows: Rows, output: Output) -> tuple[Rows, Output]:
        rows = pinned(rows)
        output = pinned(output, tenant_in(rows))
        return (_SingleRow.of(rows) if _is_single(rows) and _values(output) is not None else rows), output

    def whole_row(self, rows: Rows, row: Row, /) -> str:
        table = rows.table
        if table is None or (table.distributed_by is None and not _is_opaque(rows.call)):
            return row.alias
        columns = ", ".join(f"{row.alias}.{quote_identifier(each.name)}" for each in table.columns)
        return f"row({columns})::{qualified(table)}"

    def call_source(self, call: FunctionCall, sql: str, /) -> str:
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
        if isinstance(rows, _SingleRow) and not columns:
            assert rows.table is not None, "the single row is read from a table"
            return _SingleRowMembers(writer, source(), rows.table)
        page = super().page(writer, rows, source, many=many, columns=columns, grouped=grouped)
        if not many and not columns and rows.table is not None and rows.table.distributed_by is not None:
            # SQL specific to a type runs faster but is longer. For one row, parsing it takes more time than
            # running it saves.
            page.row.table = None
        if rows.table is None or not rows.table.colocated or rows.call is not None or tenant_in(rows):
            return page
        row = source()
        return page if row.derived else _ShardMembers(page, row, rows.table)

    def mutation_sql(self, writer: Writer, part: MutationPart) -> MutationSql:
        if part.mutation.table.distributed_by is None:
            return super().mutation_sql(writer, part)
        return standalone_mutations.mutation_sql(self, writer, part)

    def checked(self, writer: Writer, query: ResultQuery, checks: Sequence[Check], /) -> str:
        assert isinstance(writer, _CitusWriter), "an instance of writer_class"
        if writer.size is None:
            return super().checked(writer, query, checks)
        body, count, *others = query.columns
        number = count
        for check in checks:
            number = check(writer.size, count, number)
        return replace(query, columns=(body, number, *others)).sql()

    def planned_rows(self, plans: Any) -> int:
        plan = plans[0]["Plan"]
        if "Distributed Query" not in plan:
            return super().planned_rows(plans)
        tasks = plan["Distributed Query"]["Job"]["Tasks"]
        shards = [remote[0]["Plan"] for task in tasks for remote in task["Remote Plan"]]
        # The planner never estimates less than one row, even for an empty shard.
        return sum(int(shard["Plan Rows"]) for shard in shards if shard["Total Cost"] > 0)

    def error(self, error: DatabaseError, catalog: Catalog, /) -> DatabaseError:
        return naming_tables(error, catalog)


CITUS = Citus()


def _is_opaque(call: FunctionCall | None) -> bool:
    """Whether to keep PostgreSQL from inlining a called function into the statement.

    PostgreSQL inlines functions after Citus has searched the statement for distributed tables, so rows of
    tables in the function's body would be missing without an error.
    """
    if call is None or not call.function.returns_set:
        return False
    return call.function.volatility is not Volatility.VOLATILE


# ---------------------------------------------------------------- a single row of a tenant


@dataclass(frozen=True, slots=True)
class _SingleRow(Rows):
    """The single row of a response, if it belongs to one tenant and the output reads only its columns.

    A query without subqueries reads the row, because Citus plans such a query much faster.
    """

    @classmethod
    def of(cls, rows: Rows) -> _SingleRow:
        return cls(**{each.name: getattr(rows, each.name) for each in fields(Rows) if each.name != "limit"})


def _is_single(rows: Rows) -> bool:
    page_has_row = rows.offset is None and (
        rows.limit is None or (isinstance(rows.limit, int) and rows.limit > 0)
    )
    return page_has_row and tenant_in(rows) is not None and at_most_one(rows)


def _values(output: Output) -> list[tuple[Key, Value]] | None:
    record, values = as_record(output), list[tuple[Key, Value]]()
    if record is None or not reads_only_columns(record):
        return None
    for member in record.members:
        if isinstance(member, Spread) or not isinstance(value := member[1], Value):
            return None
        values.append((member[0], value))
    return values


_LONGEST = {16: 5, 20: 20, 21: 6, 23: 11, 26: 10, 700: 16, 701: 26, 1082: 17, 1114: 40, 1184: 48, 2950: 38}
"""Maximum size of a value's JSON in bytes, by type OID, for types of bounded size."""


class _SingleRowMembers(MemberWriter):
    """Writes the JSON of one row as short SQL.

    For each request, Citus deparses the statement, and the worker parses and plans it again. The time needed
    is proportional to the statement's length. So values use the shortest SQL, and the size of the response is
    computed as the sum of the sizes of its parts.
    """

    def __init__(self, writer: Writer, row: Row, table: Table) -> None:
        super().__init__(writer, row, joining=False)
        self._table = table

    def json(self, output: Output) -> Json:
        writer, values = self.writer, _values(output)
        assert isinstance(writer, _CitusWriter), "an instance of writer_class"
        assert values is not None, "all members of a single row's output are columns"
        members = [(key, value, value.json(writer, self.row)) for key, value in values]
        writer.size = self._size_sql(members)
        return _by_calls(object_json(writer, [(key, json) for key, _, json in members]))

    def parts(self, source: RowSource, _groups: str | None = None) -> tuple[str, str]:
        return source.sql, ""

    def _size_sql(self, members: Sequence[tuple[Key, Value, Json]]) -> str:
        measured, short = list[Json](), len("[{}]")
        for key, value, json in members:
            short += len(",:")
            if isinstance(key, Text):
                short += len(key.text.encode()) + len('""')
            else:
                measured.append(key_json(self.writer, key))
            of = value.expression
            column = self._table.column(of.name) if isinstance(of, ColumnRef) else None
            if column is not None and value.form is WireForm.JSON and column.type in _LONGEST:
                short += _LONGEST[column.type]
            else:
                measured.append(json)
        lengths = f" {PLUS} ".join(f"pg_catalog.octet_length({json_sql(json)})" for json in measured)
        return f"(coalesce(pg_catalog.max({lengths}), 0) {PLUS} {short})" if lengths else f"{short}"


def _by_calls(json: Json) -> Json:
    """Return JSON concatenated by function calls instead of operators.

    Calls are planned, started and sent to a worker in a fraction of the time that operators need, but take
    longer for many rows.
    """
    begin, middle, end = split_json(json)
    parts = json_parts(middle)
    if len(parts) < 2:
        return json
    groups = [parts[start : start + MAX_OPERANDS] for start in range(0, len(parts), MAX_OPERANDS)]
    return (JsonPiece(begin), *[f"pg_catalog.concat({', '.join(group)})" for group in groups], JsonPiece(end))


# ---------------------------------------------------------------- rows of all shards


class _ShardPage(Row):
    """A row of a page read from all shards, with columns that the shards computed."""

    def __init__(self, row: Row) -> None:
        super().__init__(row.alias, row.table, derived=True)
        self._computed: list[str] = []

    def compute(self, sql: str) -> str:
        name = quote_identifier(f"~made{len(self._computed)}")
        self._computed.append(f", {sql} as {name}")
        return f"{self.alias}.{name}"

    def selection_from(self, inner: Row) -> str:
        return super().selection_from(inner) + "".join(self._computed)


class _ShardMembers(MemberWriter):
    """Writes the members of rows from all shards. Shards compute related rows of colocated tables.

    :param page: PostgreSQL's writer for the page, which provides the row and the options.
    :param source: the row in the inner query that selects the page.
    """

    def __init__(self, page: MemberWriter, source: Row, table: Table) -> None:
        self._page = _ShardPage(page.row)
        super().__init__(
            page.writer, self._page, joining=page.joining, columns=page.columns, grouped=page.grouped
        )
        self._source = source
        self._table = table

    def json(self, output: Output) -> Json:
        if as_record(output) is None and self._is_colocated(output.related()):
            return (self._page.compute(json_sql(output.json(self.writer, self._source))),)
        return super().json(output)

    def column(self, output: Output) -> str:
        if self._is_colocated(output.related()):
            return self._page.compute(output.sql(self.writer, self._source))
        return super().column(output)

    def spread_one(self, spread: Spread) -> Iterator[MemberColumn]:
        if self.columns or not self._is_colocated(spread.rows):
            yield from super().spread_one(spread)
            return
        source = one_of(self.writer, spread, self._source)
        page = Row(self.writer.alias(), source.rows.table, derived=True)
        inner = MemberWriter(self.writer, page, joining=self.joining)
        members = inner.members(spread.record)
        item, after = inner.parts(source)
        yield from self._computed(members, f"{item}{after}")

    def spread_many(self, spread: Spread) -> Iterator[MemberColumn]:
        if self.columns or not self._is_colocated(spread.rows):
            yield from super().spread_many(spread)
        else:
            yield from self._computed(*arrays_of(self.writer, spread, self._source))

    def _computed(self, members: Sequence[MemberColumn], item: str) -> Iterator[MemberColumn]:
        if not members:
            return
        texts = ", ".join(json_sql(each.value) for each in members)
        array = self._page.compute(f"(select array[{texts}] from {item})")
        for index, member in enumerate(members, 1):
            yield MemberColumn(member.key, (f"coalesce(({array})[{index}], 'null')",))

    def _is_colocated(self, rows: Rows | None) -> bool:
        if rows is None or rows.table is None or rows.call is not None:
            return False
        if rows.through is not None:
            junction = _are_colocated(rows.through.table, rows.through.near.pairs, self._table)
            far = tuple((theirs, own) for own, theirs in rows.through.far.pairs)
            return junction and _are_colocated(rows.table, far, rows.through.table)
        return rows.join is not None and _are_colocated(rows.table, rows.join.pairs, self._table)


def _are_colocated(table: Table, pairs: Sequence[tuple[str, str]], other: Table) -> bool:
    if table.colocated == 0:
        return True
    colocated_tables = table.colocated is not None and table.colocated == other.colocated
    return colocated_tables and (table.distributed_by, other.distributed_by) in pairs
