"""Types beyond the reference, for tables whose directive or the configuration turns a feature on.

The features are ``upsert``, ``relationFilters``, ``relationOrder``, ``nestedInserts``,
``groupBy``, ``jsonFilters`` and ``fullText`` (reference/graphql.md section 3); without them
none of these types exists, so that the specified schema stays as specified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from graphql import (
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInt,
    GraphQLList,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLString,
)

from dataapi.catalog.directives import is_enum_value
from dataapi.catalog.inflection import lower_first
from dataapi.graphql.common import COMMON_TYPES, FILTER_IS, FILTER_OPERATORS, ORDER_BY_DIRECTION, filter_type
from dataapi.graphql.fields import ColumnField
from dataapi.graphql.scalars import JSON
from dataapi.graphql.table_view import TableView
from dataapi.graphql.wrappers import list_of, required

if TYPE_CHECKING:
    from dataapi.graphql.types import TableTypes

_COMMON: dict[str, Any] = COMMON_TYPES

_AGGREGATES = ("Sum", "Avg", "Min", "Max", "CountDistinct")


class FeatureTypes:
    """Makes the types of features in a role's types."""

    def __init__(self, types: TableTypes) -> None:
        self._types = types

    def makers(self) -> Mapping[str, Callable[[TableView], GraphQLNamedType | None]]:
        """Return what makes each type, by what follows the table's name in the type's."""
        return {
            "CollectionFilter": self._collection_filter,
            "CollectionOrderBy": self._collection_order,
            "MinMaxOrderBy": self._min_max_order,
            "OnConflictInput": self._on_conflict,
            "ConflictConstraint": self._constraints,
            "InsertColumn": partial(self._column_enum, "InsertColumn"),
            "UpdateColumn": partial(self._column_enum, "UpdateColumn"),
            "GroupColumn": partial(self._column_enum, "GroupColumn"),
            "Group": self._group,
            "GroupKeys": self._group_keys,
            "CountDistinctAggregateResult": self._count_distinct,
            "Having": self._having,
            **{f"{name}Having": partial(self._having_part, name) for name in _AGGREGATES},
        }

    def shared(self) -> Mapping[str, Callable[[], GraphQLNamedType | None]]:
        """Return what makes the types that do not belong to one table."""
        return {
            "JSONFilter": partial(self._when_used, "jsonFilters", self._json_filter),
            "JSONPathFilter": partial(self._when_used, "jsonFilters", self._json_path_filter),
            "StringSearchFilter": partial(self._when_used, "fullText", self._search_filter),
            "TextSearch": partial(self._when_used, "fullText", self._text_search),
        }

    def _when_used(self, feature: str, make: Callable[[], GraphQLNamedType]) -> GraphQLNamedType | None:
        return make() if self._used(feature) else None

    def _used(self, feature: str) -> bool:
        return self._types.view.uses(feature)

    # ------------------------------------------------------------ filters and orders

    def _collection_filter(self, view: TableView) -> GraphQLNamedType | None:
        if not self._used("relationFilters"):
            return None

        def fields() -> dict[str, GraphQLInputField]:
            type_ = self._types.named(f"{view.name}Filter")
            return {word: GraphQLInputField(type_) for word in ("some", "none", "every")}

        return GraphQLInputObjectType(f"{view.name}CollectionFilter", fields)

    def _collection_order(self, view: TableView) -> GraphQLNamedType | None:
        if not self._used("relationOrder"):
            return None

        def fields() -> dict[str, GraphQLInputField]:
            found = {"count": GraphQLInputField(ORDER_BY_DIRECTION)}
            type_: Any = self._types.types.get(f"{view.name}MinMaxOrderBy")
            if type_ is not None:
                found["min"] = found["max"] = GraphQLInputField(type_)
            return found

        return GraphQLInputObjectType(f"{view.name}CollectionOrderBy", fields)

    def _min_max_order(self, view: TableView) -> GraphQLNamedType | None:
        columns = [column for column in view.columns if column.wire.minimum]
        if not columns or not self._used("relationOrder"):
            return None
        return GraphQLInputObjectType(
            f"{view.name}MinMaxOrderBy",
            {column.name: GraphQLInputField(ORDER_BY_DIRECTION) for column in columns},
        )

    def _json_filter(self) -> GraphQLNamedType:
        return GraphQLInputObjectType(
            "JSONFilter",
            lambda: {
                "contains": GraphQLInputField(JSON, description="The value contains this JSON."),
                "containedBy": GraphQLInputField(JSON, description="This JSON contains the value."),
                "hasKey": GraphQLInputField(
                    GraphQLString, description="The value is an object with this member."
                ),
                "is": GraphQLInputField(FILTER_IS),
                "at": GraphQLInputField(GraphQLList(required(self._types.named("JSONPathFilter")))),
            },
        )

    def _json_path_filter(self) -> GraphQLNamedType:
        return GraphQLInputObjectType(
            "JSONPathFilter",
            lambda: {
                "path": GraphQLInputField(list_of(GraphQLString), description="Member names and indexes."),
                "text": GraphQLInputField(
                    _COMMON["StringFilter"], description="Compares the member as text."
                ),
                "number": GraphQLInputField(_COMMON["BigFloatFilter"], description="Compares a number."),
                "boolean": GraphQLInputField(_COMMON["BooleanFilter"], description="Compares a boolean."),
            },
        )

    def _search_filter(self) -> GraphQLNamedType:
        search = GraphQLInputField(self._types.named("TextSearch"), description="Full-text search.")
        fields = filter_type("StringSearchFilter", GraphQLString, FILTER_OPERATORS["String"]).fields
        return GraphQLInputObjectType("StringSearchFilter", {**fields, "search": search})

    def _text_search(self) -> GraphQLNamedType:
        return GraphQLInputObjectType(
            "TextSearch",
            {
                "query": GraphQLInputField(
                    required(GraphQLString), description="Words, in web search syntax."
                ),
                "language": GraphQLInputField(GraphQLString, description="A text search configuration."),
            },
        )

    # ------------------------------------------------------------ upsert

    def _on_conflict(self, view: TableView) -> GraphQLNamedType | None:
        if "upsert" not in view.features or not view.insertable:
            return None

        def fields() -> dict[str, GraphQLInputField]:
            found = {
                "columns": GraphQLInputField(
                    GraphQLList(required(self._types.named(f"{view.name}InsertColumn")))
                )
            }
            constraints = self._types.types.get(f"{view.name}ConflictConstraint")
            if constraints is not None:
                found["constraint"] = GraphQLInputField(constraints)
            updatable = self._types.types.get(f"{view.name}UpdateColumn")
            if updatable is not None:
                found["update"] = GraphQLInputField(
                    GraphQLList(required(updatable)),
                    description="Columns to set on a row that is there already.",
                )
            return found

        return GraphQLInputObjectType(
            f"{view.name}OnConflictInput",
            fields,
            description="What to do where a row is there already: update columns, or leave it as it is.",
        )

    def _constraints(self, view: TableView) -> GraphQLNamedType | None:
        names = [key.name for key in view.table.unique_keys if key.constraint and is_enum_value(key.name)]
        if not names or "upsert" not in view.features:
            return None
        return GraphQLEnumType(
            f"{view.name}ConflictConstraint", {name: name for name in names}, extensions={"shapes": True}
        )

    def _column_enum(self, suffix: str, view: TableView) -> GraphQLNamedType | None:
        columns, feature = {
            "InsertColumn": (view.insertable, "upsert"),
            "UpdateColumn": (view.updatable, "upsert"),
            "GroupColumn": (_groupable(view), "groupBy"),
        }[suffix]
        if not columns or feature not in view.features:
            return None
        values = {field.name: field.column.name for field in columns if is_enum_value(field.name)}
        return GraphQLEnumType(view.name + suffix, values, extensions={"shapes": True})

    # ------------------------------------------------------------ groups

    def connection_fields(self, view: TableView) -> dict[str, GraphQLField]:
        """Return the fields that features add to a connection."""
        if "groupBy" not in view.features or not _groupable(view):
            return {}
        arguments = {
            "by": GraphQLArgument(list_of(self._types.named(f"{view.name}GroupColumn"))),
            "having": GraphQLArgument(self._types.named(f"{view.name}Having")),
            "first": GraphQLArgument(GraphQLInt),
        }
        groups = GraphQLField(
            list_of(self._types.named(f"{view.name}Group")),
            arguments,
            description="Aggregates over groups of the rows that match the filter, ordered by their keys.",
        )
        return {"groupBy": groups}

    def aggregate_fields(self, view: TableView) -> dict[str, GraphQLField]:
        """Return the fields that features add to an aggregate."""
        type_ = self._types.types.get(f"{view.name}CountDistinctAggregateResult")
        return {} if type_ is None else {"countDistinct": GraphQLField(type_)}

    def _group(self, view: TableView) -> GraphQLNamedType | None:
        if "groupBy" not in view.features:
            return None

        def fields() -> dict[str, GraphQLField]:
            return {
                "keys": GraphQLField(required(self._types.named(f"{view.name}GroupKeys"))),
                "aggregate": GraphQLField(required(self._types.named(f"{view.name}Aggregate"))),
            }

        return GraphQLObjectType(f"{view.name}Group", fields)

    def _group_keys(self, view: TableView) -> GraphQLNamedType | None:
        return self._result(
            "GroupKeys", view, _groupable(view), lambda column: self._types.output_type(column.wire)
        )

    def _count_distinct(self, view: TableView) -> GraphQLNamedType | None:
        columns = _groupable(view)
        return self._result(
            "CountDistinctAggregateResult", view, columns, lambda _column: required(GraphQLInt)
        )

    def _result(
        self,
        suffix: str,
        view: TableView,
        columns: tuple[ColumnField, ...],
        type_of: Callable[[ColumnField], Any],
    ) -> GraphQLNamedType | None:
        if "groupBy" not in view.features or not columns:
            return None
        return GraphQLObjectType(
            view.name + suffix, lambda: {column.name: GraphQLField(type_of(column)) for column in columns}
        )

    def _having(self, view: TableView) -> GraphQLNamedType | None:
        if "groupBy" not in view.features:
            return None

        def fields() -> dict[str, GraphQLInputField]:
            found = {"count": GraphQLInputField(_COMMON["BigIntFilter"])}
            for name in _AGGREGATES:
                type_ = self._types.types.get(f"{view.name}{name}Having")
                if type_ is not None:
                    found[lower_first(name)] = GraphQLInputField(type_)
            return found

        return GraphQLInputObjectType(f"{view.name}Having", fields, description="Which groups to show.")

    def _having_part(self, name: str, view: TableView) -> GraphQLNamedType | None:
        if "groupBy" not in view.features:
            return None
        fields = {column.name: self._having_filter(name, column) for column in view.columns}
        given = {column: GraphQLInputField(type_) for column, type_ in fields.items() if type_ is not None}
        return GraphQLInputObjectType(f"{view.name}{name}Having", given) if given else None

    def _having_filter(self, name: str, column: ColumnField) -> Any:
        if name == "CountDistinct":
            return _COMMON["BigIntFilter"] if column.wire.orderable else None
        if name in ("Sum", "Avg"):
            return _COMMON["BigFloatFilter"] if column.wire.numeric else None
        return self._types.inputs.filter_of(column.wire) if column.wire.minimum else None


def _groupable(view: TableView) -> tuple[ColumnField, ...]:
    """Return the columns whose values can be told apart and sorted."""
    return tuple(column for column in view.columns if column.wire.orderable)
