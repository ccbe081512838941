"""The schemas of an OpenAPI 3.1 description: rows of tables, what is written to them, values; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from dataapi.catalog.comments import without_directives
from dataapi.catalog.model import Column, Function, Type, TypeKind
from dataapi.rest.openapi import types
from dataapi.rest.openapi.shown import Shown, ShownTable, column_description
from dataapi.rest.openapi.writing import without_nothing

ERROR = "Error"
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
"""Formats that OpenAPI knows; other strings carry their type's SQL name."""


class Components:
    """Names and makes the schemas that operations refer to."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self._catalog = shown.catalog
        self._taken = {ERROR}

    @cached_property
    def names(self) -> dict[int, str]:
        """Names of the tables' schemas by oid, in characters that OpenAPI allows, all different."""
        return {shown.table.oid: self._name(shown.table.name) for shown in self._shown.tables}

    def _name(self, name: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        number, found = 1, base
        while found in self._taken:
            number += 1
            found = f"{base}_{number}"
        self._taken.add(found)
        return found

    def schemas(self) -> Iterator[tuple[str, Any]]:
        """Yield the named schemas: of errors, then of each table's rows and of what is written to it."""
        yield ERROR, _error()
        for table in self._shown.tables:
            name = self.names[table.table.oid]
            words = without_directives(table.table.comment)
            yield name, self._rows(table, table.columns, words, _required(table.columns))
            if table.insert:
                columns = [column for column in table.columns if column.name in table.insert]
                needed = [
                    column
                    for column in columns
                    if types.default_text(self._catalog, column) is None and not column.identity
                ]
                required = _required(needed)
                yield f"{name}.insert", self._rows(table, columns, words, required)
                if table.key:
                    columns = [column for column in columns if column.name in table.update]
                    required = [each.name for each in columns if each.name in (*table.key, *required)]
                    yield f"{name}.put", self._rows(table, columns, words, required)
            if table.update:
                columns = [column for column in table.columns if column.name in table.update]
                yield f"{name}.update", self._rows(table, columns, words, [])

    def _rows(
        self, table: ShownTable, columns: Iterable[Column], words: str | None, required: list[str]
    ) -> dict[str, Any]:
        schema = without_nothing(type="object", description=words, required=required)
        schema["properties"] = {column.name: self._property(table, column) for column in columns}
        return schema

    def _property(self, table: ShownTable, column: Column) -> dict[str, Any]:
        schema = self.value(column.type)
        if column.nullable:
            schema = nullable(schema)
        # PostgreSQL writes times otherwise than date-time does.
        timed = schema.get("format") == "date-time"
        return {
            **schema,
            **without_nothing(
                maxLength=types.max_length(self._catalog, column),
                default=None if timed else types.literal(self._catalog, column),
                description=column_description(self._shown, table, column),
                readOnly=True if column.generated or column.identity == "a" else None,
            ),
        }

    def value(self, oid: int) -> dict[str, Any]:
        """Return the schema of a type's values other than null."""
        type_ = self._catalog.types[oid]
        if {(oid, _JSON_OID), (_JSON_OID, oid)} & self._catalog.representations.keys():
            return {}
        if type_.kind is TypeKind.DOMAIN:
            return self.value(type_.base)
        if type_.kind is TypeKind.ARRAY:
            return {"type": types.ARRAY, "items": nullable(self.value(type_.element))}
        if type_.kind is TypeKind.COMPOSITE:
            return self._composite(type_)
        if type_.kind is TypeKind.ENUM:
            return {"type": types.STRING, "enum": list(type_.labels)}
        kind = types.json_type(type_.sql_name)
        if kind is None:
            return {}
        return without_nothing(type=kind, format=_format(type_, kind))

    def _composite(self, type_: Type) -> dict[str, Any]:
        if type_.relation in self.names:
            return self.row(type_.relation)
        return self.object((member.name, member.type) for member in type_.members)

    def object(self, parts: Iterable[tuple[str, int]]) -> dict[str, Any]:
        """Return the schema of an object whose members have those names and types, or are null."""
        properties = {name: nullable(self.value(oid)) for name, oid in parts}
        return {"type": "object", **({"properties": properties} if properties else {})}

    def row(self, oid: int) -> dict[str, Any]:
        """Return a reference to the schema of a shown table's rows."""
        return schema_named(self.names[oid])

    def arguments(self, function: Function) -> dict[str, Any]:
        """Return the schema of an object with a function's arguments."""
        schema = without_nothing(
            type="object", required=[part.name for part in function.arguments if part.default is None]
        )
        schema["properties"] = {part.name: nullable(self.value(part.type)) for part in function.arguments}
        return schema

    def result(self, function: Function) -> dict[str, Any] | None:
        """Return the schema of what a function answers; None for nothing."""
        type_ = self._catalog.types[function.returns]
        if type_.kind is TypeKind.PSEUDO and type_.name == "void":
            return None
        if function.columns:
            one = self.object((column.name, column.type) for column in function.columns)
        elif type_.kind is TypeKind.PSEUDO:
            one = {"type": "object"} if type_.name == "record" else {}
        else:
            one = self.value(type_.oid)
        return {"type": types.ARRAY, "items": one} if function.returns_set else nullable(one)


def schema_named(name: str) -> dict[str, Any]:
    """Return a reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with null allowed."""
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    if "type" not in schema:
        return schema
    widened = {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        widened["enum"] = [*schema["enum"], None]
    return widened


def _required(columns: Iterable[Column]) -> list[str]:
    return [column.name for column in columns if not column.nullable]


def _format(type_: Type, kind: str) -> str | None:
    known = _FORMATS.get(type_.name) if type_.schema == "pg_catalog" else None
    if known is None and kind == types.STRING and type_.name not in ("text", "varchar"):
        return type_.sql_name
    return known


def _error() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    return {
        "type": "object",
        "required": ["message"],
        "properties": {
            "code": {"type": "string", "description": "An SQLSTATE or a code that begins with PGRST"},
            "message": {"type": "string"},
            "details": {"anyOf": [text, {"type": "array"}]},
            "hint": text,
        },
    }
