"""The arguments of a collection: page, order, position, and the groups of ``groupBy``."""

from __future__ import annotations

from dataclasses import dataclass

from graphql import GraphQLError

from dataapi.graphql.arguments import InputObject, InputTree, as_items, as_leaf, as_object
from dataapi.graphql.conditions import filter_condition, operand, operator_conditions
from dataapi.graphql.schema.table_view import ColumnField, RelatedField, TableView
from dataapi.graphql.schema.type_mapping import BIG_FLOAT, BIG_INT, TypeMapping
from dataapi.graphql.sources import Bounded, CursorPart, InputLeaf, decode_cursor
from dataapi.sql.algebra import (
    AggregateFunction,
    AggregateOf,
    ColumnOf,
    Expression,
    OrderTerm,
    Parameter,
    RelatedAggregateOf,
    RelatedOf,
)
from dataapi.sql.conditions import After, Condition, all_of
from dataapi.sql.outputs import Null, Output, Value, WireForm


@dataclass(frozen=True, slots=True)
class Paging:
    """What the arguments of a collection ask for.

    :ivar page: the page's size in rows.
    :ivar position: in the direction of paging.
    """

    where: Condition | None
    order: tuple[OrderTerm, ...]
    page: Bounded | int
    offset: Parameter | None
    position: After | None
    backward: bool


def read_paging(view: TableView, arguments: InputObject) -> Paging:
    """Return what the arguments of a collection ask for.

    :raises GraphQLError: arguments that exclude each other, or a cursor of another order
        (docs/reference/graphql.md, Pagination).
    """
    provided = {name: tree for name, tree in arguments.items() if tree is not None}
    _check_combination(provided)
    backward = "last" in provided or "before" in provided
    order = read_order(view, as_items(provided.get("orderBy") or []))
    cursor = provided.get("before") or provided.get("after")
    return Paging(
        where=filter_condition(view, provided.get("filter")),
        order=order.terms,
        page=_page_size(view, provided),
        offset=Parameter(Bounded("offset", as_leaf(provided["offset"])), "bigint")
        if "offset" in provided
        else None,
        position=None if cursor is None else _position(order, as_leaf(cursor), backward=backward),
        backward=backward,
    )


def _check_combination(provided: InputObject) -> None:
    if "first" in provided and "last" in provided:
        raise GraphQLError('only one of "first" and "last" may be provided')
    if "before" in provided and "after" in provided:
        raise GraphQLError('only one of "before" and "after" may be provided')
    if "first" in provided and "before" in provided:
        raise GraphQLError('"first" may only be used with "after"')
    if "last" in provided and "after" in provided:
        raise GraphQLError('"last" may only be used with "before"')
    if "offset" in provided and ("last" in provided or "before" in provided):
        raise GraphQLError('"offset" may only be used with "first" and "after"')


def _page_size(view: TableView, provided: InputObject) -> Bounded | int:
    for name in ("first", "last"):
        if name in provided:
            return Bounded(name, as_leaf(provided[name]), view.max_rows)
    return view.max_rows


def _position(order: Order, cursor: InputLeaf, *, backward: bool) -> After:
    values = decode_cursor(cursor.sample)
    if len(values) != len(order.terms):
        raise cursor.error("orderBy clause incompatible with pagination cursor")
    parameters = tuple(
        None if value is None else Parameter(CursorPart(cursor.without_sample(), index), type_)
        for index, (value, type_) in enumerate(zip(values, order.types, strict=True))
    )
    terms = tuple(term.reversed() for term in order.terms) if backward else order.terms
    return After(terms, parameters)


@dataclass(frozen=True, slots=True)
class _Ordered:
    """What one element orders by.

    :ivar type: the slot type of the expression's values, which a cursor holds.
    """

    expression: Expression
    type: str
    nullable: bool
    direction: InputLeaf


@dataclass(frozen=True, slots=True)
class Order:
    """A total order: what is asked for, ended by the key.

    :ivar types: the slot type of each term's values.
    """

    terms: tuple[OrderTerm, ...]
    types: tuple[str, ...]


def read_order(view: TableView, elements: list[InputTree]) -> Order:
    """Return the order that ``orderBy`` asks for, ended by the key.

    :raises GraphQLError: an element with more than one member that is not null.
    """
    terms: list[OrderTerm] = []
    types: list[str] = []
    for element in elements:
        ordered = _element(view, as_object(element or {}))
        if ordered is not None:
            descending, nulls_first = ordered.direction.sample
            terms.append(OrderTerm(ordered.expression, descending, nulls_first, ordered.nullable))
            types.append(ordered.type)
    known = {operand(field): field.mapping.parameter for field in view.columns}
    by_key = [term for term in view.key_order if term.expression not in {other.expression for other in terms}]
    return Order((*terms, *by_key), (*types, *(known.get(term.expression, "unknown") for term in by_key)))


def _only(members: InputObject) -> tuple[str, InputTree] | None:
    """Return an element's single member that is not null (docs/reference/graphql.md, Ordering)."""
    provided = {name: tree for name, tree in members.items() if tree is not None}
    if len(provided) > 1:
        names = ", ".join(provided)
        raise GraphQLError(
            f"An element of orderBy orders by one column, but {len(provided)} are given: {names}"
        )
    return next(iter(provided.items()), None)


