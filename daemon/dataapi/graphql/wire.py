"""Which GraphQL type a PostgreSQL type has, and how its values travel both ways.

The table is reference/graphql.md 1.3; composite types have no GraphQL type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from graphql import GraphQLBoolean, GraphQLError, GraphQLInt, GraphQLScalarType, GraphQLString

from dataapi.catalog.inflection import has_value, is_list
from dataapi.catalog.model import Catalog, Type, TypeKind
from dataapi.catalog.names import enum_values
from dataapi.database.quoting import quote_identifier
from dataapi.graphql import scalars
from dataapi.graphql.sources import Encode
from dataapi.query.results import Labels, WireForm
from dataapi.query.writer import qualified


@dataclass(frozen=True, slots=True)
class Wire:
    """How a PostgreSQL type appears in GraphQL.

    :ivar scalar: the GraphQL scalar of the value (of the element, for a list); None for an enum.
    :ivar enum: the enum's type oid, 0 for a scalar.
    :ivar is_list: an array.
    :ivar form: how the value is written to JSON.
    :ivar labels: the enum's labels that are shown under other names, ``(label, shown)``.
    :ivar parameter: the slot type of one value of the type.
    :ivar list_parameter: the slot type of a list of such values.
    :ivar max_length: characters, of ``varchar(n)`` and ``char(n)``; None without a limit.
    :ivar comparable: ``=`` exists.
    :ivar orderable: ``<`` exists.
    :ivar compare_as: the type to cast a value to before it is compared, "" for none: PostgreSQL
        finds no operator for a domain over an enum.
    """

    scalar: GraphQLScalarType | None
    enum: int
    is_list: bool
    form: WireForm
    labels: Labels
    parameter: str
    list_parameter: str
    max_length: int | None = None
    comparable: bool = True
    orderable: bool = True
    compare_as: str = ""

    @property
    def kind(self) -> str:
        """Return the scalar's name, ``Enum`` for an enum."""
        return self.scalar.name if self.scalar is not None else "Enum"

    @property
    def builtin(self) -> bool:
        """Whether PostgreSQL's own operators compare its values: those of enums and arrays are its own."""
        return self.parameter.startswith("pg_catalog.") or bool(self.enum) or self.is_list

    @property
    def numeric(self) -> bool:
        """Whether ``sum`` and ``avg`` apply."""
        return not self.is_list and self.kind in ("Int", "BigInt", "Float", "BigFloat")

    @property
    def minimum(self) -> bool:
        """Whether ``min`` and ``max`` apply (specification, Aggregates)."""
        return self.numeric or (
            not self.is_list and self.kind in ("String", "Boolean", "Date", "Time", "Datetime")
        )


_SCALARS: dict[str, tuple[GraphQLScalarType, WireForm]] = {
    "int2": (GraphQLInt, WireForm.JSON),
    "int4": (GraphQLInt, WireForm.JSON),
    "int8": (scalars.BIG_INT, WireForm.TEXT),
    "float4": (scalars.FLOAT, WireForm.JSON),
    "float8": (scalars.FLOAT, WireForm.JSON),
    "numeric": (scalars.BIG_FLOAT, WireForm.TEXT),
    "bool": (GraphQLBoolean, WireForm.JSON),
    "text": (GraphQLString, WireForm.JSON),
    "varchar": (GraphQLString, WireForm.JSON),
    "bpchar": (GraphQLString, WireForm.JSON),
    "char": (GraphQLString, WireForm.JSON),
    "uuid": (scalars.UUID, WireForm.JSON),
    "date": (scalars.DATE, WireForm.JSON),
    "time": (scalars.TIME, WireForm.JSON),
    "timestamp": (scalars.DATETIME, WireForm.JSON),
    "timestamptz": (scalars.DATETIME, WireForm.JSON),
    "json": (scalars.JSON, WireForm.TEXT),
    "jsonb": (scalars.JSON, WireForm.TEXT),
}

