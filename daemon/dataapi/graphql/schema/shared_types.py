"""Types that every schema has: enums of fixed words, ``PageInfo``, ``Node`` and the filters of scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import graphql as gql

from dataapi.graphql.schema.type_mapping import CURSOR, CUSTOM_SCALARS, JSON
from dataapi.sql.algebra import Operator


def required(type_: Any) -> Any:
    """Return the type as non-null."""
    return gql.GraphQLNonNull(type_)


def nullable(type_: gql.GraphQLInputType) -> gql.GraphQLInputType:
    """Return the type without its non-null wrapper."""
    return type_.of_type if isinstance(type_, gql.GraphQLNonNull) else type_


def list_of(type_: Any) -> Any:
    """Return a non-null list of non-null items."""
    return gql.GraphQLNonNull(gql.GraphQLList(gql.GraphQLNonNull(type_)))


ORDER_BY_DIRECTION = gql.GraphQLEnumType(
    "OrderByDirection",
    # The values are pairs (descending, nulls first).
    {
        "AscNullsFirst": gql.GraphQLEnumValue((False, True), description="From small to large, after nulls."),
        "AscNullsLast": gql.GraphQLEnumValue((False, False), description="From small to large, then nulls."),
        "DescNullsFirst": gql.GraphQLEnumValue((True, True), description="From large to small, after nulls."),
        "DescNullsLast": gql.GraphQLEnumValue((True, False), description="From large to small, then nulls."),
    },
    description="A direction to order by.",
    extensions={"shapes": True},
)
FILTER_IS = gql.GraphQLEnumType(
    "FilterIs",
    {
        "NULL": gql.GraphQLEnumValue("NULL", description="There is no value."),
        "NOT_NULL": gql.GraphQLEnumValue("NOT_NULL", description="There is a value."),
    },
    description="Whether a value is there.",
    extensions={"shapes": True},
)
NODE = gql.GraphQLInterfaceType(
    "Node",
    {
        "nodeId": gql.GraphQLField(
            gql.GraphQLNonNull(gql.GraphQLID), description="Identifies a row among all tables."
        )
    },
    description="A row that can be found again by its node id.",
)
PAGE_INFO = gql.GraphQLObjectType(
    "PageInfo",
    {
        "endCursor": gql.GraphQLField(gql.GraphQLString, description="The position of the last row."),
        "hasNextPage": gql.GraphQLField(
            gql.GraphQLNonNull(gql.GraphQLBoolean), description="Whether rows follow the last one."
        ),
        "hasPreviousPage": gql.GraphQLField(
            gql.GraphQLNonNull(gql.GraphQLBoolean), description="Whether rows come before the first one."
        ),
        "startCursor": gql.GraphQLField(gql.GraphQLString, description="The position of the first row."),
    },
    description="Where a page stands in its collection.",
)

_OPERATORS: dict[str, tuple[Operator | None, str]] = {
    "eq": (Operator.EQ, "Equal to this."),
    "neq": (Operator.NEQ, "Different from this."),
    "gt": (Operator.GT, "Greater than this."),
    "gte": (Operator.GTE, "Greater than this or equal to it."),
    "lt": (Operator.LT, "Less than this."),
    "lte": (Operator.LTE, "Less than this or equal to it."),
    "in": (Operator.IN, "Equal to one of these."),
    "is": (None, "Whether there is a value."),
    "startsWith": (Operator.STARTS_WITH, "Begins with this text."),
    "like": (Operator.LIKE, "Matches this pattern, in which % stands for any text and _ for one character."),
    "ilike": (Operator.ILIKE, "Matches this pattern as `like` does, in upper or lower case."),
    "regex": (Operator.REGEX, "Matches this POSIX regular expression."),
    "iregex": (Operator.IREGEX, "Matches this POSIX regular expression, in upper or lower case."),
    "contains": (Operator.CONTAINS, "Has all of these items."),
    "containedBy": (Operator.CONTAINED_BY, "Has no other items than these."),
    "overlaps": (Operator.OVERLAPS, "Has at least one of these items."),
}
OPERATORS = {name: operator for name, (operator, _) in _OPERATORS.items() if operator is not None}
"""The filter operators that compare, by name; ``is`` is not among them."""

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
"""Which operators a filter type has, by scalar name (docs/reference/graphql.md, Filters)."""
LIST_OPERATORS = ("containedBy", "contains", "eq", "is", "overlaps")
_CONDITIONS = "Conditions on {}, all of which must hold."


def filter_type(
    name: str, item: Any, operators: tuple[str, ...], *, is_list: bool = False
) -> gql.GraphQLInputObjectType:
    """Return a filter type over a scalar or enum or over a list of such.

    :param item: the scalar or enum, None for whatever has a value.
    """
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
"""The filter of what cannot be compared."""


_SCALARS = {scalar.name: scalar for scalar in (*gql.specified_scalar_types.values(), *CUSTOM_SCALARS)}
_FILTERS = {
    filter_.name: filter_
    for name, scalar in _SCALARS.items()
    if name in FILTER_OPERATORS
    for filter_ in (
        filter_type(f"{name}Filter", scalar, FILTER_OPERATORS[name]),
        filter_type(f"{name}ListFilter", scalar, LIST_OPERATORS, is_list=True),
    )
    if filter_.name != "IDListFilter"  # a row has one node id
}
COMMON_TYPES: dict[str, gql.GraphQLNamedType] = {
    **_SCALARS,
    **{type_.name: type_ for type_ in (ORDER_BY_DIRECTION, FILTER_IS, IS_FILTER, NODE, PAGE_INFO)},
    **_FILTERS,
}


def types_of_features(names: Mapping[str, str]) -> dict[str, gql.GraphQLInputObjectType]:
    """Return the input types that features add to a schema as a whole, by their usual names.

    :param names: the names of those that the schema has, by their usual names.
    """
    usual = all(name == own for name, own in names.items())
    types = _TYPES_OF_FEATURES if usual else _make_types_of_features(names)
    return {name: type_ for name, type_ in types.items() if name in names}


def _make_types_of_features(names: Mapping[str, str]) -> dict[str, gql.GraphQLInputObjectType]:
    return {**_json_filters(names), **_search_filters(names)}


def _json_filters(names: Mapping[str, str]) -> dict[str, gql.GraphQLInputObjectType]:
    path_filter = gql.GraphQLInputObjectType(
        names.get("JSONPathFilter", "JSONPathFilter"),
        {
            "path": gql.GraphQLInputField(
                list_of(gql.GraphQLString), description="Member names and indexes."
            ),
            "text": gql.GraphQLInputField(
                _FILTERS["StringFilter"], description="Compares the member as text."
            ),
            "number": gql.GraphQLInputField(_FILTERS["BigFloatFilter"], description="Compares a number."),
            "boolean": gql.GraphQLInputField(_FILTERS["BooleanFilter"], description="Compares a boolean."),
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
                required(gql.GraphQLString), description="Words, in web search syntax."
            ),
            "language": gql.GraphQLInputField(gql.GraphQLString, description="A text search configuration."),
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
    "first": gql.GraphQLArgument(gql.GraphQLInt, description="How many rows from the start."),
    "last": gql.GraphQLArgument(gql.GraphQLInt, description="How many rows from the end."),
    "before": gql.GraphQLArgument(CURSOR, description="Only rows before this position."),
    "after": gql.GraphQLArgument(CURSOR, description="Only rows after this position."),
    "offset": gql.GraphQLArgument(gql.GraphQLInt, description="How many rows to skip."),
}
"""The paging arguments of every collection."""
