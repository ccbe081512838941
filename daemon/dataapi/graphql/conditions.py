"""Filter arguments to conditions (specification, Filtering rules)."""

from __future__ import annotations

from graphql import GraphQLError

from dataapi.graphql.arguments import Tree
from dataapi.graphql.common import OPERATORS
from dataapi.graphql.identifiers import decode_node_id
from dataapi.graphql.sources import Encode, Leaf, NodeIdPart, Source
from dataapi.graphql.views import ColumnField, TableView
from dataapi.graphql.wire import Wire, encode_list, encode_value
from dataapi.query.algebra import (
    And,
    ColumnOf,
    Compare,
    Condition,
    Expression,
    IsNull,
    Not,
    Operator,
    Or,
    Parameter,
)

NOTHING = Or(())
"""A condition that no row meets."""

_PATTERNS = frozenset({Operator.LIKE, Operator.ILIKE, Operator.REGEX, Operator.IREGEX, Operator.STARTS_WITH})


def filter_condition(view: TableView, tree: Tree) -> Condition | None:
    """Return the condition of a filter, None when it demands nothing."""
    if not tree:
        return None
    conditions: list[Condition] = []
    for name, member in tree.items():
        condition = _member_condition(view, name, member)
        if condition is not None:
            conditions.append(condition)
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def _member_condition(view: TableView, name: str, member: Tree) -> Condition | None:
    if member is None:
        return None
    column = view.columns_by_name.get(name)
    if column is not None:
        return _all_of(operator_conditions(ColumnOf(column.column.name), column.wire, member))
    if name == "nodeId":
        return _node_id_condition(view, member)
    if name == "not":
        inner = filter_condition(view, member)
        return None if inner is None else Not(inner)
    parts = [filter_condition(view, part) for part in member]
    if name == "and":
        return _all_of([part for part in parts if part is not None])
    if any(part is None for part in parts):
        return None  # an empty filter among the alternatives demands nothing, and so does the whole
    return Or(tuple(part for part in parts if part is not None)) if parts else None


def _all_of(conditions: list[Condition]) -> Condition | None:
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def operator_conditions(left: Expression, wire: Wire, operators: dict[str, Tree]) -> list[Condition]:
    """Return the conditions of one value's filter, one per operator.

    A null operand meets nothing, as in SQL: a client's empty variable must never widen an
    update or a delete to all rows.
    """
    conditions: list[Condition] = []
    for name, leaf in operators.items():
        if name == "is":
            conditions.append(_is_condition(left, leaf))
        elif leaf is None:
            conditions.append(NOTHING)
        else:
            conditions.append(_comparison(left, wire, OPERATORS[name], leaf))
    return conditions


def _is_condition(left: Expression, leaf: Leaf | None) -> Condition:
    if leaf is None:
        raise GraphQLError('The operator "is" takes NULL or NOT_NULL, not null.')
    return IsNull(left, negated=bool(leaf.sample))


def _comparison(left: Expression, wire: Wire, operator: Operator, leaf: Leaf) -> Condition:
    type_ = wire.parameter
    encode: Encode = encode_value
    if wire.is_list:
        encode = encode_list
    elif operator is Operator.IN:
        type_, encode = wire.list_parameter, encode_list
    elif operator in _PATTERNS and type_ != "unknown":
        type_ = 'pg_catalog."text"'
    return Compare(left, operator, Parameter(leaf.source(encode), type_))


def _node_id_condition(view: TableView, operators: dict[str, Tree]) -> Condition | None:
    conditions: list[Condition] = []
    for leaf in operators.values():
        conditions.append(NOTHING if leaf is None else key_condition(view, leaf))
    return _all_of(conditions)


def key_condition(view: TableView, leaf: Leaf) -> Condition:
    """Return the condition that a row is the one that a node id names.

    :raises GraphQLError: the node id is of another table or its key has another form.
    """
    key = decode_node_id(leaf.sample)
    if (key.schema, key.table) != (view.table.schema, view.table.name):
        raise leaf.error("nodeId belongs to a different collection")
    if len(key.values) != len(view.key):
        raise leaf.error("Invalid value passed to nodeId argument. Error 5")
    return And(
        tuple(
            Compare(ColumnOf(name), Operator.EQ, Parameter(NodeIdPart(leaf, index), _key_type(view, name)))
            for index, name in enumerate(view.key)
        )
    )


def _key_type(view: TableView, name: str) -> str:
    return next((field.wire.parameter for field in view.columns if field.column.name == name), "unknown")


def equality(field: ColumnField, source: Source) -> Condition:
    """Return the condition that a column equals a value."""
    return Compare(ColumnOf(field.column.name), Operator.EQ, Parameter(source, field.wire.parameter))
