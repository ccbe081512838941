"""A schema's description in OpenAPI 2.0, in the form that PostgREST gives it; pure.

Clients and generators read primary and foreign keys from the texts of ``description``, types from
``format``, and parameters by their names in ``parameters``: all of that is PostgREST's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from dataapi.catalog.comments import without_directives
from dataapi.catalog.model import Argument, Column, Function, Volatility
from dataapi.rest.negotiation import OBJECT
from dataapi.rest.openapi.model import (
    ObjectMembers,
    VisibleSchema,
    VisibleTable,
    column_description,
    info,
    members,
    summary,
    without_empty,
)
from dataapi.rest.openapi.schemas import (
    ARRAY,
    STRING,
    column_type_name,
    default,
    element_name,
    format_name,
    json_type,
    labels,
    max_length,
)
from dataapi.rest.parse.body import CSV, JSON
from dataapi.rest.plan.functions import whole_body

_COUNTS = ["count=exact", "count=planned", "count=estimated", "count=none"]
_RETURNS = ["return=representation", "return=minimal", "return=headers-only", "return=none"]
_RESOLUTIONS = ["resolution=ignore-duplicates", "resolution=merge-duplicates"]


def parameters(visible: VisibleSchema) -> Iterator[tuple[str, Any]]:
    """Yield the parameters by name: the common ones, then those of each table."""
    yield "preferParams", _prefer()
    yield "preferReturn", _prefer(*_RETURNS)
    yield "preferCount", _prefer(*_COUNTS)
    yield "preferPost", _prefer(*_RETURNS, *_RESOLUTIONS)
    yield "select", _parameter("select", "Filtering Columns")
    yield "on_conflict", _parameter("on_conflict", "On Conflict")
    yield "order", _parameter("order", "Ordering")
    yield "range", _parameter("Range", "Limiting and Pagination", place="header")
    unit = _parameter("Range-Unit", "Limiting and Pagination", place="header")
    yield "rangeUnit", {**unit, "default": "items"}
    yield "offset", _parameter("offset", "Limiting and Pagination")
    yield "limit", _parameter("limit", "Limiting and Pagination")
    for table in visible.tables:
        yield from _of_table(table)


def reference(place: str, name: str) -> dict[str, str]:
    """Return a reference to what has the name in a part of the description, such as ``definitions``."""
    pointer = quote(name.replace("~", "~0").replace("/", "~1"), safe="~!$&'()*+,;=:@")
    return {"$ref": f"#/{place}/{pointer}"}


def body_of(table: str) -> str:
    """Return the name of the parameter that is a table's row."""
    return f"body.{table}"


def filter_name(table: str, column: str) -> str:
    """Return the name of the parameter that is a condition on a column."""
    return f"rowFilter.{table}.{column}"


def _of_table(table: VisibleTable) -> Iterator[tuple[str, Any]]:
    name = table.table.name
    if table.insert or table.update:
        row = {"name": name, "in": "body", "description": name, "required": False}
        yield body_of(name), {**row, "schema": reference("definitions", name)}
    for column in table.filterable:
        yield filter_name(name, column.name), _parameter(column.name, without_directives(column.comment))


def _parameter(name: str, description: str | None, *, place: str = "query") -> dict[str, Any]:
    described = {"description": description} if description else {}
    return {"name": name, **described, "required": False, "in": place, "type": "string"}


def _prefer(*values: str) -> dict[str, Any]:
    parameter = _parameter("Prefer", "Preference", place="header")
    return {**parameter, "enum": list(values)} if values else parameter


MEDIA_TYPES = (JSON, f"{OBJECT};nulls=stripped", OBJECT, CSV)
DESCRIPTION_TYPES = ("application/openapi+json", JSON)

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
    yield "/", {"get": _description_operation()}
    for table in visible.tables:
        yield _path(table.table.name), _table_operations(table)
    # Of overloads, which have one path, the last one is shown.
    for function in {function.name: function for function in visible.functions}.values():
        yield f"/rpc{_path(function.name)}", _function_operations(visible, function)


def _path(name: str) -> str:
    """Return a path; what a path or its template may not hold as it is, is written in hexadecimal."""
    return "/" + re.sub(r"[{}%?#/]", lambda found: quote(found[0], safe=""), name)


def _description_operation() -> dict[str, Any]:
    return {
        "tags": ["Introspection"],
        "summary": "OpenAPI description (this document)",
        "produces": list(DESCRIPTION_TYPES),
        "responses": {"200": {"description": "OK"}},
    }


def _table_operations(table: VisibleTable) -> dict[str, Any]:
    name = table.table.name
    title, description = summary(table.table.comment)
    common = without_empty(tags=[name], summary=title, description=description)
    filters = [filter_name(name, column.name) for column in table.filterable]
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
        operations["post"] = _change(common, "201", "Created", body_of(name), "select", "preferPost")
    if table.update:
        operations["patch"] = _change(common, "204", "No Content", *filters, body_of(name), "preferReturn")
    if table.delete:
        operations["delete"] = _change(common, "204", "No Content", *filters, "preferReturn")
    return operations


def _change(common: dict[str, Any], status: str, said: str, *names: str) -> dict[str, Any]:
    return {**common, "parameters": _references(*names), "responses": {status: {"description": said}}}


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
    name = column_type_name(catalog, column)
    return {
        **_typed(name),
        **without_empty(
            default=default(catalog, column),
            description=column_description(visible, table, column),
            enum=list(labels(catalog, catalog.types[column.type])),
            maxLength=max_length(catalog, column),
        ),
    }


def _typed(sql_name: str) -> dict[str, Any]:
    kind = json_type(sql_name)
    result: dict[str, Any] = {"format": format_name(sql_name)}
    if kind is not None:
        result["type"] = kind
    if kind == ARRAY:
        inner = json_type(element_name(sql_name))
        result["items"] = {"type": inner} if inner else {}
    return result


def _function_operations(visible: VisibleSchema, function: Function) -> dict[str, Any]:
    title, description = summary(function.comment)
    common = {
        **without_empty(tags=[f"(rpc) {function.name}"], summary=title, description=description),
        "produces": list(MEDIA_TYPES[:3]),
        "responses": {"200": {"description": "OK"}},
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
        inner = element_name(name)
        items = {"type": json_type(inner) or STRING, "format": format_name(inner)}
        return {**result, "type": "array", "items": items, "collectionFormat": "multi"}
    kind = json_type(name)
    # An array is written with braces in a query string.
    written = kind if kind and kind != ARRAY else STRING
    return {**result, "type": written, "format": format_name(name)}
