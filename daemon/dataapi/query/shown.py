"""Rows to show, and what of any form can be made of them: a row has a column for each member."""

from __future__ import annotations

from dataclasses import dataclass

from dataapi.database.quoting import quote_identifier
from dataapi.query.algebra import Rows
from dataapi.query.expressions import source_sql
from dataapi.query.forms import build_object, key_sql
from dataapi.query.results import Key
from dataapi.query.writer import Row, Writer


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


def rows_source(writer: Writer, rows: Rows, parent: Row | None, *, one: bool = False) -> Source:
    """Return the rows of a table or a call as the source of shown ones."""
    row = Row(writer.alias())
    return Source(row, source_sql(writer, rows, row, parent), rows, one)
