"""Finds the members of an insert that can contain related rows (``rest-features = nested-inserts``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dataapi.catalog.model import Table
from dataapi.catalog.relationships import (
    ComputedRelationship,
    JunctionRelationship,
    KeyRelationship,
    Relationship,
    Relationships,
)
from dataapi.rest.plan.embed_tree import matching
from dataapi.rest.visible_schema import VisibleSchema, VisibleTable

RelatedMembers = Callable[[VisibleTable], Mapping[str, KeyRelationship]]
"""Maps a table to the relationships whose related rows can be inserted with its rows, by member name."""


def no_members(_table: VisibleTable) -> Mapping[str, KeyRelationship]:
    return {}


def related_members(visible: VisibleSchema) -> RelatedMembers:
    relationships = Relationships(visible.catalog, views=True)
    tables = {each.table.oid: each for each in visible.tables}

    def is_usable(relationship: Relationship) -> bool:
        junction = isinstance(relationship, JunctionRelationship) and relationship.junction.oid not in tables
        return relationship.target.oid in tables and not junction

    def of(table: VisibleTable) -> Mapping[str, KeyRelationship]:
        usable = [each for each in relationships.of(table.table) if is_usable(each)]
        keys = [
            each for each in usable if isinstance(each, KeyRelationship) and tables[each.target.oid].insert
        ]
        named = ((_member(table.table, each, usable, visible.schema), each) for each in keys)
        return {name: each for name, each in named if name is not None}

    return of


def _member(
    table: Table, relationship: KeyRelationship, usable: list[Relationship], schema: str
) -> str | None:
    """Return a relationship's shortest name that is unambiguous and not a column name."""

    def names() -> Iterator[tuple[str, str | None]]:
        target, key = relationship.target.name, relationship.foreign_key.name
        yield from ((target, None), (key, None), (target, key))

    functions = {each.function.name for each in usable if isinstance(each, ComputedRelationship)}
    for name, hint in names():
        text = f"{name}!{hint}" if hint else name
        free = table.column(text) is None and name not in functions
        if free and matching(usable, name, hint, schema) == [relationship]:
            return text
    return None
