"""Where a slot of a statement takes its value: from the document, or from the variables of a request.

A compiled operation holds the sources of its slots, and binding takes the text of each.  Sources
compare equal when they would always bind the same text, so that they can share a slot.
Node ids and cursors, base64 of a JSON array's text (docs/reference/graphql.md, Node ids), are decoded here;
PostgreSQL writes them (``graphql.outputs.base64_sql``).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from graphql import GraphQLError, SourceLocation

from dataapi.graphql.schema.type_mapping import UUID_TEXT, Encode
from dataapi.http.strict_json import INVALID_JSON
from dataapi.sql.algebra import Parameter, SlotSource

_INTEGER_BITS = {f'pg_catalog."int{size}"': 8 * size for size in (2, 4, 8)}
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class NodeKey:
    """The row of a node id: a table, and the values of a key in text form."""

    schema: str
    table: str
    values: tuple[str, ...]


_INVALID_NODE_ID = "Invalid value passed to nodeId argument. Error"


def _decode(text: str, message: str) -> tuple[str | None, ...]:
    """Return the array's values in text form.

    :raises GraphQLError: the message, with the number of what failed: base64 (1), JSON (2) or the array (3).
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise GraphQLError(f"{message} 1") from None
    try:
        values = json.loads(raw.decode("utf-8"), parse_int=str, parse_float=str)
    except INVALID_JSON:
        raise GraphQLError(f"{message} 2") from None
    if not isinstance(values, list):
        raise GraphQLError(f"{message} 3")
    return tuple(value if value is None or isinstance(value, str) else json.dumps(value) for value in values)


def decode_cursor(text: str) -> tuple[str | None, ...]:
    """Return the ordering values of a cursor.

    :raises GraphQLError: it is not a cursor.
    """
    return _decode(text, "Failed to decode cursor, error")


def decode_node_id(text: str) -> NodeKey:
    """Return the row of a node id.

    :raises GraphQLError: it is not a node id; its number is 4 when the array is not a schema, a table and a
        key.
    """
    values = _decode(text, _INVALID_NODE_ID)
    texts = [value for value in values if value is not None]
    if len(texts) < max(3, len(values)):
        raise GraphQLError(f"{_INVALID_NODE_ID} 4")
    schema, table, *key = texts
    return NodeKey(schema, table, tuple(key))


@dataclass(frozen=True, slots=True)
class Undecodable:
    """The shape of a node id or cursor that cannot be decoded."""

    message: str


@dataclass(frozen=True, slots=True)
class NodeIdShape:
    """The part of a node id that decides a plan: its table, and the number of key values."""

    schema: str
    table: str
    length: int


def shape_of_node_id(text: str) -> NodeIdShape | Undecodable:
    """Return the part of a node id that decides a plan."""
    try:
        key = decode_node_id(text)
    except GraphQLError as error:
        return Undecodable(error.message)
    return NodeIdShape(key.schema, key.table, len(key.values))


def shape_of_cursor(text: str) -> tuple[bool, ...] | Undecodable:
    """Return the part of a cursor that decides a plan: whether each of its values is null."""
    try:
        return tuple(value is None for value in decode_cursor(text))
    except GraphQLError as error:
        return Undecodable(error.message)


def _is_key_value(text: str, type_: str) -> bool:
    """Whether a key's column may have the value; PostgreSQL has the last word on types other than these.

    A value that it refuses fails the whole statement, with everything else that the operation selects.
    """
    bits = _INTEGER_BITS.get(type_)
    if bits is not None:
        return _INTEGER.fullmatch(text) is not None and -(1 << bits - 1) <= int(text) < 1 << bits - 1
    return type_ != 'pg_catalog."uuid"' or UUID_TEXT.fullmatch(text) is not None


Variables = Mapping[str, Any]
"""A request's coerced variables and the parameters of its document, by name."""
ResponsePath = tuple[str | int, ...]
Shape: TypeAlias = Hashable
"""The part of a value that decides a plan."""


@dataclass(frozen=True, slots=True)
class UniformRows:
    """The shape of several input objects that all have the same members, however many there are."""

    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value that the document or the schema fixes."""

    text: str | None

    def bind(self, variables: Variables) -> str | None:  # noqa: ARG002 - the interface's
        return self.text


PARAMETER = ":"
"""Begins the names of parameters; no document can name a variable or a field like this."""


def parameter_name(number: int) -> str:
    """Return the name of the parameter for a literal or an alias of a text."""
    return f"{PARAMETER}{number}"


def client_key(key: str, variables: Variables) -> str:
    found: str = variables[key] if key.startswith(PARAMETER) else key
    return found


@dataclass(frozen=True, slots=True)
class Alias:
    """A field's name in the response, which documents that share a plan differ in."""

    parameter: str

    def bind(self, variables: Variables) -> str | None:
        """Return the client's alias."""
        alias: str = variables[self.parameter]
        return alias


