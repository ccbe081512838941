"""Notes and descriptions shared by OpenAPI 2.0 and 3.1, and an incremental JSON encoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from dataapi.catalog.directive_reader import without_directives
from dataapi.catalog.model import Column
from dataapi.rest.visible_schema import VisibleSchema, VisibleTable


def column_description(visible: VisibleSchema, table: VisibleTable, column: Column) -> str | None:
    """Return a column's comment with notes on keys, in the form that clients parse."""
    notes = []
    if column.name in visible.catalog.row_key(table.table):
        notes.append("This is a Primary Key.<pk/>")
    key = visible.references.get((table.table.oid, column.name))
    if key is not None:
        foreign, other = visible.catalog.tables[key.foreign_table].name, key.foreign_columns[0]
        notes.append(f"This is a Foreign Key to `{foreign}.{other}`.<fk table='{foreign}' column='{other}'/>")
    text = without_directives(column.comment)
    if not notes:
        return text
    return "\n".join([*([f"{text}\n"] if text else []), "Note:", *notes])


def summary(comment: str | None) -> tuple[str | None, str | None]:
    text = without_directives(comment)
    if text is None:
        return None, None
    first, _, rest = text.partition("\n")
    return first, rest.lstrip("\n") or None


class Note(Enum):
    """Keys in the 3.1 document for values that only OpenAPI 2.0 needs. The JSON encoder skips them.

    :cvar TABLE: name of the table whose rows a schema describes.
    :cvar TYPE: SQL name of a schema's type.
    :cvar DEFAULT: default of a column, as SQL text if it is an expression.
    :cvar LABELS: labels of a column's enum.
    :cvar NOT_NULL: whether a column is never null. Version 2.0 requires only these columns.
    :cvar PARAMETER: parameter that a column filter's ``$ref`` points to.
    :cvar COMMENT: whole comment of a function.
    :cvar RELATED: members of an insert that contain related rows: name, table, and whether it is an array.
    :cvar LAST_OVERLOAD: operations of the last overload, if several functions have the same name.
    """

    TABLE = auto()
    TYPE = auto()
    DEFAULT = auto()
    LABELS = auto()
    NOT_NULL = auto()
    PARAMETER = auto()
    COMMENT = auto()
    RELATED = auto()
    LAST_OVERLOAD = auto()


# Skips ``Note`` keys, because they are not strings.
_TEXT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), skipkeys=True).encode


@dataclass(frozen=True, slots=True)
class ObjectMembers:
    """The members of an object, with unique names, computed while encoding.

    The values of members may also be ``ObjectMembers``.
    """

    pairs: Callable[[], Iterable[tuple[str, Any]]]


def members(**values: Any) -> ObjectMembers:
    return ObjectMembers(values.items)


def without_empty(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != []}


def encode(value: Any, pause: Callable[[], None]) -> bytes:
    return b"".join(piece.encode() for piece in _pieces(value, pause))


def _pieces(value: Any, pause: Callable[[], None]) -> Iterator[str]:
    if not isinstance(value, ObjectMembers):
        yield _TEXT(value)
        return
    separator = "{"
    for name, member in value.pairs():
        yield f"{separator}{_TEXT(name)}:"
        yield from _pieces(member, pause)
        pause()
        separator = ","
    yield "{}" if separator == "{" else "}"
