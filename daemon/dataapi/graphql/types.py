"""The GraphQL types of one role, each made when it is first asked for.

A schema of a thousand tables has some fifteen thousand types; a role's documents use a
few.  So the schema knows every type's name and makes the type on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

from graphql import (
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLField,
    GraphQLID,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInt,
    GraphQLList,
    GraphQLNamedType,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLString,
)

from dataapi.catalog.names import enum_values
from dataapi.graphql.common import (
    COMMON_TYPES,
    FILTER_OPERATORS,
    NODE,
    ORDER_BY_DIRECTION,
    PAGE_INFO,
    filter_type,
    list_filter_type,
    paging_arguments,
    scalar_filter_name,
)
from dataapi.graphql.scalars import BIG_FLOAT, BIG_INT
from dataapi.graphql.views import RelatedField, RoleView, TableView
from dataapi.graphql.wire import Wire

T = TypeVar("T")
Make = Callable[[], T | None]


class LazyMap(dict[str, T], Generic[T]):
    """A dict whose values are made when first looked up; a maker that returns None has no entry.

    graphql-core looks types and fields up one by one, and walks all of them only for introspection.
    """

    def __init__(self, makers: Mapping[str, Make[T]]) -> None:
        super().__init__()
        self._makers = dict(makers)

    def put(self, name: str, value: T) -> None:
        """Add an entry that is made already."""
        self._makers.pop(name, None)
        super().__setitem__(name, value)

    def _made(self, name: str) -> bool:
        maker = self._makers.pop(name, None)
        if maker is not None:
            value = maker()
            if value is not None:
                super().__setitem__(name, value)
        return super().__contains__(name)

    def _make_all(self) -> None:
        for name in list(self._makers):
            self._made(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (
            isinstance(name, str) and name in self._makers and self._made(name)
        )

    def __getitem__(self, name: str) -> T:
        self._made(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the entry, made now if need be."""
        return super().__getitem__(name) if name in self else default

    def __iter__(self) -> Iterator[str]:
        self._make_all()
        return super().__iter__()

    def __len__(self) -> int:
        self._make_all()
        return super().__len__()

    def keys(self) -> Any:
        """Return all names."""
        self._make_all()
        return super().keys()

    def values(self) -> Any:
        """Return all entries."""
        self._make_all()
        return super().values()

    def items(self) -> Any:
        """Return all names and entries."""
        self._make_all()
        return super().items()


class LazyObjectType(GraphQLObjectType):
    """An object type whose fields are made one by one."""

    def __init__(
        self, name: str, makers: Callable[[], Mapping[str, Make[GraphQLField]]], description: str
    ) -> None:
        super().__init__(name, fields={}, description=description)
        self._field_makers = makers

    @cached_property
    def fields(self) -> Any:
        """Return the fields, a ``LazyMap``."""
        return LazyMap(self._field_makers())


def required(type_: Any) -> Any:
    """Return the type as non-null."""
    return GraphQLNonNull(type_)


def list_of(type_: Any) -> Any:
    """Return a non-null list of non-null items."""
    return GraphQLNonNull(GraphQLList(GraphQLNonNull(type_)))


