"""The arguments of a collection: page, order, position, and the groups of ``groupBy``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphql import GraphQLError

from dataapi.graphql.arguments import InputObject, InputTree, as_items, as_leaf, as_object
from dataapi.graphql.conditions import filter_condition, operand, operator_conditions
from dataapi.graphql.schema.catalog_view import ColumnField, RelatedField, TableView
from dataapi.graphql.schema.type_mapping import aggregate_mapping, builtin_mapping
from dataapi.graphql.sources import Bounded, CursorPart, InputLeaf, decode_cursor, limit_of
from dataapi.sql.algebra import (
    After,
    AggregateFunction,
    AggregateOf,
    ColumnOf,
    Condition,
    Expression,
    OrderTerm,
    Parameter,
    RelatedAggregateOf,
    RelatedOf,
    Rows,
    all_of,
)
from dataapi.sql.outputs import Null, Output, Value


@dataclass(frozen=True, slots=True)
class Page:
    """The page of rows that the arguments of a collection describe.

    :ivar rows: those of the page but for its position.
    :ivar position: where the page begins, in the direction of paging.
    """

    rows: Rows
    size: Bounded | int
    position: After | None
    backward: bool


Ordering = tuple[OrderTerm, str]
"""What rows are ordered by, with the slot type of its values, which a cursor holds."""


def read_page(view: TableView, rows: Rows, arguments: InputObject) -> Page:
    """Return the page of rows that the arguments of a collection describe.

    :raises GraphQLError: arguments that exclude each other, or a cursor of another order
        (docs/reference/graphql.md, Pagination).
    """
    provided = {name: tree for name, tree in arguments.items() if tree is not None}
    for one, other, message in _EXCLUSIVE:
        if one in provided and other in provided:
            raise GraphQLError(message)
    backward = "last" in provided or "before" in provided
    order = _read_order(view, as_items(provided.get("orderBy") or []))
    cursor, offset = provided.get("before") or provided.get("after"), provided.get("offset")
    where = filter_condition(view, provided.get("filter"))
    size = _page_size(view, "last" if "last" in provided else "first", provided)
    rows = replace(
        rows,
        where=where,
        order=tuple(term for term, _ in order),
        limit=limit_of(size),
        offset=None if offset is None else Parameter(Bounded("offset", as_leaf(offset)), "bigint"),
    )
    position = None if cursor is None else _position(order, as_leaf(cursor), backward=backward)
    return Page(rows, size, position, backward)


def _page_size(view: TableView, name: str, arguments: InputObject) -> Bounded | int:
    size = arguments.get(name)
    return view.max_rows if size is None else Bounded(name, as_leaf(size), view.max_rows)


_EXCLUSIVE = (
    ("first", "last", 'only one of "first" and "last" may be provided'),
    ("before", "after", 'only one of "before" and "after" may be provided'),
    ("first", "before", '"first" may only be used with "after"'),
    ("last", "after", '"last" may only be used with "before"'),
    ("offset", "last", '"offset" may only be used with "first" and "after"'),
    ("offset", "before", '"offset" may only be used with "first" and "after"'),
)


def _position(order: list[Ordering], cursor: InputLeaf, *, backward: bool) -> After:
    values = decode_cursor(cursor.sample)
    if len(values) != len(order):
        raise cursor.error("orderBy clause incompatible with pagination cursor")
    parameters = tuple(
        None if value is None else Parameter(CursorPart(cursor.without_sample(), index), type_)
        for index, (value, (_, type_)) in enumerate(zip(values, order, strict=True))
    )
    return After(tuple(term.reversed() if backward else term for term, _ in order), parameters)


def _read_order(view: TableView, elements: list[InputTree]) -> list[Ordering]:
    """Return the order of ``orderBy``, made total by the key at its end.

    :raises GraphQLError: an element has more than one member that is not null.
    """
    orderings = [_element(view, as_object(element or {})) for element in elements]
    order = [ordering for ordering in orderings if ordering is not None]
    ordered = {term.expression for term, _ in order}
    by_key = zip(view.key_order, view.key_types, strict=True)
    return [*order, *((term, type_) for term, type_ in by_key if term.expression not in ordered)]


def _only(members: InputObject) -> tuple[str, InputTree] | None:
    """Return an element's single member that is not null (docs/reference/graphql.md, Ordering)."""
    provided = {name: tree for name, tree in members.items() if tree is not None}
    if len(provided) > 1:
        names = ", ".join(provided)
        raise GraphQLError(
            f"An element of orderBy orders by one column, but {len(provided)} are given: {names}"
        )
    return next(iter(provided.items()), None)


