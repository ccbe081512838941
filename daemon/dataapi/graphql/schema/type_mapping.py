"""The GraphQL type of each PostgreSQL type, and the conversion of input values.

The coerced value of a scalar is the text or number to bind. PostgreSQL decides whether it is valid, and
formats output as JSON. See docs/reference/graphql.md, Types. Composite types have no GraphQL type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import graphql as gql

from dataapi.catalog.model import Catalog, Type, TypeKind
from dataapi.catalog.names import enum_values, has_value, is_list
from dataapi.database.sql_text import OWN_SCHEMA, quote_identifier
from dataapi.http.strict_json import EXACT_DECODER, INVALID_JSON, InvalidConstant, TooDeep, decode
from dataapi.sql.outputs import Labels, WireForm
from dataapi.sql.statement import qualified

Encode = Callable[[Any], str]

_MAX_TEXT, _MAX_MEMBERS, _MAX_DEPTH = 100, 5, 2
_ELLIPSIS = "…"

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,5})?|NaN|[+-]?Infinity", re.IGNORECASE
)
UUID_TEXT = re.compile(r"\{?[0-9a-fA-F]{4}(-?[0-9a-fA-F]{4}){7}\}?")
_INT64 = range(-(2**63), 2**63)


def abbreviated(value: Any, depth: int = 0) -> str:
    """Return a value as JSON, shortened if it is long or deeply nested."""
    if isinstance(value, str):
        return json.dumps(_shortened(value), ensure_ascii=False)
    if not value or not isinstance(value, dict | list):
        return _shortened(json.dumps(value))
    begin, end = "{}" if isinstance(value, dict) else "[]"
    if depth == _MAX_DEPTH:
        return begin + _ELLIPSIS + end
    items = islice(value, _MAX_MEMBERS)
    if isinstance(value, dict):
        parts = [f"{abbreviated(name)}: {abbreviated(value[name], depth + 1)}" for name in items]
    else:
        parts = [abbreviated(item, depth + 1) for item in items]
    if len(value) > _MAX_MEMBERS:
        parts.append(_ELLIPSIS)
    return f"{begin}{', '.join(parts)}{end}"


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + _ELLIPSIS


def _big_int(value: Any) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise gql.GraphQLError("Invalid input for BigInt type. An integer in a string is expected.")
    if value not in _INT64:
        raise gql.GraphQLError(
            f"Invalid input for BigInt type. {abbreviated(value)} does not fit into 64 bits."
        )
    return value


def _big_float(value: Any) -> str:
    if not isinstance(value, str):
        raise gql.GraphQLError("Invalid input for BigFloat type. String required")
    if not _DECIMAL.fullmatch(value):
        raise gql.GraphQLError("Invalid input for BigFloat type. A decimal number in a string is expected.")
    return value


def _float(value: Any) -> float:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)  # JSON has no NaN or infinity: output uses the same strings
    try:
        number: float = gql.GraphQLFloat.coerce_input_value(value)
    except gql.GraphQLError:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise gql.GraphQLError(
                f"Float cannot represent non numeric value: {abbreviated(value)}"
            ) from None
        message = f"Float cannot represent {abbreviated(value)}: it is too large or would lose precision"
        raise gql.GraphQLError(message) from None
    return number


def _json(value: Any) -> str:
    if not isinstance(value, str):
        raise gql.GraphQLError(
            "Invalid input for JSON type. A string that contains serialized JSON is expected."
        )
    try:
        decode(value)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno} column {error.colno}"
    except (InvalidConstant, TooDeep) as error:
        reason = str(error)
    else:
        return value
    raise gql.GraphQLError(f"Invalid input for JSON type. The string is not JSON: {reason}")


def _opaque(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _text(name: str) -> Any:
    def coerce(value: Any) -> str:
        if not isinstance(value, str):
            raise gql.GraphQLError(f"Invalid input for {name} type. A string is expected.")
        return value

    return coerce


def _uuid(value: Any) -> str:
    if not isinstance(value, str) or not UUID_TEXT.fullmatch(value):
        raise gql.GraphQLError("Invalid input for UUID type. 32 hexadecimal digits in a string are expected.")
    return value


class _Scalar(gql.GraphQLScalarType):
    def parse_literal(self, node: gql.ValueNode, variables: dict[str, Any] | None = None) -> Any:  # noqa: ARG002
        if _contains_variable(node):
            message = (
                f"A literal of type {self.name} cannot contain variables: "
                "send the whole value as one variable."
            )
            raise gql.GraphQLError(message, node)
        try:
            return self.coerce_input_value(gql.value_from_ast_untyped(node))
        except gql.GraphQLError as error:
            raise gql.GraphQLError(error.message, node) from None


def _contains_variable(node: gql.ValueNode) -> bool:
    if isinstance(node, gql.ListValueNode):
        return any(map(_contains_variable, node.values))
    if isinstance(node, gql.ObjectValueNode):
        return any(_contains_variable(member.value) for member in node.fields)
    return isinstance(node, gql.VariableNode)


def _scalar(name: str, description: str, coerce: Any = None) -> gql.GraphQLScalarType:
    return _Scalar(name, description=description, coerce_input_value=coerce or _text(name))


BIG_INT = _scalar("BigInt", "A 64-bit integer, as a string.", _big_int)
BIG_FLOAT = _scalar("BigFloat", "A decimal number of any precision, as a string.", _big_float)
UUID = _scalar("UUID", "A universally unique identifier.", _uuid)
DATE = _scalar("Date", "A date in ISO 8601 format.")
TIME = _scalar("Time", "A time of day in ISO 8601 format.")
DATETIME = _scalar("Datetime", "A date and time in ISO 8601 format.")
JSON = _scalar("JSON", "Serialized JSON, as a string.", _json)
CURSOR = _scalar("Cursor", "Opaque position in a collection, for paging.")
OPAQUE = _scalar("Opaque", "A value of a type without its own scalar.", _opaque)

FLOAT = _scalar("_Float", gql.GraphQLFloat.description or "", _float)
FLOAT.name = "Float"  # graphql-core refuses to define a type of this name
"""GraphQL's Float, extended by the strings "NaN", "Infinity" and "-Infinity"."""

