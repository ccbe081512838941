"""How SQL types read in a description: names, JSON types, lengths, enums and defaults; pure."""

from __future__ import annotations

import json
import re
from typing import Any

from dataapi.catalog.model import Catalog, Column, Type, TypeKind
from dataapi.strict_json import NO_JSON, no_constant

STRING, INTEGER, NUMBER, BOOLEAN, ARRAY = "string", "integer", "number", "boolean", "array"

_KINDS = {
    "boolean": BOOLEAN,
    "smallint": INTEGER,
    "integer": INTEGER,
    "bigint": INTEGER,
    "numeric": NUMBER,
    "real": NUMBER,
    "double precision": NUMBER,
    "json": None,
    "jsonb": None,
}
_FORMATS = {"smallint": "int32", "integer": "int32", "bigint": "int64"}
_BITS = frozenset({"bit", "varbit"})
_CHARACTERS = frozenset({"bpchar", "varchar"})
_CHARACTERS_HEADER = 4
"""What PostgreSQL adds to the length in a character type's modifier."""

_CHECKED = {
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "uuid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
}
"""Formats of JSON Schema that are types of PostgreSQL too: another default would not be valid."""

_LITERAL = re.compile(r"'((?:[^']|'')*)'(?:::[^']+)?")


def json_type(sql_name: str) -> str | None:
    """Return the JSON type of a type's values by its name; None for json, which may be any."""
    if sql_name.endswith("[]"):
        return ARRAY
    return _KINDS.get(sql_name, STRING)


def format_name(sql_name: str) -> str:
    """Return a type's ``format`` in OpenAPI 2.0: its SQL name, or the defined one of an integer."""
    return _FORMATS.get(sql_name, sql_name)


def element_name(sql_name: str) -> str:
    """Return the name of an array's elements' type."""
    return sql_name.removesuffix("[]")


def column_type_name(catalog: Catalog, column: Column) -> str:
    """Return the name that stands for a column's type: a domain's base where that is PostgreSQL's own."""
    type_ = catalog.types[column.type]
    base = catalog.underlying(type_)
    return base.sql_name if base.schema == "pg_catalog" else column.sql_name or type_.sql_name


def max_length(catalog: Catalog, column: Column) -> int | None:
    """Return how many characters or bits a column's value has at most, None without a limit."""
    name = catalog.underlying(catalog.types[column.type]).name
    if column.typmod < 0:
        return None
    if name in _CHARACTERS:
        return column.typmod - _CHARACTERS_HEADER
    return column.typmod if name in _BITS else None


def labels(catalog: Catalog, type_: Type) -> tuple[str, ...]:
    """Return an enum's labels; empty for other types."""
    base = catalog.underlying(type_)
    return base.labels if base.kind is TypeKind.ENUM else ()


def default_text(catalog: Catalog, column: Column) -> str | None:
    """Return the SQL text of a column's default, or of its domain's."""
    if column.generated or column.identity:
        return None
    return column.default or catalog.types[column.type].default


def literal(catalog: Catalog, column: Column) -> Any:
    """Return a default that is a literal as JSON has it; None for none or for an expression."""
    text = default_text(catalog, column)
    if text is None:
        return None
    kind = json_type(column_type_name(catalog, column))
    if kind == STRING:
        found = _LITERAL.fullmatch(text)
        return _checked(catalog, column, found[1].replace("''", "'") if found else None)
    try:
        value = json.loads(text, parse_constant=no_constant)
    except NO_JSON:
        return None
    return value if _fits(value, kind) else None


def default(catalog: Catalog, column: Column) -> Any:
    """Return a column's default as ``literal`` does, or the text of an expression that gives a string."""
    value = literal(catalog, column)
    if value is None and json_type(column_type_name(catalog, column)) == STRING:
        return _checked(catalog, column, default_text(catalog, column))
    return value


def _checked(catalog: Catalog, column: Column, text: str | None) -> str | None:
    """Return a default unless JSON Schema knows the column's type by its name, and the text is none of it."""
    form = _CHECKED.get(column_type_name(catalog, column))
    return None if text is not None and form is not None and not form.fullmatch(text) else text


def _fits(value: Any, kind: str | None) -> bool:
    if isinstance(value, bool) or kind == BOOLEAN:
        return isinstance(value, bool) and kind == BOOLEAN
    whole = isinstance(value, int) and kind in (INTEGER, NUMBER)
    return whole or (isinstance(value, float) and kind == NUMBER)
