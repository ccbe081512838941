"""The GraphQL types of one role, each made when it is first asked for.

The schema knows every type's name and makes the type on demand.  Here are the object types and
enums; input types are in ``input_types``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from graphql import (
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLField,
    GraphQLID,
    GraphQLInt,
    GraphQLList,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLString,
    introspection_types,
)

from dataapi.catalog.field_names import enum_values
from dataapi.catalog.names import ENUM_SUFFIXES
from dataapi.graphql.graphql_core import LazyMap
from dataapi.graphql.schema.catalog_view import CatalogView
from dataapi.graphql.schema.input_types import InputTypes, groupable
from dataapi.graphql.schema.shared_types import (
    COMMON_TYPES,
    FILTER_OPERATORS,
    NODE,
    PAGE_INFO,
    filter_type,
    list_filter_type,
    list_of,
    paging_arguments,
    required,
)
from dataapi.graphql.schema.table_view import ColumnField, RelatedField, TableType, TableView
from dataapi.graphql.schema.type_mapping import BIG_FLOAT, BIG_INT, TypeMapping

_AGGREGATES = {
    "sum": "Sums of numbers.",
    "avg": "Means of numbers.",
    "min": "The least values.",
    "max": "The greatest values.",
}

_EVERY_SCHEMAS = {**COMMON_TYPES, **introspection_types}


class TableTypes:
    """Makes the types of tables and enums of one role's view.

    :ivar types: every type by name, made on demand; the schema's ``type_map``.
    """

    def __init__(self, view: CatalogView) -> None:
        self.view = view
        self.inputs = InputTypes(self)
        makers = {**self.inputs.makers(), **self._makers()}
        # Longer endings come first: a name ends in the longest one that it can end in.
        self._makers_by_ending = {ending: makers[ending] for ending in sorted(TableType, key=_longest_first)}
        self._shared = dict(_EVERY_SCHEMAS)
        self.types: LazyMap[GraphQLNamedType] = LazyMap(self._make, self._names)

    @property
    def parts(self) -> tuple[object, ...]:
        """What makes types, and the map that holds them."""
        return self, self.inputs, self.types

    def made(self) -> list[GraphQLNamedType]:
        """Return the types that were made until now and are no other schema's."""
        return [type_ for type_ in self.types.made() if type_.name not in _EVERY_SCHEMAS]

    def share(self, type_: GraphQLNamedType) -> None:
        """Add a type that is made already."""
        self._shared[type_.name] = type_

    def _names(self) -> Iterator[str]:
        yield from self._shared
        yield from self.inputs.shared()
        for base in self.view.names.tables_by_type:
            yield from (base + ending for ending in self._makers_by_ending)
        for base, oid in self.view.names.enums_by_type.items():
            if self.view.lists_enum(oid):
                yield from (base + suffix for suffix in ENUM_SUFFIXES)

    def _make(self, name: str) -> GraphQLNamedType | None:
        shared = self._shared.get(name)
        if shared is not None:
            return shared
        tables, enums = self.view.names.tables_by_type, self.view.names.enums_by_type
        if name in tables:
            return self._for_table(tables[name], self._object)
        for ending, make in self._makers_by_ending.items():
            base = name.removesuffix(ending)
            if ending and base != name and base in tables:
                return self._for_table(tables[base], make)
        for suffix in ENUM_SUFFIXES:
            base = name.removesuffix(suffix)
            if base + suffix == name and base in enums:
                return self._for_enum(enums[base], base, suffix)
        feature = self.inputs.shared().get(name)
        return None if feature is None else feature()

    def _makers(self) -> dict[TableType, Callable[[TableView], GraphQLNamedType | None]]:
        return {
            TableType.OBJECT: self._object,
            TableType.CONNECTION: self._connection,
            TableType.EDGE: self._edge,
            TableType.INSERT_RESPONSE: partial(self._response, TableType.INSERT_RESPONSE),
            TableType.UPDATE_RESPONSE: partial(self._response, TableType.UPDATE_RESPONSE),
            TableType.DELETE_RESPONSE: partial(self._response, TableType.DELETE_RESPONSE),
            TableType.AGGREGATE: self._aggregate,
            TableType.SUM_AGGREGATE_RESULT: partial(self._aggregate_result, "sum"),
            TableType.AVG_AGGREGATE_RESULT: partial(self._aggregate_result, "avg"),
            TableType.MIN_AGGREGATE_RESULT: partial(self._aggregate_result, "min"),
            TableType.MAX_AGGREGATE_RESULT: partial(self._aggregate_result, "max"),
            TableType.COUNT_DISTINCT_AGGREGATE_RESULT: self._count_distinct,
            TableType.GROUP: self._group,
            TableType.GROUP_KEYS: self._group_keys,
        }

    def _for_table(
        self, oid: int, make: Callable[[TableView], GraphQLNamedType | None]
    ) -> GraphQLNamedType | None:
        table = self.view.table(oid)
        return None if table is None else make(table)

    def of_table(self, oid: int, type_: TableType) -> Any:
        """Return a type of a table that the role sees."""
        return self.named(self.view.catalog.base_names[oid] + type_)

    def named(self, name: str) -> Any:
        """Return the type of that name.

        :raises KeyError: the role has no such type.
        """
        return self.types[name]

    # ------------------------------------------------------------ objects

    def _object(self, view: TableView) -> GraphQLNamedType:
        return GraphQLObjectType(
            view.name,
            fields=partial(self._object_fields, view),
            interfaces=(NODE,) if view.has_node_id else (),
            description=view.directives.description,
        )

    def _object_fields(self, view: TableView) -> dict[str, GraphQLField]:
        fields = {}
        if view.has_node_id:
            fields["nodeId"] = GraphQLField(
                required(GraphQLID), description="Identifies the row among all tables."
            )
        for column in view.columns:
            type_ = self.output_type(column.mapping)
            fields[column.field] = GraphQLField(
                type_ if column.column.nullable else required(type_), description=column.description
            )
        for computed in view.computed:
            fields[computed.name] = GraphQLField(
                self.output_type(computed.mapping), description=computed.description
            )
        for related in view.related:
            fields[related.name] = self._related_field(view, related)
        return fields

    def _related_field(self, view: TableView, related: RelatedField) -> GraphQLField:
        target = view.target(related)
        if not related.to_one:
            return self.collection_field(target, related.description or f"Rows of {target.name} of this row.")
        type_ = self.named(target.name)
        return GraphQLField(type_ if related.nullable else required(type_), description=related.description)

    def collection_field(self, view: TableView, description: str | None) -> GraphQLField:
        """Return a field that is a page of a table's rows, with the full collection arguments."""
        arguments = {
            **paging_arguments(),
            "filter": GraphQLArgument(
                self.named(TableType.FILTER.of(view)), description="Only rows that meet these conditions."
            ),
        }
        if view.orderable:
            order: Any = self.named(TableType.ORDER_BY.of(view))
            arguments["orderBy"] = GraphQLArgument(
                GraphQLList(required(order)),
                description="What the rows are ordered by, one column each; the key comes last by itself.",
            )
        return GraphQLField(
            required(self.named(TableType.CONNECTION.of(view))), arguments, description=description
        )

    def output_type(self, mapping: TypeMapping) -> Any:
        """Return the nullable type of a value, for output and input."""
        item: Any = self.item_type(mapping)
        return GraphQLList(item) if mapping.is_list else item

    def item_type(self, mapping: TypeMapping) -> Any:
        """Return the scalar or enum type of a value or of a list's items."""
        return (
            mapping.scalar
            if mapping.scalar is not None
            else self.named(self.view.catalog.base_names[mapping.enum])
        )

    def _connection(self, view: TableView) -> GraphQLNamedType:
        def fields() -> dict[str, GraphQLField]:
            found = {
                "edges": GraphQLField(
                    list_of(self.named(TableType.EDGE.of(view))), description="The rows of the page."
                ),
                "pageInfo": GraphQLField(
                    required(PAGE_INFO), description="Where the page stands in the collection."
                ),
            }
            if view.directives.total_count:
                found["totalCount"] = GraphQLField(
                    required(GraphQLInt), description="How many rows match the filter, on all pages."
                )
            if view.directives.aggregate:
                found["aggregate"] = GraphQLField(
                    self.named(TableType.AGGREGATE.of(view)),
                    description="Aggregates over the rows that match the filter.",
                )
            found.update(self._group_by_fields(view))
            return found

        return GraphQLObjectType(
            TableType.CONNECTION.of(view), fields, description=f"A page of a collection of {view.name}."
        )

    def _edge(self, view: TableView) -> GraphQLNamedType:
        def fields() -> dict[str, GraphQLField]:
            return {
                "cursor": GraphQLField(
                    required(GraphQLString), description="The row's position in the collection."
                ),
                "node": GraphQLField(self.named(view.name), description="The row."),
            }

        return GraphQLObjectType(
            TableType.EDGE.of(view), fields, description=f"A row of a collection of {view.name}."
        )

    # ------------------------------------------------------------ aggregates

    def _aggregate(self, view: TableView) -> GraphQLNamedType | None:
        if not view.aggregates:
            return None

        def fields() -> dict[str, GraphQLField]:
            found = {"count": GraphQLField(required(GraphQLInt), description="How many rows match.")}
            for function, meaning in _AGGREGATES.items():
                result = self.types.get(TableType.aggregate_result(function).of(view))
                if result is not None:
                    found[function] = GraphQLField(result, description=meaning)
            found.update(self._count_distinct_fields(view))
            return found

        return GraphQLObjectType(TableType.AGGREGATE.of(view), fields)

    def _aggregate_result(self, function: str, view: TableView) -> GraphQLNamedType | None:
        fields = {
            column.name: GraphQLField(self._aggregate_type(function, column.mapping))
            for column in view.columns
            if (column.mapping.numeric if function in ("sum", "avg") else column.mapping.minimum)
        }
        if not fields or not view.aggregates:
            return None
        return GraphQLObjectType(TableType.aggregate_result(function).of(view), fields)

    def _aggregate_type(self, function: str, mapping: TypeMapping) -> Any:
        if function == "avg":
            return BIG_FLOAT
        if function == "sum":
            return BIG_INT if mapping.kind in ("Int", "BigInt") else BIG_FLOAT
        return self.output_type(mapping)

    def _group_by_fields(self, view: TableView) -> dict[str, GraphQLField]:
        """Return the fields that features add to a connection."""
        if "groupBy" not in view.features or not groupable(view):
            return {}
        arguments = {
            "by": GraphQLArgument(list_of(self.named(TableType.GROUP_COLUMN.of(view)))),
            "having": GraphQLArgument(self.named(TableType.HAVING.of(view))),
            "first": GraphQLArgument(GraphQLInt),
        }
        groups = GraphQLField(
            list_of(self.named(TableType.GROUP.of(view))),
            arguments,
            description="Aggregates over groups of the rows that match the filter, ordered by their keys.",
        )
        return {"groupBy": groups}

    def _count_distinct_fields(self, view: TableView) -> dict[str, GraphQLField]:
        """Return the fields that features add to an aggregate."""
        type_ = self.types.get(TableType.COUNT_DISTINCT_AGGREGATE_RESULT.of(view))
        return {} if type_ is None else {"countDistinct": GraphQLField(type_)}

    def _group(self, view: TableView) -> GraphQLNamedType | None:
        if "groupBy" not in view.features:
            return None

        def fields() -> dict[str, GraphQLField]:
            return {
                "keys": GraphQLField(required(self.named(TableType.GROUP_KEYS.of(view)))),
                "aggregate": GraphQLField(required(self.named(TableType.AGGREGATE.of(view)))),
            }

        return GraphQLObjectType(TableType.GROUP.of(view), fields)

    def _group_keys(self, view: TableView) -> GraphQLNamedType | None:
        return self._result(
            TableType.GROUP_KEYS, view, groupable(view), lambda column: self.output_type(column.mapping)
        )

    def _count_distinct(self, view: TableView) -> GraphQLNamedType | None:
        columns = groupable(view)
        return self._result(
            TableType.COUNT_DISTINCT_AGGREGATE_RESULT, view, columns, lambda _column: required(GraphQLInt)
        )

    def _result(
        self,
        type_name: TableType,
        view: TableView,
        columns: tuple[ColumnField, ...],
        type_of: Callable[[ColumnField], Any],
    ) -> GraphQLNamedType | None:
        if "groupBy" not in view.features or not columns:
            return None
        return GraphQLObjectType(
            type_name.of(view), lambda: {column.name: GraphQLField(type_of(column)) for column in columns}
        )

    # ------------------------------------------------------------ responses of mutations

    def _response(self, response: TableType, view: TableView) -> GraphQLNamedType | None:
        allowed = {
            TableType.INSERT_RESPONSE: bool(view.insertable),
            TableType.UPDATE_RESPONSE: bool(view.updatable),
            TableType.DELETE_RESPONSE: view.deletable,
        }
        if not allowed[response]:
            return None

        def fields() -> dict[str, GraphQLField]:
            return {
                "affectedCount": GraphQLField(
                    required(GraphQLInt), description="How many rows were affected."
                ),
                "records": GraphQLField(list_of(self.named(view.name)), description="The rows themselves."),
            }

        return GraphQLObjectType(response.of(view), fields)

    # ------------------------------------------------------------ enums

    def _for_enum(self, oid: int, name: str, suffix: str) -> GraphQLNamedType | None:
        if suffix:
            enum = self.types.get(name)
            if enum is None:
                return None
            if suffix == "ListFilter":
                return list_filter_type(name + suffix, enum)
            return filter_type(name + suffix, enum, FILTER_OPERATORS["Enum"])
        return self._enum(oid, name)

    def _enum(self, oid: int, name: str) -> GraphQLNamedType | None:
        enum = self.view.enum(oid)
        values = None if enum is None else enum_values(self.view.catalog, enum)
        if values is None:
            return None
        description = self.view.catalog.directives.enum(oid).description
        return GraphQLEnumType(
            name, {shown: label for label, shown in values.items()}, description=description
        )


def _longest_first(ending: TableType) -> int:
    return -len(ending)
