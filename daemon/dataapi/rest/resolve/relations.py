"""What rows are of: a table or a function's own columns, with what can be asked of each column; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataapi.catalog.model import Table


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
    :ivar alias: as errors of its columns name it, None for its name.
    :ivar table: the table whose rows they are; None for a function's own result columns.
    :ivar columns: by name, in order; None while they are not known (``record``).
    """

    schema: str
    name: str
    table: Table | None
    columns: Mapping[str, Cell] | None
    alias: str | None = None

    @classmethod
    def of(cls, table: Table, alias: str | None = None) -> Relation:
        """Return the relation of a table."""
        columns = {column.name: Cell(column.type, column.nullable) for column in table.columns}
        return cls(table.schema, table.name, table, columns, alias)
