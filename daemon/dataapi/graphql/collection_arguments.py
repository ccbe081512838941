"""The arguments of a collection: filter, order and page (docs/reference/graphql.md, Ordering, Pagination)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphql import GraphQLError

from dataapi.graphql.arguments import InputObject, InputTree, as_items, as_leaf, as_object
from dataapi.graphql.filters import aggregate_of, filter_condition, operand
from dataapi.graphql.schema.catalog_view import RelatedField, TableView
from dataapi.graphql.sources import BoundedCount, CursorPart, InputLeaf, limit_of
from dataapi.sql.algebra import (
    After,
    AggregateFunction,
    Expression,
    OrderTerm,
    Parameter,
    RelatedAggregate,
    RelatedValue,
    Rows,
)


@dataclass(frozen=True, slots=True)
class Page:
    """The page of a collection's rows that the arguments describe.

    ``rows`` describes all rows of the collection, before ``position`` is applied. ``position`` is the cursor
    after which the page starts, or before which it ends if ``backward``.
    """

    rows: Rows
    size: BoundedCount | int
    position: After | None
    backward: bool


Ordering = tuple[OrderTerm, str]
"""An order term and the SQL type of its values in cursors."""


def read_page(view: TableView, rows: Rows, arguments: InputObject) -> Page:
    """Return the page that a collection's arguments describe (docs/reference/graphql.md, Pagination).

    :raises GraphQLError: the arguments are incompatible, or a cursor was created for another order.
    """
    provided = {name: tree for name, tree in arguments.items() if tree is not None}
    for one, other, message in _EXCLUSIVE:
        if one in provided and other in provided:
            raise GraphQLError(message)
    backward = "last" in provided or "before" in provided
    order = _read_order(view, as_items(provided.get("orderBy") or []))
    cursor, offset = provided.get("before") or provided.get("after"), provided.get("offset")
    where = filter_condition(view, provided.get("filter"))
    size = page_size(view, "last" if "last" in provided else "first", provided)
    rows = replace(
        rows,
        where=where,
        order=tuple(term for term, _ in order),
        limit=limit_of(size),
        offset=None if offset is None else Parameter(BoundedCount("offset", as_leaf(offset)), "bigint"),
    )
    position = None if cursor is None else _position(order, as_leaf(cursor), backward=backward)
    return Page(rows, size, position, backward)


def page_size(view: TableView, name: str, arguments: InputObject) -> BoundedCount | int:
    size = arguments.get(name)
    return view.max_rows if size is None else BoundedCount(name, as_leaf(size), view.max_rows)


_EXCLUSIVE = (
    ("first", "last", 'only one of "first" and "last" may be provided'),
    ("before", "after", 'only one of "before" and "after" may be provided'),
    ("first", "before", '"first" may only be used with "after"'),
    ("last", "after", '"last" may only be used with "before"'),
    ("offset", "last", '"offset" may only be used with "first" and "after"'),
    ("offset", "before", '"offset" may only be used with "first" and "after"'),
)


def _position(order: list[Ordering], cursor: InputLeaf, *, backward: bool) -> After:
    nulls = cursor.decoded()
    if len(nulls) != len(order):
        raise cursor.error("orderBy clause incompatible with pagination cursor")
    parameters = tuple(
        None if is_null else Parameter(CursorPart(cursor, index), type_)
        for index, (is_null, (_, type_)) in enumerate(zip(nulls, order, strict=True))
    )
    return After(tuple(term.reversed() if backward else term for term, _ in order), parameters)


def _read_order(view: TableView, elements: list[InputTree]) -> list[Ordering]:
    orderings = [_element(view, as_object(element or {})) for element in elements]
    order = [ordering for ordering in orderings if ordering is not None]
    ordered = {term.expression for term, _ in order}
    by_key = zip(view.key_order, view.key_types, strict=True)
    return [*order, *((term, type_) for term, type_ in by_key if term.expression not in ordered)]


def _single_member(members: InputObject) -> tuple[str, InputTree] | None:
    provided = {name: tree for name, tree in members.items() if tree is not None}
    if len(provided) > 1:
        names = ", ".join(provided)
        raise GraphQLError(f"An element of orderBy must have one column, but has {len(provided)}: {names}")
    return next(iter(provided.items()), None)


def _element(view: TableView, element: InputObject) -> Ordering | None:
    member = _single_member(element)
    if member is None:
        return None
    name, tree = member
    field = view.columns_by_name.get(name)
    if field is not None:
        term = _term(operand(field), tree, nullable=field.column.nullable)
        return replace(term, schema=field.mapping.schema_of("<")), field.mapping.parameter
    related = view.others_by_input[name]
    assert isinstance(related, RelatedField), "an order term is a column or a relationship"
    return (_by_row if related.to_one else _by_rows)(related, as_object(tree))


def _term(expression: Expression, direction: InputTree, *, nullable: bool) -> OrderTerm:
    descending, nulls_first = as_leaf(direction).enum_values()
    return OrderTerm(expression, descending, nulls_first, nullable)


def _by_row(related: RelatedField, element: InputObject) -> Ordering | None:
    inner = _element(related.target, element)
    if inner is None:
        return None
    term, type_ = inner
    expression = RelatedValue(related.rows(), term.expression)
    return replace(term, expression=expression, nullable=True), type_


def _by_rows(related: RelatedField, element: InputObject) -> Ordering | None:
    member = _single_member(element)
    if member is None:
        return None
    name, tree = member
    rows = related.rows()
    if name == "count":
        count = RelatedAggregate(rows, AggregateFunction.COUNT, None)
        return _term(count, tree, nullable=False), "bigint"
    column = _single_member(as_object(tree))
    if column is None:
        return None
    column_name, direction = column
    field = related.target.columns_by_name[column_name]
    aggregate = aggregate_of(name, field)
    expression = RelatedAggregate(rows, aggregate.function, aggregate.expression, aggregate.schema)
    term = _term(expression, direction, nullable=True)
    return replace(term, schema=field.mapping.schema_of("<")), field.mapping.parameter
