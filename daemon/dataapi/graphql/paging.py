"""Paging arguments: which rows of a collection, in which order (specification, Pagination and Ordering)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphql import GraphQLError

from dataapi.graphql.arguments import Tree
from dataapi.graphql.conditions import filter_condition
from dataapi.graphql.identifiers import decode_cursor
from dataapi.graphql.ordering import Order, read_order
from dataapi.graphql.sources import Bounded, CursorPart, Leaf
from dataapi.graphql.table_view import TableView
from dataapi.query.algebra import OrderTerm, Parameter
from dataapi.query.conditions import After, Condition


@dataclass(frozen=True, slots=True)
class Paging:
    """The arguments of a collection, understood.

    :ivar page: the page's size in rows.
    :ivar position: in the direction of paging.
    """

    where: Condition | None
    order: tuple[OrderTerm, ...]
    page: Bounded | int
    offset: Parameter | None
    position: After | None
    backward: bool


def read_paging(view: TableView, arguments: Mapping[str, Tree]) -> Paging:
    """Return what the arguments of a collection ask for.

    :raises GraphQLError: arguments that exclude each other, or a cursor of another order
        (messages of reference/graphql.md 1.6).
    """
    given = {name: tree for name, tree in arguments.items() if tree is not None}
    _check_combination(given)
    backward = "last" in given or "before" in given
    order = read_order(view, given.get("orderBy") or [])
    cursor = given.get("before") or given.get("after")
    return Paging(
        where=filter_condition(view, given.get("filter")),
        order=order.terms,
        page=_page_size(view, given),
        offset=Parameter(Bounded("offset", given["offset"]), "bigint") if "offset" in given else None,
        position=None if cursor is None else _position(order, cursor, backward=backward),
        backward=backward,
    )


def _check_combination(given: Mapping[str, Tree]) -> None:
    if "first" in given and "last" in given:
        raise GraphQLError('only one of "first" and "last" may be provided')
    if "before" in given and "after" in given:
        raise GraphQLError('only one of "before" and "after" may be provided')
    if "first" in given and "before" in given:
        raise GraphQLError('"first" may only be used with "after"')
    if "last" in given and "after" in given:
        raise GraphQLError('"last" may only be used with "before"')
    if "offset" in given and ("last" in given or "before" in given):
        raise GraphQLError('"offset" may only be used with "first" and "after"')


def _page_size(view: TableView, given: Mapping[str, Tree]) -> Bounded | int:
    for name in ("first", "last"):
        if name in given:
            return Bounded(name, given[name], view.max_rows)
    return view.max_rows


def _position(order: Order, cursor: Leaf, *, backward: bool) -> After:
    values = decode_cursor(cursor.sample)
    if len(values) != len(order.terms):
        raise cursor.error("orderBy clause incompatible with pagination cursor")
    parameters = tuple(
        None if value is None else Parameter(CursorPart(cursor.kept(), index), type_)
        for index, (value, type_) in enumerate(zip(values, order.types, strict=True))
    )
    terms = tuple(term.reversed() for term in order.terms) if backward else order.terms
    return After(terms, parameters)
