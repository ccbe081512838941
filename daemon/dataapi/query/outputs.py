"""SQL of outputs: JSON that PostgreSQL builds, so that no row is ever walked here."""

from __future__ import annotations

from dataapi.database.quoting import quote_identifier, quote_literal
from dataapi.query.algebra import OrderTerm, Parameter, Rows
from dataapi.query.expressions import condition_sql, expression_sql, order_sql, source_sql
from dataapi.query.forms import base64_sql, build_object, form_sql
from dataapi.query.relations import call_sql
from dataapi.query.results import (
    Connection,
    Cursor,
    Edges,
    Fact,
    Form,
    FunctionValue,
    FunctionValues,
    FunctionVoid,
    Groups,
    Instant,
    JsonText,
    Key,
    Labels,
    Many,
    NodeId,
    Null,
    Object,
    One,
    Output,
    PageFact,
    Summary,
    Text,
    Value,
)
from dataapi.query.writer import Row, Writer

MOST_COLUMNS = 1600
LONGEST_NAME = 63
"""PostgreSQL's limits for a row: its columns, and the bytes of a column's name."""


def output_sql(writer: Writer, output: Output, row: Row | None) -> str:
    """Return the SQL of an output in the scope of a row (None at the root)."""
    match output:
        case Text(text):
            return f"{quote_literal(text)}::text"
        case Null():
            return "null::json"
        case Object(members):
            return build_object(
                [(key_sql(writer, key), output_sql(writer, value, row)) for key, value in members]
            )
        case Value(expression, form, labels):
            return form_sql(expression_sql(writer, expression, _in_scope(row)), form, labels)
        case FunctionValue(call, form, labels):
            return _function_value_sql(writer, call_sql(writer, call, row), form, labels)
        case FunctionValues(call, form, labels):
            alias = writer.alias()
            value = form_sql(f"{alias}.value", form, labels)
            source = f"{call_sql(writer, call, row)} as {alias}(value)"
            return f"(select coalesce(pg_catalog.json_agg({value}), '[]'::json) from {source})"
        case FunctionVoid(call):
            return f"(select null::json from {call_sql(writer, call, row)})"
        case JsonText(parameter):
            return writer.slot(parameter)
        case Instant():
            return "pg_catalog.now()"
        case NodeId(schema, table, key):
            names = [f"{quote_literal(schema)}::text", f"{quote_literal(table)}::text"]
            return base64_sql([*names, *(_in_scope(row).column(name) for name in key)])
        case Cursor(order):
            return base64_sql([expression_sql(writer, term.expression, _in_scope(row)) for term in order])
        case One(rows, inner):
            return _one_sql(writer, rows, inner, row)
        case Many(rows, inner):
            return _many_sql(writer, rows, inner, row)
        case Connection():
            return _ConnectionWriter(writer, output, row).sql()
        case _:
            raise TypeError(f"{type(output).__name__} lives only inside a connection or a change")


def row_sql(writer: Writer, output: Output, row: Row) -> str:
    """Return the SQL of what is shown of one row, outside of any aggregation.

    An object whose members have names of the schema is written from a row with columns of
    these names: PostgreSQL does that faster than ``json_build_object``, and without blanks.
    """
    if not isinstance(output, Object) or not _fits_columns(output):
        return output_sql(writer, output, row)
    alias = writer.alias()
    columns = [
        f"{row_sql(writer, value, row)} as {quote_identifier(key.text)}"
        for key, value in output.members
        if isinstance(key, Text)
    ]
    return f"(select pg_catalog.row_to_json({alias}) from (select {', '.join(columns)}) as {alias})"


def _fits_columns(output: Object) -> bool:
    """Whether the members can be columns: not too many, and their names neither a client's nor too long."""
    return 0 < len(output.members) <= MOST_COLUMNS and all(
        isinstance(key, Text) and len(key.text.encode()) <= LONGEST_NAME for key, _ in output.members
    )


def _function_value_sql(writer: Writer, call: str, form: Form, labels: Labels) -> str:
    """Return the SQL of a call's result, whose form may name it twice though it must be called once."""
    if form not in (Form.ENUM, Form.ENUM_ARRAY):
        return form_sql(call, form, labels)
    alias = writer.alias()
    return f"(select {form_sql(f'{alias}.value', form, labels)} from {call} as {alias}(value))"


