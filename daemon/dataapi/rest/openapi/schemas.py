"""Maps SQL types, columns and tables to JSON types and JSON Schemas; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from dataapi.catalog.directive_reader import without_directives
from dataapi.catalog.model import Catalog, Column, Function, TypeKind
from dataapi.http.strict_json import DECODER, INVALID_JSON
from dataapi.rest.openapi.model import Note, VisibleSchema, VisibleTable, column_description, without_empty

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
_BITS = frozenset({"bit", "varbit"})
_CHARACTERS = frozenset({"bpchar", "varchar"})
_CHARACTERS_HEADER = 4
"""Offset that PostgreSQL adds to the length in a character type's modifier."""

_FORMAT_PATTERNS = {
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "uuid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
}
"""Formats of JSON Schema that are also PostgreSQL types, with the syntax of valid values."""

_CLASSES: dict[str | None, tuple[type, ...]] = {BOOLEAN: (bool,), INTEGER: (int,), NUMBER: (int, float)}
_LITERAL = re.compile(r"'((?:[^']|'')*)'(?:::[^']+)?")


def json_type(sql_name: str) -> str | None:
    """Return the JSON type of a SQL type's values, None if they may have any type, as ``json`` does."""
    if sql_name.endswith("[]"):
        return ARRAY
    return _KINDS.get(sql_name, STRING)


def column_type_name(catalog: Catalog, column: Column) -> str:
    type_ = catalog.types[column.type]
    base = catalog.base_type(type_)
    return base.sql_name if base.schema == "pg_catalog" else column.sql_name or type_.sql_name


def max_length(catalog: Catalog, column: Column) -> int | None:
    name = catalog.base_type(catalog.types[column.type]).name
    if column.typmod < 0:
        return None
    if name in _CHARACTERS:
        return column.typmod - _CHARACTERS_HEADER
    return column.typmod if name in _BITS else None


def default_text(catalog: Catalog, column: Column) -> str | None:
    if column.generated or column.identity:
        return None
    return column.default or catalog.types[column.type].default


def default(catalog: Catalog, column: Column, *, expressions: bool = False) -> Any:
    """Return a literal default as a JSON value, None for an expression or no default.

    :param expressions: return the SQL text of expressions that yield strings.
    """
    text, name = default_text(catalog, column), column_type_name(catalog, column)
    if text is None:
        return None
    kind = json_type(name)
    if kind == STRING:
        literal, form = _LITERAL.fullmatch(text), _FORMAT_PATTERNS.get(name)
        string = literal[1].replace("''", "'") if literal else text if expressions else None
        # A default that does not match the type's format would be invalid in JSON Schema.
        return None if string is not None and form is not None and not form.fullmatch(string) else string
    try:
        value = DECODER.decode(text)
    except INVALID_JSON:
        return None
    return value if type(value) in _CLASSES.get(kind, ()) else None


ERROR = "Error"
_NULLABLE_TEXT = {"type": ["string", "null"]}
_ERROR = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "code": {"type": "string", "description": "An SQLSTATE, or a code that starts with PGRST"},
        "message": {"type": "string"},
        "details": {"anyOf": [_NULLABLE_TEXT, {"type": "array"}]},
        "hint": _NULLABLE_TEXT,
    },
}
_JSON_OID = 114
_FORMATS = {
    "int4": "int32",
    "int8": "int64",
    "float4": "float",
    "float8": "double",
    "uuid": "uuid",
    "date": "date",
    "timestamptz": "date-time",
}
"""Formats defined by OpenAPI.  The format of other strings is the SQL name of their type."""


