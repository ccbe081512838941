"""Relationships as rows of the algebra."""

from __future__ import annotations

from dataapi.graphql.fields import RelatedField
from dataapi.graphql.table_view import TableView
from dataapi.query.algebra import Call, Join, Rows
from dataapi.query.conditions import Condition


def related_rows(target: TableView, related: RelatedField, where: Condition | None = None) -> Rows:
    """Return the rows that a relationship leads to from the row in scope."""
    call = None if related.function is None else Call(related.function, of_row=True)
    join = Join(related.pairs) if call is None else None
    unique = related.to_one and (
        target.table.is_unique(column for column, _ in related.pairs)
        if call is None
        else not call.function.returns_set
    )
    return Rows(target.table, call=call, join=join, where=where, unique=unique)