@dataclass(frozen=True, slots=True)
class LiteralOrigin:
    """A literal of the document."""

    constant: Any

    def value(self, variables: Variables) -> Any:  # noqa: ARG002 - as the other origins
        return self.constant


@dataclass(frozen=True, slots=True)
class VariableOrigin:
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
class ListOrigin:
    """A list literal with variables among its items."""

    items: tuple[Origin | None, ...]

    def value(self, variables: Variables) -> Any:
        return [None if item is None else item.value(variables) for item in self.items]


Origin: TypeAlias = LiteralOrigin | VariableOrigin | ListOrigin
"""Where a leaf's coerced value comes from."""


@dataclass(frozen=True, slots=True)
class InputLeaf:
    """A scalar, enum or list of such in an argument.

    Equal leaves always bind the same value.  Plans hold leaves, so these refer to their place in the
    document, not to the document.

    :ivar shape: the part of the value that decides the plan.
    :ivar place: where it stands in the document.
    :ivar path: the response path of the field that the argument is of.
    """

    origin: Origin
    shape: Shape = field(compare=False)
    place: SourceLocation | None = field(default=None, compare=False)
    path: ResponsePath = field(default=(), compare=False)

    def error(self, message: str) -> GraphQLError:
        error = GraphQLError(message, path=self.path or None)
        error.locations = None if self.place is None else [self.place]
        return error

    def words(self) -> tuple[Any, ...]:
        """Return the shape of an enum value that is a pair, or of a list of enum values."""
        assert isinstance(self.shape, tuple), "the type's values are words that decide a plan"
        return self.shape

    def decoded(self) -> Any:
        """Return the shape of a node id or cursor.

        :raises GraphQLError: it cannot be decoded.
        """
        if isinstance(self.shape, Undecodable):
            raise GraphQLError(self.shape.message)
        return self.shape

    def source(self, encode: Encode) -> SlotSource:
        """Return the source that binds the leaf's value."""
        encoded = Encoded(self, encode)
        return Fixed(encoded.bind({})) if isinstance(self.origin, LiteralOrigin) else encoded


@dataclass(frozen=True, slots=True)
class Encoded:
    """A leaf's value, encoded."""

    leaf: InputLeaf
    encode: Encode

    def bind(self, variables: Variables) -> str | None:
        value = self.leaf.origin.value(variables)
        try:
            return None if value is None else self.encode(value)
        except GraphQLError as error:
            raise self.leaf.error(error.message) from None


@dataclass(frozen=True, slots=True)
class CursorPart:
    """One ordering value of a cursor."""

    leaf: InputLeaf
    index: int

    def bind(self, variables: Variables) -> str | None:
        """Return the value's text."""
        return decode_cursor(self.leaf.origin.value(variables))[self.index]


@dataclass(frozen=True, slots=True)
class NodeIdPart:
    """One key value of a node id.

    :ivar type: the slot type of the key's column.
    """

    leaf: InputLeaf
    index: int
    type: str

    def bind(self, variables: Variables) -> str | None:
        """Return the value's text; raise GraphQLError for one that the column cannot have."""
        value = decode_node_id(self.leaf.origin.value(variables)).values[self.index]
        if not _is_key_value(value, self.type):
            raise self.leaf.error(f"{_INVALID_NODE_ID} 6")
        return value


@dataclass(frozen=True, slots=True)
class Bounded:
    """A count that must not be negative, cut to a maximum."""

    name: str
    leaf: InputLeaf
    maximum: int | None = None

    def count(self, variables: Variables) -> int:
        """Return the count; raise GraphQLError for a negative one (docs/reference/graphql.md, Pagination)."""
        count: int = self.leaf.origin.value(variables)
        if count < 0:
            raise self.leaf.error(f"`{self.name}` must be an unsigned integer")
        return count if self.maximum is None else min(count, self.maximum)

    def bind(self, variables: Variables) -> str | None:
        """Return the count's text."""
        return str(self.count(variables))


def source_weight(source: SlotSource) -> int:
    """Return about how many bytes a source takes."""
    match source:
        case Fixed(text):
            return 130 + len(text or "")
        case Alias():
            return 100
        case Encoded(leaf=InputLeaf(origin=ListOrigin(items))):
            return 350 + 100 * len(items)
        case _:
            return 350


def limit_of(page: Bounded | int) -> Parameter | int:
    """Return a page's size as the statement takes it."""
    return page if isinstance(page, int) else Parameter(page, "bigint")