class Components:
    """Names and builds the schemas that operations refer to."""

    def __init__(self, visible: VisibleSchema) -> None:
        self.visible = visible
        self.catalog = visible.catalog

    @cached_property
    def names(self) -> dict[int, str]:
        names, used = dict[int, str](), {ERROR}
        for visible in self.visible.tables:
            base = re.sub(r"[^A-Za-z0-9_-]", "_", visible.table.name)
            number, name = 1, base
            while name in used:
                number += 1
                name = f"{base}_{number}"
            used.add(name)
            names[visible.table.oid] = name
        return names

    def schemas(self) -> Iterator[tuple[str, Any]]:
        yield ERROR, _ERROR
        for table in self.visible.tables:
            yield from self._table_schemas(table)

    def _table_schemas(self, table: VisibleTable) -> Iterator[tuple[str, dict[Any, Any]]]:
        name, description = self.names[table.table.oid], without_directives(table.table.comment)
        properties = {column.name: self._property(table, column) for column in table.columns}

        def rows(columns: Iterable[Column], required: list[str]) -> dict[Any, Any]:
            schema = without_empty(type="object", description=description, required=required)
            return {**schema, "properties": {column.name: properties[column.name] for column in columns}}

        required = [column.name for column in table.columns if not column.nullable]
        yield name, {**rows(table.columns, required), Note.TABLE: table.table.name}
        if table.insert:
            columns = [column for column in table.columns if column.name in table.insert]
            needed = (each for each in columns if not each.nullable and not each.identity)
            required = [each.name for each in needed if default_text(self.catalog, each) is None]
            yield f"{name}.insert", rows(columns, required)
            if table.key:
                columns = [column for column in columns if column.name in table.update]
                required = [each.name for each in columns if each.name in (*table.key, *required)]
                yield f"{name}.put", rows(columns, required)
        if table.update:
            yield f"{name}.update", rows((each for each in table.columns if each.name in table.update), [])

    def _property(self, table: VisibleTable, column: Column) -> dict[Any, Any]:
        schema = self.value(column.type)
        if column.nullable:
            schema = nullable(schema)
        # PostgreSQL's text form of times differs from the format date-time.
        timed = schema.get("format") == "date-time"
        return {
            **schema,
            **without_empty(
                maxLength=max_length(self.catalog, column),
                default=None if timed else default(self.catalog, column),
                description=column_description(self.visible, table, column),
                readOnly=True if column.generated or column.identity == "a" else None,
            ),
            Note.TYPE: column_type_name(self.catalog, column),
            Note.DEFAULT: default(self.catalog, column, expressions=True),
            Note.LABELS: list(self.catalog.base_type(self.catalog.types[column.type]).labels),
        }

    def noted(self, schema: dict[str, Any], oid: int) -> dict[Any, Any]:
        return {**schema, Note.TYPE: self.catalog.types[oid].sql_name}

    def value(self, oid: int) -> dict[str, Any]:
        type_ = self.catalog.types[oid]
        if {(oid, _JSON_OID), (_JSON_OID, oid)} & self.catalog.representations.keys():
            return {}
        if type_.kind is TypeKind.DOMAIN:
            return self.value(type_.base)
        if type_.kind is TypeKind.ARRAY:
            return {"type": ARRAY, "items": nullable(self.value(type_.element))}
        if type_.kind is TypeKind.COMPOSITE and type_.relation in self.names:
            return reference("schemas", self.names[type_.relation])
        if type_.kind is TypeKind.COMPOSITE:
            return self.object((member.name, member.type) for member in type_.members)
        if type_.kind is TypeKind.ENUM:
            return {"type": STRING, "enum": list(type_.labels)}
        kind = json_type(type_.sql_name)
        if kind is None:
            return {}
        form = _FORMATS.get(type_.name) if type_.schema == "pg_catalog" else None
        if form is None and kind == STRING and type_.name not in ("text", "varchar"):
            form = type_.sql_name
        return without_empty(type=kind, format=form)

    def object(self, parts: Iterable[tuple[str, int]]) -> dict[str, Any]:
        properties = {name: nullable(self.value(oid)) for name, oid in parts}
        return {"type": "object", **({"properties": properties} if properties else {})}

    def arguments(self, function: Function) -> dict[str, Any]:
        parts = function.arguments
        schema = without_empty(type="object", required=[each.name for each in parts if each.default is None])
        schema["properties"] = {
            each.name: self.noted(nullable(self.value(each.type)), each.type) for each in parts
        }
        return schema

    def result(self, function: Function) -> dict[str, Any] | None:
        type_ = self.catalog.types[function.returns]
        if type_.kind is TypeKind.PSEUDO and type_.name == "void":
            return None
        if function.columns:
            one = self.object((column.name, column.type) for column in function.columns)
        elif type_.kind is TypeKind.PSEUDO:
            one = {"type": "object"} if type_.name == "record" else {}
        else:
            one = self.value(type_.oid)
        return {"type": ARRAY, "items": one} if function.returns_set else nullable(one)


def reference(kind: str, name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/{kind}/{name}"}


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    if "type" not in schema:
        return schema
    widened = {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        widened["enum"] = [*schema["enum"], None]
    return widened
