"""Filter arguments to conditions (specification, Filtering rules)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphql import GraphQLBoolean, GraphQLError, GraphQLString

from dataapi.graphql.arguments import Tree
from dataapi.graphql.common import OPERATORS
from dataapi.graphql.fields import ColumnField, ComputedField, RelatedField
from dataapi.graphql.identifiers import decode_node_id
from dataapi.graphql.relations import related_rows
from dataapi.graphql.scalars import BIG_FLOAT
from dataapi.graphql.sources import Encode, Fixed, Leaf, NodeIdPart, Source
from dataapi.graphql.table_view import TableView
from dataapi.graphql.wire import Wire, encode_list, encode_value
from dataapi.query.algebra import (
    CastOf,
    ColumnOf,
    ComputedOf,
    Expression,
    JsonbOf,
    JsonKind,
    JsonMemberOf,
    Parameter,
)
from dataapi.query.comparisons import is_builtin
from dataapi.query.conditions import (
    And,
    Compare,
    Condition,
    Exists,
    IsNull,
    Not,
    NotTrue,
    Operator,
    Or,
    TextSearch,
)
from dataapi.query.results import WireForm

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
    return all_of(conditions)


def _member_condition(view: TableView, name: str, member: Tree) -> Condition | None:
    if member is None:
        return None
    column = view.columns_by_name.get(name)
    if column is not None:
        return all_of(operator_conditions(operand(column), column.wire, member))
    if name == "nodeId":
        return _node_id_condition(view, member)
    match view.others_by_input.get(name):
        case RelatedField() as related:
            return _related_condition(view, related, member)
        case ComputedField(function=function, wire=wire):
            return all_of(operator_conditions(ComputedOf(function), wire, member))
    if name == "not":
        inner = filter_condition(view, member)
        return None if inner is None else Not(inner)
    # Parts that demand nothing are ignored, in ``or`` too: a variable that is absent from one
    # alternative must not open the others to every row.
    parts = [part for part in (filter_condition(view, item) for item in member) if part is not None]
    return all_of(parts) if name == "and" else _any_of(parts)


def _related_condition(view: TableView, related: RelatedField, member: Tree) -> Condition | None:
    """Return the condition on related rows: the one of a to-one field, or some, none or every one."""
    target = view.target(related)
    if related.to_one:
        inner = filter_condition(target, member)
        return None if inner is None else Exists(related_rows(target, related, inner))
    conditions: list[Condition] = []
    for word, tree in member.items():
        if tree is None:
            continue
        inner = filter_condition(target, tree)
        if word == "every":
            if inner is not None:
                conditions.append(Not(Exists(related_rows(target, related, NotTrue(inner)))))
            continue
        found = Exists(related_rows(target, related, inner))
        conditions.append(found if word == "some" else Not(found))
    return all_of(conditions)


def all_of(conditions: list[Condition]) -> Condition | None:
    """Return the conditions as one, None for none."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def _any_of(conditions: list[Condition]) -> Condition | None:
    """Return the alternatives as one condition, None when there are no alternatives."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))


def operand(field: ColumnField) -> Expression:
    """Return a column as it is compared and ordered by."""
    column = ColumnOf(field.column.name)
    return CastOf(column, field.wire.compare_as) if field.wire.compare_as else column


def operator_conditions(left: Expression, wire: Wire, operators: dict[str, Tree]) -> list[Condition]:
    """Return the conditions of one value's filter, one per operator.

    A null operand is neither met nor, under ``not``, missed, as in SQL: a client's empty variable
    must never widen an update or a delete to all rows.
    """
    conditions: list[Condition] = []
    for name, leaf in operators.items():
        if name in SPECIAL and leaf is not None:
            conditions += SPECIAL[name](left, leaf)
        elif wire.kind == "JSON" and name in _JSON_OPERATORS and leaf is not None:
            conditions.append(_json_comparison(left, _JSON_OPERATORS[name], leaf))
        elif name == "is":
            conditions.append(_is_condition(left, leaf))
        elif leaf is None:
            conditions.append(_unknown(left, wire.parameter))
        else:
            conditions.append(_comparison(left, wire, OPERATORS[name], leaf))
    return conditions


def _unknown(left: Expression, type_: str) -> Condition:
    """Return the comparison with NULL, which is neither true nor false."""
    return Compare(left, Operator.EQ, Parameter(Fixed(None), type_))


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
    return Compare(left, operator, Parameter(leaf.source(encode), type_), wire.builtin)


# ---------------------------------------------------------------- JSON and full-text search

_JSON_OPERATORS = {
    "contains": Operator.CONTAINS,
    "containedBy": Operator.CONTAINED_BY,
    "hasKey": Operator.HAS_KEY,
}


def _json_comparison(left: Expression, operator: Operator, leaf: Leaf) -> Condition:
    type_ = "text" if operator is Operator.HAS_KEY else "jsonb"
    return Compare(JsonbOf(left), operator, Parameter(leaf.source(encode_value), type_), builtin=True)


def _at_paths(left: Expression, filters: list[Tree]) -> list[Condition]:
    """Return the conditions on members of a JSON value, each by its path."""
    conditions: list[Condition] = []
    for item in filters:
        path = Parameter(item["path"].source(encode_list), "text[]")
        for name, (kind, wire) in _MEMBER_KINDS.items():
            operators = item.get(name)
            if operators is not None:
                conditions += operator_conditions(JsonMemberOf(JsonbOf(left), path, kind), wire, operators)
    return conditions


_MEMBER_KINDS = {
    "text": (
        JsonKind.TEXT,
        Wire(GraphQLString, 0, False, WireForm.JSON, (), 'pg_catalog."text"', 'pg_catalog."_text"'),
    ),
    "number": (JsonKind.NUMBER, Wire(BIG_FLOAT, 0, False, WireForm.TEXT, (), "numeric", "numeric[]")),
    "boolean": (JsonKind.BOOLEAN, Wire(GraphQLBoolean, 0, False, WireForm.JSON, (), "boolean", "boolean[]")),
}


def _search(left: Expression, search: dict[str, Tree]) -> list[Condition]:
    language = search.get("language")
    configuration = None if language is None else Parameter(language.source(encode_value), "regconfig")
    return [TextSearch(left, Parameter(search["query"].source(encode_value), "text"), configuration)]


SPECIAL: dict[str, Callable[[Expression, Any], list[Condition]]] = {"at": _at_paths, "search": _search}
"""Operators that take an input object."""


def _node_id_condition(view: TableView, operators: dict[str, Tree]) -> Condition | None:
    conditions: list[Condition] = []
    for leaf in operators.values():
        if leaf is not None:
            conditions.append(key_condition(view, leaf))
            continue
        conditions += [_unknown(column, type_) for column, type_ in _key_columns(view)]
    return all_of(conditions)


def key_condition(view: TableView, leaf: Leaf) -> Condition:
    """Return the condition that a row is the one that a node id names.

    :raises GraphQLError: the node id is of another table or its key has another form.
    """
    key = decode_node_id(leaf.sample)
    if (key.schema, key.table) != (view.table.schema, view.table.name):
        raise leaf.error("nodeId belongs to a different collection")
    if len(key.values) != len(view.key):
        raise leaf.error("Invalid value passed to nodeId argument. Error 5")
    parts = [
        (column, NodeIdPart(leaf.kept(), index, type_))
        for index, (column, type_) in enumerate(_key_columns(view))
    ]
    return And(
        tuple(
            Compare(column, Operator.EQ, Parameter(part, part.type), is_builtin(part.type))
            for column, part in parts
        )
    )


def _key_columns(view: TableView) -> list[tuple[Expression, str]]:
    """Return the key's columns, each with the type of what it is compared with."""
    fields = {field.column.name: field for field in view.columns}
    # A key column without a GraphQL type or name is no field.
    return [
        (operand(fields[name]), fields[name].wire.parameter)
        if name in fields
        else (ColumnOf(name), "unknown")
        for name in view.key
    ]


def equality(field: ColumnField, source: Source) -> Condition:
    """Return the condition that a column equals a value."""
    return Compare(operand(field), Operator.EQ, Parameter(source, field.wire.parameter), field.wire.builtin)
