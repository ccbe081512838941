"""Fields of relations as expressions: columns, computed fields and paths into JSON; pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from dataapi.errors import ApiError
from dataapi.query.algebra import ColumnOf, ComputedOf, Expression, JsonPathOf, Parameter
from dataapi.rest.request.syntax import Path, Step
from dataapi.rest.resolve.relations import Relation
from dataapi.rest.resolve.spelling import hint_for
from dataapi.rest.resolve.tables import ReadableTables
from dataapi.rest.resolve.types import JSONB, TEXT

if TYPE_CHECKING:
    from dataapi.rest.resolve.selection import HasLifted


@dataclass(frozen=True, slots=True)
class Constant:
    """A text of the shape itself, such as a member's name that the client gave."""

    text: str

    def bind(self, values: HasLifted) -> str:  # noqa: ARG002 - the sources' interface
        """Return the text."""
        return self.text


@dataclass(frozen=True, slots=True)
class Lifted:
    """A value that was lifted out of the query string."""

    place: int

    def bind(self, values: HasLifted) -> str:
        """Return the value."""
        return values.lifted[self.place]


@dataclass(frozen=True, slots=True)
class Language:
    """The name of a text search configuration that was lifted out of the query string."""

    place: int

    def bind(self, values: HasLifted) -> str:
        """Return the name.

        :raises ApiError: 42704 (400), it is a number: PostgreSQL would take it for an oid without looking.
        """
        name = values.lifted[self.place]
        if name.isdigit():
            raise ApiError(400, "42704", f'text search configuration "{name}" does not exist')
        return name


@dataclass(frozen=True, slots=True)
class Limited:
    """A number of rows that was lifted out of the query string, with the most that it may be."""

    place: int
    most: int | None

    def bind(self, values: HasLifted) -> str:
        """Return the number."""
        text = values.lifted[self.place]
        return text if self.most is None or int(text) <= self.most else str(self.most)


class HasMost(Protocol):
    """The values of a request that may have a most of rows."""

    @property
    def most(self) -> int | None:
        """How many rows there may be, None for any number."""


@dataclass(frozen=True, slots=True)
class MostRows:
    """How many rows a request may change, or be given by a function (``max-affected``)."""

    def bind(self, values: HasMost) -> str:
        """Return the number."""
        return str(values.most)


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression with what is known of its values.

    :ivar type: the type's oid, None when it is not known.
    """

    expression: Expression
    type: int | None
    nullable: bool = True


def field_of(tables: ReadableTables, relation: Relation, name: str, path: Path = ()) -> Typed:
    """Return a field of a relation: a column, a function of its rows, or a member of a JSON value of one.

    :raises ApiError: 42703 (400), there is no field of that name; 42883 (404), a step leads into a text.
    """
    found = _plain(tables, relation, name)
    if not path:
        return found
    _check(path)
    json = found.type is not None and tables.types.is_json(found.type)
    member = JsonPathOf(found.expression, json, tuple(_parameter(step) for step in path), path[-1].as_text)
    if path[-1].as_text:
        return Typed(member, TEXT)
    return Typed(member, found.type if json else JSONB)


def has_field(tables: ReadableTables, relation: Relation, name: str) -> bool:
    """Whether a relation has a column or a computed field of that name."""
    if relation.columns is None or name in relation.columns:
        return True
    return tables.computed(relation, name) is not None


def _plain(tables: ReadableTables, relation: Relation, name: str) -> Typed:
    if relation.columns is None:
        return Typed(ColumnOf(name), None)
    cell = relation.columns.get(name)
    if cell is not None:
        return Typed(ColumnOf(name), cell.type, cell.nullable)
    function = tables.computed(relation, name)
    if function is not None:
        return Typed(ComputedOf(function), function.returns)
    called = relation.alias or relation.name
    raise ApiError(
        400,
        "42703",
        f"column {called}.{name} does not exist",
        hint=hint_for(called, name, tables.readable(relation)),
    )


def _check(path: Path) -> None:
    """Refuse in PostgreSQL's words a path that goes on behind ``->>``, whose texts have no members."""
    for before, step in pairwise(path):
        if before.as_text:
            arrow, operand = "->>" if step.as_text else "->", "integer" if step.place else "unknown"
            raise ApiError(
                404,
                "42883",
                f"operator does not exist: text {arrow} {operand}",
                hint="No operator matches the given name and argument types."
                " You might need to add explicit type casts.",
            )


def _parameter(step: Step) -> Parameter:
    return Parameter(Constant(step.operand), "integer" if step.place else "text")
