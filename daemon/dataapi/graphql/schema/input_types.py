"""Input types of tables: filters, orders, and what inserts, updates and ``groupBy`` take.

Some exist only for tables whose directive or the configuration turns a feature on (``upsert``,
``relationFilters``, ``relationOrder``, ``nestedInserts``, ``groupBy``, ``jsonFilters`` and ``fullText``;
docs/reference/graphql.md, Features).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from graphql import (
    GraphQLEnumType,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLList,
    GraphQLNamedType,
    GraphQLString,
)

from dataapi.catalog.directives import is_enum_value
from dataapi.catalog.names import lower_first
from dataapi.graphql.schema.shared_types import (
    COMMON_TYPES,
    FILTER_IS,
    FILTER_OPERATORS,
    IS_FILTER,
    ORDER_BY_DIRECTION,
    filter_type,
    list_of,
    required,
    scalar_filter_name,
)
from dataapi.graphql.schema.table_view import ColumnField, TableType, TableView
from dataapi.graphql.schema.type_mapping import JSON, TypeMapping

if TYPE_CHECKING:
    from dataapi.graphql.schema.types import TableTypes


InputFields = dict[str, GraphQLInputField]


_COMMON: dict[str, Any] = COMMON_TYPES

_AGGREGATES = ("Sum", "Avg", "Min", "Max", "CountDistinct")


class InputTypes:
    """Makes the input types of the tables in a role's types."""

    def __init__(self, types: TableTypes) -> None:
        self._types = types

    def makers(self) -> Mapping[TableType, Callable[[TableView], GraphQLNamedType | None]]:
        """Return what makes each type, by what follows the table's name in the type's."""
        return {
            TableType.FILTER: self._filter,
            TableType.ORDER_BY: self._order_by,
            TableType.INSERT_INPUT: self._insert,
            TableType.UPDATE_INPUT: self._update,
            TableType.COLLECTION_FILTER: self._collection_filter,
            TableType.COLLECTION_ORDER_BY: self._collection_order,
            TableType.MIN_MAX_ORDER_BY: self._min_max_order,
            TableType.ON_CONFLICT_INPUT: self._on_conflict,
            TableType.CONFLICT_CONSTRAINT: self._constraints,
            TableType.INSERT_COLUMN: partial(self._column_enum, TableType.INSERT_COLUMN),
            TableType.UPDATE_COLUMN: partial(self._column_enum, TableType.UPDATE_COLUMN),
            TableType.GROUP_COLUMN: partial(self._column_enum, TableType.GROUP_COLUMN),
            TableType.HAVING: self._having,
            **{TableType(f"{name}Having"): partial(self._having_part, name) for name in _AGGREGATES},
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

    # ------------------------------------------------------------ filters

    def _filter(self, view: TableView) -> GraphQLNamedType:
        return GraphQLInputObjectType(
            TableType.FILTER.of(view),
            partial(self._filter_fields, view),
            description=f"Conditions on a row of {view.name}; all that are given must hold.",
        )

    def _filter_fields(self, view: TableView) -> InputFields:
        fields: InputFields = {}
        if view.has_node_id:
            fields["nodeId"] = GraphQLInputField(
                self._types.named("IDFilter"), description="The row's node id."
            )
        for column in view.columns:
            type_ = self._column_filter(view, column)
            if type_ is not None:
                fields[column.name] = GraphQLInputField(type_, description=column.description)
        if "relationFilters" in view.features:
            fields.update(self._relation_filters(view))
        itself = self._types.named(TableType.FILTER.of(view))
        # A column of the same name replaces the operator (docs/reference/graphql.md, Filters).
        for word, meaning in (("and", "All of these hold."), ("or", "At least one of these holds.")):
            fields.setdefault(word, GraphQLInputField(GraphQLList(required(itself)), description=meaning))
        fields.setdefault("not", GraphQLInputField(itself, description="This does not hold."))
        return fields

    def _column_filter(self, view: TableView, column: ColumnField) -> Any:
        mapping = column.mapping
        if not mapping.is_list and mapping.kind == "JSON" and "jsonFilters" in view.features:
            return self._types.named("JSONFilter")
        if not mapping.is_list and mapping.kind == "String" and "fullText" in view.features:
            return self._types.named("StringSearchFilter")
        return self.filter_of(mapping)

    def filter_of(self, mapping: TypeMapping) -> Any:
        """Return the filter type of a value, None when it can't be filtered."""
        if mapping.scalar is None:
            suffix = "ListFilter" if mapping.is_list else "Filter"
            return self._types.types.get(self._types.view.catalog.base_names[mapping.enum] + suffix)
        if mapping.kind == "JSON" and not mapping.is_list:
            return None  # docs/reference/graphql.md, Scalars
        name = scalar_filter_name(mapping.scalar, is_list=mapping.is_list) if mapping.comparable else None
        return self._types.named(name or IS_FILTER.name)

    def _relation_filters(self, view: TableView) -> InputFields:
        fields: InputFields = {}
        for computed in view.computed:
            type_ = self.filter_of(computed.mapping)
            if type_ is not None:
                fields[computed.input_name] = GraphQLInputField(type_, description=computed.description)
        for related in view.related:
            type_name, rows = (
                (TableType.FILTER, "row") if related.to_one else (TableType.COLLECTION_FILTER, "rows")
            )
            fields[related.input_name] = GraphQLInputField(
                self._types.of_table(related.target, type_name),
                description=f"Conditions on the related {rows}.",
            )
        return fields

    def _collection_filter(self, view: TableView) -> GraphQLNamedType | None:
        if not self._used("relationFilters"):
            return None

        def fields() -> dict[str, GraphQLInputField]:
            type_ = self._types.named(TableType.FILTER.of(view))
            return {word: GraphQLInputField(type_) for word in ("some", "none", "every")}

        return GraphQLInputObjectType(TableType.COLLECTION_FILTER.of(view), fields)

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

    # ------------------------------------------------------------ orders

    def _order_by(self, view: TableView) -> GraphQLNamedType | None:
        if not view.orderable:
            return None
        return GraphQLInputObjectType(
            TableType.ORDER_BY.of(view),
            partial(self._order_fields, view),
            description=f"What rows of {view.name} are ordered by: one column.",
        )

    def _order_fields(self, view: TableView) -> InputFields:
        fields = {
            column.name: GraphQLInputField(ORDER_BY_DIRECTION, description=column.description)
            for column in view.columns
            if column.mapping.orderable
        }
        if "relationOrder" in view.features:
            for related in view.related:
                if related.to_one and not view.target(related).orderable:
                    continue
                type_ = TableType.ORDER_BY if related.to_one else TableType.COLLECTION_ORDER_BY
                fields[related.input_name] = GraphQLInputField(self._types.of_table(related.target, type_))
        return fields

    def _collection_order(self, view: TableView) -> GraphQLNamedType | None:
        if not self._used("relationOrder"):
            return None

        def fields() -> dict[str, GraphQLInputField]:
            found = {"count": GraphQLInputField(ORDER_BY_DIRECTION)}
            type_: Any = self._types.types.get(TableType.MIN_MAX_ORDER_BY.of(view))
            if type_ is not None:
                found["min"] = found["max"] = GraphQLInputField(type_)
            return found

        return GraphQLInputObjectType(TableType.COLLECTION_ORDER_BY.of(view), fields)

    def _min_max_order(self, view: TableView) -> GraphQLNamedType | None:
        columns = [column for column in view.columns if column.mapping.minimum]
        if not columns or not self._used("relationOrder"):
            return None
        return GraphQLInputObjectType(
            TableType.MIN_MAX_ORDER_BY.of(view),
            {column.name: GraphQLInputField(ORDER_BY_DIRECTION) for column in columns},
        )

    # ------------------------------------------------------------ inserts and updates

    def _insert(self, view: TableView) -> GraphQLNamedType | None:
        if not view.insertable:
            return None
        return GraphQLInputObjectType(
            TableType.INSERT_INPUT.of(view),
            partial(self._insert_fields, view),
            extensions={"rows": view.takes_rows},
        )

    def _insert_fields(self, view: TableView) -> InputFields:
        fields = self._column_fields(view.insertable)
        if "nestedInserts" in view.features:
            for related, target in view.insertable_relations:
                type_ = self._types.named(TableType.INSERT_INPUT.of(target))
                fields[related.input_name] = GraphQLInputField(
                    type_ if related.to_one else GraphQLList(required(type_))
                )
        return fields

    def _update(self, view: TableView) -> GraphQLNamedType | None:
        if not view.updatable:
            return None
        return GraphQLInputObjectType(
            TableType.UPDATE_INPUT.of(view), lambda: self._column_fields(view.updatable)
        )

    def _column_fields(self, columns: tuple[ColumnField, ...]) -> InputFields:
        return {
            column.name: GraphQLInputField(
                self._types.output_type(column.mapping), description=column.description
            )
            for column in columns
        }

    def _on_conflict(self, view: TableView) -> GraphQLNamedType | None:
        if "upsert" not in view.features or not view.insertable:
            return None

        def fields() -> dict[str, GraphQLInputField]:
            found = {
                "columns": GraphQLInputField(
                    GraphQLList(required(self._types.named(TableType.INSERT_COLUMN.of(view))))
                )
            }
            constraints = self._types.types.get(TableType.CONFLICT_CONSTRAINT.of(view))
            if constraints is not None:
                found["constraint"] = GraphQLInputField(constraints)
            updatable = self._types.types.get(TableType.UPDATE_COLUMN.of(view))
            if updatable is not None:
                found["update"] = GraphQLInputField(
                    GraphQLList(required(updatable)),
                    description="Columns to set on a row that is there already.",
                )
            return found

        return GraphQLInputObjectType(
            TableType.ON_CONFLICT_INPUT.of(view),
            fields,
            description="What to do where a row is there already: update columns, or leave it as it is.",
        )

    def _constraints(self, view: TableView) -> GraphQLNamedType | None:
        names = [key.name for key in view.table.unique_keys if key.constraint and is_enum_value(key.name)]
        if not names or "upsert" not in view.features:
            return None
        return GraphQLEnumType(
            TableType.CONFLICT_CONSTRAINT.of(view),
            {name: name for name in names},
            extensions={"shapes": True},
        )

    def _column_enum(self, enum: TableType, view: TableView) -> GraphQLNamedType | None:
        columns, feature = {
            TableType.INSERT_COLUMN: (view.insertable, "upsert"),
            TableType.UPDATE_COLUMN: (view.updatable, "upsert"),
            TableType.GROUP_COLUMN: (groupable(view), "groupBy"),
        }[enum]
        if not columns or feature not in view.features:
            return None
        values = {field.name: field.column.name for field in columns if is_enum_value(field.name)}
        return GraphQLEnumType(enum.of(view), values, extensions={"shapes": True})

    # ------------------------------------------------------------ groups

    def _having(self, view: TableView) -> GraphQLNamedType | None:
        if "groupBy" not in view.features:
            return None

        def fields() -> dict[str, GraphQLInputField]:
            found = {"count": GraphQLInputField(_COMMON["BigIntFilter"])}
            for name in _AGGREGATES:
                type_ = self._types.types.get(TableType(f"{name}Having").of(view))
                if type_ is not None:
                    found[lower_first(name)] = GraphQLInputField(type_)
            return found

        return GraphQLInputObjectType(TableType.HAVING.of(view), fields, description="Which groups to show.")

    def _having_part(self, name: str, view: TableView) -> GraphQLNamedType | None:
        if "groupBy" not in view.features:
            return None
        fields = {column.name: self._having_filter(name, column) for column in view.columns}
        provided = {column: GraphQLInputField(type_) for column, type_ in fields.items() if type_ is not None}
        return GraphQLInputObjectType(TableType(f"{name}Having").of(view), provided) if provided else None

    def _having_filter(self, name: str, column: ColumnField) -> Any:
        if name == "CountDistinct":
            return _COMMON["BigIntFilter"] if column.mapping.orderable else None
        if name in ("Sum", "Avg"):
            return _COMMON["BigFloatFilter"] if column.mapping.numeric else None
        return self.filter_of(column.mapping) if column.mapping.minimum else None


def groupable(view: TableView) -> tuple[ColumnField, ...]:
    """Return the columns whose values can be compared and sorted."""
    return tuple(column for column in view.columns if column.mapping.orderable)