_NOT_COMPARABLE = frozenset(
    {
        *("xml", "json", "jsonpath", "point", "polygon", "refcursor", "gtsvector", "int2vector"),
        *("pg_snapshot", "txid_snapshot", "pg_ndistinct", "pg_dependencies", "pg_mcv_list"),
        *("pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"),
    }
)
_NOT_ORDERABLE = _NOT_COMPARABLE | {"line", "lseg", "box", "path", "circle", "xid", "cid", "aclitem"}
_LENGTH_OFFSET = 4  # a varchar's typmod counts the four bytes of its header


def wire_of(catalog: Catalog, oid: int, typmod: int = -1) -> Wire | None:
    """Return how a type appears, or None for a composite or pseudo-type."""
    return _wire_of(catalog, oid, typmod) if has_value(catalog, oid) else None


def _wire_of(catalog: Catalog, oid: int, typmod: int) -> Wire:
    found = catalog.types[oid]
    if found.kind is TypeKind.DOMAIN:
        wire = _wire_of(catalog, found.base, typmod)
        if wire.is_list or not wire.enum:
            return wire
        return replace(wire, compare_as=qualified(catalog.types[found.base]))
    if not is_list(found):
        return _single(catalog, found, typmod)
    element = _wire_of(catalog, found.element, typmod)
    form = {WireForm.TEXT: WireForm.TEXT_ARRAY, WireForm.ENUM: WireForm.ENUM_ARRAY}.get(
        element.form, WireForm.JSON
    )
    parameter = _parameter(found)
    return replace(
        element,
        is_list=True,
        form=form,
        parameter=parameter,
        list_parameter=parameter,
        orderable=False,
        compare_as="",
    )


def _single(catalog: Catalog, found: Type, typmod: int) -> Wire:
    values = enum_values(catalog, found) if found.oid in catalog.base_names else None
    if values is not None:
        labels = tuple((label, shown) for label, shown in values.items() if label != shown)
        return Wire(None, found.oid, False, WireForm.ENUM, labels, "unknown", "unknown")
    scalar, form = scalars.OPAQUE, WireForm.JSON
    if found.schema == "pg_catalog":
        scalar, form = _SCALARS.get(found.name, (scalar, form))
    elif found.name == "citext":
        scalar = GraphQLString
    known = found.schema == "pg_catalog"
    return Wire(
        scalar,
        0,
        False,
        form,
        (),
        _parameter(found),
        f"pg_catalog.{quote_identifier('_' + found.name)}" if known else "unknown",
        max_length=typmod - _LENGTH_OFFSET if found.name in ("varchar", "bpchar") and typmod >= 0 else None,
        comparable=found.name not in _NOT_COMPARABLE,
        orderable=found.name not in _NOT_ORDERABLE and scalar is not scalars.JSON,
    )


def _parameter(found: Type) -> str:
    """Return the slot type: PostgreSQL's own types by name, others as inferred.

    The name of another type could be in a schema that the role may not use.
    """
    return f"pg_catalog.{quote_identifier(found.name)}" if found.schema == "pg_catalog" else "unknown"


def encode_value(value: Any) -> str:
    """Return the text form that PostgreSQL reads for a coerced scalar or enum value."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def encode_list(values: Any) -> str:
    """Return the array literal of coerced values; a lone value is a list of one."""
    items = values if isinstance(values, list | tuple) else [values]
    return "{" + ",".join("NULL" if item is None else _array_item(encode_value(item)) for item in items) + "}"


def _array_item(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def encoder(wire: Wire) -> Encode:
    """Return what makes the text of a value to be written, refusing one that is too long."""
    encode: Encode = encode_list if wire.is_list else encode_value
    return encode if wire.max_length is None else _checked_length(encode, wire.max_length)


@lru_cache(maxsize=256)
def _checked_length(encode: Encode, limit: int) -> Encode:
    """Return the encoder that also refuses more characters than a column takes."""

    def encode_checked(value: Any) -> str:
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, str) and len(item) > limit:
                raise GraphQLError(f"Invalid input for String type. Maximum character length {limit}")
        return encode(value)

    return encode_checked
