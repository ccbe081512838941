"""Derives the OpenAPI 2.0 description from the 3.1 document, in PostgREST's form.

Clients and generators read primary and foreign keys from ``description``, types from ``format`` and
parameters by their names in ``parameters``, all as in PostgREST.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

from dataapi.rest.negotiation import OBJECT, OPENAPI
from dataapi.rest.openapi.model import Note, ObjectMembers, members, without_empty
from dataapi.rest.openapi.schemas import ARRAY, STRING, json_type
from dataapi.rest.parse.body import CSV, JSON

_COUNTS = ["count=exact", "count=planned", "count=estimated", "count=none"]
_RETURNS = ["return=representation", "return=minimal", "return=headers-only", "return=none"]
_RESOLUTIONS = ["resolution=ignore-duplicates", "resolution=merge-duplicates"]

_FORMATS = {"smallint": "int32", "integer": "int32", "bigint": "int64"}
"""Formats of SQL types. The format of other types is their SQL name."""

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
"""Key, name, description and further members of the common parameters. Header names are capitalized."""

_OK = {"200": {"description": "OK"}}
_NO_CONTENT = {"204": {"description": "No Content"}}
_READING = ("select", "order", "range", "rangeUnit", "offset", "limit", "preferCount")
_OPERATIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "get": (_READING, {**_OK, "206": {"description": "Partial Content"}}),
    "post": (("select", "preferPost"), {"201": {"description": "Created"}}),
    "patch": (("preferReturn",), _NO_CONTENT),
    "delete": (("preferReturn",), _NO_CONTENT),
}

MEDIA_TYPES = [JSON, f"{OBJECT};nulls=stripped", OBJECT, CSV]
_CALL = "/rpc/"


def _header(name: str, description: str) -> dict[str, str]:
    return {"type": "apiKey", "name": name, "in": "header", "description": description}


_SECURITY = {
    "apikey": ("apikey", _header("apikey", "The project's API key")),
    "bearer": ("JWT", _header("Authorization", 'Add the token prepending "Bearer " (without quotes) to it')),
}


_INSERTED = "bodyWithRelated"


def to_swagger(document: ObjectMembers) -> ObjectMembers:
    """Return the description without ``host``, ``basePath`` and ``schemes``. They depend on the request."""
    openapi = dict(document.pairs())
    components = dict(openapi["components"].pairs())
    paths, schemas = openapi["paths"], components["schemas"]
    return members(
        info=openapi["info"],
        paths=ObjectMembers(lambda: ((_path(path), _operations(path, item)) for path, item in paths.pairs())),
        definitions=ObjectMembers(lambda: _definitions(schemas)),
        parameters=ObjectMembers(lambda: _parameters(paths)),
        consumes=MEDIA_TYPES,
        produces=MEDIA_TYPES,
        securityDefinitions=dict(_SECURITY[name] for name in components["securitySchemes"]),
        security=[{_SECURITY[name][0]: [] for name in each} for each in openapi["security"]],
    )


def _path(path: str) -> str:
    names = [unquote(name) for name in path.split("/")]
    return "/".join(re.sub(r"[{}%?#/]", lambda match: quote(match[0], safe=""), name) for name in names)


def _reference(location: str, name: str) -> dict[str, str]:
    pointer = quote(name.replace("~", "~0").replace("/", "~1"), safe="~!$&'()*+,;=:@")
    return {"$ref": f"#/{location}/{pointer}"}


def _parameters(paths: ObjectMembers) -> Iterator[tuple[str, Any]]:
    for key, name, description, extra in _PARAMETERS:
        location = "header" if name[0].isupper() else "query"
        yield key, {**_parameter({"name": name, "description": description, "in": location}), **extra}
    for path, operations in paths.pairs():
        if path == "/" or path.startswith(_CALL):
            continue
        table = next(iter(operations.values()))["tags"][0]
        if operations.keys() & {"post", "patch"}:
            row = {"name": table, "in": "body", "description": table, "required": False}
            yield f"body.{table}", {**row, "schema": _reference("definitions", table)}
            related = operations.get("post", {}).get(Note.RELATED)
            if related:
                yield f"{_INSERTED}.{table}", {**row, "schema": _with_related(table, related)}
        for name, parameter in _filters(operations.get("get", {})):
            yield name, _parameter(parameter)


def _with_related(table: str, related: list[tuple[str, str, bool]]) -> dict[str, Any]:
    properties = {
        name: {"type": ARRAY, "items": _reference("definitions", target)}
        if many
        else _reference("definitions", target)
        for name, target, many in related
    }
    return {"allOf": [_reference("definitions", table), {"type": "object", "properties": properties}]}


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    return {**_only(parameter, "name", "description", "in"), "required": False, "type": "string"}


def _only(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value[name] for name in names if name in value}


def _filters(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for reference in operation.get("parameters", []):
        if Note.PARAMETER in reference:
            parameter = reference[Note.PARAMETER]
            yield f"rowFilter.{operation['tags'][0]}.{parameter['name']}", parameter


def _operations(path: str, operations: dict[Any, Any]) -> dict[str, Any]:
    if path == "/":
        return {"get": {**_common(operations["get"]), "produces": [OPENAPI, JSON], "responses": _OK}}
    if path.startswith(_CALL):
        # Overloads share a path. As in PostgREST, only the last one is described.
        last = operations.get(Note.LAST_OVERLOAD, operations)
        return {method: _call(method, operation) for method, operation in last.items()}
    return {
        method: _table_operation(method, operations[method]) for method in _OPERATIONS if method in operations
    }


def _common(operation: dict[str, Any]) -> dict[str, Any]:
    return _only(operation, "tags", "summary", "description")


def _table_operation(method: str, operation: dict[Any, Any]) -> dict[str, Any]:
    table = operation["tags"][0]
    controls, responses = _OPERATIONS[method]
    if method == "get":
        rows = {"type": ARRAY, "items": _reference("definitions", table)}
        responses = {**responses, "200": {"description": "OK", "schema": rows}}
    filters = [name for name, _ in _filters(operation)]
    body = f"{_INSERTED if operation.get(Note.RELATED) else 'body'}.{table}"
    names = [*filters, *([body] if "requestBody" in operation else []), *controls]
    parameters = [_reference("parameters", name) for name in names]
    return {**_common(operation), "parameters": parameters, "responses": responses}


def _definitions(schemas: ObjectMembers) -> Iterator[tuple[str, Any]]:
    for _, schema in schemas.pairs():
        if Note.TABLE in schema:
            columns = schema["properties"]
            yield (
                schema[Note.TABLE],
                without_empty(
                    type=schema["type"],
                    description=schema.get("description"),
                    required=[name for name, column in columns.items() if column[Note.NOT_NULL]],
                    properties={name: _property(column) for name, column in columns.items()},
                ),
            )


def _property(column: dict[Any, Any]) -> dict[str, Any]:
    return {
        **_typed(column[Note.TYPE]),
        **without_empty(
            default=column[Note.DEFAULT],
            description=column.get("description"),
            enum=column[Note.LABELS],
            maxLength=column.get("maxLength"),
        ),
    }


def _typed(sql_name: str) -> dict[str, Any]:
    kind = json_type(sql_name)
    result = without_empty(format=_FORMATS.get(sql_name, sql_name), type=kind)
    if kind == ARRAY:
        inner = json_type(sql_name.removesuffix("[]"))
        result["items"] = {"type": inner} if inner else {}
    return result


def _call(method: str, operation: dict[Any, Any]) -> dict[str, Any]:
    if method == "get":
        arguments = [_argument(each) for each in operation.get("parameters", []) if "schema" in each]
    else:
        arguments = [_arguments(operation), _reference("parameters", "preferParams")]
    common = {**_common(operation), "produces": MEDIA_TYPES[:3], "responses": _OK}
    return {**common, "parameters": arguments}


def _arguments(operation: dict[Any, Any]) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    source: dict[Any, Any] = next((each["schema"] for each in content.values()), {})
    if Note.TYPE in source:
        schema = {"format": source[Note.TYPE]}
    else:
        properties = {name: _typed(each[Note.TYPE]) for name, each in source.get("properties", {}).items()}
        described = without_empty(description=operation[Note.COMMENT], required=source.get("required"))
        schema = {"type": "object", **described, "properties": properties}
    return {"name": "args", "in": "body", "required": True, "schema": schema}


def _argument(parameter: dict[str, Any]) -> dict[str, Any]:
    result = _only(parameter, "name", "in", "required")
    name = parameter["schema"][Note.TYPE]
    if parameter["schema"].get("type") == ARRAY:
        # Only a variadic argument can be repeated. Other arrays are array literals.
        inner = name.removesuffix("[]")
        items = {"type": json_type(inner) or STRING, "format": _FORMATS.get(inner, inner)}
        return {**result, "type": ARRAY, "items": items, "collectionFormat": "multi"}
    kind = json_type(name)
    written = STRING if kind in (None, ARRAY) else kind
    return {**result, "type": written, "format": _FORMATS.get(name, name)}
