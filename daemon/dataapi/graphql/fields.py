"""The fields of a table's object type, as one role sees them."""

from __future__ import annotations

from dataclasses import dataclass

from dataapi.catalog.model import Column, Function
from dataapi.graphql.wire import Wire


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A column as a field.

    :ivar name: in input types and aggregates.
    :ivar field: in the object type.
    """

    name: str
    field: str
    column: Column
    wire: Wire
    description: str | None


@dataclass(frozen=True, slots=True)
class ComputedField:
    """A computed scalar field.

    :ivar input_name: the name in input types.
    """

    name: str
    input_name: str
    function: Function
    wire: Wire
    description: str | None


@dataclass(frozen=True, slots=True)
class RelatedField:
    """A relationship as a field, by foreign key or by a function of the row.

    :ivar input_name: the name in input types.
    :ivar target: oid of the table that it leads to.
    :ivar pairs: ``(target's column, own column)``; empty for a computed relationship.
    :ivar outgoing: the foreign key is this table's own.
    :ivar nullable: of a to-one field, whether the schema shows it as nullable.
    """

    name: str
    input_name: str
    target: int
    to_one: bool
    pairs: tuple[tuple[str, str], ...]
    function: Function | None
    nullable: bool
    description: str | None
    outgoing: bool = False