def _element(view: TableView, element: InputObject) -> Ordering | None:
    member = _only(element)
    if member is None:
        return None
    name, tree = member
    field = view.columns_by_name.get(name)
    if field is not None:
        return _term(operand(field), tree, nullable=field.column.nullable), field.mapping.parameter
    related = view.others_by_input[name]
    assert isinstance(related, RelatedField), "only columns and relationships can be ordered by"
    return (_by_row if related.to_one else _by_rows)(view, related, as_object(tree))


def _term(expression: Expression, direction: InputTree, *, nullable: bool) -> OrderTerm:
    descending, nulls_first = as_leaf(direction).sample
    return OrderTerm(expression, descending, nulls_first, nullable)


def _by_row(view: TableView, related: RelatedField, element: InputObject) -> Ordering | None:
    inner = _element(view.target(related), element)
    if inner is None:
        return None
    term, type_ = inner
    expression = RelatedOf(view.related_rows(related), term.expression)
    return replace(term, expression=expression, nullable=True), type_


def _by_rows(view: TableView, related: RelatedField, element: InputObject) -> Ordering | None:
    member = _only(element)
    if member is None:
        return None
    name, tree = member
    rows = view.related_rows(related)
    if name == "count":
        count = RelatedAggregateOf(rows, AggregateFunction.COUNT, None)
        return _term(count, tree, nullable=False), "bigint"
    column = _only(as_object(tree))
    if column is None:
        return None
    field = view.target(related).columns_by_name[column[0]]
    aggregate = aggregate_of(name, field)
    expression = RelatedAggregateOf(rows, aggregate.function, aggregate.expression, aggregate.builtin)
    return _term(expression, column[1], nullable=True), field.mapping.parameter


# PostgreSQL has no min(boolean); false is less than true.
_BOOLEAN_FUNCTIONS = {"min": AggregateFunction.EVERY, "max": AggregateFunction.SOME}


def aggregate_of(name: str, field: ColumnField) -> AggregateOf:
    """Return the aggregate of a column by the name of its field, such as ``sum``."""
    distinct = name == "countDistinct"
    function = AggregateFunction.COUNT if distinct else AggregateFunction(name)
    if field.mapping.kind == "Boolean":
        function = _BOOLEAN_FUNCTIONS.get(name, function)
    return AggregateOf(function, ColumnOf(field.column.name), distinct, distinct or field.mapping.builtin)


def aggregate_value(name: str, field: ColumnField) -> Output:
    """Return the output of a column's aggregate (docs/reference/graphql.md, Aggregates)."""
    aggregate = aggregate_of(name, field)
    if name == "countDistinct":
        return Value(aggregate)
    mapping = aggregate_mapping(name, field.mapping)
    return Value(aggregate, mapping.form, mapping.labels)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups that the arguments of ``groupBy`` describe.

    :ivar page: the most groups.
    """

    keys: tuple[Expression, ...]
    having: Condition | None
    page: Bounded | int

    def key_value(self, field: ColumnField) -> Output:
        """Return a key's output; null for a column that the rows are not grouped by."""
        expression = ColumnOf(field.column.name)
        if expression not in self.keys:
            return Null()
        return Value(expression, field.mapping.form, field.mapping.labels)


def read_grouping(view: TableView, arguments: InputObject) -> Grouping:
    """Return the groups that the arguments of ``groupBy`` describe.

    :raises GraphQLError: no column to group by.
    """
    names = dict.fromkeys(as_leaf(arguments["by"]).sample)
    if not names:
        raise GraphQLError("groupBy needs at least one column in `by`")
    return Grouping(
        tuple(ColumnOf(name) for name in names),
        _having_condition(view, as_object(arguments.get("having") or {})),
        _page_size(view, "first", arguments),
    )


def _having_condition(view: TableView, having: InputObject) -> Condition | None:
    conditions: list[Condition] = []
    for name, member in having.items():
        if member is None:
            continue
        if name == "count":
            count = AggregateOf(AggregateFunction.COUNT)
            conditions += operator_conditions(count, builtin_mapping("int8"), as_object(member))
            continue
        for column, operators in as_object(member).items():
            if operators is not None:
                field = view.columns_by_name[column]
                mapping = aggregate_mapping(name, field.mapping)
                conditions += operator_conditions(aggregate_of(name, field), mapping, as_object(operators))
    return all_of(conditions)