def _element(view: TableView, element: InputObject) -> _Ordered | None:
    member = _only(element)
    if member is None:
        return None
    name, tree = member
    field = view.columns_by_name.get(name)
    if field is not None:
        return _Ordered(operand(field), field.mapping.parameter, field.column.nullable, as_leaf(tree))
    related = view.others_by_input[name]
    assert isinstance(related, RelatedField), "only columns and relationships can be ordered by"
    ordering = _related if related.to_one else _collection
    return ordering(view, related, as_object(tree))


def _related(view: TableView, related: RelatedField, element: InputObject) -> _Ordered | None:
    target = view.target(related)
    inner = _element(target, element)
    if inner is None:
        return None
    expression = RelatedOf(view.related_rows(related), inner.expression)
    return _Ordered(expression, inner.type, True, inner.direction)


def _collection(view: TableView, related: RelatedField, element: InputObject) -> _Ordered | None:
    member = _only(element)
    if member is None:
        return None
    name, tree = member
    target = view.target(related)
    rows = view.related_rows(related)
    if name == "count":
        count = RelatedAggregateOf(rows, AggregateFunction.COUNT, None)
        return _Ordered(count, "bigint", False, as_leaf(tree))
    column = _only(as_object(tree))
    if column is None:
        return None
    field = target.columns_by_name[column[0]]
    aggregate = aggregate_of(name, field)
    expression = RelatedAggregateOf(rows, aggregate.function, aggregate.expression, aggregate.builtin)
    return _Ordered(expression, field.mapping.parameter, True, as_leaf(column[1]))


_FUNCTIONS = {
    "sum": AggregateFunction.SUM,
    "avg": AggregateFunction.AVG,
    "min": AggregateFunction.MIN,
    "max": AggregateFunction.MAX,
    "countDistinct": AggregateFunction.COUNT,
}
# PostgreSQL has no min(boolean); false is less than true.
_BOOLEAN_FUNCTIONS = {"min": AggregateFunction.EVERY, "max": AggregateFunction.SOME}


def aggregate_of(name: str, field: ColumnField) -> AggregateOf:
    """Return the aggregate of a column that a field such as ``sum`` asks for."""
    function = _FUNCTIONS[name]
    if field.mapping.kind == "Boolean":
        function = _BOOLEAN_FUNCTIONS.get(name, function)
    builtin = name == "countDistinct" or field.mapping.builtin
    return AggregateOf(function, ColumnOf(field.column.name), name == "countDistinct", builtin)


def aggregate_value(name: str, field: ColumnField) -> Output:
    """Return the output of a column's aggregate (docs/reference/graphql.md, Aggregates)."""
    aggregate = aggregate_of(name, field)
    if name in ("sum", "avg"):
        return Value(aggregate, WireForm.TEXT)
    if name == "countDistinct":
        return Value(aggregate)
    return Value(aggregate, field.mapping.form, field.mapping.labels)


@dataclass(frozen=True, slots=True)
class Grouping:
    """What the arguments of ``groupBy`` ask for.

    :ivar page: the most groups.
    """

    keys: tuple[Expression, ...]
    having: Condition | None
    page: Bounded | int

    def key_value(self, view: TableView, name: str) -> Output:
        """Return a key's output; null for a column that the rows are not grouped by."""
        field = view.columns_by_name[name]
        expression = ColumnOf(field.column.name)
        return (
            Value(expression, field.mapping.form, field.mapping.labels) if expression in self.keys else Null()
        )


def read_grouping(view: TableView, arguments: InputObject) -> Grouping:
    """Return what the arguments of ``groupBy`` ask for.

    :raises GraphQLError: no column to group by.
    """
    names = dict.fromkeys(as_leaf(arguments["by"]).sample)
    if not names:
        raise GraphQLError("groupBy needs at least one column in `by`")
    first = arguments.get("first")
    return Grouping(
        tuple(ColumnOf(name) for name in names),
        _having_condition(view, as_object(arguments.get("having") or {})),
        view.max_rows if first is None else Bounded("first", as_leaf(first), view.max_rows),
    )


def _having_condition(view: TableView, having: InputObject) -> Condition | None:
    conditions: list[Condition] = []
    for name, member in having.items():
        if member is None:
            continue
        if name == "count":
            conditions += operator_conditions(
                AggregateOf(AggregateFunction.COUNT), _BIG_INT, as_object(member)
            )
            continue
        for column, operators in as_object(member).items():
            field = view.columns_by_name[column]
            if operators is not None:
                conditions += operator_conditions(
                    aggregate_of(name, field), _mapping(name, field.mapping), as_object(operators)
                )
    return all_of(conditions)


def _mapping(name: str, mapping: TypeMapping) -> TypeMapping:
    if name == "countDistinct":
        return _BIG_INT
    return _NUMERIC if name in ("sum", "avg") else mapping


_BIG_INT = TypeMapping(BIG_INT, 0, False, WireForm.TEXT, (), 'pg_catalog."int8"', 'pg_catalog."_int8"')
_NUMERIC = TypeMapping(
    BIG_FLOAT, 0, False, WireForm.TEXT, (), 'pg_catalog."numeric"', 'pg_catalog."_numeric"'
)
