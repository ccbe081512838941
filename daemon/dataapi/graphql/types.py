"""The GraphQL types of one role, each made when it is first asked for.

The schema knows every type's name and makes the type on demand (see ``lazy``).  Here are
the object types and enums; input types are in ``inputs``, those of features that a table
must turn on in ``features``.
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

from dataapi.catalog.base_names import ENUM_SUFFIXES
from dataapi.catalog.names import enum_values
from dataapi.graphql.common import (
    COMMON_TYPES,
    FILTER_OPERATORS,
    NODE,
    PAGE_INFO,
    filter_type,
    list_filter_type,
    paging_arguments,
)
from dataapi.graphql.features import FeatureTypes
from dataapi.graphql.fields import RelatedField
from dataapi.graphql.inputs import InputTypes
from dataapi.graphql.lazy import LazyMap
from dataapi.graphql.role_view import RoleView
from dataapi.graphql.scalars import BIG_FLOAT, BIG_INT
from dataapi.graphql.table_view import TableView
from dataapi.graphql.wire import Wire
from dataapi.graphql.wrappers import list_of, required

_AGGREGATES = {
    "Sum": "Sums of numbers.",
    "Avg": "Means of numbers.",
    "Min": "The least values.",
    "Max": "The greatest values.",
}


class TableTypes:
    """Makes the types of tables and enums of one role's view.

    :ivar types: every type by name, made on demand; the schema's ``type_map``.
    """

    def __init__(self, view: RoleView) -> None:
        self.view = view
        self.inputs = InputTypes(self)
        self._features = FeatureTypes(self)
        # Longer endings come first: a name ends in the longest one that it can end in.
        families = {**self._features.makers(), **self.inputs.makers(), **self._makers()}
        self._families = dict(sorted(families.items(), key=lambda item: -len(item[0])))
        self._shared = {**COMMON_TYPES, **introspection_types}
        self.types: LazyMap[GraphQLNamedType] = LazyMap(self._make, self._names)

    def share(self, type_: GraphQLNamedType) -> None:
        """Add a type that is made already."""
        self._shared[type_.name] = type_

    def _names(self) -> Iterator[str]:
        yield from self._shared
        yield from self._features.shared()
        for base in self.view.names.tables_by_type:
            yield from (base + suffix for suffix in self._families)
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
        for suffix, make in self._families.items():
            base = name.removesuffix(suffix)
            if suffix and base != name and base in tables:
                return self._for_table(tables[base], make)
        for suffix in ENUM_SUFFIXES:
            base = name.removesuffix(suffix)
            if base + suffix == name and base in enums:
                return self._for_enum(enums[base], base, suffix)
        feature = self._features.shared().get(name)
        return None if feature is None else feature()

    def _makers(self) -> dict[str, Callable[[TableView], GraphQLNamedType | None]]:
        return {
            "": self._object,
            "Connection": self._connection,
            "Edge": self._edge,
            "InsertResponse": partial(self._response, "InsertResponse"),
            "UpdateResponse": partial(self._response, "UpdateResponse"),
            "DeleteResponse": partial(self._response, "DeleteResponse"),
            "Aggregate": self._aggregate,
            "SumAggregateResult": partial(self._aggregate_result, "Sum"),
            "AvgAggregateResult": partial(self._aggregate_result, "Avg"),
            "MinAggregateResult": partial(self._aggregate_result, "Min"),
            "MaxAggregateResult": partial(self._aggregate_result, "Max"),
        }

    def _for_table(
        self, oid: int, make: Callable[[TableView], GraphQLNamedType | None]
    ) -> GraphQLNamedType | None:
        table = self.view.table(oid)
        return None if table is None else make(table)

    def of_table(self, oid: int, suffix: str) -> Any:
        """Return a type of a table that the role sees."""
        return self.named(self.view.catalog.base_names[oid] + suffix)

    def named(self, name: str) -> Any:
        """Return the type of that name; KeyError when there is none."""
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
            type_ = self.output_type(column.wire)
            fields[column.field] = GraphQLField(
                type_ if column.column.nullable else required(type_), description=column.description
            )
        for computed in view.computed:
            fields[computed.name] = GraphQLField(
                self.output_type(computed.wire), description=computed.description
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
                self.named(f"{view.name}Filter"), description="Only rows that meet these conditions."
            ),
        }
        if view.orderable:
            order: Any = self.named(f"{view.name}OrderBy")
            arguments["orderBy"] = GraphQLArgument(
                GraphQLList(required(order)),
                description="What the rows are ordered by, one column each; the key comes last by itself.",
            )
        return GraphQLField(
            required(self.named(f"{view.name}Connection")), arguments, description=description
        )

    def output_type(self, wire: Wire) -> Any:
        """Return the nullable type of a value, for output and input."""
        item: Any = self.item_type(wire)
        return GraphQLList(item) if wire.is_list else item

    def item_type(self, wire: Wire) -> Any:
        """Return the scalar or enum type of a value or of a list's items."""
        return wire.scalar if wire.scalar is not None else self.named(self.view.catalog.base_names[wire.enum])

    def _connection(self, view: TableView) -> GraphQLNamedType:
        def fields() -> dict[str, GraphQLField]:
            found = {
                "edges": GraphQLField(
                    list_of(self.named(f"{view.name}Edge")), description="The rows of the page."
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
                    self.named(f"{view.name}Aggregate"),
                    description="Aggregates over the rows that match the filter.",
                )
            found.update(self._features.connection_fields(view))
            return found

        return GraphQLObjectType(
            f"{view.name}Connection", fields, description=f"A page of a collection of {view.name}."
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
            f"{view.name}Edge", fields, description=f"A row of a collection of {view.name}."
        )

    # ------------------------------------------------------------ aggregates

    def _aggregate(self, view: TableView) -> GraphQLNamedType | None:
        if not view.aggregates:
            return None

        def fields() -> dict[str, GraphQLField]:
            found = {"count": GraphQLField(required(GraphQLInt), description="How many rows match.")}
            for function, meaning in _AGGREGATES.items():
                result = self.types.get(f"{view.name}{function}AggregateResult")
                if result is not None:
                    found[function.lower()] = GraphQLField(result, description=meaning)
            found.update(self._features.aggregate_fields(view))
            return found

        return GraphQLObjectType(f"{view.name}Aggregate", fields)

    def _aggregate_result(self, function: str, view: TableView) -> GraphQLNamedType | None:
        fields = {
            column.name: GraphQLField(self._aggregate_type(function, column.wire))
            for column in view.columns
            if (column.wire.numeric if function in ("Sum", "Avg") else column.wire.minimum)
        }
        if not fields or not view.aggregates:
            return None
        return GraphQLObjectType(f"{view.name}{function}AggregateResult", fields)

    def _aggregate_type(self, function: str, wire: Wire) -> Any:
        if function == "Avg":
            return BIG_FLOAT
        if function == "Sum":
            return BIG_INT if wire.kind in ("Int", "BigInt") else BIG_FLOAT
        return self.output_type(wire)

    # ------------------------------------------------------------ changes

    def _response(self, suffix: str, view: TableView) -> GraphQLNamedType | None:
        allowed = {
            "InsertResponse": bool(view.insertable),
            "UpdateResponse": bool(view.updatable),
            "DeleteResponse": view.deletable,
        }
        if not allowed[suffix]:
            return None

        def fields() -> dict[str, GraphQLField]:
            return {
                "affectedCount": GraphQLField(
                    required(GraphQLInt), description="How many rows were affected."
                ),
                "records": GraphQLField(list_of(self.named(view.name)), description="The rows themselves."),
            }

        return GraphQLObjectType(view.name + suffix, fields)

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
        description = self.view.catalog.annotations.enum(oid).description
        return GraphQLEnumType(
            name, {shown: label for label, shown in values.items()}, description=description
        )
