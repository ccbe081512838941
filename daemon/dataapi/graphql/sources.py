"""Where a slot takes its value: from the document, or from the variables of a request.

A compiled operation keeps its slots' sources; binding asks each for its text.  Sources
compare equal when they would always bind the same, so that they can share a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from graphql import GraphQLError, SourceLocation

from dataapi.graphql.identifiers import decode_cursor, decode_node_id, is_key_value
from dataapi.query.algebra import Parameter

Variables = Mapping[str, Any]
Encode = Callable[[Any], str]
Path = tuple[str | int, ...]


class Source(Protocol):
    """Something that gives a slot's value."""

    def bind(self, variables: Variables) -> str | None:
        """Return the value's text, None for NULL; raise GraphQLError when it is out of bounds."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value that the document or the schema fixes."""

    text: str | None

    def bind(self, variables: Variables) -> str | None:  # noqa: ARG002 - the interface's
        """Return the fixed text."""
        return self.text


class Origin(Protocol):
    """Where a leaf's coerced value comes from."""

    def value(self, variables: Variables) -> Any:
        """Return the coerced value."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal of the document."""

    constant: Any

    def value(self, variables: Variables) -> Any:  # noqa: ARG002 - the interface's
        """Return the literal's value."""
        return self.constant


@dataclass(frozen=True, slots=True)
class InVariable:
    """A place inside a variable's coerced value: the variable's name, then member names and indexes."""

    path: tuple[str | int, ...]

    def value(self, variables: Variables) -> Any:
        """Return the value at the place, None when nothing is there."""
        value: Any = variables
        for step in self.path:
            value = value[step] if isinstance(step, int) else value.get(step)
            if value is None:
                return None
        return value


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list literal with variables among its items."""

    items: tuple[Origin | None, ...]

    def value(self, variables: Variables) -> Any:
        """Return the list."""
        return [None if item is None else item.value(variables) for item in self.items]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar, enum or list of such in an argument.

    Equal leaves always bind the same value: the sample does not count.  Plans keep leaves, so these know
    their place in the document, not the document.

    :ivar sample: the value of the request being compiled; the compiled form may depend on it only in
        ways that ``arguments.shaper`` tells apart.
    :ivar place: where it stands in the document.
    :ivar path: the response path of the field that the argument is of.
    """

    origin: Origin
    sample: Any = field(compare=False)
    place: SourceLocation | None = field(default=None, compare=False)
    path: Path = field(default=(), compare=False)

    def error(self, message: str) -> GraphQLError:
        """Return an error at the leaf's place."""
        error = GraphQLError(message, path=self.path or None)
        error.locations = None if self.place is None else [self.place]
        return error

    def kept(self) -> Leaf:
        """Return the leaf as a plan keeps it, without the value of the request that it was made for."""
        return replace(self, sample=None)

    def source(self, encode: Encode) -> Source:
        """Return the source that binds the leaf's value."""
        encoded = Encoded(self.kept(), encode)
        return Fixed(encoded.bind({})) if isinstance(self.origin, Constant) else encoded


@dataclass(frozen=True, slots=True)
class Encoded:
    """A leaf's value, encoded."""

    leaf: Leaf
    encode: Encode

    def bind(self, variables: Variables) -> str | None:
        """Return the encoded value."""
        value = self.leaf.origin.value(variables)
        try:
            return None if value is None else self.encode(value)
        except GraphQLError as error:
            raise self.leaf.error(error.message) from None


@dataclass(frozen=True, slots=True)
class CursorPart:
    """One ordering value of a cursor."""

    leaf: Leaf
    index: int

    def bind(self, variables: Variables) -> str | None:
        """Return the value's text."""
        return decode_cursor(self.leaf.origin.value(variables))[self.index]


@dataclass(frozen=True, slots=True)
class NodeIdPart:
    """One key value of a node id.

    :ivar type: the slot type of the key's column.
    """

    leaf: Leaf
    index: int
    type: str

    def bind(self, variables: Variables) -> str | None:
        """Return the value's text; raise GraphQLError for one that the column cannot have."""
        value = decode_node_id(self.leaf.origin.value(variables)).values[self.index]
        if not is_key_value(value, self.type):
            raise self.leaf.error("Invalid value passed to nodeId argument. Error 6")
        return value


@dataclass(frozen=True, slots=True)
class Bounded:
    """A count that must not be negative, cut to a maximum."""

    name: str
    leaf: Leaf
    maximum: int | None = None

    def count(self, variables: Variables) -> int:
        """Return the count; raise GraphQLError for a negative one (reference/graphql.md 1.6)."""
        count: int = self.leaf.origin.value(variables)
        if count < 0:
            raise self.leaf.error(f"`{self.name}` must be an unsigned integer")
        return count if self.maximum is None else min(count, self.maximum)

    def bind(self, variables: Variables) -> str | None:
        """Return the count's text."""
        return str(self.count(variables))


def source_weight(source: Source) -> int:
    """Return about how many bytes a source takes."""
    match source:
        case Fixed(text):
            return 130 + len(text or "")
        case Encoded(leaf=Leaf(origin=ListOf(items))):
            return 350 + 100 * len(items)
        case _:
            return 350


def limit_of(page: Bounded | int) -> Parameter | int:
    """Return a page's size as the statement takes it."""
    return page if isinstance(page, int) else Parameter(page, "bigint")
