"""Maps SQL types, columns and tables to JSON types and JSON Schemas."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import cached_property
from typing import Any

from dataapi.catalog.directive_reader import without_directives
from dataapi.catalog.model import Catalog, Column, Function, TypeKind
from dataapi.catalog.relationships import KeyRelationship
from dataapi.http.strict_json import DECODER, INVALID_JSON
from dataapi.rest.openapi.model import Note, column_description, without_empty
from dataapi.rest.openapi.related import RelatedMembers, no_members
from dataapi.rest.visible_schema import VisibleSchema, VisibleTable, default_text

STRING, INTEGER, NUMBER, BOOLEAN, ARRAY = "string", "integer", "number", "boolean", "array"

_JSON_OID = 114

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
"""Patterns of valid values, for PostgreSQL types whose name is also a JSON Schema format."""

_CLASSES: dict[str | None, tuple[type, ...]] = {BOOLEAN: (bool,), INTEGER: (int,), NUMBER: (int, float)}
_LITERAL = re.compile(r"'((?:[^']|'')*)'(?:::[^']+)?")


def json_type(sql_name: str) -> str | None:
    """Return the JSON type of a SQL type's values, or None if any type is possible, as for ``json``."""
    if sql_name.endswith("[]"):
        return ARRAY
    return _KINDS.get(sql_name, STRING)


def has_own_json(catalog: Catalog, oid: int) -> bool:
    """Whether a domain has a cast to or from JSON, so that its JSON can be any value."""
    return bool({(oid, _JSON_OID), (_JSON_OID, oid)} & catalog.representations.keys())


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


def default(catalog: Catalog, column: Column, *, expressions: bool = False) -> Any:
    """Return a column's literal default as a JSON value, None if there is none.

    With ``expressions``, return the SQL text of a string column's default if it is not a literal.
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
_FORMATS = {
    "int4": "int32",
    "int8": "int64",
    "float4": "float",
    "float8": "double",
    "uuid": "uuid",
    "date": "date",
    "timestamptz": "date-time",
}
"""Formats defined by OpenAPI. The format of other strings is the SQL name of their type."""


class _Use(Enum):
    """Purposes of a row's schema. The schema of an update has no defaults."""

    ROW = auto()
    INSERT = auto()
    UPDATE = auto()


class Components:
    """Names and builds the schemas that operations refer to."""

    def __init__(self, visible: VisibleSchema, related: RelatedMembers = no_members) -> None:
        self.visible = visible
        self.related = related
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

    @cached_property
    def _tables(self) -> dict[int, VisibleTable]:
        return {visible.table.oid: visible for visible in self.visible.tables}

    def _table_schemas(self, table: VisibleTable) -> Iterator[tuple[str, dict[Any, Any]]]:
        name, description = self.names[table.table.oid], without_directives(table.table.comment)

        def rows(use: _Use, columns: Sequence[Column], required: Collection[str]) -> dict[Any, Any]:
            listed = [column.name for column in columns if column.name in required]
            schema = without_empty(type="object", description=description, required=listed)
            return {**schema, "properties": {each.name: self._property(table, each, use) for each in columns}}

        # Rows in a response contain all readable columns. A request body may omit nullable columns.
        yield name, {**rows(_Use.ROW, table.columns, table.read), Note.TABLE: table.table.name}
        if table.insert:
            columns = [column for column in table.columns if column.name in table.insert]
            required = self.visible.required(table)
            inserted = self.related(table)
            # Foreign key columns between rows that are inserted together are set automatically.
            keys = {own for each in inserted.values() if each.outgoing for own, _ in each.pairs}
            schema = rows(_Use.INSERT, columns, required - keys)
            for member, relationship in inserted.items():
                schema["properties"][member] = self._related_rows(relationship)
            yield f"{name}.insert", schema
            if table.key:
                columns = [column for column in columns if column.name in table.update]
                yield f"{name}.put", rows(_Use.INSERT, columns, required.union(table.key))
        if table.update:
            columns = [column for column in table.columns if column.name in table.update]
            yield f"{name}.update", rows(_Use.UPDATE, columns, ())

    def _related_rows(self, relationship: KeyRelationship) -> dict[Any, Any]:
        row = reference("schemas", f"{self.names[relationship.target.oid]}.insert")
        if relationship.to_one:
            return {"description": "Related row to insert", **nullable(row)}
        return {"description": "Related rows to insert", "type": ARRAY, "items": row}

    def _property(self, table: VisibleTable, column: Column, use: _Use) -> dict[Any, Any]:
        schema = self.value(column.type, written=use is not _Use.ROW)
        if column.nullable:
            schema = nullable(schema)
        # PostgreSQL's text form of times differs from the format date-time.
        timed = schema.get("format") == "date-time"
        has_default = use is not _Use.UPDATE and not timed
        return {
            **schema,
            **without_empty(
                maxLength=max_length(self.catalog, column),
                default=default(self.catalog, column) if has_default else None,
                description=column_description(self.visible, table, column),
                readOnly=True if column.generated or column.identity == "a" else None,
                writeOnly=True if use is _Use.ROW and column.name not in table.read else None,
            ),
            Note.TYPE: column_type_name(self.catalog, column),
            Note.DEFAULT: default(self.catalog, column, expressions=True),
            Note.LABELS: list(self.catalog.base_type(self.catalog.types[column.type]).labels),
            Note.NOT_NULL: not column.nullable,
        }

    def noted(self, schema: dict[str, Any], oid: int) -> dict[Any, Any]:
        return {**schema, Note.TYPE: self.catalog.types[oid].sql_name}

    def value(self, oid: int, *, written: bool = False) -> dict[str, Any]:
        """Return the schema of a type's values. With ``written``, composite values may omit members."""
        type_ = self.catalog.types[oid]
        if has_own_json(self.catalog, oid):
            return {}
        if type_.kind is TypeKind.DOMAIN:
            return self.value(type_.base, written=written)
        if type_.kind is TypeKind.ARRAY:
            return {"type": ARRAY, "items": nullable(self.value(type_.element, written=written))}
        if type_.kind is TypeKind.COMPOSITE:
            table = self._tables.get(type_.relation)
            if table is not None and not written:
                return reference("schemas", self.names[type_.relation])
            members = type_.members if table is None else table.columns
            return self.object(((member.name, member.type) for member in members), written=written)
        if type_.kind is TypeKind.ENUM:
            return {"type": STRING, "enum": list(type_.labels)}
        kind = json_type(type_.sql_name)
        if kind is None:
            return {}
        form = _FORMATS.get(type_.name) if type_.schema == "pg_catalog" else None
        if form is None and kind == STRING and type_.name not in ("text", "varchar"):
            form = type_.sql_name
        return without_empty(type=kind, format=form)

    def object(self, parts: Iterable[tuple[str, int]], *, written: bool = False) -> dict[str, Any]:
        properties = {name: nullable(self.value(oid, written=written)) for name, oid in parts}
        required = None if written else list(properties)
        return without_empty(type="object", required=required, properties=properties or None)

    def arguments(self, function: Function) -> dict[str, Any]:
        parts = function.arguments
        schema = without_empty(type="object", required=[each.name for each in parts if each.default is None])
        schema["properties"] = {
            each.name: self.noted(nullable(self.value(each.type, written=True)), each.type) for each in parts
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
