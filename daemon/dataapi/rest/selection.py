"""What a query string asks of rows: its shape, which decides the statement, apart from its values; pure.

``parse`` takes a query string apart without asking any catalog.  ``Selecting`` turns its shape into the
algebra for one role: reading puts a table under it, calling a function, and writing shows changed rows by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from dataapi.catalog.model import Table
from dataapi.query.algebra import Call, Condition, OrderTerm, Rows
from dataapi.query.results import Record
from dataapi.rest.tables import ReadableTables


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of a relation.

    :ivar type: the type's oid.
    """

    type: int
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Relation:
    """What rows are of.

    :ivar schema, name: as errors and relationships name it.
    :ivar table: the table whose rows they are; None for a function's own result columns.
    :ivar columns: by name, in order; None while they are not known (``record``).
    """

    schema: str
    name: str
    table: Table | None
    columns: Mapping[str, Cell] | None

    @classmethod
    def of(cls, table: Table) -> Relation:
        """Return the relation of a table."""
        columns = {column.name: Cell(column.type, column.nullable) for column in table.columns}
        return cls(table.schema, table.name, table, columns)


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a query string decides the statement; hashable, to be part of a plan's shape.

    :ivar select: the ``select`` parameter, None when there is none.
    :ivar size: characters of it all, for ``RoleView.plan``.
    """

    select: str | None
    size: int

    def equalities(self, values: Values) -> Mapping[str, str] | None:
        """Return the value of each column when all filters are plain ``column=eq.value``, else None."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a selection, in the places that its sources know.

    :ivar offset: how many rows of the whole are skipped, for ``Content-Range``.
    """

    lifted: tuple[str, ...]
    offset: int = 0


class HasLifted(Protocol):
    """What ``bind`` of this module's sources takes: ``Values``, or an own class with its ``lifted``."""

    @property
    def lifted(self) -> tuple[str, ...]:
        """As of ``Values``."""


def parse(query: str, header_range: str | None = None) -> tuple[Selection, Values]:
    """Take a raw query string apart; ``columns`` and ``on_conflict`` are left aside, repeats are remembered."""
    raise NotImplementedError


def parse_pairs(
    pairs: Iterable[tuple[str, str]], header_range: str | None = None
) -> tuple[Selection, Values]:
    """Take decoded parameters apart as ``parse`` does, such as those of a call that are no arguments."""
    raise NotImplementedError


def has_operator(value: str) -> bool:
    """Whether a parameter's value begins with an operator, so that it is a filter and no argument."""
    raise NotImplementedError


class Selecting:
    """Makes the algebra of one selection, keeping account of which parts of it found their resource.

    :param most: the most rows that any resource gives (``db-max-rows``); a table's directive may say less.
    :param aggregates: whether aggregate functions may be used (``db-aggregates-enabled``).
    """

    def __init__(
        self, tables: ReadableTables, selection: Selection, most: int | None, *, aggregates: bool = False
    ) -> None:
        raise NotImplementedError

    def record(self, relation: Relation) -> Record:
        """Return what is shown of a row."""
        raise NotImplementedError

    def rows(self, relation: Relation, call: Call | None = None) -> Rows:
        """Return the rows that match, in their order and window, of a table or of a call."""
        raise NotImplementedError

    def where(self, relation: Relation) -> Condition | None:
        """Return the filters on the relation's own columns, as changes take them."""
        raise NotImplementedError

    def required(self, relation: Relation) -> Condition | None:
        """Return what inner and null-filtered embedded resources demand of a row."""
        raise NotImplementedError

    def order(self, relation: Relation) -> tuple[OrderTerm, ...]:
        """Return the order of the rows."""
        raise NotImplementedError

    def check_used(self) -> None:
        """Refuse parameters for resources that were not embedded (PGRST108); call it last."""
        raise NotImplementedError
