"""A schema's description in OpenAPI 3.1, beyond what PostgREST gives; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from dataapi.catalog.comments import without_directives
from dataapi.catalog.model import Function
from dataapi.rest.openapi import calls, tables
from dataapi.rest.openapi.components import ERROR, Components, schema_named
from dataapi.rest.openapi.shown import Shown, info
from dataapi.rest.openapi.writing import Members, members, without_nothing

_OFFSET = "How many rows to leave out first; one below 0 begins that far before the first row"
_PREFERENCES = {
    "preferRead": "count=exact, count=planned or count=estimated; handling=strict",
    "preferWrite": "return=minimal, return=headers-only or return=representation; count=exact; "
    "max-affected=N with handling=strict; tx=commit or tx=rollback",
    "preferPut": "return=minimal or return=representation; tx=commit or tx=rollback",
    "preferInsert": "As preferWrite; missing=default; resolution=merge-duplicates or "
    "resolution=ignore-duplicates",
}


def document(shown: Shown, version: str, *, api_key: bool) -> Members:
    """Return the description without ``servers``, which the request decides.

    :param version: of the product.
    :param api_key: whether requests need an API key.
    """
    components = Components(shown)
    return members(
        info=info(shown, version),
        security=[{"apikey": []}, {"apikey": [], "bearer": []}] if api_key else [{}, {"bearer": []}],
        paths=Members(_paths(shown, components)),
        components=members(
            schemas=Members(components.schemas()),
            parameters=Members(_parameters(shown, components)),
            headers={"Content-Range": _text("Which rows these are, and of how many when they were counted")},
            responses={
                "Error": {
                    "description": "What went wrong",
                    "content": {"application/json": {"schema": schema_named(ERROR)}},
                }
            },
            securitySchemes={
                **({"apikey": {"type": "apiKey", "in": "header", "name": "apikey"}} if api_key else {}),
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        ),
    )


def _paths(shown: Shown, components: Components) -> Iterator[tuple[str, Any]]:
    yield "/", {"get": _description_operation()}
    for table in shown.tables:
        yield f"/{quote(table.table.name, safe='')}", tables.operations(table, components)
    overloads: dict[str, list[Function]] = {}
    for function in shown.functions:
        overloads.setdefault(function.name, []).append(function)
    for name, functions in overloads.items():
        yield f"/rpc/{quote(name, safe='')}", calls.operations(shown, components, functions)


def _description_operation() -> dict[str, Any]:
    content = {"application/openapi+json": {"schema": {"type": "object"}}}
    return {
        "tags": ["Introspection"],
        "summary": "OpenAPI description (this document)",
        "operationId": "describe",
        "responses": {"200": {"description": "OK", "content": content}},
    }


def _parameters(shown: Shown, components: Components) -> Iterator[tuple[str, Any]]:
    yield "select", _parameter("select", "Columns and related tables, such as id,name,orders(total)")
    yield "order", _parameter("order", "Columns to order by, such as name.asc,id.desc.nullslast")
    yield "limit", _integer("limit", "How many rows at most", minimum=0)
    yield "offset", _integer("offset", _OFFSET)
    yield "on_conflict", _parameter("on_conflict", "Columns of the unique key that rows may collide on")
    yield "columns", _parameter("columns", "Columns to take from the body")
    yield "range", _parameter("Range", "First and last row, such as 0-24", "header")
    yield "rangeUnit", _parameter("Range-Unit", "The unit of Range: items", "header")
    for name, description in _PREFERENCES.items():
        yield name, _parameter("Prefer", description, "header")
    for table in shown.tables:
        for column in table.filterable:
            name = tables.filter_name(components.names[table.table.oid], column.number)
            yield name, _parameter(column.name, without_directives(column.comment))


def _parameter(name: str, description: str | None, place: str = "query") -> dict[str, Any]:
    return {"name": name, "in": place, **_text(description)}


def _integer(name: str, description: str, **bounds: int) -> dict[str, Any]:
    return {**_parameter(name, description), "schema": {"type": "integer", **bounds}}


def _text(description: str | None) -> dict[str, Any]:
    return without_nothing(description=description, schema={"type": "string"})
