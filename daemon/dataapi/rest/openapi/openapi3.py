"""Describes a schema in OpenAPI 3.1, with the notes that ``swagger.py`` needs for OpenAPI 2.0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from dataapi.catalog.directive_reader import without_directives
from dataapi.catalog.media_types import media_type_of
from dataapi.catalog.model import Argument, Function, Volatility
from dataapi.rest.negotiation import OBJECT, OPENAPI
from dataapi.rest.openapi.model import (
    Note,
    ObjectMembers,
    members,
    summary,
    without_empty,
)
from dataapi.rest.openapi.related import RelatedMembers, no_members
from dataapi.rest.openapi.schemas import ERROR, Components, reference
from dataapi.rest.parse.body import CSV, FORM, JSON
from dataapi.rest.plan.functions import whole_body
from dataapi.rest.visible_schema import VisibleSchema, VisibleTable

_READING = ("select", "order", "limit", "offset", "range", "rangeUnit", "preferRead")
_TEXT = {"schema": {"type": "string"}}
_NO_CONTENT = {"description": "No Content"}


def table_operations(table: VisibleTable, components: Components) -> dict[str, Any]:
    name = components.names[table.table.oid]
    title, description = summary(table.table.comment)
    row_schema = reference("schemas", name)
    rows = {
        JSON: {"schema": {"type": "array", "items": row_schema}},
        OBJECT: {"schema": row_schema},
        CSV: _TEXT,
    }
    filters = [
        {**reference("parameters", key), Note.PARAMETER: parameter}
        for key, parameter in _filters(table, components)
    ]
    operations: dict[str, Any] = {}

    def add(
        method: str, action: str, parameters: list[Any], responses: dict[str, Any], body: Any = None
    ) -> None:
        operations[method] = without_empty(
            tags=[table.table.name],
            summary=title,
            description=description,
            operationId=f"{action}.{name}",
            parameters=parameters,
            requestBody=None if body is None else {"required": True, "content": body},
            responses={**responses, "default": reference("responses", "Error")},
        )

    if table.read:
        headers = {"Content-Range": reference("headers", "Content-Range")}
        responses = {
            "200": _response("OK", rows, headers=headers),
            "206": _response("Partial Content", rows, headers=headers),
        }
        add("get", "read", [*filters, *_references(*_READING)], responses)
    if table.insert:
        row = reference("schemas", f"{name}.insert")
        body = _written_content(row, {"oneOf": [row, {"type": "array", "items": row}]})
        responses = {"201": _response("Created", rows), "200": _response("All rows existed", rows)}
        controls = _references("select", "columns", "on_conflict", "preferInsert")
        add("post", "insert", controls, responses, body)
        operations["post"][Note.RELATED] = [
            (member, each.target.name, not each.to_one) for member, each in components.related(table).items()
        ]
    if table.key:
        row = reference("schemas", f"{name}.put")
        responses = {
            "204": _NO_CONTENT,
            "200": _response("Replaced", rows),
            "201": _response("Created", rows),
        }
        conditions = [*_key_parameters(table), *_references("select", "preferPut")]
        add("put", "put", conditions, responses, _written_content(row, row))
    changed = {"204": _NO_CONTENT, "200": _response("OK", rows)}
    if table.update:
        body = {JSON: {"schema": reference("schemas", f"{name}.update")}}
        controls = _references("select", "columns", "preferWrite")
        add("patch", "update", [*filters, *controls], changed, body)
    if table.delete:
        add("delete", "delete", [*filters, *_references("select", "preferWrite")], changed)
    return operations


def _references(*names: str) -> list[dict[str, Any]]:
    return [reference("parameters", name) for name in names]


def _response(description: str, content: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"description": description, **members, "content": content}


def _written_content(row: dict[str, Any], json: dict[str, Any]) -> dict[str, Any]:
    return {JSON: {"schema": json}, CSV: _TEXT, FORM: {"schema": row}}


def _key_parameters(table: VisibleTable) -> list[dict[str, Any]]:
    return [
        without_empty(
            **{"name": column.name, "in": "query", "required": True},
            description=without_directives(column.comment),
            schema={"type": "string", "pattern": "^eq\\."},
        )
        for column in table.columns
        if column.name in table.key
    ]


def function_operations(components: Components, overloads: Sequence[Function]) -> dict[Any, Any]:
    first = overloads[0]
    comment = next((one.comment for one in overloads if one.comment), None)
    title, description = summary(comment)
    common = without_empty(tags=[f"(rpc) {first.name}"], summary=title, description=description)
    responses = _function_responses(components, overloads)
    post = without_empty(
        **common,
        operationId=f"call.{first.name}",
        parameters=_references(*_paging(overloads)),
        requestBody=_body(components, overloads),
        responses=responses,
    )
    operations: dict[Any, Any] = {"post": {**post, Note.COMMENT: without_directives(comment)}}
    stable = [one for one in overloads if one.volatility is not Volatility.VOLATILE]
    readable = [one for one in stable if whole_body(components.catalog, one) is None]
    if readable:
        get = without_empty(
            **common,
            operationId=f"get.{first.name}",
            parameters=list(_argument_parameters(components, readable)),
            responses=responses,
        )
        operations = {"get": get, **operations}
    if len(overloads) > 1:
        operations[Note.LAST_OVERLOAD] = function_operations(components, overloads[-1:])
    return operations


def _paging(overloads: Sequence[Function]) -> tuple[str, ...]:
    return ("select", "order", "limit", "offset") if any(one.returns_set for one in overloads) else ()


def _function_responses(components: Components, overloads: Sequence[Function]) -> dict[str, Any]:
    content: dict[str, list[dict[str, Any]]] = {}
    responses: dict[str, Any] = {}
    for function in overloads:
        schema = components.result(function)
        media_type = media_type_of(components.catalog.types[function.returns])
        if schema is None:
            responses["204"] = _NO_CONTENT
        elif media_type is not None:
            content.setdefault(media_type, []).append({})
        elif schema not in content.setdefault(JSON, []):
            content[JSON].append(schema)
    if content:
        responses["200"] = _response("OK", _content(content))
    return {**responses, "default": reference("responses", "Error")}


def _content(schemas: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        media_type: {"schema": options[0] if len(options) == 1 else {"anyOf": options}}
        for media_type, options in schemas.items()
    }


def _body(components: Components, overloads: Sequence[Function]) -> dict[str, Any] | None:
    schemas: dict[str, list[dict[Any, Any]]] = {}
    for function in overloads:
        whole = whole_body(components.catalog, function)
        if whole is not None:
            schemas.setdefault(whole, []).append(components.noted({}, function.arguments[0].type))
        elif function.arguments:
            schemas.setdefault(JSON, []).append(components.arguments(function))
    if not schemas:
        return None
    required = all(any(part.default is None for part in one.arguments) for one in overloads)
    return {"required": required, "content": _content(schemas)}


def _argument_parameters(components: Components, overloads: Sequence[Function]) -> Iterator[dict[str, Any]]:
    arguments: dict[str, list[Argument]] = {}
    for function in overloads:
        for argument in function.arguments:
            arguments.setdefault(argument.name, []).append(argument)
    for name, parts in arguments.items():
        required = len(parts) == len(overloads) and all(part.default is None for part in parts)
        yield {"name": name, "in": "query", "required": required, "schema": _in_query(components, parts)}
    yield from _references(*(name for name in _paging(overloads) if name not in arguments))


def _in_query(components: Components, parts: Sequence[Argument]) -> dict[Any, Any]:
    schema = components.value(parts[0].type)
    simple = parts[0].variadic or schema.get("type") in ("string", "integer", "number", "boolean")
    return components.noted(schema if simple and len(parts) == 1 else {"type": "string"}, parts[0].type)


_OFFSET = "Number of rows to skip; a negative number starts before the first row"
_PARAMETERS = (
    ("select", "select", "Columns and related tables, such as id,name,orders(total)"),
    ("order", "order", "Columns to order by, such as name.asc,id.desc.nullslast"),
    ("limit", "limit", "Maximum number of rows"),
    ("offset", "offset", _OFFSET),
    ("on_conflict", "on_conflict", "Columns of the unique key that determines conflicts"),
    ("columns", "columns", "Columns to read from the body"),
    ("range", "Range", "Positions of the first and last row, such as 0-24"),
    ("rangeUnit", "Range-Unit", "Unit of the Range header: items"),
    ("preferRead", "Prefer", "count=exact, count=planned or count=estimated; handling=strict"),
    (
        "preferWrite",
        "Prefer",
        "return=minimal, return=headers-only or return=representation; count=exact; "
        "max-affected=N with handling=strict; tx=commit or tx=rollback",
    ),
    ("preferPut", "Prefer", "return=minimal or return=representation; tx=commit or tx=rollback"),
    (
        "preferInsert",
        "Prefer",
        "Like preferWrite; missing=default; resolution=merge-duplicates or resolution=ignore-duplicates",
    ),
)
"""Component name, parameter name and description of the common parameters. Header names are capitalized."""
_SCHEMAS = {"limit": {"type": "integer", "minimum": 0}, "offset": {"type": "integer"}}


def document(
    visible: VisibleSchema, version: str, *, api_key: bool, related: RelatedMembers = no_members
) -> ObjectMembers:
    """Return the OpenAPI 3.1 document without ``servers``."""
    components = Components(visible, related)
    return members(
        info=_info(visible, version),
        security=[{"apikey": []}, {"apikey": [], "bearer": []}] if api_key else [{}, {"bearer": []}],
        paths=ObjectMembers(partial(_paths, components)),
        components=members(
            schemas=ObjectMembers(components.schemas),
            parameters=ObjectMembers(partial(_parameters, components)),
            headers={
                "Content-Range": _text("Range of the returned rows, and the total number of rows if counted")
            },
            responses={"Error": _response("An error", {JSON: {"schema": reference("schemas", ERROR)}})},
            securitySchemes={
                **({"apikey": {"type": "apiKey", "in": "header", "name": "apikey"}} if api_key else {}),
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        ),
    )


def _info(visible: VisibleSchema, version: str) -> dict[str, str]:
    schema = visible.catalog.schemas.get(visible.schema)
    title, description = summary(schema.comment if schema else None)
    return {
        "title": title or "dataapi REST API",
        "description": description or "This is a dynamic API generated by dataapi",
        "version": version,
    }


def _paths(components: Components) -> Iterator[tuple[str, Any]]:
    described = {
        "tags": ["Introspection"],
        "summary": "OpenAPI description (this document)",
        "operationId": "describe",
        "responses": {"200": _response("OK", {OPENAPI: {"schema": {"type": "object"}}})},
    }
    yield "/", {"get": described}
    for table in components.visible.tables:
        yield f"/{quote(table.table.name, safe='')}", table_operations(table, components)
    overloads: dict[str, list[Function]] = {}
    for function in components.visible.functions:
        overloads.setdefault(function.name, []).append(function)
    for name, functions in overloads.items():
        yield f"/rpc/{quote(name, safe='')}", function_operations(components, functions)


def _parameters(components: Components) -> Iterator[tuple[str, Any]]:
    for component, name, description in _PARAMETERS:
        parameter = _parameter(name, description, "header" if name[0].isupper() else "query")
        yield component, {**parameter, "schema": _SCHEMAS.get(name, parameter["schema"])}
    for table in components.visible.tables:
        yield from _filters(table, components)


def _filters(table: VisibleTable, components: Components) -> Iterator[tuple[str, Any]]:
    for column in table.filterable:
        name = f"{components.names[table.table.oid]}.{column.number}"
        yield name, _parameter(column.name, without_directives(column.comment))


def _parameter(name: str, description: str | None, location: str = "query") -> dict[str, Any]:
    return {"name": name, "in": location, **_text(description)}


def _text(description: str | None) -> dict[str, Any]:
    return without_empty(description=description, schema={"type": "string"})
