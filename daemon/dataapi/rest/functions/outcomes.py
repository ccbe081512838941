"""What a function gives: nothing, a value, values, a row or rows; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dataapi.catalog.formats import media_type_of
from dataapi.catalog.model import Catalog, Function, Type, TypeKind
from dataapi.query.algebra import SCALAR
from dataapi.query.bodies import Content
from dataapi.rest.media import BINARY
from dataapi.rest.resolve.relations import Cell, Relation

_CONTENTS = {"bytea": Content.BYTES, "xml": Content.XML}
_TEXTS = "S"
"""The category of PostgreSQL's text types."""


class Shape(Enum):
    """What the result of a function is."""

    VOID = "void"
    VALUE = "value"
    VALUES = "values"
    ROW = "row"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a function.

    :ivar relation: what its rows are of; values are rows of one column.
    :ivar raw: media types that its one value is as it stands, ``*/*`` for all.
    :ivar content: what that value is.
    """

    shape: Shape
    relation: Relation
    raw: tuple[str, ...] = ()
    content: Content = Content.TEXT

    @property
    def is_scalar(self) -> bool:
        """Whether it is values and not rows."""
        return self.shape in (Shape.VOID, Shape.VALUE, Shape.VALUES)

    @property
    def is_single(self) -> bool:
        """Whether it is always one value or row."""
        return self.shape in (Shape.VOID, Shape.VALUE, Shape.ROW)


def outcome_of(catalog: Catalog, function: Function) -> Outcome:
    """Return what a function gives."""
    declared = catalog.types[function.returns]
    relation = _relation(catalog, function, declared)
    if relation is not None:
        return Outcome(Shape.ROWS if function.returns_set else Shape.ROW, relation)
    values = Relation(function.schema, function.name, None, {SCALAR: Cell(function.returns)})
    if function.returns_set:
        return Outcome(Shape.VALUES, values)
    if declared.name == "void" and declared.kind is TypeKind.PSEUDO:
        return Outcome(Shape.VOID, values)
    return Outcome(Shape.VALUE, values, _raw(catalog, declared), content_of(catalog, declared))


def _relation(catalog: Catalog, function: Function, declared: Type) -> Relation | None:
    """Return what the rows of a function are of, None when it gives values."""
    if function.columns:
        columns = {column.name: Cell(column.type) for column in function.columns}
        return Relation(function.schema, function.name, None, columns)
    type_ = catalog.underlying(declared)
    if type_.kind is not TypeKind.COMPOSITE:
        return None
    table = catalog.tables.get(type_.relation)
    if table is not None:
        return Relation.of(table)
    members = {member.name: Cell(member.type) for member in type_.members}
    return Relation(type_.schema, type_.name, None, members)


def _raw(catalog: Catalog, declared: Type) -> tuple[str, ...]:
    own = media_type_of(declared)
    if own is not None:
        return (own,)
    content = content_of(catalog, declared)
    if content is Content.BYTES:
        return (BINARY,)
    if content is Content.XML:
        return ("text/xml", "text/plain")
    type_ = catalog.underlying(declared)
    return ("text/plain", BINARY) if type_.category == _TEXTS else ("text/plain",)


def content_of(catalog: Catalog, type_: Type) -> Content:
    """Return what the values of a type are; a domain's are those of the type under it."""
    return _CONTENTS.get(catalog.underlying(type_).sql_name, Content.TEXT)
