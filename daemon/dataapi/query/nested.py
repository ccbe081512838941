"""Rows inserted with their related rows: one statement, a ``with`` query for each row.

A row that holds a foreign key is inserted after the row that it points at and takes the
key from what that insert returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dataapi.catalog.model import Table
from dataapi.database.quoting import quote_identifier
from dataapi.query.algebra import Parameter
from dataapi.query.writer import Row, Writer, qualified

Taken = tuple[tuple[str, str], ...]
Selection = Callable[[Row], str]


@dataclass(frozen=True, slots=True)
class Related:
    """A row inserted together with another one.

    :ivar pairs: ``(column of the related row's table, column of the other row's table)``.
    """

    row: NestedRow
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NestedRow:
    """A row to insert.

    :ivar values: a column and its value, None for NULL; other columns take their defaults.
    :ivar parents: rows that this one points at.
    :ivar children: rows that point at this one.
    """

    table: Table
    values: tuple[tuple[str, Parameter | None], ...]
    parents: tuple[Related, ...] = ()
    children: tuple[Related, ...] = ()


@dataclass(frozen=True, slots=True)
class NestedInsert:
    """Rows of one table to insert, with their related rows."""

    table: Table
    rows: tuple[NestedRow, ...]


def nested_queries(writer: Writer, insert: NestedInsert, changed: str, outer: Row) -> str:
    """Return the ``with`` queries that insert the rows, the last one named ``changed``.

    :param outer: the row that reads the inserted rows of the table itself; what was named of it is returned.
    """
    writing = _Writing(writer)
    names = [writing.insert(row, (), (), outer.selection_from) for row in insert.rows]
    columns = ", ".join(outer.provided())
    gathered = " union all ".join(f"select {columns} from {name}" for name in names)
    return ", ".join([*writing.queries, f"{changed} as ({gathered})"])


class _Writing:
    """Writes inserts in the order of their dependencies.

    :ivar queries: the finished ``with`` queries.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._last_child = ""
        self.queries: list[str] = []

    def insert(
        self, row: NestedRow, taken: Taken, returned: Iterable[str], selection: Selection | None = None
    ) -> str:
        """Write the inserts of a row, parents before it and children after it; return its query's name.

        :param taken: columns whose values come from another insert, with the SQL of the value.
        :param returned: columns whose values another insert takes.
        :param selection: makes the select list of what else is to be returned.
        """
        name = self._writer.alias()
        for parent in row.parents:
            theirs = [column for column, _ in parent.pairs]
            parent_name = self.insert(parent.row, (), theirs)
            taken += tuple((own, _key(parent_name, column)) for column, own in parent.pairs)
        keys = dict.fromkeys((*returned, *(own for child in row.children for _, own in child.pairs)))
        self.queries.append(f"{name} as ({self._insert_sql(row, taken, keys, selection)})")
        for child in row.children:
            keys_of_row = tuple((column, _key(name, own)) for column, own in child.pairs)
            self._last_child = self.insert(child.row, keys_of_row, ())
        return name

    def _insert_sql(
        self, row: NestedRow, taken: Taken, keys: Iterable[str], selection: Selection | None
    ) -> str:
        target = Row(self._writer.alias())
        cells = [(name, "null" if cell is None else self._writer.slot(cell)) for name, cell in row.values]
        cells += taken
        names = ", ".join(quote_identifier(name) for name, _ in cells)
        values = ", ".join(value for _, value in cells)
        source = f"({names}) select {values}{self._after() if taken else ''}" if cells else "default values"
        items = [f"{target.column(name)} as {_returned(name)}" for name in keys]
        if selection is not None:
            items.append(selection(target))
        # Something must be returned for a later query to depend on.
        returning = ", ".join(items) or "1"
        return f"insert into {qualified(row.table)} as {target.alias} {source} returning {returning}"

    def _after(self) -> str:
        """Return a clause that lets the child before this one be inserted first.

        PostgreSQL runs queries that nothing reads in any order; reading one another, they run,
        and generated keys grow, in the order in which the rows are given.
        """
        return f" where (select pg_catalog.count(*) from {self._last_child}) >= 0" if self._last_child else ""


def _returned(column: str) -> str:
    """Return the name under which an insert returns a column for other inserts."""
    return quote_identifier(f"~{column}")


def _key(query: str, column: str) -> str:
    return f"(select {_returned(column)} from {query})"
