"""Types of every schema: fixed enums, ``PageInfo``, ``Node`` and the filters of scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import graphql as gql

from dataapi.graphql.schema.type_mapping import CURSOR, CUSTOM_SCALARS, JSON
from dataapi.sql.algebra import Operator


def required(type_: Any) -> Any:
    return gql.GraphQLNonNull(type_)


def nullable(type_: gql.GraphQLInputType) -> gql.GraphQLInputType:
    return type_.of_type if isinstance(type_, gql.GraphQLNonNull) else type_


def list_of(type_: Any) -> Any:
    return gql.GraphQLNonNull(gql.GraphQLList(gql.GraphQLNonNull(type_)))


ORDER_BY_DIRECTION = gql.GraphQLEnumType(
    "OrderByDirection",
    # values: (descending, nulls first)
    {
        "AscNullsFirst": gql.GraphQLEnumValue((False, True), description="Ascending, nulls first."),
        "AscNullsLast": gql.GraphQLEnumValue((False, False), description="Ascending, nulls last."),
        "DescNullsFirst": gql.GraphQLEnumValue((True, True), description="Descending, nulls first."),
        "DescNullsLast": gql.GraphQLEnumValue((True, False), description="Descending, nulls last."),
    },
    description="Sort direction and position of nulls.",
    extensions={"shapes": True},
)
FILTER_IS = gql.GraphQLEnumType(
    "FilterIs",
    {
        "NULL": gql.GraphQLEnumValue("NULL", description="The value is null."),
        "NOT_NULL": gql.GraphQLEnumValue("NOT_NULL", description="The value is not null."),
    },
    description="Whether a value is null.",
    extensions={"shapes": True},
)
NODE = gql.GraphQLInterfaceType(
    "Node",
    {
        "nodeId": gql.GraphQLField(
            gql.GraphQLNonNull(gql.GraphQLID), description="Identifies a row across all tables."
        )
    },
    description="A row that can be fetched by its node id.",
)
PAGE_INFO = gql.GraphQLObjectType(
    "PageInfo",
    {
        "endCursor": gql.GraphQLField(gql.GraphQLString, description="Cursor of the last row."),
        "hasNextPage": gql.GraphQLField(
            gql.GraphQLNonNull(gql.GraphQLBoolean), description="Whether rows follow this page."
        ),
        "hasPreviousPage": gql.GraphQLField(
            gql.GraphQLNonNull(gql.GraphQLBoolean), description="Whether rows precede this page."
        ),
        "startCursor": gql.GraphQLField(gql.GraphQLString, description="Cursor of the first row."),
    },
    description="Position of a page in its collection.",
)

_OPERATORS: dict[str, tuple[Operator | None, str]] = {
    "eq": (Operator.EQ, "Equal to this value."),
    "neq": (Operator.NEQ, "Not equal to this value."),
    "gt": (Operator.GT, "Greater than this value."),
    "gte": (Operator.GTE, "Greater than or equal to this value."),
    "lt": (Operator.LT, "Less than this value."),
    "lte": (Operator.LTE, "Less than or equal to this value."),
    "in": (Operator.IN, "Equal to one of these values."),
    "is": (None, "Whether the value is null."),
    "startsWith": (Operator.STARTS_WITH, "Starts with this text."),
    "like": (Operator.LIKE, "Matches this pattern: % is any text, _ is one character."),
    "ilike": (Operator.ILIKE, "Matches this `like` pattern, ignoring case."),
    "regex": (Operator.REGEX, "Matches this POSIX regular expression."),
    "iregex": (Operator.IREGEX, "Matches this POSIX regular expression, ignoring case."),
    "contains": (Operator.CONTAINS, "Contains all of these items."),
    "containedBy": (Operator.CONTAINED_BY, "Contains only these items."),
    "overlaps": (Operator.OVERLAPS, "Contains at least one of these items."),
}
OPERATORS = {name: operator for name, (operator, _) in _OPERATORS.items() if operator is not None}

_ORDERED = ("eq", "gt", "gte", "in", "is", "lt", "lte", "neq")
FILTER_OPERATORS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Int", "BigInt", "Float", "BigFloat", "Date", "Time", "Datetime"), _ORDERED),
    "String": (*_ORDERED, "startsWith", "like", "ilike", "regex", "iregex"),
    "UUID": ("eq", "in", "is", "neq"),
    "Enum": ("eq", "in", "is", "neq"),
    "Boolean": ("eq", "is"),
    "Opaque": ("eq", "is"),
    "ID": ("eq",),
}
"""Operators of filter types by scalar name (docs/reference/graphql.md, Filters)."""
LIST_OPERATORS = ("containedBy", "contains", "eq", "is", "overlaps")
_CONDITIONS = "Conditions on {}. All of them must be true."


def filter_type(
    name: str, item: Any, operators: tuple[str, ...], *, is_list: bool = False
) -> gql.GraphQLInputObjectType:
    items: Any = item and gql.GraphQLList(gql.GraphQLNonNull(item))
    types = {"is": FILTER_IS, "in": items}
    if is_list:
        value = f"a list of type [{item}]"
    else:
        value = "a value that cannot be compared" if item is None else f"a value of type {item}"
    return gql.GraphQLInputObjectType(
        name,
        {
            operator: gql.GraphQLInputField(
                types.get(operator, items if is_list else item), description=_OPERATORS[operator][1]
            )
            for operator in operators
        },
        description=_CONDITIONS.format(value),
    )


IS_FILTER = filter_type("IsFilter", None, ("is",))


_SCALARS = {scalar.name: scalar for scalar in (*gql.specified_scalar_types.values(), *CUSTOM_SCALARS)}
_FILTERS = {
    filter_.name: filter_
    for name, scalar in _SCALARS.items()
    if name in FILTER_OPERATORS
    for filter_ in (
        filter_type(f"{name}Filter", scalar, FILTER_OPERATORS[name]),
        filter_type(f"{name}ListFilter", scalar, LIST_OPERATORS, is_list=True),
    )
    if filter_.name != "IDListFilter"  # node ids are never in lists
}
COMMON_TYPES: dict[str, gql.GraphQLNamedType] = {
    **_SCALARS,
    **{type_.name: type_ for type_ in (ORDER_BY_DIRECTION, FILTER_IS, IS_FILTER, NODE, PAGE_INFO)},
    **_FILTERS,
}


def types_of_features(names: Mapping[str, str]) -> dict[str, gql.GraphQLInputObjectType]:
    are_default = all(name == own for name, own in names.items())
    types = _TYPES_OF_FEATURES if are_default else _make_types_of_features(names)
    return {name: type_ for name, type_ in types.items() if name in names}


def _make_types_of_features(names: Mapping[str, str]) -> dict[str, gql.GraphQLInputObjectType]:
    return {**_json_filters(names), **_search_filters(names)}


def _json_filters(names: Mapping[str, str]) -> dict[str, gql.GraphQLInputObjectType]:
    path_filter = gql.GraphQLInputObjectType(
        names.get("JSONPathFilter", "JSONPathFilter"),
        {
            "path": gql.GraphQLInputField(
                list_of(gql.GraphQLString), description="Path to a member: names and indexes."
            ),
            "text": gql.GraphQLInputField(
                _FILTERS["StringFilter"], description="Compares the member as text."
            ),
            "number": gql.GraphQLInputField(
                _FILTERS["BigFloatFilter"], description="Compares a numeric member."
            ),
            "boolean": gql.GraphQLInputField(
                _FILTERS["BooleanFilter"], description="Compares a boolean member."
            ),
        },
    )
    json_filter = gql.GraphQLInputObjectType(
        names.get("JSONFilter", "JSONFilter"),
        {
            "contains": gql.GraphQLInputField(JSON, description="The value contains this JSON."),
            "containedBy": gql.GraphQLInputField(JSON, description="This JSON contains the value."),
            "hasKey": gql.GraphQLInputField(
                gql.GraphQLString, description="The value is an object with this member."
            ),
            "is": gql.GraphQLInputField(FILTER_IS),
            "at": gql.GraphQLInputField(gql.GraphQLList(required(path_filter))),
        },
    )
    return {"JSONFilter": json_filter, "JSONPathFilter": path_filter}


def _search_filters(names: Mapping[str, str]) -> dict[str, gql.GraphQLInputObjectType]:
    text_search = gql.GraphQLInputObjectType(
        names.get("TextSearch", "TextSearch"),
        {
            "query": gql.GraphQLInputField(
                required(gql.GraphQLString), description="Search terms in web search syntax."
            ),
            "language": gql.GraphQLInputField(gql.GraphQLString, description="Text search configuration."),
        },
    )
    search_filter = gql.GraphQLInputObjectType(
        names.get("StringSearchFilter", "StringSearchFilter"),
        {
            **_FILTERS["StringFilter"].fields,
            "search": gql.GraphQLInputField(text_search, description="Full-text search."),
        },
    )
    return {"StringSearchFilter": search_filter, "TextSearch": text_search}


_TYPES_OF_FEATURES = _make_types_of_features({})


PAGING_ARGUMENTS = {
    "first": gql.GraphQLArgument(gql.GraphQLInt, description="Number of rows from the start."),
    "last": gql.GraphQLArgument(gql.GraphQLInt, description="Number of rows from the end."),
    "before": gql.GraphQLArgument(CURSOR, description="Only rows before this cursor."),
    "after": gql.GraphQLArgument(CURSOR, description="Only rows after this cursor."),
    "offset": gql.GraphQLArgument(gql.GraphQLInt, description="Number of rows to skip."),
}
