"""Which relationship an embedded resource means, and how the SQL algebra relates its rows; pure.

The rules and their precedence are PostgREST's (``docs/reference/rest.md``, Relationships): a resource is
named by its table, by a constraint or by a key column, and a hint tells several relationships apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from dataapi.catalog.model import TableKind
from dataapi.catalog.relationships import (
    Cardinality,
    ComputedRelationship,
    JunctionRelationship,
    KeyRelationship,
    Relationship,
)
from dataapi.sql.algebra import FunctionCall, Join, Through

StoredRelationship = KeyRelationship | JunctionRelationship
"""A relationship by foreign keys, and not by a function."""

_VIEWS = frozenset({TableKind.VIEW, TableKind.MATERIALIZED_VIEW})
"""Their rows are those of a query, which may give the row of a key several times."""
_CARDINALITIES = tuple(Cardinality)
"""In the order in which PGRST201 lists them."""


# ---------------------------------------------------------------- which one is meant


def matching(relationships: Iterable[Relationship], name: str, hint: str | None) -> list[Relationship]:
    """Return the relationships that a name and a hint can mean; more than one is ambiguous."""
    stored: list[StoredRelationship] = []
    for each in relationships:
        if not isinstance(each, ComputedRelationship):
            stored.append(each)
        elif each.function.name == name:
            return [each]
    named = [each for each in stored if _is_meant(each, name, hint)]
    found = [each for each in named if isinstance(each, KeyRelationship) or each.in_primary_key]
    # A unique key in place of a primary key relates tables that PostgREST does not.
    return list(found or [each for each in named if _is_in_unique_key(each)])


def _is_in_unique_key(relationship: StoredRelationship) -> bool:
    return isinstance(relationship, JunctionRelationship) and relationship.in_unique_key


def _is_meant(relationship: StoredRelationship, name: str, hint: str | None) -> bool:
    target = relationship.target
    if isinstance(relationship, JunctionRelationship):
        return name == target.name and _junction_fits(relationship, hint)
    if relationship.table is target:
        return _is_self_reference_meant(relationship, name, hint)
    own, theirs = relationship.pairs[0] if len(relationship.pairs) == 1 else (None, None)
    key = relationship.foreign_key.name
    if hint is None:
        return name == target.name or (name in (key, own) and target.kind not in _VIEWS)
    return name == target.name and hint in (key, own, theirs)


def _is_self_reference_meant(relationship: KeyRelationship, name: str, hint: str | None) -> bool:
    """Whether a self-reference is meant: its many rows by the table's name, its one row by the column's."""
    own, theirs = relationship.pairs[0] if len(relationship.pairs) == 1 else (None, None)
    to_many = relationship.cardinality is Cardinality.ONE_TO_MANY and name == relationship.target.name
    if hint is None:
        return to_many or (relationship.cardinality is Cardinality.MANY_TO_ONE and name == own)
    return to_many and hint == theirs


def _junction_fits(relationship: JunctionRelationship, hint: str | None) -> bool:
    if relationship.table is relationship.target:
        # Both keys reference the same table; only a column as the hint tells the near one.
        return hint is not None and [theirs for _, theirs in relationship.near.pairs] == [hint]
    return hint is None or hint == relationship.junction.name


# ---------------------------------------------------------------- what errors say


def hint_for(relationship: Relationship) -> str:
    """Return the hint that tells a relationship apart from others between the same tables."""
    match relationship:
        case JunctionRelationship():
            return relationship.junction.name
        case KeyRelationship():
            return relationship.foreign_key.name
    return ""


def rank(relationship: Relationship) -> tuple[object, ...]:
    """Return what PGRST201 sorts relationships by, as PostgREST does: cardinalities first, then names."""
    assert not isinstance(relationship, ComputedRelationship), "computed relationships are never ambiguous"
    cardinality = _CARDINALITIES.index(relationship.cardinality)
    if isinstance(relationship, JunctionRelationship):
        keys = [relationship.near.foreign_key.name, relationship.far.foreign_key.name]
        return relationship.target.name, cardinality, relationship.junction.name, keys, ()
    return relationship.target.name, cardinality, "", [relationship.foreign_key.name], relationship.pairs


def description(relationship: Relationship) -> dict[str, str]:
    """Return what the details of PGRST201 say of a relationship."""
    assert not isinstance(relationship, ComputedRelationship), "computed relationships are never ambiguous"
    if isinstance(relationship, JunctionRelationship):
        near, far = relationship.near, relationship.far
        between = (
            f"{relationship.junction.name} using {near.foreign_key.name}({_seconds(near.pairs)})"
            f" and {far.foreign_key.name}({_firsts(far.pairs)})"
        )
    else:
        table, target, pairs = relationship.table, relationship.target, relationship.pairs
        between = (
            f"{relationship.foreign_key.name} using {table.name}({_firsts(pairs)})"
            f" and {target.name}({_seconds(pairs)})"
        )
    return {
        "cardinality": relationship.cardinality.value,
        "embedding": f"{relationship.table.name} with {relationship.target.name}",
        "relationship": between,
    }


def _firsts(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join([first for first, _ in pairs])


def _seconds(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join([second for _, second in pairs])


# ---------------------------------------------------------------- the algebra


def join_of(relationship: Relationship | None) -> Join | None:
    """Return the equality that relates rows directly; None for other relationships and for none."""
    if not isinstance(relationship, KeyRelationship):
        return None
    return Join(tuple((theirs, own) for own, theirs in relationship.pairs))


def through_of(relationship: Relationship | None) -> Through | None:
    """Return the junction that relates rows; None for other relationships and for none."""
    if not isinstance(relationship, JunctionRelationship):
        return None
    near = tuple((theirs, own) for own, theirs in relationship.near.pairs)
    return Through(relationship.junction, near, relationship.far.pairs)


def call_of(relationship: Relationship | None) -> FunctionCall | None:
    """Return the call that gives the related rows of a row; None for other relationships and for none.

    A single NULL is a row of NULLs, as in PostgREST.
    """
    if not isinstance(relationship, ComputedRelationship):
        return None
    return FunctionCall(relationship.function, of_row=True, keeps_null=True)