class TableTypes:
    """Makes the types of tables and enums of one role's view.

    :ivar types: every type by name, made on demand; the schema's ``type_map``.
    """

    def __init__(self, view: RoleView) -> None:
        self.view = view
        makers: dict[str, Make[GraphQLNamedType]] = {}
        for oid, name in view.named_tables():
            for suffix, make in self._makers().items():
                makers[name + suffix] = partial(self._for_table, oid, make)
        for oid, name in view.named_enums():
            makers[name] = partial(self._enum, oid, name)
            makers[f"{name}Filter"] = partial(self._enum_filter, oid, name)
            makers[f"{name}ListFilter"] = partial(self._enum_list_filter, oid, name)
        for name, type_ in COMMON_TYPES.items():
            makers[name] = partial(_itself, type_)
        self.types: LazyMap[GraphQLNamedType] = LazyMap(makers)

    def _makers(self) -> dict[str, Callable[[TableView], GraphQLNamedType | None]]:
        return {
            "": self._object,
            "Connection": self._connection,
            "Edge": self._edge,
            "Filter": self._filter,
            "OrderBy": self._order_by,
            "InsertInput": partial(self._input, "InsertInput"),
            "UpdateInput": partial(self._input, "UpdateInput"),
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
            fields[column.name] = GraphQLField(
                type_ if column.column.nullable else required(type_), description=column.description
            )
        for computed in view.computed:
            fields[computed.name] = GraphQLField(
                self.output_type(computed.wire), description=computed.description
            )
        for related in view.related:
            fields[related.name] = self._related_field(related)
        return fields

    def _related_field(self, related: RelatedField) -> GraphQLField:
        target = self.view.table(related.target)
        assert target is not None, "a relationship leads to a table that the role sees"
        if not related.to_one:
            return self.collection_field(target, related.description)
        type_ = self.named(target.name)
        return GraphQLField(type_ if related.nullable else required(type_), description=related.description)

    def collection_field(self, view: TableView, description: str | None) -> GraphQLField:
        """Return a field that is a page of a table's rows, with the full collection arguments."""
        arguments = {
            **paging_arguments(),
            "filter": GraphQLArgument(self.named(f"{view.name}Filter")),
            "orderBy": GraphQLArgument(GraphQLList(required(self.named(f"{view.name}OrderBy")))),
        }
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
                "edges": GraphQLField(list_of(self.named(f"{view.name}Edge"))),
                "pageInfo": GraphQLField(required(PAGE_INFO)),
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
            return found

        return GraphQLObjectType(f"{view.name}Connection", fields)

    def _edge(self, view: TableView) -> GraphQLNamedType:
        def fields() -> dict[str, GraphQLField]:
            return {
                "cursor": GraphQLField(required(GraphQLString)),
                "node": GraphQLField(self.named(view.name)),
            }

        return GraphQLObjectType(f"{view.name}Edge", fields)

    # ------------------------------------------------------------ aggregates

    def _aggregate(self, view: TableView) -> GraphQLNamedType | None:
        if not view.directives.aggregate:
            return None

        def fields() -> dict[str, GraphQLField]:
            found = {"count": GraphQLField(required(GraphQLInt), description="How many rows match.")}
            for function in ("Sum", "Avg", "Min", "Max"):
                result = self.types.get(f"{view.name}{function}AggregateResult")
                if result is not None:
                    found[function.lower()] = GraphQLField(result)
            return found

        return GraphQLObjectType(f"{view.name}Aggregate", fields)

    def _aggregate_result(self, function: str, view: TableView) -> GraphQLNamedType | None:
        fields = {
            column.name: GraphQLField(self._aggregate_type(function, column.wire))
            for column in view.columns
            if (column.wire.numeric if function in ("Sum", "Avg") else column.wire.minimum)
        }
        if not fields or not view.directives.aggregate:
            return None
        return GraphQLObjectType(f"{view.name}{function}AggregateResult", fields)

    def _aggregate_type(self, function: str, wire: Wire) -> Any:
        if function == "Avg":
            return BIG_FLOAT
        if function == "Sum":
            return BIG_INT if wire.kind in ("Int", "BigInt") else BIG_FLOAT
        return self.output_type(wire)

    # ------------------------------------------------------------ inputs

    def _filter(self, view: TableView) -> GraphQLNamedType:
        def fields() -> dict[str, GraphQLInputField]:
            found: dict[str, GraphQLInputField] = {}
            if view.has_node_id:
                found["nodeId"] = GraphQLInputField(self.named("IDFilter"))
            for column in view.columns:
                type_ = self.filter_of(column.wire)
                if type_ is not None:
                    found[column.name] = GraphQLInputField(type_)
            itself = self.named(f"{view.name}Filter")
            # A column of the same name removes the operator (specification, Filtering rules 5).
            for word in ("and", "or"):
                found.setdefault(word, GraphQLInputField(GraphQLList(required(itself))))
            found.setdefault("not", GraphQLInputField(itself))
            return found

        return GraphQLInputObjectType(f"{view.name}Filter", fields)

    def filter_of(self, wire: Wire) -> Any:
        """Return the filter type of a value, None when it can't be filtered."""
        if wire.scalar is None:
            suffix = "ListFilter" if wire.is_list else "Filter"
            return self.types.get(self.view.catalog.base_names[wire.enum] + suffix)
        if not wire.comparable:
            return None
        name = scalar_filter_name(wire.scalar, is_list=wire.is_list)
        return None if name is None else self.named(name)

    def _order_by(self, view: TableView) -> GraphQLNamedType:
        def fields() -> dict[str, GraphQLInputField]:
            return {
                column.name: GraphQLInputField(ORDER_BY_DIRECTION)
                for column in view.columns
                if column.wire.orderable
            }

        return GraphQLInputObjectType(f"{view.name}OrderBy", fields)

    # ------------------------------------------------------------ changes

    def _input(self, suffix: str, view: TableView) -> GraphQLNamedType | None:
        columns = view.insertable if suffix == "InsertInput" else view.updatable
        if not columns:
            return None

        def fields() -> dict[str, GraphQLInputField]:
            return {
                column.name: GraphQLInputField(self.output_type(column.wire), description=column.description)
                for column in columns
            }

        return GraphQLInputObjectType(view.name + suffix, fields)

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

    def _enum(self, oid: int, name: str) -> GraphQLNamedType | None:
        enum = self.view.enum(oid)
        values = None if enum is None else enum_values(self.view.catalog, enum)
        if values is None:
            return None
        description = self.view.catalog.annotations.enum(oid).description
        return GraphQLEnumType(
            name, {shown: label for label, shown in values.items()}, description=description
        )

    def _enum_filter(self, oid: int, name: str) -> GraphQLNamedType | None:  # noqa: ARG002 - a maker's form
        enum = self.types.get(name)
        return None if enum is None else filter_type(f"{name}Filter", enum, FILTER_OPERATORS["Enum"])

    def _enum_list_filter(self, oid: int, name: str) -> GraphQLNamedType | None:  # noqa: ARG002 - a maker's form
        enum = self.types.get(name)
        return None if enum is None else list_filter_type(f"{name}ListFilter", enum)


def _itself(type_: GraphQLNamedType) -> GraphQLNamedType:
    return type_
