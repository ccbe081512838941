"""Input types of tables: filters, orders, and what inserts and updates take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from graphql import GraphQLInputField, GraphQLInputObjectType, GraphQLList, GraphQLNamedType

from dataapi.graphql.common import IS_FILTER, ORDER_BY_DIRECTION, scalar_filter_name
from dataapi.graphql.fields import ColumnField
from dataapi.graphql.table_view import TableView
from dataapi.graphql.wire import Wire
from dataapi.graphql.wrappers import required

if TYPE_CHECKING:
    from dataapi.graphql.types import TableTypes

Fields = dict[str, GraphQLInputField]


class InputTypes:
    """Makes the input types of the tables in a role's types."""

    def __init__(self, types: TableTypes) -> None:
        self._types = types

    def makers(self) -> Mapping[str, Callable[[TableView], GraphQLNamedType | None]]:
        """Return what makes each type, by what follows the table's name in the type's."""
        return {
            "Filter": self._filter,
            "OrderBy": self._order_by,
            "InsertInput": self._insert,
            "UpdateInput": self._update,
        }

    # ------------------------------------------------------------ filters

    def _filter(self, view: TableView) -> GraphQLNamedType:
        return GraphQLInputObjectType(
            f"{view.name}Filter",
            partial(self._filter_fields, view),
            description=f"Conditions on a row of {view.name}; all that are given must hold.",
        )

    def _filter_fields(self, view: TableView) -> Fields:
        fields: Fields = {}
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
        itself = self._types.named(f"{view.name}Filter")
        # A column of the same name removes the operator (specification, Filtering rules 5).
        for word, meaning in (("and", "All of these hold."), ("or", "At least one of these holds.")):
            fields.setdefault(word, GraphQLInputField(GraphQLList(required(itself)), description=meaning))
        fields.setdefault("not", GraphQLInputField(itself, description="This does not hold."))
        return fields

    def _column_filter(self, view: TableView, column: ColumnField) -> Any:
        wire = column.wire
        if not wire.is_list and wire.kind == "JSON" and "jsonFilters" in view.features:
            return self._types.named("JSONFilter")
        if not wire.is_list and wire.kind == "String" and "fullText" in view.features:
            return self._types.named("StringSearchFilter")
        return self.filter_of(wire)

    def filter_of(self, wire: Wire) -> Any:
        """Return the filter type of a value, None when it can't be filtered."""
        if wire.scalar is None:
            suffix = "ListFilter" if wire.is_list else "Filter"
            return self._types.types.get(self._types.view.catalog.base_names[wire.enum] + suffix)
        if wire.kind == "JSON" and not wire.is_list:
            return None  # specification, Scalars
        name = scalar_filter_name(wire.scalar, is_list=wire.is_list) if wire.comparable else None
        return self._types.named(name or IS_FILTER.name)

    def _relation_filters(self, view: TableView) -> Fields:
        fields: Fields = {}
        for computed in view.computed:
            type_ = self.filter_of(computed.wire)
            if type_ is not None:
                fields[computed.input_name] = GraphQLInputField(type_, description=computed.description)
        for related in view.related:
            suffix, rows = ("Filter", "row") if related.to_one else ("CollectionFilter", "rows")
            fields[related.input_name] = GraphQLInputField(
                self._types.of_table(related.target, suffix), description=f"Conditions on the related {rows}."
            )
        return fields

    # ------------------------------------------------------------ orders

    def _order_by(self, view: TableView) -> GraphQLNamedType | None:
        if not view.orderable:
            return None
        return GraphQLInputObjectType(
            f"{view.name}OrderBy",
            partial(self._order_fields, view),
            description=f"What rows of {view.name} are ordered by: one column.",
        )

    def _order_fields(self, view: TableView) -> Fields:
        fields = {
            column.name: GraphQLInputField(ORDER_BY_DIRECTION, description=column.description)
            for column in view.columns
            if column.wire.orderable
        }
        if "relationOrder" in view.features:
            for related in view.related:
                if related.to_one and not view.target(related).orderable:
                    continue
                suffix = "OrderBy" if related.to_one else "CollectionOrderBy"
                fields[related.input_name] = GraphQLInputField(self._types.of_table(related.target, suffix))
        return fields

    # ------------------------------------------------------------ changes

    def _insert(self, view: TableView) -> GraphQLNamedType | None:
        if not view.insertable:
            return None
        return GraphQLInputObjectType(
            f"{view.name}InsertInput",
            partial(self._insert_fields, view),
            extensions={"rows": view.takes_rows},
        )

    def _insert_fields(self, view: TableView) -> Fields:
        fields = self._column_fields(view.insertable)
        if "nestedInserts" in view.features:
            for related, target in view.insertable_relations:
                type_ = self._types.named(f"{target.name}InsertInput")
                fields[related.input_name] = GraphQLInputField(
                    type_ if related.to_one else GraphQLList(required(type_))
                )
        return fields

    def _update(self, view: TableView) -> GraphQLNamedType | None:
        if not view.updatable:
            return None
        return GraphQLInputObjectType(f"{view.name}UpdateInput", lambda: self._column_fields(view.updatable))

    def _column_fields(self, columns: tuple[ColumnField, ...]) -> Fields:
        return {
            column.name: GraphQLInputField(
                self._types.output_type(column.wire), description=column.description
            )
            for column in columns
        }
