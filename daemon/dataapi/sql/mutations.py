"""The algebra of mutations: what an insert, update or delete does to a table.

An upsert is an insert that says what happens on a conflict.  The rows to write come in one of three ways:
value by value (``ValueRows``), as one JSON text (``JsonRows``), or with related rows (``NestedRows``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

from dataapi.catalog.model import Table
from dataapi.sql.algebra import Condition, Parameter
from dataapi.sql.statement import Writer

# ---------------------------------------------------------------- rows to write


class MadeCell(ABC):
    """A value that is made of others."""

    __slots__ = ()

    @abstractmethod
    def sql(self, writer: Writer, /) -> str:
        """Return the SQL of the value."""


Cell = Parameter | MadeCell | None
"""A value to write, None for NULL."""


@dataclass(frozen=True, slots=True)
class Default:
    """A value that is left to the column's default."""


DEFAULT = Default()


@dataclass(frozen=True, slots=True)
class ValueRows:
    """Rows with a slot for each value.

    :ivar rows: each has a cell per column; an update takes exactly one row, without ``DEFAULT``.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | Default, ...], ...]


class MissingMember(Enum):
    """What a column gets where a JSON object lacks its member."""

    NULL = "null"
    DEFAULT = "default"
    """The column's default."""
    UNCHANGED = "unchanged"
    """The value it has: only for an update."""


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """A column to write from a member of JSON objects.

    :ivar type: the SQL type that the member is read as.
    :ivar function: the SQL name of a function that makes the column's value of that, "" for none.
    :ivar default: SQL of the column's default, or None.
    :ivar cast: the SQL type that the member's value is then cast to, "" for none.
    :ivar member: the member's name, "" for the column's.
    :ivar pairs: the SQL name of the type that is made of the pairs of an object (``hstore``), whose function
        of that name takes keys and values; the member is read as ``json``.  "" for none.
    """

    name: str
    type: str
    function: str = ""
    default: str | None = None
    cast: str = ""
    member: str = ""
    pairs: str = ""

    @property
    def key(self) -> str:
        """The member's name."""
        return self.member or self.name


@dataclass(frozen=True, slots=True)
class JsonRows:
    """Rows as one JSON text.

    :ivar value: a ``json`` parameter.
    :ivar many: whether it is an array of objects and not one object.
    """

    value: Parameter
    many: bool
    columns: tuple[JsonColumn, ...]
    missing: MissingMember = MissingMember.NULL


@dataclass(frozen=True, slots=True)
class RelatedRow:
    """A row inserted together with another one.

    :ivar pairs: ``(column of the related row's table, column of the other row's table)``.
    """

    row: NestedRow
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NestedRow:
    """A row to insert with related rows.

    :ivar values: columns with their values; other columns take their defaults.
    :ivar parents: rows that this one points at.
    :ivar children: rows that point at this one.
    """

    table: Table
    values: tuple[tuple[str, Cell], ...]
    parents: tuple[RelatedRow, ...] = ()
    children: tuple[RelatedRow, ...] = ()


@dataclass(frozen=True, slots=True)
class NestedRows:
    """Rows of one table with their related rows."""

    rows: tuple[NestedRow, ...]


# ---------------------------------------------------------------- mutations


@dataclass(frozen=True, slots=True)
class OnConflict:
    """What to do where a row exists that has the same unique key.

    :ivar columns: the unique key's columns, where no constraint is named.
    :ivar update: columns to set to the new values; none leaves the row as it is.
    :ivar constraint: the unique key's constraint, or None.
    :ivar counter: the transaction's setting that counts the updated rows, which must be "0" before; or None.
    """

    columns: tuple[str, ...]
    update: tuple[str, ...]
    constraint: str | None = None
    counter: str | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows to insert.

    :ivar conflict: not for nested rows.
    :ivar matching: insert only the first row that satisfies it; for ``JsonRows``.
    """

    table: Table
    rows: ValueRows | JsonRows | NestedRows
    conflict: OnConflict | None = None
    matching: Condition | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """ValueRows to set on the rows that match.

    :ivar key: each JSON object is for the row that has the same values in these columns; empty when the
        first row of values is for all rows.
    """

    table: Table
    values: ValueRows | JsonRows
    where: Condition | None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """The rows that match, to delete."""

    table: Table
    where: Condition | None


Mutation = Insert | Update | Delete
