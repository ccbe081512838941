"""The fields of a table's object type as a role sees them: columns, computed fields and relationships."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataapi.catalog.model import Column, Function
from dataapi.graphql.schema.type_mapping import TypeMapping
from dataapi.sql.algebra import FunctionCall, Join, Rows
from dataapi.sql.conditions import Condition

if TYPE_CHECKING:
    from dataapi.graphql.schema.catalog_view import TableView


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A column as a field: ``name`` in input types and aggregates, ``field`` in the object type."""

    name: str
    field: str
    column: Column
    mapping: TypeMapping
    description: str | None


@dataclass(frozen=True, slots=True)
class ComputedField:
    """A computed scalar field, with its name in the object type and the one in input types."""

    name: str
    input_name: str
    function: Function
    mapping: TypeMapping
    description: str | None


@dataclass(frozen=True, slots=True)
class RelatedField:
    """A relationship as a field, by foreign key or by a function of the row.

    :ivar input_name: the name in input types.
    :ivar join: of the target's columns with the own ones; None for a computed relationship.
    :ivar function: the one of a computed relationship.
    :ivar outgoing: whether the foreign key is this table's own.
    :ivar unique: whether at most one row is related, by the target's keys alone.
    :ivar disjoint: whether different rows have different related rows.
    :ivar nullable: of a to-one field, whether the schema shows it as nullable.
    """

    name: str
    input_name: str
    target: TableView
    to_one: bool
    join: Join | None = None
    function: Function | None = None
    outgoing: bool = False
    unique: bool = False
    disjoint: bool = False
    nullable: bool = True
    description: str | None = None

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The equal columns, the target's first."""
        return () if self.join is None else self.join.pairs

    def rows(self, where: Condition | None = None) -> Rows:
        """Return the rows that are related to the row in scope."""
        table = self.target.table
        if self.function is None:
            return Rows(table, join=self.join, where=where, unique=self.unique)
        return Rows(table, call=FunctionCall(self.function, of_row=True), where=where, unique=self.unique)
