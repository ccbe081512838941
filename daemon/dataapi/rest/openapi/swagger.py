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
from dataapi.rest.functions.overloads import whole_body
from dataapi.rest.media import OBJECT
from dataapi.rest.openapi import types
from dataapi.rest.openapi.shown import Shown, ShownTable, column_description, info, summary
from dataapi.rest.openapi.swagger_parameters import body_of, filter_name, parameters, reference
from dataapi.rest.openapi.writing import Members, members, without_nothing
from dataapi.rest.request.payload import CSV, JSON

MEDIA_TYPES = (JSON, f"{OBJECT};nulls=stripped", OBJECT, CSV)
DESCRIPTION_TYPES = ("application/openapi+json", JSON)

_READING = ("select", "order", "range", "rangeUnit", "offset", "limit", "preferCount")
_BEARER = 'Add the token prepending "Bearer " (without quotes) to it'


def document(shown: Shown, version: str, *, api_key: bool) -> Members:
    """Return the description without ``host``, ``basePath`` and ``schemes``, which the request decides.

    :param version: of the product.
    :param api_key: whether requests need an API key.
    """
    return members(
        info=info(shown, version),
        paths=Members(_paths(shown)),
        definitions=Members(_definitions(shown)),
        parameters=Members(parameters(shown)),
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


def _paths(shown: Shown) -> Iterator[tuple[str, Any]]:
    yield "/", {"get": _description_operation()}
    for table in shown.tables:
        yield _path(table.table.name), _table_operations(table)
    # Of overloads, which have one path, the last one is shown.
    for function in {function.name: function for function in shown.functions}.values():
        yield f"/rpc{_path(function.name)}", _function_operations(shown, function)


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


def _table_operations(table: ShownTable) -> dict[str, Any]:
    name = table.table.name
    title, description = summary(table.table.comment)
    common = without_nothing(tags=[name], summary=title, description=description)
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


def _definitions(shown: Shown) -> Iterator[tuple[str, Any]]:
    for table in shown.tables:
        yield (
            table.table.name,
            without_nothing(
                description=without_directives(table.table.comment),
                required=[column.name for column in table.columns if not column.nullable],
                type="object",
                properties={column.name: _property(shown, table, column) for column in table.columns},
            ),
        )


def _property(shown: Shown, table: ShownTable, column: Column) -> dict[str, Any]:
    catalog = shown.catalog
    name = types.column_type_name(catalog, column)
    return {
        **_typed(name),
        **without_nothing(
            default=types.default(catalog, column),
            description=column_description(shown, table, column),
            enum=list(types.labels(catalog, catalog.types[column.type])),
            maxLength=types.max_length(catalog, column),
        ),
    }


def _typed(sql_name: str) -> dict[str, Any]:
    kind = types.json_type(sql_name)
    result: dict[str, Any] = {"format": types.format_name(sql_name)}
    if kind is not None:
        result["type"] = kind
    if kind == types.ARRAY:
        inner = types.json_type(types.element_name(sql_name))
        result["items"] = {"type": inner} if inner else {}
    return result


def _function_operations(shown: Shown, function: Function) -> dict[str, Any]:
    title, description = summary(function.comment)
    common = {
        **without_nothing(tags=[f"(rpc) {function.name}"], summary=title, description=description),
        "produces": list(MEDIA_TYPES[:3]),
        "responses": {"200": {"description": "OK"}},
    }
    post = {**common, "parameters": [_arguments(shown, function), reference("parameters", "preferParams")]}
    if function.volatility is Volatility.VOLATILE or whole_body(shown.catalog, function):
        return {"post": post}
    return {
        "get": {**common, "parameters": [_argument(shown, part) for part in function.arguments]},
        "post": post,
    }


def _arguments(shown: Shown, function: Function) -> dict[str, Any]:
    names = shown.catalog.types
    body = {"name": "args", "in": "body", "required": True}
    if whole_body(shown.catalog, function):
        return {**body, "schema": {"format": names[function.arguments[0].type].sql_name}}
    schema = without_nothing(
        description=without_directives(function.comment),
        required=[part.name for part in function.arguments if part.default is None],
        type="object",
    )
    schema["properties"] = {part.name: _typed(names[part.type].sql_name) for part in function.arguments}
    return {**body, "schema": schema}


def _argument(shown: Shown, argument: Argument) -> dict[str, Any]:
    name = shown.catalog.types[argument.type].sql_name
    required = argument.default is None
    result: dict[str, Any] = {"name": argument.name, "in": "query", "required": required}
    if argument.variadic:
        inner = types.element_name(name)
        items = {"type": types.json_type(inner) or types.STRING, "format": types.format_name(inner)}
        return {**result, "type": "array", "items": items, "collectionFormat": "multi"}
    kind = types.json_type(name)
    # An array is written with braces in a query string.
    written = kind if kind and kind != types.ARRAY else types.STRING
    return {**result, "type": written, "format": types.format_name(name)}