def _in_scope(row: Row | None) -> Row:
    assert row is not None, "an output of a row stands outside any row"
    return row


def key_sql(writer: Writer, key: Key) -> str:
    """Return the SQL of a member's name."""
    return quote_literal(key.text) if isinstance(key, Text) else writer.slot(key)


def _one_sql(writer: Writer, rows: Rows, output: Output, parent: Row | None) -> str:
    row = Row(writer.alias())
    inner = row_sql(writer, output, row)
    order_and_limit = "" if rows.unique else order_sql(writer, rows.order, row) + " limit 1"
    return f"(select {inner} from {source_sql(writer, rows, row, parent)}{order_and_limit})"


def _many_sql(writer: Writer, rows: Rows, output: Output, parent: Row | None) -> str:
    array, page = page_sql(writer, rows, output, parent)
    return f"(select {array} from {page})"


def page_sql(writer: Writer, rows: Rows, output: Output, parent: Row | None) -> tuple[str, str]:
    """Return the array of the rows' outputs, and the ``from`` item of the rows that it is made over."""
    outer, inner = Row(writer.alias(), derived=True), Row(writer.alias())
    picked = row_sql(writer, output, outer)
    source = source_sql(writer, rows, inner, parent)
    order = order_sql(writer, rows.order, inner)
    selection = outer.selection_from(inner)
    limit = _limit_sql(writer, rows)
    page = f"(select {selection} from {source}{order}{limit}) as {outer.alias}"
    return f"coalesce(pg_catalog.json_agg({picked}), '[]'::json)", page


def _limit_sql(writer: Writer, rows: Rows, extra: int = 0) -> str:
    sql = ""
    if rows.limit is not None:
        sql += f" limit {_count_sql(writer, rows.limit)}" + (f" + {extra}" if extra else "")
    if rows.offset is not None:
        sql += f" offset {writer.slot(rows.offset)}"
    return sql


def _count_sql(writer: Writer, count: Parameter | int) -> str:
    return writer.slot(count) if isinstance(count, Parameter) else str(count)


