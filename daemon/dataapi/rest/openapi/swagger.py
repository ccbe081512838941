"""A schema's description in OpenAPI 2.0, in the form of PostgREST; pure.

Clients and generators read primary and foreign keys from the texts of ``description``, types from
``format``, and parameters by their names in ``parameters``: all of that is PostgREST's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from dataapi.catalog.directive_reader import without_directives
from dataapi.catalog.model import Argument, Column, Function, Volatility
from dataapi.rest.negotiation import OBJECT, OPENAPI
from dataapi.rest.openapi.model import (
    DESCRIPTION,
    ObjectMembers,
    VisibleSchema,
    VisibleTable,
    column_description,
    info,
    members,
    summary,
    without_empty,
)
from dataapi.rest.openapi.schemas import ARRAY, STRING, column_type_name, default, json_type, max_length
from dataapi.rest.parse.body import CSV, JSON
from dataapi.rest.plan.functions import whole_body

_COUNTS = ["count=exact", "count=planned", "count=estimated", "count=none"]
_RETURNS = ["return=representation", "return=minimal", "return=headers-only", "return=none"]
_RESOLUTIONS = ["resolution=ignore-duplicates", "resolution=merge-duplicates"]


_FORMATS = {"smallint": "int32", "integer": "int32", "bigint": "int64"}
"""Defined formats of types; others are called by their SQL name."""

_PARAMETERS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("preferParams", "Prefer", "Preference", {}),
    ("preferReturn", "Prefer", "Preference", {"enum": _RETURNS}),
    ("preferCount", "Prefer", "Preference", {"enum": _COUNTS}),
    ("preferPost", "Prefer", "Preference", {"enum": [*_RETURNS, *_RESOLUTIONS]}),
    ("select", "select", "Filtering Columns", {}),
    ("on_conflict", "on_conflict", "On Conflict", {}),
    ("order", "order", "Ordering", {}),
    ("range", "Range", "Limiting and Pagination", {}),
    ("rangeUnit", "Range-Unit", "Limiting and Pagination", {"default": "items"}),
    ("offset", "offset", "Limiting and Pagination", {}),
    ("limit", "limit", "Limiting and Pagination", {}),
)
"""The common parameters: key, name, description and further members; headers are capitalized."""


def parameters(visible: VisibleSchema) -> Iterator[tuple[str, Any]]:
    """Yield the parameters by name: the common ones, then those of each table."""
    for key, name, description, more in _PARAMETERS:
        place = "header" if name[0].isupper() else "query"
        yield key, {**_parameter(name, description, place=place), **more}
    for table in visible.tables:
        yield from _of_table(table)


def reference(place: str, name: str) -> dict[str, str]:
    """Return a reference to what has the name in a part of the description, such as ``definitions``."""
    pointer = quote(name.replace("~", "~0").replace("/", "~1"), safe="~!$&'()*+,;=:@")
    return {"$ref": f"#/{place}/{pointer}"}


def _of_table(table: VisibleTable) -> Iterator[tuple[str, Any]]:
    name = table.table.name
    if table.insert or table.update:
        row = {"name": name, "in": "body", "description": name, "required": False}
        yield f"body.{name}", {**row, "schema": reference("definitions", name)}
    for column in table.filterable:
        yield f"rowFilter.{name}.{column.name}", _parameter(column.name, without_directives(column.comment))


def _parameter(name: str, description: str | None, *, place: str = "query") -> dict[str, Any]:
    described = {"description": description} if description else {}
    return {"name": name, **described, "required": False, "in": place, "type": "string"}


MEDIA_TYPES = (JSON, f"{OBJECT};nulls=stripped", OBJECT, CSV)
_OK = {"200": {"description": "OK"}}

_READING = ("select", "order", "range", "rangeUnit", "offset", "limit", "preferCount")
_BEARER = 'Add the token prepending "Bearer " (without quotes) to it'


def document(visible: VisibleSchema, version: str, *, api_key: bool) -> ObjectMembers:
    """Return the description without ``host``, ``basePath`` and ``schemes``, which the request decides.

    :param version: of the product.
    :param api_key: whether requests need an API key.
    """
    return members(
        info=info(visible, version),
        paths=ObjectMembers(_paths(visible)),
        definitions=ObjectMembers(_definitions(visible)),
        parameters=ObjectMembers(parameters(visible)),
        consumes=list(MEDIA_TYPES),
        produces=list(MEDIA_TYPES),
        securityDefinitions={
            **({"apikey": _header("apikey", "The project's API key")} if api_key else {}),
            "JWT": _header("Authorization", _BEARER),
        },
        security=[{"apikey": []}, {"apikey": [], "JWT": []}] if api_key else [{}, {"JWT": []}],
    )


def _header(name: str, description: str) -> dict[str, str]:
    return {"type": "apiKey", "name": name, "in": "header", "description": description}


def _paths(visible: VisibleSchema) -> Iterator[tuple[str, Any]]:
    yield "/", {"get": {**DESCRIPTION, "produces": [OPENAPI, JSON], "responses": _OK}}
    for table in visible.tables:
        yield _path(table.table.name), _table_operations(table)
    # Overloads share a path: the last one is described.
    for function in {function.name: function for function in visible.functions}.values():
        yield f"/rpc{_path(function.name)}", _function_operations(visible, function)


def _path(name: str) -> str:
    """Return a path; what a path or its template may not hold as it is, is written in hexadecimal."""
    return "/" + re.sub(r"[{}%?#/]", lambda found: quote(found[0], safe=""), name)


def _table_operations(table: VisibleTable) -> dict[str, Any]:
    name = table.table.name
    title, description = summary(table.table.comment)
    common = without_empty(tags=[name], summary=title, description=description)
    filters = [f"rowFilter.{name}.{column.name}" for column in table.filterable]
    operations: dict[str, Any] = {}
    if table.read:
        rows = {"type": "array", "items": reference("definitions", name)}
        operations["get"] = {
            **common,
            "parameters": _references(*filters, *_READING),
            "responses": {
                "200": {"description": "OK", "schema": rows},
                "206": {"description": "Partial Content"},
            },
        }
    if table.insert:
        operations["post"] = _change(common, "201", "Created", f"body.{name}", "select", "preferPost")
    if table.update:
        operations["patch"] = _change(common, "204", "No Content", *filters, f"body.{name}", "preferReturn")
    if table.delete:
        operations["delete"] = _change(common, "204", "No Content", *filters, "preferReturn")
    return operations


def _change(common: dict[str, Any], status: str, description: str, *names: str) -> dict[str, Any]:
    return {**common, "parameters": _references(*names), "responses": {status: {"description": description}}}


def _references(*names: str) -> list[dict[str, str]]:
    return [reference("parameters", name) for name in names]


def _definitions(visible: VisibleSchema) -> Iterator[tuple[str, Any]]:
    for table in visible.tables:
        yield (
            table.table.name,
            without_empty(
                description=without_directives(table.table.comment),
                required=[column.name for column in table.columns if not column.nullable],
                type="object",
                properties={column.name: _property(visible, table, column) for column in table.columns},
            ),
        )


def _property(visible: VisibleSchema, table: VisibleTable, column: Column) -> dict[str, Any]:
    catalog = visible.catalog
    return {
        **_typed(column_type_name(catalog, column)),
        **without_empty(
            default=default(catalog, column, expressions=True),
            description=column_description(visible, table, column),
            enum=list(catalog.underlying(catalog.types[column.type]).labels),
            maxLength=max_length(catalog, column),
        ),
    }


def _typed(sql_name: str) -> dict[str, Any]:
    kind = json_type(sql_name)
    result: dict[str, Any] = {"format": _FORMATS.get(sql_name, sql_name)}
    if kind is not None:
        result["type"] = kind
    if kind == ARRAY:
        inner = json_type(sql_name.removesuffix("[]"))
        result["items"] = {"type": inner} if inner else {}
    return result


def _function_operations(visible: VisibleSchema, function: Function) -> dict[str, Any]:
    title, description = summary(function.comment)
    common = {
        **without_empty(tags=[f"(rpc) {function.name}"], summary=title, description=description),
        "produces": list(MEDIA_TYPES[:3]),
        "responses": _OK,
    }
    post = {**common, "parameters": [_arguments(visible, function), reference("parameters", "preferParams")]}
    if function.volatility is Volatility.VOLATILE or whole_body(visible.catalog, function):
        return {"post": post}
    return {
        "get": {**common, "parameters": [_argument(visible, part) for part in function.arguments]},
        "post": post,
    }


def _arguments(visible: VisibleSchema, function: Function) -> dict[str, Any]:
    names = visible.catalog.types
    body = {"name": "args", "in": "body", "required": True}
    if whole_body(visible.catalog, function):
        return {**body, "schema": {"format": names[function.arguments[0].type].sql_name}}
    schema = without_empty(
        description=without_directives(function.comment),
        required=[part.name for part in function.arguments if part.default is None],
        type="object",
    )
    schema["properties"] = {part.name: _typed(names[part.type].sql_name) for part in function.arguments}
    return {**body, "schema": schema}


def _argument(visible: VisibleSchema, argument: Argument) -> dict[str, Any]:
    name = visible.catalog.types[argument.type].sql_name
    required = argument.default is None
    result: dict[str, Any] = {"name": argument.name, "in": "query", "required": required}
    if argument.variadic:
        inner = name.removesuffix("[]")
        items = {"type": json_type(inner) or STRING, "format": _FORMATS.get(inner, inner)}
        return {**result, "type": "array", "items": items, "collectionFormat": "multi"}
    kind = json_type(name)
    # An array is written with braces in a query string.
    written = kind if kind and kind != ARRAY else STRING
    return {**result, "type": written, "format": _FORMATS.get(name, name)}