CUSTOM_SCALARS = (FLOAT, BIG_INT, BIG_FLOAT, UUID, DATE, TIME, DATETIME, JSON, CURSOR, OPAQUE)


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """How a PostgreSQL type appears in GraphQL.

    :ivar scalar: the GraphQL scalar of the value or of a list's items, None for an enum.
    :ivar labels: enum labels with a different GraphQL name, as ``(label, name)``.
    :ivar parameter: the SQL type of a parameter for a value.
    :ivar list_parameter: the SQL type of a parameter for a list of values.
    :ivar max_length: maximum number of characters of ``varchar(n)`` and ``char(n)``, None for no limit.
    :ivar comparable: whether the type has ``=``.
    :ivar orderable: whether the type has ``<``.
    :ivar own: the type if it defines its own operators or aggregates, None for PostgreSQL's built-in types.
    :ivar compare_as: the type to cast to before comparing, "" for none. A domain over an enum needs the cast,
        because PostgreSQL finds no operator.
    """

    scalar: gql.GraphQLScalarType | None
    enum: int = 0
    is_list: bool = False
    form: WireForm = WireForm.JSON
    labels: Labels = ()
    parameter: str = "unknown"
    list_parameter: str = "unknown"
    max_length: int | None = None
    comparable: bool = True
    orderable: bool = True
    compare_as: str = ""
    own: Type | None = None

    @property
    def kind(self) -> str:
        return self.scalar.name if self.scalar is not None else "Enum"

    def schema_of(self, name: str) -> str:
        return OWN_SCHEMA if self.own is None else self.own.schema_of(name)

    def allows(self, aggregate: str) -> bool:
        if aggregate == "countDistinct":
            return self.orderable
        kinds = _NUMERIC if aggregate in ("sum", "avg") else _EXTREMAL
        return not self.is_list and self.kind in kinds


AGGREGATES = {
    "sum": "Sums of numeric columns.",
    "avg": "Averages of numeric columns.",
    "min": "Minimum values.",
    "max": "Maximum values.",
    "countDistinct": None,
}
_NUMERIC = frozenset({"Int", "BigInt", "Float", "BigFloat"})
_EXTREMAL = _NUMERIC | {"String", "Boolean", "Date", "Time", "Datetime"}


_SCALARS: dict[str, tuple[gql.GraphQLScalarType, WireForm]] = {
    "int2": (gql.GraphQLInt, WireForm.JSON),
    "int4": (gql.GraphQLInt, WireForm.JSON),
    "int8": (BIG_INT, WireForm.TEXT),
    "float4": (FLOAT, WireForm.JSON),
    "float8": (FLOAT, WireForm.JSON),
    "numeric": (BIG_FLOAT, WireForm.TEXT),
    "bool": (gql.GraphQLBoolean, WireForm.JSON),
    "text": (gql.GraphQLString, WireForm.JSON),
    "varchar": (gql.GraphQLString, WireForm.JSON),
    "bpchar": (gql.GraphQLString, WireForm.JSON),
    "char": (gql.GraphQLString, WireForm.JSON),
    "uuid": (UUID, WireForm.JSON),
    "date": (DATE, WireForm.JSON),
    "time": (TIME, WireForm.JSON),
    "timestamp": (DATETIME, WireForm.JSON),
    "timestamptz": (DATETIME, WireForm.JSON),
    "json": (JSON, WireForm.TEXT),
    "jsonb": (JSON, WireForm.TEXT),
}

