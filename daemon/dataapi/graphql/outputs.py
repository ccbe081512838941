"""Outputs that only GraphQL uses: connections, function results, node ids, cursors and bound JSON."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from dataapi.database.sql_text import EQUAL, GREATER, operator_sql, quote_identifier, quote_literal
from dataapi.sql.algebra import After, Condition, Expression, FunctionCall, OrderTerm, Parameter, Rows
from dataapi.sql.expressions import (
    call_sql,
    condition_sql,
    count_sql,
    expression_sql,
    limit_sql,
    order_sql,
    source_sql,
)
from dataapi.sql.outputs import (
    BOOL,
    InnerOutput,
    Json,
    JsonQuery,
    Labels,
    Object,
    Output,
    WireForm,
    array_json,
    form_json,
    in_scope,
    json_sql,
    object_json,
    quoted_json,
    value_json,
)
from dataapi.sql.page_source import at_most_one
from dataapi.sql.row_output import page_dialect
from dataapi.sql.statement import Row, Writer


@dataclass(frozen=True, slots=True)
class FunctionValue(Output):
    """The scalar or array result of a function, or the list of the results of a set-returning function."""

    call: FunctionCall
    form: WireForm = WireForm.JSON
    labels: Labels = ()
    many: bool = False

    def json(self, writer: Writer, row: Row | None) -> Json:
        call, type_ = call_sql(writer, self.call, row), self.call.function.returns
        if not self.many and self.form not in (WireForm.ENUM, WireForm.ENUM_ARRAY):
            return form_json(call, self.form, self.labels, type_)
        alias = writer.alias()
        value = form_json(f"{alias}.value", self.form, self.labels, type_, column=True)
        items = array_json(value) if self.many else value
        return (JsonQuery(items, f"{writer.dialect.call_source(self.call, call)} as {alias}(value)"),)


@dataclass(frozen=True, slots=True)
class FunctionVoid(Output):
    """Null, for a function that is called only for its side effects."""

    call: FunctionCall

    def json(self, writer: Writer, row: Row | None) -> Json:
        return (f"(select 'null'::text from {call_sql(writer, self.call, row)})",)


@dataclass(frozen=True, slots=True)
class JsonText(Output):
    """JSON that is computed before the statement runs, and bound as a ``json`` parameter."""

    parameter: Parameter

    def json(self, writer: Writer, _row: Row | None) -> Json:
        return (f"{writer.slot(self.parameter)}::text",)


@dataclass(frozen=True, slots=True)
class CurrentTime(Output):
    """The time of the transaction."""

    def json(self, _writer: Writer, _row: Row | None) -> Json:
        return value_json("pg_catalog.now()")


@dataclass(frozen=True, slots=True)
class NodeId(Output):
    """The current row's node id (docs/reference/graphql.md, Node ids)."""

    schema: str
    table: str
    key: tuple[str, ...]

    def json(self, _writer: Writer, row: Row | None) -> Json:
        names = [f"{quote_literal(self.schema)}::text", f"{quote_literal(self.table)}::text"]
        return quoted_json(base64_sql([*names, *(in_scope(row).column(name) for name in self.key)]))

    def reads_only_columns(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class RowCursor(Output):
    """The current row's cursor (docs/reference/graphql.md, Cursors)."""

    order: tuple[OrderTerm, ...]

    def json(self, writer: Writer, row: Row | None) -> Json:
        return quoted_json(cursor_sql(writer, self.order, in_scope(row)))


def cursor_sql(writer: Writer, order: tuple[OrderTerm, ...], row: Row) -> str:
    return base64_sql([expression_sql(writer, term.expression, row) for term in order])


def base64_sql(values: list[str]) -> str:
    """Return SQL for a JSON array in base64, without the line breaks that ``encode`` adds."""
    array = f"pg_catalog.jsonb_build_array({', '.join(values)})"
    encoded = f"pg_catalog.encode(pg_catalog.convert_to({array}::text, 'UTF8'), 'base64')"
    return f"pg_catalog.translate({encoded}, E'\\n', '')"


class PageInfoField(Enum):
    """A field of ``pageInfo``."""

    START_CURSOR = "startCursor"
    END_CURSOR = "endCursor"
    HAS_NEXT_PAGE = "hasNextPage"
    HAS_PREVIOUS_PAGE = "hasPreviousPage"


@dataclass(frozen=True, slots=True)
class PageInfo(InnerOutput):
    """The output of one field of ``pageInfo``."""

    field: PageInfoField


@dataclass(frozen=True, slots=True)
class Edges(InnerOutput):
    """The rows of the page, in order."""

    output: Output


@dataclass(frozen=True, slots=True)
class CollectionAggregates(InnerOutput):
    """Aggregates over all matching rows, on all pages."""

    output: Output


@dataclass(frozen=True, slots=True)
class Groups(InnerOutput):
    """Aggregates over groups of the matching rows, ordered by the keys."""

    keys: tuple[Expression, ...]
    having: Condition | None
    limit: Parameter | int
    output: Output


@dataclass(frozen=True, slots=True)
class ConnectionOutput(Output):
    """A page of rows and its page information.

    :ivar rows: all rows of the collection in forward order, before ``position`` is applied.
    :ivar position: the cursor after which a forward page starts, or before which a backward page ends. For a
        backward page, its order terms are reversed.
    :ivar backward: whether the page ends before ``position`` or at the last row (``last`` or ``before``).
    """

    rows: Rows
    output: Object
    position: After | None = None
    backward: bool = False

    def json(self, writer: Writer, row: Row | None) -> Json:
        return _ConnectionWriter(writer, self, row).json()

    def related(self) -> Rows:
        return self.rows


class _ConnectionWriter:
    """Writes the SQL of a connection. An inner query selects the page.

    It selects rows in the direction of paging, and one row more than the limit if the response reports
    whether another page follows. Rows are numbered if ``pageInfo`` requires it.
    """

    _NUMBER, _COUNT = quote_identifier("~number"), quote_identifier("~count")

    def __init__(self, writer: Writer, connection: ConnectionOutput, parent: Row | None) -> None:
        self._writer = writer
        self._connection = connection
        self._parent = parent
        self._rows = connection.rows
        many = not at_most_one(self._rows)
        self._members = page_dialect(writer).page(writer, self._rows, lambda: self._inner, many=many)
        self._page = self._members.row
        self._lookahead = self._needs_lookahead(connection.output)
        self._numbered = self._counted = self._reads_page = False

    @cached_property
    def _inner(self) -> Row:
        return Row(self._writer.alias())

    def _needs_lookahead(self, output: Output) -> bool:
        match output:
            case Object(members):
                return any(self._needs_lookahead(value) for _, value in members)
            case PageInfo(PageInfoField.HAS_NEXT_PAGE):
                return not self._connection.backward
            case PageInfo(PageInfoField.HAS_PREVIOUS_PAGE):
                return self._connection.backward
            case _:
                return False

    def json(self) -> Json:
        members = self._output_json(self._connection.output)
        if not self._reads_page:
            return members
        joins = "".join(self._members.joins)
        return (JsonQuery(members, f"{self._page_sql()} as {self._page.alias}{joins}"),)

    def _page_sql(self) -> str:
        inner = self._inner
        source = source_sql(self._writer, self._rows, inner, self._parent, self._connection.position)
        order = order_sql(self._writer, self._order(), inner)
        limit = limit_sql(self._writer, self._rows, extra=1 if self._lookahead else 0)
        page = f"(select {self._page.selection_from(inner)} from {source}{order}{limit})"
        if not self._numbered:
            return page
        alias = self._writer.alias()
        numbers = f"pg_catalog.row_number() over () as {self._NUMBER}"
        if self._counted:
            numbers += f", pg_catalog.count(*) over () as {self._COUNT}"
        return f"(select {alias}.*, {numbers} from {page} as {alias})"

    def _order(self) -> tuple[OrderTerm, ...]:
        order = self._rows.order
        return tuple(term.reversed() for term in order) if self._connection.backward else order

    def _output_json(self, output: Output) -> Json:
        match output:
            case Object(members):
                return object_json(self._writer, [(key, self._output_json(value)) for key, value in members])
            case Edges(edge):
                return self._edges_json(edge)
            case PageInfo(field):
                return self._page_info_json(field)
            case CollectionAggregates(inner):
                return self._aggregates_json(inner)
            case Groups():
                return self._groups_json(output)
            case _:
                return output.json(self._writer, None)

    def _edges_json(self, edge: Output) -> Json:
        self._reads_page = True
        json = self._members.json(edge)
        order = within = ""
        if self._connection.backward or self._members.joins:  # joins may change the order
            order = f" order by {self._number()}{' desc' if self._connection.backward else ''}"
        if self._lookahead:
            within = f" filter (where {self._number()} {operator_sql('<=')} {self._limit()})"
        return array_json(json, order, within)

    def _page_info_json(self, field: PageInfoField) -> Json:
        backward = self._connection.backward
        if field in (PageInfoField.START_CURSOR, PageInfoField.END_CURSOR):
            self._reads_page = True
            cursor = cursor_sql(self._writer, self._rows.order, self._page)
            last = (field is PageInfoField.START_CURSOR) == backward
            number = self._last_number() if last else self._first_number()
            return quoted_json(f"pg_catalog.max({cursor}) filter (where {self._number()} {EQUAL} {number})")
        if (field is PageInfoField.HAS_NEXT_PAGE) == backward:
            return value_json(self._other_side_sql(), BOOL)
        self._reads_page = True
        return value_json(f"(pg_catalog.count(*) {GREATER} {self._limit()})", BOOL)

    def _other_side_sql(self) -> str:
        """Return SQL for a JSON boolean: whether rows precede a forward page, or follow a backward page."""
        position, offset = self._connection.position, self._rows.offset
        alternatives = []
        if position is not None:
            alternatives.append(self._exists_sql(position.complement()))
        if offset is not None:
            alternatives.append(f"({self._writer.slot(offset)} {GREATER} 0 and {self._exists_sql()})")
        return "(" + " or ".join(alternatives) + ")" if alternatives else "false"

    def _exists_sql(self, *extra: Condition) -> str:
        row = Row(self._writer.alias())
        return f"exists (select 1 from {source_sql(self._writer, self._rows, row, self._parent, *extra)})"

    def _aggregates_json(self, output: Output) -> Json:
        row = Row(self._writer.alias(), self._rows.table)
        inner = output.json(self._writer, row)
        source = source_sql(self._writer, self._rows, row, self._parent)
        # ``having`` makes this an aggregate query, so it returns one row even if no aggregate is selected.
        return (JsonQuery(inner, f"{source} having true"),)

    def _groups_json(self, groups: Groups) -> Json:
        row, alias = Row(self._writer.alias(), self._rows.table), self._writer.alias()
        keys = [expression_sql(self._writer, key, row) for key in groups.keys]
        inner = json_sql(groups.output.json(self._writer, row))
        source = source_sql(self._writer, self._rows, row, self._parent)
        items, having = ", ".join(keys), ""
        if groups.having is not None:
            having = f" having {condition_sql(self._writer, groups.having, row)}"
        page = f" order by {items} limit {count_sql(self._writer, groups.limit)}"
        grouped = f"select {inner} as value from {source} group by {items}{having}{page}"
        return (JsonQuery(array_json((f"{alias}.value",)), f"({grouped}) as {alias}"),)

    def _number(self) -> str:
        self._numbered = True
        return f"{self._page.alias}.{self._NUMBER}"

    def _first_number(self) -> str:
        # With a limit of 0, only the lookahead row can exist.
        return f"least(1, {self._limit()})" if self._lookahead else "1"

    def _last_number(self) -> str:
        self._counted = True
        return f"least({self._page.alias}.{self._COUNT}, {self._limit()})"

    def _limit(self) -> str:
        assert self._rows.limit is not None, "every page has a size"
        return count_sql(self._writer, self._rows.limit)
