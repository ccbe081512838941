"""Sources of slot values: the literals of a document, or the variables of a request.

A plan contains a source for each of its slots, and binding computes the slot's text. Equal sources always
bind the same text and can share a slot. Node ids and cursors, which are base64 of JSON arrays, are decoded
here (docs/reference/graphql.md, Node ids). ``graphql.outputs.base64_sql`` creates them.
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
    """The table and the key values of a node id, as text."""

    schema: str
    table: str
    values: tuple[str, ...]


_INVALID_NODE_ID = "Invalid value passed to nodeId argument. Error"


def _decode(text: str, message: str) -> tuple[str | None, ...]:
    """Decode a JSON array in base64, and return its values as text.

    :raises GraphQLError: decoding failed. The message ends with the number of the failed step: base64 (1),
        JSON (2) or array (3).
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
    return _decode(text, "Failed to decode cursor, error")


def decode_node_id(text: str) -> NodeKey:
    """Return the table and key of a node id.

    :raises GraphQLError: the text is not a node id. The message ends with a number: 1 to 3 as in ``_decode``,
        or 4 if the array does not consist of schema, table and key.
    """
    values = _decode(text, _INVALID_NODE_ID)
    texts = [value for value in values if value is not None]
    if len(texts) < max(3, len(values)):
        raise GraphQLError(f"{_INVALID_NODE_ID} 4")
    schema, table, *key = texts
    return NodeKey(schema, table, tuple(key))


@dataclass(frozen=True, slots=True)
class Undecodable:
    """The shape of an undecodable node id or cursor."""

    message: str


@dataclass(frozen=True, slots=True)
class NodeIdShape:
    """The part of a node id that determines the plan: the table and the number of key values."""

    schema: str
    table: str
    length: int


def shape_of_node_id(text: str) -> NodeIdShape | Undecodable:
    try:
        key = decode_node_id(text)
    except GraphQLError as error:
        return Undecodable(error.message)
    return NodeIdShape(key.schema, key.table, len(key.values))


def shape_of_cursor(text: str) -> tuple[bool, ...] | Undecodable:
    try:
        return tuple(value is None for value in decode_cursor(text))
    except GraphQLError as error:
        return Undecodable(error.message)


def _is_key_value(text: str, type_: str) -> bool:
    """Whether a value is valid for a key's column. Only integers and UUIDs are checked.

    An invalid value would make the whole statement fail, including all other fields.
    """
    bits = _INTEGER_BITS.get(type_)
    if bits is not None:
        return _INTEGER.fullmatch(text) is not None and -(1 << bits - 1) <= int(text) < 1 << bits - 1
    return type_ != 'pg_catalog."uuid"' or UUID_TEXT.fullmatch(text) is not None


Variables = Mapping[str, Any]
"""Coerced variables of a request and parameters of its document, by name."""
ResponsePath = tuple[str | int, ...]
Shape: TypeAlias = Hashable
"""The features of an argument's value that its query plan depends on, such as an input object's members."""


@dataclass(frozen=True, slots=True)
class UniformRows:
    """The shape of any number of input objects with the same members."""

    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value known when the plan is compiled."""

    text: str | None

    def bind(self, variables: Variables) -> str | None:  # noqa: ARG002 - part of the interface
        return self.text


PARAMETER = ":"
"""First character of parameter names. Names in documents cannot contain this character."""


def parameter_name(number: int) -> str:
    return f"{PARAMETER}{number}"


def client_key(key: str, variables: Variables) -> str:
    name: str = variables[key] if key.startswith(PARAMETER) else key
    return name


@dataclass(frozen=True, slots=True)
class Alias:
    """A field's alias. It may differ between documents that share a plan."""

    parameter: str

    def bind(self, variables: Variables) -> str | None:
        alias: str = variables[self.parameter]
        return alias


@dataclass(frozen=True, slots=True)
class LiteralOrigin:
    """A literal in the document."""

    constant: Any

    def value(self, variables: Variables) -> Any:  # noqa: ARG002 - part of the interface
        return self.constant


@dataclass(frozen=True, slots=True)
class VariableOrigin:
    """A value inside a variable.

    :ivar path: the variable's name, then names of members and indexes.
    """

    path: tuple[str | int, ...]

    def value(self, variables: Variables) -> Any:
        value: Any = variables
        for step in self.path:
            value = value[step] if isinstance(step, int) else value.get(step)
            if value is None:
                return None
        return value


@dataclass(frozen=True, slots=True)
class ListOrigin:
    """A list literal that contains variables."""

    items: tuple[Origin | None, ...]

    def value(self, variables: Variables) -> Any:
        return [None if item is None else item.value(variables) for item in self.items]


Origin: TypeAlias = LiteralOrigin | VariableOrigin | ListOrigin


@dataclass(frozen=True, slots=True)
class InputLeaf:
    """A scalar, an enum value or a list of these in an argument.

    Equal leaves always bind the same value. Cached plans contain leaves, so a leaf must not keep its
    document in memory. ``path`` is the response path of the field with the argument.
    """

    origin: Origin
    shape: Shape = field(compare=False)
    location: SourceLocation | None = field(default=None, compare=False)
    path: ResponsePath = field(default=(), compare=False)

    def error(self, message: str) -> GraphQLError:
        error = GraphQLError(message, path=self.path or None)
        error.locations = None if self.location is None else [self.location]
        return error

    def enum_values(self) -> tuple[Any, ...]:
        assert isinstance(self.shape, tuple), "values of this type are part of the shape"
        return self.shape

    def decoded(self) -> Any:
        if isinstance(self.shape, Undecodable):
            raise GraphQLError(self.shape.message)
        return self.shape

    def source(self, encode: Encode) -> SlotSource:
        encoded = Encoded(self, encode)
        return Fixed(encoded.bind({})) if isinstance(self.origin, LiteralOrigin) else encoded


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encoded value of a leaf."""

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
    """One value of a cursor."""

    leaf: InputLeaf
    index: int

    def bind(self, variables: Variables) -> str | None:
        return decode_cursor(self.leaf.origin.value(variables))[self.index]


@dataclass(frozen=True, slots=True)
class NodeIdPart:
    """One key value of a node id.

    :ivar type: the SQL type of the key's column.
    """

    leaf: InputLeaf
    index: int
    type: str

    def bind(self, variables: Variables) -> str | None:
        value = decode_node_id(self.leaf.origin.value(variables)).values[self.index]
        if not _is_key_value(value, self.type):
            raise self.leaf.error(f"{_INVALID_NODE_ID} 6")
        return value


@dataclass(frozen=True, slots=True)
class BoundedCount:
    """A number of rows with a maximum, such as ``first``."""

    name: str
    leaf: InputLeaf
    maximum: int | None = None

    def count(self, variables: Variables) -> int:
        """Return the count.

        :raises GraphQLError: the count is negative (docs/reference/graphql.md, Pagination).
        """
        count: int = self.leaf.origin.value(variables)
        if count < 0:
            raise self.leaf.error(f"`{self.name}` must be an unsigned integer")
        return count if self.maximum is None else min(count, self.maximum)

    def bind(self, variables: Variables) -> str | None:
        return str(self.count(variables))


def source_weight(source: SlotSource) -> int:
    match source:
        case Fixed(text):
            return 130 + len(text or "")
        case Alias():
            return 100
        case Encoded(leaf=InputLeaf(origin=ListOrigin(items))):
            return 350 + 100 * len(items)
        case _:
            return 350


def limit_of(page: BoundedCount | int) -> Parameter | int:
    return page if isinstance(page, int) else Parameter(page, "bigint")
