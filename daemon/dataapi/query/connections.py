"""SQL of connections: a page of rows with the facts, aggregates and groups that surround it."""

from __future__ import annotations

from collections.abc import Callable

from dataapi.database.quoting import quote_identifier
from dataapi.query.algebra import OrderTerm
from dataapi.query.expressions import (
    condition_sql,
    count_sql,
    expression_sql,
    limit_sql,
    order_sql,
    source_sql,
)
from dataapi.query.forms import base64_sql, build_object, key_sql
from dataapi.query.picked import is_one
from dataapi.query.records import Picking
from dataapi.query.results import Connection, Edges, Fact, Groups, Object, Output, PageFact, Summary
from dataapi.query.writer import Row, Writer


class ConnectionWriter:
    """Writes one connection: a page picked by an inner query, numbered where a fact needs it.

    The inner query takes the page's rows in the direction of paging (reversed for the
    last rows), one more than asked when the next page's existence is asked for.

    :param write: makes the SQL of an output in the scope of a row, None at the root.
    """

    _NUMBER, _COUNT = quote_identifier("~number"), quote_identifier("~count")

    def __init__(
        self,
        writer: Writer,
        connection: Connection,
        parent: Row | None,
        write: Callable[[Writer, Output, Row | None], str],
    ) -> None:
        self._writer = writer
        self._write = write
        self._connection = connection
        self._parent = parent
        self._rows = connection.rows
        self._page = Row(writer.alias(), derived=True)
        self._picking = Picking(writer, write, self._rows.table, self._page, joining=not is_one(self._rows))
        self._lookahead = False
        self._numbered = connection.backward
        self._counted = False
        self._reads_page = False
        self._find_needs(connection.output)

    def _find_needs(self, output: Output) -> None:
        ahead = Fact.HAS_PREVIOUS_PAGE if self._connection.backward else Fact.HAS_NEXT_PAGE
        last = Fact.START_CURSOR if self._connection.backward else Fact.END_CURSOR
        match output:
            case Object(members):
                for _, value in members:
                    self._find_needs(value)
            case Edges():
                self._reads_page = True
            case PageFact(fact):
                self._lookahead |= fact is ahead
                self._counted |= fact is last
                cursor = fact in (Fact.START_CURSOR, Fact.END_CURSOR)
                self._numbered |= fact is ahead or cursor
                self._reads_page |= fact is ahead or cursor

    def sql(self) -> str:
        """Return the connection as an expression."""
        members = self._output_sql(self._connection.output)
        if not self._reads_page:
            return members
        joins = self._picking.joins.sql()
        return f"(select {members} from {self._page_sql()} as {self._page.alias}{joins})"

    def _page_sql(self) -> str:
        inner = Row(self._writer.alias())
        source = source_sql(self._writer, self._rows, inner, self._parent, self._connection.position)
        order = order_sql(self._writer, self._traversal(), inner)
        limit = limit_sql(self._writer, self._rows, extra=1 if self._lookahead else 0)
        picked = f"(select {self._page.selection_from(inner)} from {source}{order}{limit})"
        if not self._numbered:
            return picked
        alias = self._writer.alias()
        numbers = f"pg_catalog.row_number() over () as {self._NUMBER}"
        if self._counted:
            numbers += f", pg_catalog.count(*) over () as {self._COUNT}"
        return f"(select {alias}.*, {numbers} from {picked} as {alias})"

    def _traversal(self) -> tuple[OrderTerm, ...]:
        order = self._rows.order
        return tuple(term.reversed() for term in order) if self._connection.backward else order

    def _output_sql(self, output: Output) -> str:
        match output:
            case Object(members):
                return build_object(
                    [(key_sql(self._writer, key), self._output_sql(value)) for key, value in members]
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
                return self._write(self._writer, output, None)

    def _edges_sql(self, edge: Output) -> str:
        edge_sql = self._picking.value_sql(edge)
        order = self._edges_order()
        within = f" filter (where {self._number()} <= {self._limit()})" if self._lookahead else ""
        return f"coalesce(pg_catalog.json_agg({edge_sql}{order}){within}, '[]'::json)"

    def _edges_order(self) -> str:
        if self._connection.backward:
            return f" order by {self._number()} desc"
        if not self._picking.joins.rows:
            return ""
        self._numbered = True
        return f" order by {self._number()}"

    def _fact_sql(self, fact: Fact) -> str:
        backward = self._connection.backward
        match fact:
            case Fact.START_CURSOR | Fact.END_CURSOR:
                cursor = base64_sql(
                    [expression_sql(self._writer, term.expression, self._page) for term in self._rows.order]
                )
                last = (fact is Fact.START_CURSOR) == backward
                number = self._last_number() if last else self._first_number()
                return f"pg_catalog.max({cursor}) filter (where {self._number()} = {number})"
            case Fact.HAS_NEXT_PAGE:
                return self._behind_sql() if backward else self._ahead_sql()
            case Fact.HAS_PREVIOUS_PAGE:
                return self._ahead_sql() if backward else self._behind_sql()

    def _ahead_sql(self) -> str:
        return "false" if self._rows.limit is None else f"pg_catalog.count(*) > {self._limit()}"

    def _behind_sql(self) -> str:
        """Return whether rows exist on the side that the page came from."""
        alternatives = []
        if self._connection.position is not None:
            alternatives.append(self._exists_sql(behind_position=True))
        if self._rows.offset is not None:
            alternatives.append(
                f"({self._writer.slot(self._rows.offset)} > 0 and {self._exists_sql(behind_position=False)})"
            )
        return "(" + " or ".join(alternatives) + ")" if alternatives else "false"

    def _exists_sql(self, *, behind_position: bool) -> str:
        row = Row(self._writer.alias())
        position = self._connection.position
        behind = position.complement() if behind_position and position is not None else None
        source = source_sql(self._writer, self._rows, row, self._parent, behind)
        return f"exists (select 1 from {source})"

    def _summary_sql(self, output: Output) -> str:
        row = Row(self._writer.alias())
        inner = self._write(self._writer, output, row)
        source = source_sql(self._writer, self._rows, row, self._parent)
        # It is one row also where no aggregate is asked for, but type names alone.
        return f"(select {inner} from {source} having true)"

    def _groups_sql(self, groups: Groups) -> str:
        row, alias = Row(self._writer.alias()), self._writer.alias()
        keys = [expression_sql(self._writer, key, row) for key in groups.keys]
        inner = self._write(self._writer, groups.output, row)
        source = source_sql(self._writer, self._rows, row, self._parent)
        listed = ", ".join(keys)
        having = ""
        if groups.having is not None:
            having = f" having {condition_sql(self._writer, groups.having, row)}"
        limit = count_sql(self._writer, groups.limit)
        grouped = (
            f"select {inner} as value from {source} group by {listed}{having} order by {listed} limit {limit}"
        )
        listed = f"coalesce(pg_catalog.json_agg({alias}.value), '[]'::json)"
        return f"(select {listed} from ({grouped}) as {alias})"

    def _number(self) -> str:
        return f"{self._page.alias}.{self._NUMBER}"

    def _first_number(self) -> str:
        # With a limit of 0, the only row there may be is the one that was looked ahead at.
        return f"least(1, {self._limit()})" if self._lookahead else "1"

    def _last_number(self) -> str:
        count = f"{self._page.alias}.{self._COUNT}"
        return count if self._rows.limit is None else f"least({count}, {self._limit()})"

    def _limit(self) -> str:
        assert self._rows.limit is not None, "a page without a limit has nothing beyond it"
        return count_sql(self._writer, self._rows.limit)
