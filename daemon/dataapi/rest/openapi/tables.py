"""What can be done to a table, as operations of an OpenAPI 3.1 description; pure."""

from __future__ import annotations

from typing import Any

from dataapi.catalog.comments import without_directives
from dataapi.rest.media import OBJECT
from dataapi.rest.openapi.components import Components, schema_named
from dataapi.rest.openapi.shown import ShownTable, summary
from dataapi.rest.openapi.writing import without_nothing
from dataapi.rest.request.payload import CSV, FORM, JSON

_READING = ("select", "order", "limit", "offset", "range", "rangeUnit", "preferRead")
_TEXT = {"schema": {"type": "string"}}


def operations(table: ShownTable, components: Components) -> dict[str, Any]:
    """Return the operations by method."""
    name = components.names[table.table.oid]
    title, description = summary(table.table.comment)
    rows = _rows(name)
    filters = [filter_name(name, column.number) for column in table.filterable]
    found: dict[str, Any] = {}

    def add(method: str, action: str, parameters: list[str], **rest: Any) -> None:
        found[method] = without_nothing(
            tags=[table.table.name],
            summary=title,
            description=description,
            operationId=f"{action}.{name}",
            parameters=[reference("parameters", parameter) for parameter in parameters],
            **rest,
        )

    if table.read:
        answers = {
            "200": _answer("OK", rows, ranged=True),
            "206": _answer("Partial Content", rows, ranged=True),
        }
        add("get", "read", [*filters, *_READING], responses=_or_error(answers))
    if table.insert:
        answers = {"201": _answer("Created", rows), "200": _answer("Rows were there already", rows)}
        parameters = ["select", "columns", "on_conflict", "preferInsert"]
        add("post", "insert", parameters, requestBody=_new_rows(name), responses=_or_error(answers))
    if table.key:
        answers = {
            "204": {"description": "No Content"},
            "200": _answer("Replaced", rows),
            "201": _answer("Created", rows),
        }
        add("put", "put", ["select", "preferPut"], requestBody=_new_row(name), responses=_or_error(answers))
        found["put"]["parameters"] = [*_key(table), *found["put"]["parameters"]]
    changed = {"204": {"description": "No Content"}, "200": _answer("OK", rows)}
    if table.update:
        body = {"required": True, "content": {JSON: {"schema": schema_named(f"{name}.update")}}}
        parameters = [*filters, "select", "columns", "preferWrite"]
        add("patch", "update", parameters, requestBody=body, responses=_or_error(changed))
    if table.delete:
        add("delete", "delete", [*filters, "select", "preferWrite"], responses=_or_error(changed))
    return found


def filter_name(table: str, number: int) -> str:
    """Return the name of the parameter that is a condition on the column of that number."""
    return f"{table}.{number}"


def reference(kind: str, name: str) -> dict[str, Any]:
    """Return a reference to a component."""
    return {"$ref": f"#/components/{kind}/{name}"}


def _or_error(answers: dict[str, Any]) -> dict[str, Any]:
    return {**answers, "default": reference("responses", "Error")}


def _rows(name: str) -> dict[str, Any]:
    row = schema_named(name)
    return {JSON: {"schema": {"type": "array", "items": row}}, OBJECT: {"schema": row}, CSV: _TEXT}


def _answer(description: str, content: dict[str, Any], *, ranged: bool = False) -> dict[str, Any]:
    headers = {"headers": {"Content-Range": reference("headers", "Content-Range")}} if ranged else {}
    return {"description": description, **headers, "content": content}


def _new_rows(name: str) -> dict[str, Any]:
    row = schema_named(f"{name}.insert")
    rows = {"oneOf": [row, {"type": "array", "items": row}]}
    return {"required": True, "content": {JSON: {"schema": rows}, CSV: _TEXT, FORM: {"schema": row}}}


def _new_row(name: str) -> dict[str, Any]:
    row = schema_named(f"{name}.put")
    return {"required": True, "content": {JSON: {"schema": row}, CSV: _TEXT, FORM: {"schema": row}}}


def _key(table: ShownTable) -> list[dict[str, Any]]:
    """Return the parameters that name the one row to put, which all must be there and say ``eq.``."""
    return [
        without_nothing(
            **{"name": column.name, "in": "query", "required": True},
            description=without_directives(column.comment),
            schema={"type": "string", "pattern": "^eq\\."},
        )
        for column in table.columns
        if column.name in table.key
    ]
