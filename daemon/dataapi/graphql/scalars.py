"""The scalars of the specification and how their values come in.

Only input is handled here: output is JSON that PostgreSQL builds.  A scalar's coerced
value is the text (or number) that is bound; PostgreSQL has the last word on it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from graphql import (
    GraphQLError,
    GraphQLFloat,
    GraphQLScalarType,
    ListValueNode,
    ObjectValueNode,
    ValueNode,
    VariableNode,
)
from graphql.utilities import value_from_ast_untyped

from dataapi.graphql.messages import shown
from dataapi.strict_json import NoValue, no_constant

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,5})?|NaN|[+-]?Infinity", re.IGNORECASE
)
UUID_TEXT = re.compile(r"\{?[0-9a-fA-F]{4}(-?[0-9a-fA-F]{4}){7}\}?")
_INT64 = range(-(2**63), 2**63)


def _big_int(value: Any) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise GraphQLError("Invalid input for BigInt type. An integer in a string is expected.")
    if value not in _INT64:
        raise GraphQLError(f"Invalid input for BigInt type. {shown(value)} does not fit into 64 bits.")
    return value


def _big_float(value: Any) -> str:
    if not isinstance(value, str):
        raise GraphQLError("Invalid input for BigFloat type. String required")
    if not _DECIMAL.fullmatch(value):
        raise GraphQLError("Invalid input for BigFloat type. A decimal number in a string is expected.")
    return value


def _float(value: Any) -> float:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)  # JSON has no such numbers: they come in as they go out
    try:
        number: float = GraphQLFloat.coerce_input_value(value)
    except GraphQLError:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GraphQLError(f"Float cannot represent non numeric value: {shown(value)}") from None
        message = f"Float cannot represent {shown(value)}, which is too large or would lose precision"
        raise GraphQLError(message) from None
    return number


def _uuid(value: Any) -> str:
    if not isinstance(value, str) or not UUID_TEXT.fullmatch(value):
        raise GraphQLError("Invalid input for UUID type. 32 hexadecimal digits in a string are expected.")
    return value


def _json(value: Any) -> str:
    if not isinstance(value, str):
        raise GraphQLError("Invalid input for JSON type. A string that holds serialized JSON is expected.")
    try:
        _reader.decode(value)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno} column {error.colno}"
    except RecursionError:
        reason = "it is nested too deeply"
    except NoValue as error:
        reason = str(error)
    else:
        return value
    raise GraphQLError(f"Invalid input for JSON type. The string is no JSON: {reason}")


# PostgreSQL has the last word on numbers; Python reads none of more than some thousand digits.
_reader = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=no_constant)


def _opaque(value: Any) -> str:
    """Return what is bound for a type without special handling: its text, or JSON for a structure."""
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _text(name: str) -> Any:
    def coerce(value: Any) -> str:
        if not isinstance(value, str):
            raise GraphQLError(f"Invalid input for {name} type. A string is expected.")
        return value

    return coerce


class _Scalar(GraphQLScalarType):
    """A scalar whose errors tell the place of a literal."""

    def parse_literal(self, node: ValueNode, variables: dict[str, Any] | None = None) -> Any:  # noqa: ARG002
        """Return the coerced value of a literal."""
        if _holds_variable(node):
            message = f"A literal of type {self.name} cannot hold variables: send all of it as one variable."
            raise GraphQLError(message, node)
        try:
            return self.coerce_input_value(value_from_ast_untyped(node))
        except GraphQLError as error:
            raise GraphQLError(error.message, node) from None


def _holds_variable(node: ValueNode) -> bool:
    if isinstance(node, ListValueNode):
        return any(map(_holds_variable, node.values))
    if isinstance(node, ObjectValueNode):
        return any(_holds_variable(member.value) for member in node.fields)
    return isinstance(node, VariableNode)


def _scalar(name: str, description: str, coerce: Any = None) -> GraphQLScalarType:
    return _Scalar(name, description=description, coerce_input_value=coerce or _text(name))


BIG_INT = _scalar("BigInt", "A 64-bit integer, as a string.", _big_int)
BIG_FLOAT = _scalar("BigFloat", "A decimal number of any precision, as a string.", _big_float)
UUID = _scalar("UUID", "A universally unique identifier.", _uuid)
DATE = _scalar("Date", "A date, in ISO 8601 form.")
TIME = _scalar("Time", "A time of day, in ISO 8601 form.")
DATETIME = _scalar("Datetime", "A date and time, in ISO 8601 form.")
JSON = _scalar("JSON", "A string that holds serialized JSON.", _json)
CURSOR = _scalar("Cursor", "An opaque position in a collection, for paging.")
OPAQUE = _scalar("Opaque", "A value of a type without special handling.", _opaque)

FLOAT = _scalar("_Float", GraphQLFloat.description or "", _float)
FLOAT.name = "Float"  # graphql-core lets nobody define a type of this name
"""GraphQL's own Float, which also takes the strings "NaN", "Infinity" and "-Infinity"."""

CUSTOM_SCALARS = (FLOAT, BIG_INT, BIG_FLOAT, UUID, DATE, TIME, DATETIME, JSON, CURSOR, OPAQUE)
