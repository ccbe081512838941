"""Visits the parts of SQL algebra (see ``algebra``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from dataapi.catalog.model import Function, Table, Type
from dataapi.sql.algebra import Aggregate, ComputedValue, FunctionCall, FunctionExpression, Parameter, Rows

_DERIVED = (Rows, ComputedValue, FunctionExpression, FunctionCall, Aggregate)
"""Parts that read anything other than columns of the current row."""
_LEAVES = (Table, Function, Type, Parameter)
"""Dataclasses whose fields are not visited."""


def is_algebra(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, _LEAVES)


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    return ((each.name, getattr(value, each.name)) for each in fields(value))


def reads_only_columns(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(reads_only_columns, value))
    if isinstance(value, _DERIVED):
        return False
    return not is_algebra(value) or all(reads_only_columns(part) for _, part in parts_of(value))