class _ConnectionWriter:
    """Writes one connection: a page picked by an inner query, numbered where a fact needs it.

    The inner query takes the page's rows in the direction of paging (reversed for the
    last rows), one more than asked when the next page's existence is asked for.
    """

    NUMBER, COUNT = quote_identifier("~number"), quote_identifier("~count")

    def __init__(self, writer: Writer, connection: Connection, parent: Row | None) -> None:
        self.writer = writer
        self.connection = connection
        self.parent = parent
        self.rows = connection.rows
        self.page = Row(writer.alias(), derived=True)
        self.lookahead = False
        self.numbered = connection.backward
        self.counted = False
        self.reads_page = False
        self._find_needs(connection.output)

    def _find_needs(self, output: Output) -> None:
        ahead = Fact.HAS_PREVIOUS_PAGE if self.connection.backward else Fact.HAS_NEXT_PAGE
        last = Fact.START_CURSOR if self.connection.backward else Fact.END_CURSOR
        match output:
            case Object(members):
                for _, value in members:
                    self._find_needs(value)
            case Edges():
                self.reads_page = True
            case PageFact(fact):
                self.lookahead |= fact is ahead
                self.counted |= fact is last
                cursor = fact in (Fact.START_CURSOR, Fact.END_CURSOR)
                self.numbered |= fact is ahead or cursor
                self.reads_page |= fact is ahead or cursor

    def sql(self) -> str:
        members = self._output_sql(self.connection.output)
        if not self.reads_page:
            return members
        return f"(select {members} from {self._page_sql()} as {self.page.alias})"

    def _page_sql(self) -> str:
        inner = Row(self.writer.alias())
        source = source_sql(self.writer, self.rows, inner, self.parent, self.connection.position)
        order = order_sql(self.writer, self._traversal(), inner)
        limit = _limit_sql(self.writer, self.rows, extra=1 if self.lookahead else 0)
        picked = f"(select {self.page.selection_from(inner)} from {source}{order}{limit})"
        if not self.numbered:
            return picked
        alias = self.writer.alias()
        numbers = f"pg_catalog.row_number() over () as {self.NUMBER}"
        if self.counted:
            numbers += f", pg_catalog.count(*) over () as {self.COUNT}"
        return f"(select {alias}.*, {numbers} from {picked} as {alias})"

    def _traversal(self) -> tuple[OrderTerm, ...]:
        order = self.rows.order
        return tuple(term.reversed() for term in order) if self.connection.backward else order

    def _output_sql(self, output: Output) -> str:
        match output:
            case Object(members):
                return build_object(
                    [(key_sql(self.writer, key), self._output_sql(value)) for key, value in members]
                )
            case Edges(edge):
                return self._edges_sql(edge)
            case PageFact(fact):
                return self._fact_sql(fact)
            case Summary(inner):
                return self._summary_sql(inner)
            case Groups():
                return self._groups_sql(output)
            case _:
                return output_sql(self.writer, output, None)

    def _edges_sql(self, edge: Output) -> str:
        edge_sql = row_sql(self.writer, edge, self.page)
        order = f" order by {self._number()} desc" if self.connection.backward else ""
        within = f" filter (where {self._number()} <= {self._limit()})" if self.lookahead else ""
        return f"coalesce(pg_catalog.json_agg({edge_sql}{order}){within}, '[]'::json)"

    def _fact_sql(self, fact: Fact) -> str:
        backward = self.connection.backward
        match fact:
            case Fact.START_CURSOR | Fact.END_CURSOR:
                cursor = base64_sql(
                    [expression_sql(self.writer, term.expression, self.page) for term in self.rows.order]
                )
                last = (fact is Fact.START_CURSOR) == backward
                number = self._last_number() if last else self._first_number()
                return f"pg_catalog.max({cursor}) filter (where {self._number()} = {number})"
            case Fact.HAS_NEXT_PAGE:
                return self._behind_sql() if backward else self._ahead_sql()
            case Fact.HAS_PREVIOUS_PAGE:
                return self._ahead_sql() if backward else self._behind_sql()

    def _ahead_sql(self) -> str:
        return "false" if self.rows.limit is None else f"pg_catalog.count(*) > {self._limit()}"

    def _behind_sql(self) -> str:
        """Return whether rows exist on the side that the page came from."""
        alternatives = []
        if self.connection.position is not None:
            alternatives.append(self._exists_sql(behind_position=True))
        if self.rows.offset is not None:
            alternatives.append(
                f"({self.writer.slot(self.rows.offset)} > 0 and {self._exists_sql(behind_position=False)})"
            )
        return "(" + " or ".join(alternatives) + ")" if alternatives else "false"

    def _exists_sql(self, *, behind_position: bool) -> str:
        row = Row(self.writer.alias())
        position = self.connection.position
        behind = position.complement() if behind_position and position is not None else None
        source = source_sql(self.writer, self.rows, row, self.parent, behind)
        return f"exists (select 1 from {source})"

    def _summary_sql(self, output: Output) -> str:
        row = Row(self.writer.alias())
        inner = output_sql(self.writer, output, row)
        return f"(select {inner} from {source_sql(self.writer, self.rows, row, self.parent)})"

    def _groups_sql(self, groups: Groups) -> str:
        row, alias = Row(self.writer.alias()), self.writer.alias()
        keys = [expression_sql(self.writer, key, row) for key in groups.keys]
        inner = output_sql(self.writer, groups.output, row)
        source = source_sql(self.writer, self.rows, row, self.parent)
        listed = ", ".join(keys)
        having = ""
        if groups.having is not None:
            having = f" having {condition_sql(self.writer, groups.having, row)}"
        limit = _count_sql(self.writer, groups.limit)
        grouped = (
            f"select {inner} as value from {source} group by {listed}{having} order by {listed} limit {limit}"
        )
        listed = f"coalesce(pg_catalog.json_agg({alias}.value), '[]'::json)"
        return f"(select {listed} from ({grouped}) as {alias})"

    def _number(self) -> str:
        return f"{self.page.alias}.{self.NUMBER}"

    def _first_number(self) -> str:
        # With a limit of 0, the only row there may be is the one that was looked ahead at.
        return f"least(1, {self._limit()})" if self.lookahead else "1"

    def _last_number(self) -> str:
        count = f"{self.page.alias}.{self.COUNT}"
        return count if self.rows.limit is None else f"least({count}, {self._limit()})"

    def _limit(self) -> str:
        assert self.rows.limit is not None, "a page without a limit has nothing beyond it"
        return _count_sql(self.writer, self.rows.limit)
