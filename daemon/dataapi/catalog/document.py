"""A catalog as JSON, for operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from dataapi.catalog.model import Catalog


def catalog_document(catalog: Catalog) -> dict[str, Any]:
    """Return the parts of a catalog that describe the database, as JSON values.

    Roles are listed by name only, because their settings may contain secrets.
    """
    parts = (
        "generation",
        "search_path",
        "schemas",
        "tables",
        "types",
        "foreign_keys",
        "functions",
        "problems",
    )
    return {part: _plain(getattr(catalog, part)) for part in parts} | {"roles": sorted(catalog.roles)}


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return [_plain(each) for each in value.values()]
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(each) for each in value)
    if isinstance(value, Enum):
        return value.name.lower()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value
