"""Calls of functions, as operations of an OpenAPI 3.1 description; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dataapi.catalog.formats import media_type_of
from dataapi.catalog.model import Argument, Function, Volatility
from dataapi.rest.functions.overloads import whole_body
from dataapi.rest.openapi.components import Components
from dataapi.rest.openapi.shown import Shown, summary
from dataapi.rest.openapi.tables import reference
from dataapi.rest.openapi.writing import without_nothing
from dataapi.rest.request.payload import JSON


def operations(shown: Shown, components: Components, overloads: Sequence[Function]) -> dict[str, Any]:
    """Return the operations by method of the functions that share a name."""
    first = overloads[0]
    title, description = summary(next((one.comment for one in overloads if one.comment), None))
    common = without_nothing(tags=[f"(rpc) {first.name}"], summary=title, description=description)
    answers = _answers(shown, components, overloads)
    post = {
        **common,
        "operationId": f"call.{first.name}",
        "parameters": [reference("parameters", name) for name in ("select", "order", "limit", "offset")],
        **without_nothing(requestBody=_body(shown, components, overloads)),
        "responses": answers,
    }
    if not _paged(overloads):
        del post["parameters"]
    readable = [
        one
        for one in overloads
        if one.volatility is not Volatility.VOLATILE and whole_body(shown.catalog, one) is None
    ]
    if not readable:
        return {"post": post}
    get = without_nothing(
        **common,
        operationId=f"get.{first.name}",
        parameters=list(_parameters(components, readable)),
        responses=answers,
    )
    return {"get": get, "post": post}


def _paged(overloads: Sequence[Function]) -> bool:
    return any(one.returns_set for one in overloads)


def _answers(shown: Shown, components: Components, overloads: Sequence[Function]) -> dict[str, Any]:
    content: dict[str, list[dict[str, Any]]] = {}
    answers: dict[str, Any] = {}
    for function in overloads:
        schema = components.result(function)
        media_type = media_type_of(shown.catalog.types[function.returns])
        if schema is None:
            answers["204"] = {"description": "No Content"}
        elif media_type is not None:
            content.setdefault(media_type, []).append({})
        elif schema not in content.setdefault(JSON, []):
            content[JSON].append(schema)
    if content:
        answers["200"] = {
            "description": "OK",
            "content": {media_type: {"schema": _any_of(schemas)} for media_type, schemas in content.items()},
        }
    return {**answers, "default": reference("responses", "Error")}


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _body(shown: Shown, components: Components, overloads: Sequence[Function]) -> dict[str, Any] | None:
    schemas: dict[str, list[dict[str, Any]]] = {}
    for function in overloads:
        whole = whole_body(shown.catalog, function)
        if whole is not None:
            schemas.setdefault(whole, []).append({})
        elif function.arguments:
            schemas.setdefault(JSON, []).append(components.arguments(function))
    if not schemas:
        return None
    required = all(any(part.default is None for part in one.arguments) for one in overloads)
    content = {media_type: {"schema": _any_of(parts)} for media_type, parts in schemas.items()}
    return {"required": required, "content": content}


def _parameters(components: Components, overloads: Sequence[Function]) -> Iterator[dict[str, Any]]:
    arguments: dict[str, list[Argument]] = {}
    for function in overloads:
        for argument in function.arguments:
            arguments.setdefault(argument.name, []).append(argument)
    for name, parts in arguments.items():
        required = len(parts) == len(overloads) and all(part.default is None for part in parts)
        yield {"name": name, "in": "query", "required": required, "schema": _in_query(components, parts)}
    if _paged(overloads):
        names = ("select", "order", "limit", "offset")
        yield from (reference("parameters", name) for name in names if name not in arguments)


def _in_query(components: Components, parts: Sequence[Argument]) -> dict[str, Any]:
    """Return what a query string can hold: repeated values for a variadic argument, else one text."""
    if len(parts) > 1:
        return {"type": "string"}
    schema = components.value(parts[0].type)
    if parts[0].variadic or schema.get("type") in ("string", "integer", "number", "boolean"):
        return schema
    return {"type": "string"}