_NOT_COMPARABLE = frozenset(
    {
        *("xml", "json", "jsonpath", "point", "polygon", "refcursor", "gtsvector", "int2vector"),
        *("pg_snapshot", "txid_snapshot", "pg_ndistinct", "pg_dependencies", "pg_mcv_list"),
        *("pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"),
    }
)
_NOT_ORDERABLE = _NOT_COMPARABLE | {"line", "lseg", "box", "path", "circle", "xid", "cid", "aclitem"}
_LENGTH_OFFSET = 4  # a varchar's typmod includes the four bytes of its header


def mapping_of(catalog: Catalog, oid: int, typmod: int = -1) -> TypeMapping | None:
    return _mapping_of(catalog, oid, typmod) if has_value(catalog, oid) else None


def _mapping_of(catalog: Catalog, oid: int, typmod: int) -> TypeMapping:
    type_ = catalog.types[oid]
    if type_.kind is TypeKind.DOMAIN:
        mapping = _mapping_of(catalog, type_.base, typmod)
        if mapping.is_list or not mapping.enum:
            return mapping
        return replace(mapping, compare_as=qualified(catalog.types[type_.base]))
    if not is_list(type_):
        return _scalar_mapping(catalog, type_, typmod)
    element = _mapping_of(catalog, type_.element, typmod)
    forms = {WireForm.TEXT: WireForm.TEXT_ARRAY, WireForm.ENUM: WireForm.ENUM_ARRAY}
    parameter = _parameter(type_)
    return replace(
        element,
        is_list=True,
        form=forms.get(element.form, WireForm.JSON),
        parameter=parameter,
        list_parameter=parameter,
        orderable=False,
        compare_as="",
        own=type_ if type_.operators else None,
    )


def _scalar_mapping(catalog: Catalog, type_: Type, typmod: int) -> TypeMapping:
    values = enum_values(catalog, type_) if type_.oid in catalog.base_names else None
    if values is not None:
        labels = tuple((label, value) for label, value in values.items() if label != value)
        return TypeMapping(None, type_.oid, form=WireForm.ENUM, labels=labels)
    scalar, form = gql.GraphQLString if type_.name == "citext" else OPAQUE, WireForm.JSON
    if type_.schema == "pg_catalog":
        scalar, form = _SCALARS.get(type_.name, (OPAQUE, form))
    return TypeMapping(
        scalar,
        form=form,
        parameter=_parameter(type_),
        list_parameter=_parameter(type_, "_"),
        max_length=typmod - _LENGTH_OFFSET if type_.name in ("varchar", "bpchar") and typmod >= 0 else None,
        comparable=type_.name not in _NOT_COMPARABLE,
        orderable=type_.name not in _NOT_ORDERABLE and scalar is not JSON,
        own=type_ if type_.operators else None,
    )


def _parameter(type_: Type, prefix: str = "") -> str:
    """Return the SQL type of a parameter: the name of a built-in type, else ``unknown``.

    A role may lack the privilege to use the schema of another type.
    """
    native = type_.schema == "pg_catalog"
    return f"pg_catalog.{quote_identifier(prefix + type_.name)}" if native else "unknown"


def builtin_mapping(name: str) -> TypeMapping:
    scalar, form = _SCALARS[name]
    return TypeMapping(
        scalar, form=form, parameter=f'pg_catalog."{name}"', list_parameter=f'pg_catalog."_{name}"'
    )


def aggregate_mapping(aggregate: str, mapping: TypeMapping) -> TypeMapping:
    if aggregate == "countDistinct":
        return builtin_mapping("int8")
    return builtin_mapping("numeric") if aggregate in ("sum", "avg") else mapping


def encode_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def encode_list(values: Any) -> str:
    items = values if isinstance(values, list | tuple) else [values]
    return "{" + ",".join("NULL" if item is None else _array_item(encode_value(item)) for item in items) + "}"


def _array_item(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def encode_hstore(value: Any) -> str:
    """Return an ``hstore`` literal for a value that is an ``hstore`` literal or a JSON object."""
    text = encode_value(value)
    try:
        members = EXACT_DECODER.decode(text)
    except INVALID_JSON:
        return text
    if not isinstance(members, dict):
        return text
    pairs = (
        f"{_array_item(name)}=>{'NULL' if member is None else _array_item(_plain(member))}"
        for name, member in members.items()
    )
    return ",".join(pairs)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def encoder(mapping: TypeMapping) -> Encode:
    """Return the function that encodes a value to store. The function rejects values that are too long."""
    if mapping.own is not None and mapping.own.name == "hstore":
        return encode_hstore
    encode: Encode = encode_list if mapping.is_list else encode_value
    return encode if mapping.max_length is None else _checked_length(encode, mapping.max_length)


@lru_cache(maxsize=256)
def _checked_length(encode: Encode, limit: int) -> Encode:
    def encode_checked(value: Any) -> str:
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, str) and len(item) > limit:
                raise gql.GraphQLError(f"Invalid input for String type. Maximum character length {limit}")
        return encode(value)

    return encode_checked
