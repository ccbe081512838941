"""The parts that a value of the algebra is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from dataapi.catalog.model import Function, Table, Type
from dataapi.sql.algebra import AggregateOf, ComputedOf, FunctionCall, FunctionOf, Parameter, Rows

_MADE = (Rows, ComputedOf, FunctionOf, FunctionCall, AggregateOf)
"""What of the algebra is more than a column."""
_WHOLE = (Table, Function, Type, Parameter)
"""What algebra is made of that has no algebra in it."""


def is_algebra(value: object) -> bool:
    """Whether a value has parts that are algebra."""
    return is_dataclass(value) and not isinstance(value, _WHOLE)


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Return the name and the value of each part."""
    return ((each.name, getattr(value, each.name)) for each in fields(value))


def reads_only_columns(value: object) -> bool:
    """Whether a part of the algebra is made of nothing but columns of the row in scope."""
    if isinstance(value, tuple):
        return all(map(reads_only_columns, value))
    if isinstance(value, _MADE):
        return False
    return not is_algebra(value) or all(reads_only_columns(part) for _, part in parts_of(value))
