"""Filters of rows and of groups, converted to conditions (docs/reference/graphql.md, Filters)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from graphql import GraphQLError

from dataapi.graphql.arguments import InputObject, InputTree, as_items, as_leaf, as_object, is_partial
from dataapi.graphql.schema.catalog_view import ColumnField, ComputedField, RelatedField, TableView
from dataapi.graphql.schema.shared_types import OPERATORS
from dataapi.graphql.schema.type_mapping import (
    Encode,
    TypeMapping,
    aggregate_mapping,
    builtin_mapping,
    encode_list,
    encode_value,
    encoder,
)
from dataapi.graphql.sources import Fixed, InputLeaf, NodeIdPart
from dataapi.sql.algebra import (
    Aggregate,
    AggregateFunction,
    And,
    Cast,
    ColumnRef,
    Compare,
    ComputedValue,
    Condition,
    Exists,
    Expression,
    IsNull,
    JsonKind,
    JsonMember,
    Not,
    NotTrue,
    Operator,
    Or,
    Parameter,
    TextSearch,
    all_of,
)

_PATTERNS = frozenset({Operator.LIKE, Operator.ILIKE, Operator.REGEX, Operator.IREGEX, Operator.STARTS_WITH})


def filter_condition(view: TableView, tree: InputTree) -> Condition | None:
    """Return the condition of a filter, None if every row matches."""
    if not tree:
        return None
    members = (_member_condition(view, name, member) for name, member in as_object(tree).items())
    return all_of([condition for condition in members if condition is not None])


def _member_condition(view: TableView, name: str, member: InputTree) -> Condition | None:
    if member is None:
        return None
    column = view.columns_by_name.get(name)
    if column is not None:
        return all_of(operator_conditions(operand(column), column.mapping, as_object(member)))
    if name == "nodeId":
        return _node_id_condition(view, as_object(member))
    match view.others_by_input.get(name):
        case RelatedField() as related:
            return _related_condition(related, member)
        case ComputedField(function=function, mapping=mapping):
            return all_of(operator_conditions(ComputedValue(function), mapping, as_object(member)))
    if name == "not":
        inner = filter_condition(view, member)
        return None if inner is None else Not(inner)
    # Empty filters are ignored, even in ``or``: an absent variable in one alternative must not make the
    # filter match every row.
    parts = [part for part in (filter_condition(view, item) for item in as_items(member)) if part is not None]
    return all_of(parts) if name == "and" or len(parts) < 2 else Or(tuple(parts))


def _related_condition(related: RelatedField, member: InputTree) -> Condition | None:
    """Return the condition on related rows.

    An empty filter matches any related row. A filter that is empty only because variables are absent has no
    condition.
    """
    if related.to_one:
        return _row_condition(related, member)
    conditions: list[Condition] = []
    for word, tree in as_object(member).items():
        if tree is None:
            continue
        inner = filter_condition(related.target, tree)
        if word == "every":
            if inner is not None:
                conditions.append(Not(Exists(related.rows(NotTrue(inner)))))
        elif inner is not None or not is_partial(tree):
            exists = Exists(related.rows(inner))
            conditions.append(exists if word == "some" else Not(exists))
    return all_of(conditions)


def _row_condition(related: RelatedField, tree: InputTree) -> Condition | None:
    target, members = related.target, as_object(tree)
    if "is" not in members or "is" in target.columns_by_name or "is" in target.others_by_input:
        inner = filter_condition(target, tree)
        return None if inner is None and is_partial(tree) else Exists(related.rows(inner))
    others = {name: member for name, member in members.items() if name != "is"}
    inner = filter_condition(target, others)
    exists = Exists(related.rows(inner))
    if _is_null(members["is"]):
        missing = Not(Exists(related.rows()))
        return missing if inner is None else And((missing, exists))
    return exists


def _is_null(tree: InputTree) -> bool:
    if not isinstance(tree, InputLeaf):
        raise GraphQLError('The operator "is" accepts NULL or NOT_NULL, not null.')
    return tree.shape == "NULL"


def operand(field: ColumnField) -> Expression:
    column = ColumnRef(field.column.name)
    return Cast(column, field.mapping.compare_as) if field.mapping.compare_as else column


def operator_conditions(left: Expression, mapping: TypeMapping, operators: InputObject) -> list[Condition]:
    """Return the conditions of a value's filter, one per operator.

    As in SQL, a comparison with null is neither true nor false, so it matches no row, even under ``not``.
    Otherwise a null variable could extend an update or a delete to all rows.
    """
    conditions: list[Condition] = []
    for name, tree in operators.items():
        leaf = tree if isinstance(tree, InputLeaf) else None
        if name == "at" and tree is not None:
            conditions += _at_paths(left, as_items(tree))
        elif name == "search" and tree is not None:
            conditions.append(_text_search(left, as_object(tree)))
        elif mapping.kind == "JSON" and name in _JSON_OPERATORS and leaf is not None:
            value = Parameter(leaf.source(encode_value), "text" if name == "hasKey" else "jsonb")
            conditions.append(Compare(Cast(left, "jsonb"), _JSON_OPERATORS[name], value))
        elif name == "is":
            conditions.append(IsNull(left, negated=not _is_null(tree)))
        elif leaf is None:
            conditions.append(_compared_with_null(left, mapping.parameter, mapping.schema_of("=")))
        else:
            conditions.append(comparison(left, mapping, OPERATORS[name], leaf))
    return conditions


def _compared_with_null(left: Expression, type_: str, schema: str) -> Condition:
    return Compare(left, Operator.EQ, Parameter(Fixed(None), type_), schema)


def comparison(left: Expression, mapping: TypeMapping, operator: Operator, leaf: InputLeaf) -> Condition:
    type_ = mapping.parameter
    encode: Encode = encoder(mapping) if mapping.own is not None else encode_value
    if operator is Operator.STARTS_WITH and mapping.own is not None:
        # citext has no operator ^@, and text's operator is case-sensitive. citext's LIKE ignores case.
        operator, encode = Operator.LIKE, _encode_prefix
    if mapping.is_list:
        encode = encode_list
    elif operator is Operator.IN:
        type_, encode = mapping.list_parameter, encode_list
    elif operator in _PATTERNS and type_ != "unknown":
        type_ = 'pg_catalog."text"'
    schema = mapping.schema_of(operator.symbol)
    return Compare(left, operator, Parameter(leaf.source(encode), type_), schema)


def _encode_prefix(value: Any) -> str:
    return re.sub(r"([%_\\])", r"\\\1", encode_value(value)) + "%"


_JSON_OPERATORS = {
    "contains": Operator.CONTAINS,
    "containedBy": Operator.CONTAINED_BY,
    "hasKey": Operator.HAS_KEY,
}


def _at_paths(left: Expression, filters: list[InputTree]) -> list[Condition]:
    conditions: list[Condition] = []
    for item in map(as_object, filters):
        path = Parameter(as_leaf(item["path"]).source(encode_list), "text[]")
        for name, (kind, mapping) in _MEMBER_KINDS.items():
            operators = item.get(name)
            if operators is not None:
                member = JsonMember(Cast(left, "jsonb"), path, kind)
                conditions += operator_conditions(member, mapping, as_object(operators))
    return conditions


_MEMBER_KINDS = {
    "text": (JsonKind.TEXT, builtin_mapping("text")),
    "number": (JsonKind.NUMBER, builtin_mapping("numeric")),
    "boolean": (JsonKind.BOOLEAN, builtin_mapping("bool")),
}


def _text_search(left: Expression, search: InputObject) -> Condition:
    query = Parameter(as_leaf(search["query"]).source(encode_value), "text")
    language = search.get("language")
    if language is None:
        return TextSearch(left, query)
    return TextSearch(left, query, Parameter(as_leaf(language).source(encode_value), "regconfig"))


def _node_id_condition(view: TableView, operators: InputObject) -> Condition | None:
    if "eq" not in operators:
        return None
    leaf = operators["eq"]
    if leaf is not None:
        return key_condition(view, as_leaf(leaf))
    return all_of([_compared_with_null(*operand) for operand in _key_operands(view)])


def key_condition(view: TableView, leaf: InputLeaf) -> Condition:
    """Return the condition that selects the row with a node id.

    :raises GraphQLError: the node id belongs to another table, or its key has the wrong length.
    """
    key = leaf.decoded()
    if (key.schema, key.table) != (view.table.schema, view.table.name):
        raise leaf.error("nodeId belongs to a different collection")
    if key.length != len(view.key):
        raise leaf.error("Invalid value passed to nodeId argument. Error 5")
    return And(
        tuple(
            Compare(column, Operator.EQ, Parameter(NodeIdPart(leaf, index, type_), type_), schema)
            for index, (column, type_, schema) in enumerate(_key_operands(view))
        )
    )


def _key_operands(view: TableView) -> Iterator[tuple[Expression, str, str]]:
    for term, type_ in zip(view.key_order, view.key_types, strict=True):
        assert isinstance(term.expression, ColumnRef), "a key is made of columns"
        field = view.fields_by_column.get(term.expression.name)
        yield term.expression if field is None else operand(field), type_, term.schema


# PostgreSQL has no min(boolean). False is less than true.
_BOOLEAN_FUNCTIONS = {"min": AggregateFunction.EVERY, "max": AggregateFunction.SOME}


def aggregate_of(name: str, field: ColumnField) -> Aggregate:
    distinct = name == "countDistinct"
    function = AggregateFunction.COUNT if distinct else AggregateFunction(name)
    if field.mapping.kind == "Boolean":
        function = _BOOLEAN_FUNCTIONS.get(name, function)
    schema = field.mapping.schema_of(function.value)
    return Aggregate(function, ColumnRef(field.column.name), distinct, schema)


def having_condition(view: TableView, having: InputObject) -> Condition | None:
    conditions: list[Condition] = []
    for name, member in having.items():
        if member is None:
            continue
        if name == "count":
            count = Aggregate(AggregateFunction.COUNT)
            conditions += operator_conditions(count, builtin_mapping("int8"), as_object(member))
            continue
        for column, operators in as_object(member).items():
            if operators is not None:
                field = view.columns_by_name[column]
                mapping = aggregate_mapping(name, field.mapping)
                conditions += operator_conditions(aggregate_of(name, field), mapping, as_object(operators))
    return all_of(conditions)
