"""Inserts of many rows from one variable: one slot for all of them, whatever their number.

With a slot for each cell, every number of rows would be a statement of its own, to be
compiled and prepared anew.  Rows that name the same members travel as one JSON text, which
PostgreSQL unfolds by its own rules for each type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphql import GraphQLError

from dataapi.graphql.arguments import ObjectList
from dataapi.graphql.fields import ColumnField
from dataapi.graphql.sources import Leaf, Variables
from dataapi.graphql.table_view import TableView
from dataapi.graphql.wire import Wire, encode_value, encoder
from dataapi.pauses import pause
from dataapi.query.algebra import Parameter
from dataapi.query.modifications import Recordset, RecordType


def read_rows(view: TableView, objects: ObjectList) -> tuple[list[ColumnField], Recordset] | None:
    """Return the columns and rows of a variable's objects, None where each needs slots of its own."""
    if not objects.uniform or not view.takes_rows:
        return None
    fields = [field for field in view.insertable if field.name in objects[0]]
    source = RowsSource(objects.leaf.kept(), tuple((field.name, field.wire) for field in fields))
    types = tuple(_record_type(view, field) for field in fields)
    return fields, Recordset(Parameter(source, 'pg_catalog."json"'), types)


def _record_type(view: TableView, field: ColumnField) -> RecordType:
    """Return a column's type in the record; JSON travels as text, to be stored as it was written."""
    type_ = view.type_name(field)
    assert type_ is not None, "a table takes rows when the role may name all of its types"
    if field.wire.kind != "JSON":
        return RecordType(type_)
    return RecordType('pg_catalog."_text"' if field.wire.is_list else 'pg_catalog."text"', type_)


@dataclass(frozen=True, slots=True)
class RowsSource:
    """The rows that a variable holds, as a JSON array of objects.

    :ivar fields: names and wire forms of the members; in the JSON text they are called by their place.
    """

    leaf: Leaf
    fields: tuple[tuple[str, Wire], ...]

    def bind(self, variables: Variables) -> str | None:
        """Return the JSON text.

        :raises GraphQLError: a text is longer than its column.
        """
        members = [(name, str(place), _json_encoder(wire)) for place, (name, wire) in enumerate(self.fields)]
        try:
            rows = [_record(row, members) for row in self.leaf.origin.value(variables)]
        except GraphQLError as error:
            raise self.leaf.error(error.message) from None
        return json.dumps(rows, ensure_ascii=False)


def _record(row: Any, members: list[tuple[str, str, Callable[[Any], Any]]]) -> dict[str, Any]:
    pause()
    return {place: None if row[name] is None else encode(row[name]) for name, place, encode in members}


@dataclass(frozen=True, slots=True)
class RowCount:
    """How many rows a variable holds, for the cost of inserting them."""

    leaf: Leaf
    maximum: int | None = None

    def count(self, variables: Variables) -> int:
        """Return the number of rows."""
        return len(self.leaf.origin.value(variables))


def _json_encoder(wire: Wire) -> Callable[[Any], Any]:
    """Return what makes the JSON value of a cell: texts, which PostgreSQL reads as it does literals."""
    if wire.max_length is None:
        return _list if wire.is_list else encode_value
    check = encoder(wire)

    def checked(value: Any) -> Any:
        check(value)
        return _list(value) if wire.is_list else encode_value(value)

    return checked


def _list(values: Any) -> list[str | None]:
    items = values if isinstance(values, list | tuple) else [values]
    return [None if item is None else encode_value(item) for item in items]
