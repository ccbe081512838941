"""The parameters that operations of an OpenAPI 2.0 description refer to by name; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from dataapi.catalog.comments import without_directives
from dataapi.rest.openapi.shown import Shown, ShownTable

_COUNTS = ["count=exact", "count=planned", "count=estimated", "count=none"]
_RETURNS = ["return=representation", "return=minimal", "return=headers-only", "return=none"]
_RESOLUTIONS = ["resolution=ignore-duplicates", "resolution=merge-duplicates"]


def parameters(shown: Shown) -> Iterator[tuple[str, Any]]:
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
    for table in shown.tables:
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


def _of_table(table: ShownTable) -> Iterator[tuple[str, Any]]:
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
