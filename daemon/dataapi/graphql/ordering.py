"""The ``orderBy`` argument: by columns, and where a table turns it on by related rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphql import GraphQLError

from dataapi.graphql.aggregates import aggregate_of
from dataapi.graphql.arguments import Tree
from dataapi.graphql.conditions import operand
from dataapi.graphql.fields import RelatedField
from dataapi.graphql.relations import related_rows
from dataapi.graphql.sources import Leaf
from dataapi.graphql.table_view import TableView
from dataapi.query.algebra import AggregateFunction, Expression, OrderTerm, RelatedAggregateOf, RelatedOf


@dataclass(frozen=True, slots=True)
class _Ordered:
    """What one element orders by.

    :ivar type: the slot type of the expression's values, which a cursor holds.
    """

    expression: Expression
    type: str
    nullable: bool
    direction: Leaf


@dataclass(frozen=True, slots=True)
class Order:
    """A total order: what is asked for, ended by the key.

    :ivar types: the slot type of each term's values.
    """

    terms: tuple[OrderTerm, ...]
    types: tuple[str, ...]


def read_order(view: TableView, elements: list[Tree]) -> Order:
    """Return the order that ``orderBy`` asks for, ended by the key.

    :raises GraphQLError: an element with more than one member that is not null.
    """
    terms: list[OrderTerm] = []
    types: list[str] = []
    for element in elements:
        ordered = _element(view, element or {})
        if ordered is not None:
            descending, nulls_first = ordered.direction.sample
            terms.append(OrderTerm(ordered.expression, descending, nulls_first, ordered.nullable))
            types.append(ordered.type)
    known = {operand(field): field.wire.parameter for field in view.columns}
    by_key = [term for term in view.key_order if term.expression not in {other.expression for other in terms}]
    return Order((*terms, *by_key), (*types, *(known.get(term.expression, "unknown") for term in by_key)))


def _only(members: Mapping[str, Tree]) -> tuple[str, Tree] | None:
    """Return an element's single member that is not null (specification, Ordering 2)."""
    given = {name: tree for name, tree in members.items() if tree is not None}
    if len(given) > 1:
        names = ", ".join(given)
        raise GraphQLError(f"An element of orderBy orders by one column, but {len(given)} are given: {names}")
    return next(iter(given.items()), None)


def _element(view: TableView, element: Mapping[str, Tree]) -> _Ordered | None:
    member = _only(element)
    if member is None:
        return None
    name, tree = member
    field = view.columns_by_name.get(name)
    if field is not None:
        return _Ordered(operand(field), field.wire.parameter, field.column.nullable, tree)
    related = view.others_by_input[name]
    assert isinstance(related, RelatedField), "only columns and relationships can be ordered by"
    return _related(view, related, tree) if related.to_one else _collection(view, related, tree)


def _related(view: TableView, related: RelatedField, element: Mapping[str, Tree]) -> _Ordered | None:
    target = view.target(related)
    inner = _element(target, element)
    if inner is None:
        return None
    expression = RelatedOf(related_rows(target, related), inner.expression)
    return _Ordered(expression, inner.type, True, inner.direction)


def _collection(view: TableView, related: RelatedField, element: Mapping[str, Tree]) -> _Ordered | None:
    member = _only(element)
    if member is None:
        return None
    name, tree = member
    target = view.target(related)
    rows = related_rows(target, related)
    if name == "count":
        count = RelatedAggregateOf(rows, AggregateFunction.COUNT, None)
        return _Ordered(count, "bigint", False, tree)
    column = _only(tree)
    if column is None:
        return None
    field = target.columns_by_name[column[0]]
    aggregate = aggregate_of(name, field)
    expression = RelatedAggregateOf(rows, aggregate.function, aggregate.expression, aggregate.builtin)
    return _Ordered(expression, field.wire.parameter, True, column[1])
