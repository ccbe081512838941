"""The input types of tables: filters, orders, inserts, updates, upserts and ``groupBy``.

Some types exist only if a directive or the configuration enables a feature (docs/reference/graphql.md,
Features).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphql import GraphQLEnumType, GraphQLInputField, GraphQLInputObjectType, GraphQLList

from dataapi.catalog.directives import is_enum_value
from dataapi.catalog.registry import FEATURE_OF_SHARED_TYPE, TableType
from dataapi.graphql.schema.catalog_view import ColumnField, TableView
from dataapi.graphql.schema.shared_types import (
    COMMON_TYPES,
    FILTER_IS,
    IS_FILTER,
    ORDER_BY_DIRECTION,
    required,
)
from dataapi.graphql.schema.type_mapping import AGGREGATES, TypeMapping, aggregate_mapping, builtin_mapping
from dataapi.graphql.schema.types import TableTypes, TypeRecipe, column_recipe

InputFields = dict[str, GraphQLInputField]


def _filter_fields(types: TableTypes, view: TableView) -> InputFields:
    fields: InputFields = {}
    if view.has_node_id:
        fields["nodeId"] = GraphQLInputField(types.by_name["IDFilter"], description="The row's node id.")
    for column in view.columns:
        type_ = _column_filter(types, view, column.mapping)
        if type_ is not None:
            fields[column.name] = GraphQLInputField(type_, description=column.description)
    if "relationFilters" in view.features:
        fields.update(_relation_filters(types, view))
    itself = types.of(view, TableType.FILTER)
    # A column of the same name replaces the operator (docs/reference/graphql.md, Filters).
    for word, meaning in (
        ("and", "True if all conditions are true."),
        ("or", "True if any condition is true."),
    ):
        fields.setdefault(word, GraphQLInputField(GraphQLList(required(itself)), description=meaning))
    fields.setdefault("not", GraphQLInputField(itself, description="Negates the condition."))
    return fields


_FEATURE_FILTERS = {"JSON": "JSONFilter", "String": "StringSearchFilter"}


def _column_filter(types: TableTypes, view: TableView, mapping: TypeMapping) -> Any:
    name = _FEATURE_FILTERS.get(mapping.kind)
    if name is None or mapping.is_list or FEATURE_OF_SHARED_TYPE[name] not in view.features:
        return _filter_of(types, mapping)
    return types.of_features[name]


def _filter_of(types: TableTypes, mapping: TypeMapping) -> Any:
    if mapping.scalar is None:
        return types.filter_of_enum(mapping.enum, is_list=mapping.is_list)
    if mapping.kind == "JSON" and not mapping.is_list:
        return None  # JSON has no filter by default (docs/reference/graphql.md, Scalars)
    name = f"{mapping.kind}ListFilter" if mapping.is_list else f"{mapping.kind}Filter"
    return COMMON_TYPES.get(name, IS_FILTER) if mapping.comparable else IS_FILTER


def _relation_filters(types: TableTypes, view: TableView) -> InputFields:
    fields: InputFields = {}
    for computed in view.computed:
        type_ = _filter_of(types, computed.mapping)
        if type_ is not None:
            fields[computed.input_name] = GraphQLInputField(type_, description=computed.description)
    for related in view.related:
        to_one = (TableType.ROW_FILTER, "row")
        ending, rows = to_one if related.to_one else (TableType.COLLECTION_FILTER, "rows")
        fields[related.input_name] = GraphQLInputField(
            types.of(related.target, ending), description=f"Conditions on the related {rows}."
        )
    return fields


def _row_filter_fields(types: TableTypes, view: TableView) -> InputFields:
    fields = _filter_fields(types, view)
    fields.setdefault("is", GraphQLInputField(FILTER_IS, description="Whether a related row exists."))
    return fields


def _collection_filter_fields(types: TableTypes, view: TableView) -> InputFields:
    return {word: GraphQLInputField(types.of(view, TableType.FILTER)) for word in ("some", "none", "every")}


def _order_fields(types: TableTypes, view: TableView) -> InputFields:
    fields = {
        column.name: GraphQLInputField(ORDER_BY_DIRECTION, description=column.description)
        for column in view.orderable_columns
    }
    if "relationOrder" in view.features:
        for related in view.related:
            ending = TableType.ORDER_BY if related.to_one else TableType.COLLECTION_ORDER_BY
            type_ = types.find(related.target, ending)
            if type_ is not None:
                fields[related.input_name] = GraphQLInputField(type_)
    return fields


def _collection_order_fields(types: TableTypes, view: TableView) -> InputFields:
    fields = {"count": GraphQLInputField(ORDER_BY_DIRECTION)}
    extremes = types.find(view, TableType.MIN_MAX_ORDER_BY)
    if extremes is not None:
        fields["min"] = fields["max"] = GraphQLInputField(extremes)
    return fields


def _insert_fields(types: TableTypes, view: TableView) -> InputFields:
    fields = _column_fields(types, view.insertable)
    if "nestedInserts" in view.features:
        for related in view.insertable_relations:
            type_ = types.of(related.target, TableType.INSERT_INPUT)
            fields[related.input_name] = GraphQLInputField(
                type_ if related.to_one else GraphQLList(required(type_))
            )
    return fields


def _column_fields(types: TableTypes, columns: Sequence[ColumnField]) -> InputFields:
    return {
        column.name: GraphQLInputField(types.output_type(column.mapping), description=column.description)
        for column in columns
    }


def _on_conflict_fields(types: TableTypes, view: TableView) -> InputFields:
    columns = types.of(view, TableType.INSERT_COLUMN)
    fields = {"columns": GraphQLInputField(GraphQLList(required(columns)))}
    constraints = types.find(view, TableType.CONFLICT_CONSTRAINT)
    if constraints is not None:
        fields["constraint"] = GraphQLInputField(constraints)
    updatable = types.find(view, TableType.UPDATE_COLUMN)
    if updatable is not None:
        fields["update"] = GraphQLInputField(
            GraphQLList(required(updatable)), description="Columns to update if the row already exists."
        )
    return fields


def _constraints(view: TableView) -> dict[str, str]:
    keys = [key.name for key in view.table.unique_keys if key.constraint]
    return {name: name for name in keys if is_enum_value(name)}


def _upserts(view: TableView) -> bool:
    return "upsert" in view.features and bool(view.insertable)


def _having_fields(types: TableTypes, view: TableView) -> InputFields:
    fields = {"count": GraphQLInputField(_filter_of(types, builtin_mapping("int8")))}
    for name in AGGREGATES:
        type_ = types.find(view, TableType.having(name))
        if type_ is not None:
            fields[name] = GraphQLInputField(type_)
    return fields


def _having(name: str) -> TypeRecipe:
    return column_recipe(
        GraphQLInputObjectType,
        name,
        lambda types, mapping: GraphQLInputField(_filter_of(types, aggregate_mapping(name, mapping))),
        lambda view: view.grouped,
    )


def _enum(
    values: Callable[[TableView], Mapping[str, str]], exists: Callable[[TableView], object]
) -> TypeRecipe:
    return TypeRecipe(
        GraphQLEnumType,
        lambda _types, view: values(view),
        exists,
        options=lambda _view: {"extensions": {"shapes": True}},
    )


def _column_names(columns: Sequence[ColumnField]) -> dict[str, str]:
    return {field.name: field.column.name for field in columns if is_enum_value(field.name)}


INPUT_TYPES = {
    TableType.FILTER: TypeRecipe(
        GraphQLInputObjectType,
        _filter_fields,
        description="Conditions on a row of {}. All of them must be true.",
    ),
    TableType.COLLECTION_FILTER: TypeRecipe(
        GraphQLInputObjectType,
        _collection_filter_fields,
        lambda view: "relationFilters" in view.catalog_view.used_features,
    ),
    TableType.ROW_FILTER: TypeRecipe(
        GraphQLInputObjectType,
        _row_filter_fields,
        lambda view: "relationFilters" in view.catalog_view.used_features,
        "Conditions on the related row of {}. A row without a related row only matches if `is` is NULL.",
    ),
    TableType.ORDER_BY: TypeRecipe(
        GraphQLInputObjectType,
        _order_fields,
        lambda view: view.orderable_columns,
        "A column to order rows of {} by.",
    ),
    TableType.COLLECTION_ORDER_BY: TypeRecipe(
        GraphQLInputObjectType,
        _collection_order_fields,
        lambda view: "relationOrder" in view.catalog_view.used_features,
    ),
    TableType.MIN_MAX_ORDER_BY: column_recipe(
        GraphQLInputObjectType,
        "min",
        lambda _types, _mapping: GraphQLInputField(ORDER_BY_DIRECTION),
        lambda view: "relationOrder" in view.catalog_view.used_features,
    ),
    TableType.INSERT_INPUT: TypeRecipe(
        GraphQLInputObjectType,
        _insert_fields,
        lambda view: view.insertable,
        options=lambda view: {"extensions": {"rows": view.allows_batches}},
    ),
    TableType.UPDATE_INPUT: TypeRecipe(
        GraphQLInputObjectType,
        lambda types, view: _column_fields(types, view.updatable),
        lambda view: view.updatable,
    ),
    TableType.ON_CONFLICT_INPUT: TypeRecipe(
        GraphQLInputObjectType,
        _on_conflict_fields,
        _upserts,
        "What to do on conflict: update columns, or keep the existing row.",
    ),
    TableType.CONFLICT_CONSTRAINT: _enum(
        _constraints, lambda view: "upsert" in view.features and _constraints(view)
    ),
    TableType.INSERT_COLUMN: _enum(lambda view: _column_names(view.insertable), _upserts),
    TableType.UPDATE_COLUMN: _enum(
        lambda view: _column_names(view.updatable), lambda view: "upsert" in view.features and view.updatable
    ),
    TableType.GROUP_COLUMN: _enum(
        lambda view: _column_names(view.orderable_columns), lambda view: view.grouped
    ),
    TableType.HAVING: TypeRecipe(
        GraphQLInputObjectType,
        _having_fields,
        lambda view: view.grouped,
        "Conditions on groups. All of them must be true.",
    ),
    **{TableType.having(name): _having(name) for name in AGGREGATES},
}
