"""The algebra of mutations: inserts, updates and deletes of a table's rows.

An upsert is an insert with ``OnConflict``. The rows to write are given value by value (``ValueRows``), as
one JSON text (``JsonRows``) or with related rows (``NestedRows``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

from dataapi.catalog.model import Table
from dataapi.sql.algebra import Condition, Parameter
from dataapi.sql.statement import Writer

# ---------------------------------------------------------------- rows to write


class ComputedCell(ABC):
    """A value computed from other values."""

    __slots__ = ()

    @abstractmethod
    def sql(self, writer: Writer, /) -> str: ...


Cell = Parameter | ComputedCell | None
"""A value to write, None for NULL."""


@dataclass(frozen=True, slots=True)
class Default:
    """The column's default."""


DEFAULT = Default()


@dataclass(frozen=True, slots=True)
class ValueRows:
    """Rows whose values are written one by one.

    :ivar rows: values of each row, in the order of ``columns``. An ``Update`` has exactly one row, without
        ``DEFAULT``.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | Default, ...], ...]


class MissingMember(Enum):
    """The value of a column if the JSON object lacks its member."""

    NULL = "null"
    DEFAULT = "default"
    UNCHANGED = "unchanged"
    """The column's current value. For updates only."""


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """A column to write from a member of JSON objects.

    :ivar type: SQL type to read the member as.
    :ivar function: SQL name of the function that converts the member to the column's value, "" for none.
    :ivar default: SQL of the column's default, or None.
    :ivar cast: SQL type to cast the converted value to, "" for none.
    :ivar member: name of the member, "" if it is the column's name.
    :ivar pairs: SQL name of a type such as ``hstore`` that is built from an object's members, "" for other
        types. The type's constructor takes arrays of keys and values. If set, ``type`` is ``json``.
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
        return self.member or self.name


@dataclass(frozen=True, slots=True)
class JsonRows:
    """Rows as one JSON text: an array of objects if ``many``, otherwise one object."""

    value: Parameter
    many: bool
    columns: tuple[JsonColumn, ...]
    missing: MissingMember = MissingMember.NULL


@dataclass(frozen=True, slots=True)
class RelatedRow:
    """A row to insert together with another row.

    :ivar pairs: joined columns: (column of this row's table, column of the other row's table).
    """

    row: NestedRow
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NestedRow:
    """A row to insert together with related rows, or several rows without related rows.

    :ivar values: columns and their values, or JSON of one or several rows. Other columns get their defaults.
    :ivar parents: rows that this row references.
    :ivar children: rows that reference this row.
    :ivar conflict: action if the row exists. Its related rows are inserted in any case.
    :ivar number: number of the row for errors, None to use the mutation's index. Parents with ``conflict``
        and the same number are one row.
    """

    table: Table
    values: tuple[tuple[str, Cell], ...] | JsonRows
    parents: tuple[RelatedRow, ...] = ()
    children: tuple[RelatedRow, ...] = ()
    conflict: OnConflict | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class NestedRows:
    """Rows to insert into one table, with related rows."""

    rows: tuple[NestedRow, ...]


# ---------------------------------------------------------------- mutations


@dataclass(frozen=True, slots=True)
class OnConflict:
    """Action if a row with the same unique key exists.

    :ivar columns: columns of the unique key, unless ``constraint`` is set.
    :ivar update: columns to set to the new values. If empty, the existing row is left unchanged.
    :ivar counter: setting of the transaction that counts updated rows, or None. It must start at "0".
    """

    columns: tuple[str, ...]
    update: tuple[str, ...]
    constraint: str | None = None
    counter: str | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows to insert. Nested rows have their own actions on conflict.

    :ivar matching: if set, only the first of the ``JsonRows`` that satisfies this condition is inserted.
    """

    table: Table
    rows: ValueRows | JsonRows | NestedRows
    conflict: OnConflict | None = None
    matching: Condition | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Values to set on the matching rows.

    If ``key`` is set, its columns identify the row for each JSON object. Otherwise, the first row of values
    applies to all matching rows.
    """

    table: Table
    values: ValueRows | JsonRows
    where: Condition | None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes the matching rows."""

    table: Table
    where: Condition | None


Mutation = Insert | Update | Delete
