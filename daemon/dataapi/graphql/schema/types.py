"""The GraphQL types of one role, created on demand.

The catalog's registry maps each type name to a table or enum. ``TypeRecipe``s define the types of a table:
object types here, input types in ``input_types``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import graphql as gql

from dataapi.catalog.names import enum_values
from dataapi.catalog.registry import EnumType, TableType
from dataapi.graphql.graphql_core import LazyMap
from dataapi.graphql.schema.catalog_view import CatalogView, RelatedField, TableView
from dataapi.graphql.schema.shared_types import (
    COMMON_TYPES,
    FILTER_OPERATORS,
    LIST_OPERATORS,
    NODE,
    PAGE_INFO,
    PAGING_ARGUMENTS,
    filter_type,
    list_of,
    required,
    types_of_features,
)
from dataapi.graphql.schema.type_mapping import AGGREGATES, BIG_FLOAT, BIG_INT, TypeMapping

_CONSTANT_TYPES = {**COMMON_TYPES, **gql.introspection_types}


@dataclass(frozen=True, slots=True)
class TypeRecipe:
    """How to create one of a table's GraphQL types.

    :ivar members: returns the fields or enum values. It is called on first use.
    :ivar description: may contain ``{}`` for the name of the table's object type.
    :ivar options: further arguments of ``kind``.
    """

    kind: Callable[..., gql.GraphQLNamedType]
    members: Callable[[TableTypes, TableView], Mapping[str, Any]]
    exists: Callable[[TableView], object] = lambda _view: True
    description: str | None = None
    options: Callable[[TableView], Mapping[str, Any]] = lambda _view: {}

    def make(self, name: str, types: TableTypes, view: TableView) -> gql.GraphQLNamedType | None:
        if not self.exists(view):
            return None
        options = dict(self.options(view))
        if self.description is not None:
            options["description"] = self.description.format(view.name)
        return self.kind(name, partial(self.members, types, view), **options)


class TableTypes:
    """The types of a role.

    :param roots: functions that create the root types, by name. They return None if the role has no such
        type.
    :ivar by_name: all types, created on demand: the schema's ``type_map``.
    :ivar of_features: types that optional features add to the schema, such as ``JSONFilter``, by default
        name.
    """

    def __init__(
        self,
        view: CatalogView,
        recipes: Mapping[TableType, TypeRecipe],
        roots: Mapping[str, Callable[[], gql.GraphQLNamedType | None]],
    ) -> None:
        self.view = view
        self._registry = view.catalog.registry
        self._roots = roots
        self._recipes = recipes
        self.of_features = types_of_features(self._registry.shared)
        self._shared = _CONSTANT_TYPES | {type_.name: type_ for type_ in self.of_features.values()}
        self.by_name: LazyMap[Any] = LazyMap(self._make, self._names)

    def created(self) -> list[gql.GraphQLNamedType]:
        return [type_ for type_ in self.by_name.created() if type_.name not in self._shared]

    def of(self, view: TableView, kind: TableType) -> Any:
        return self.by_name[view.name_of(kind)]

    def find(self, view: TableView, kind: TableType) -> Any:
        return self._find(view.table.oid, kind)

    def filter_of_enum(self, oid: int, *, is_list: bool) -> Any:
        return self._find(oid, EnumType.LIST_FILTER if is_list else EnumType.FILTER)

    def output_type(self, mapping: TypeMapping) -> Any:
        item = mapping.scalar or self.by_name[self._registry.base_names[mapping.enum]]
        return gql.GraphQLList(item) if mapping.is_list else item

    def _find(self, oid: int, kind: TableType | EnumType) -> Any:
        name = self.view.catalog.name_of_type(oid, kind)
        return None if name is None else self.by_name.get(name)

    def _names(self) -> Iterator[str]:
        yield from (*self._shared, *self._roots)
        for name, (oid, kind) in self._registry.types.items():
            if isinstance(kind, TableType) or self.view.lists_enum(oid):
                yield name

    def _make(self, name: str) -> gql.GraphQLNamedType | None:
        if name in self._shared:
            return self._shared[name]
        if name in self._roots:
            return self._roots[name]()
        owner = self._registry.types.get(name)
        if owner is None:
            return None
        oid, kind = owner
        if isinstance(kind, EnumType):
            return self._enum(oid, name) if kind is EnumType.ENUM else self._enum_filter(oid, kind, name)
        view = self.view.table(oid)
        return None if view is None else self._recipes[kind].make(name, self, view)

    def _enum(self, oid: int, name: str) -> gql.GraphQLNamedType | None:
        enum = self.view.catalog.types[oid]
        values = enum_values(self.view.catalog, enum)
        if values is None or enum.schema not in self.view.usable_schemas:
            return None
        description = self.view.catalog.directives.enum(oid).description
        by_value = {value: label for label, value in values.items()}
        return gql.GraphQLEnumType(name, by_value, description=description)

    def _enum_filter(self, oid: int, kind: EnumType, name: str) -> gql.GraphQLNamedType | None:
        enum = self._find(oid, EnumType.ENUM)
        if enum is None:
            return None
        is_list = kind is EnumType.LIST_FILTER
        return filter_type(
            name, enum, LIST_OPERATORS if is_list else FILTER_OPERATORS["Enum"], is_list=is_list
        )


def _object_fields(types: TableTypes, view: TableView) -> dict[str, gql.GraphQLField]:
    fields = {}
    if view.has_node_id:
        fields["nodeId"] = gql.GraphQLField(
            required(gql.GraphQLID), description="Identifies the row across all tables."
        )
    for column in view.columns:
        type_ = types.output_type(column.mapping)
        fields[column.field] = gql.GraphQLField(
            type_ if column.column.nullable else required(type_), description=column.description
        )
    for computed in view.computed:
        type_ = types.output_type(computed.mapping)
        fields[computed.name] = gql.GraphQLField(type_, description=computed.description)
    for related in view.related:
        fields[related.name] = _related_field(types, related)
    return fields


def _related_field(types: TableTypes, related: RelatedField) -> gql.GraphQLField:
    target = related.target
    if not related.to_one:
        return collection_field(types, target, related.description or f"Related rows of {target.name}.")
    type_ = types.by_name[target.name]
    return gql.GraphQLField(type_ if related.nullable else required(type_), description=related.description)


def collection_field(types: TableTypes, view: TableView, description: str | None) -> gql.GraphQLField:
    arguments = {
        **PAGING_ARGUMENTS,
        "filter": gql.GraphQLArgument(
            types.of(view, TableType.FILTER), description="Conditions on the rows."
        ),
    }
    if view.orderable_columns:
        arguments["orderBy"] = gql.GraphQLArgument(
            gql.GraphQLList(required(types.of(view, TableType.ORDER_BY))),
            description="Columns to order by, one per element. Ties are ordered by the key.",
        )
    return gql.GraphQLField(
        required(types.of(view, TableType.CONNECTION)), arguments, description=description
    )


def _connection_fields(types: TableTypes, view: TableView) -> dict[str, gql.GraphQLField]:
    fields = {
        "edges": gql.GraphQLField(
            list_of(types.of(view, TableType.EDGE)), description="The rows of the page."
        ),
        "pageInfo": gql.GraphQLField(
            required(PAGE_INFO), description="Position of the page in the collection."
        ),
    }
    if view.directives.total_count:
        fields["totalCount"] = gql.GraphQLField(
            required(gql.GraphQLInt), description="Number of rows that match the filter, on all pages."
        )
    if view.directives.aggregate:
        fields["aggregate"] = gql.GraphQLField(
            types.of(view, TableType.AGGREGATE), description="Aggregates over the rows that match the filter."
        )
    if view.grouped:
        arguments = {
            "by": gql.GraphQLArgument(list_of(types.of(view, TableType.GROUP_COLUMN))),
            "having": gql.GraphQLArgument(types.of(view, TableType.HAVING)),
            "first": gql.GraphQLArgument(gql.GraphQLInt),
        }
        fields["groupBy"] = gql.GraphQLField(
            list_of(types.of(view, TableType.GROUP)),
            arguments,
            description="Aggregates over groups of matching rows, ordered by the groups' keys.",
        )
    return fields


def _edge_fields(types: TableTypes, view: TableView) -> dict[str, gql.GraphQLField]:
    return {
        "cursor": gql.GraphQLField(required(gql.GraphQLString), description="Cursor of the row."),
        "node": gql.GraphQLField(types.by_name[view.name], description="The row."),
    }


def _response_fields(types: TableTypes, view: TableView) -> dict[str, gql.GraphQLField]:
    return {
        "affectedCount": gql.GraphQLField(required(gql.GraphQLInt), description="Number of affected rows."),
        "records": gql.GraphQLField(list_of(types.by_name[view.name]), description="The affected rows."),
    }


def _aggregate_fields(types: TableTypes, view: TableView) -> dict[str, gql.GraphQLField]:
    fields = {"count": gql.GraphQLField(required(gql.GraphQLInt), description="Number of matching rows.")}
    for name, description in AGGREGATES.items():
        result = types.find(view, TableType.aggregate_result(name))
        if result is not None:
            fields[name] = gql.GraphQLField(result, description=description)
    return fields


def column_recipe(
    kind: Callable[..., gql.GraphQLNamedType],
    aggregate: str,
    member: Callable[[TableTypes, TypeMapping], Any],
    allowed: Callable[[TableView], bool],
) -> TypeRecipe:
    """Return the definition of a type with a member for each column that an aggregate supports."""
    return TypeRecipe(
        kind,
        lambda types, view: {
            column.name: member(types, column.mapping) for column in view.columns_for(aggregate)
        },
        lambda view: allowed(view) and view.columns_for(aggregate),
    )


def _aggregate_result(name: str) -> TypeRecipe:
    return column_recipe(
        gql.GraphQLObjectType,
        name,
        lambda types, mapping: gql.GraphQLField(_aggregate_type(types, name, mapping)),
        lambda view: view.grouped if name == "countDistinct" else view.aggregates,
    )


def _aggregate_type(types: TableTypes, name: str, mapping: TypeMapping) -> Any:
    match name:
        case "sum" if mapping.kind in ("Int", "BigInt"):
            return BIG_INT
        case "sum" | "avg":
            return BIG_FLOAT
        case "countDistinct":
            return required(gql.GraphQLInt)
        case _:
            return types.output_type(mapping)


def _group_fields(types: TableTypes, view: TableView) -> dict[str, gql.GraphQLField]:
    return {
        "keys": gql.GraphQLField(required(types.of(view, TableType.GROUP_KEYS))),
        "aggregate": gql.GraphQLField(required(types.of(view, TableType.AGGREGATE))),
    }


OBJECT_TYPES = {
    TableType.OBJECT: TypeRecipe(
        gql.GraphQLObjectType,
        _object_fields,
        options=lambda view: {
            "interfaces": (NODE,) if view.has_node_id else (),
            "description": view.directives.description,
        },
    ),
    TableType.CONNECTION: TypeRecipe(
        gql.GraphQLObjectType, _connection_fields, description="A page of {} rows."
    ),
    TableType.EDGE: TypeRecipe(
        gql.GraphQLObjectType, _edge_fields, description="A row of {} and its cursor."
    ),
    TableType.INSERT_RESPONSE: TypeRecipe(
        gql.GraphQLObjectType, _response_fields, lambda view: view.insertable
    ),
    TableType.UPDATE_RESPONSE: TypeRecipe(
        gql.GraphQLObjectType, _response_fields, lambda view: view.updatable
    ),
    TableType.DELETE_RESPONSE: TypeRecipe(
        gql.GraphQLObjectType, _response_fields, lambda view: view.deletable
    ),
    TableType.AGGREGATE: TypeRecipe(gql.GraphQLObjectType, _aggregate_fields, lambda view: view.aggregates),
    **{TableType.aggregate_result(name): _aggregate_result(name) for name in AGGREGATES},
    TableType.GROUP: TypeRecipe(gql.GraphQLObjectType, _group_fields, lambda view: view.grouped),
    TableType.GROUP_KEYS: column_recipe(
        gql.GraphQLObjectType,
        "countDistinct",
        lambda types, mapping: gql.GraphQLField(types.output_type(mapping)),
        lambda view: view.grouped,
    ),
}
