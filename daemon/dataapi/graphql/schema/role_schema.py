"""The GraphQL schema of a role for one catalog: its root fields, and its text in SDL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import graphql as gql

from dataapi.catalog.model import Catalog
from dataapi.catalog.names import CatalogNames, missing_key
from dataapi.catalog.registry import FEATURE_OF_SHARED_TYPE, SUBSCRIPTION, TableFieldKind, TableType
from dataapi.graphql.graphql_core import LazyObjectType, LazySchema
from dataapi.graphql.schema.catalog_view import CatalogView, TableView
from dataapi.graphql.schema.functions import FunctionField, constant_default, function_fields
from dataapi.graphql.schema.input_types import INPUT_TYPES
from dataapi.graphql.schema.shared_types import NODE, list_of, required
from dataapi.graphql.schema.type_mapping import DATETIME, OPAQUE
from dataapi.graphql.schema.types import OBJECT_TYPES, TableTypes, collection_field
from dataapi.settings import Project

QUERY, MUTATION = "Query", "Mutation"
"""Names of the root types. Unlike ``Subscription``, they are reserved, so they never change."""


COMMON_FIELDS = {
    "node": gql.GraphQLField(
        NODE,
        {"nodeId": gql.GraphQLArgument(required(gql.GraphQLID), description="Node id of a row.")},
        description="The row with the given node id.",
    ),
    "heartbeat": gql.GraphQLField(required(DATETIME), description="Current time of the database."),
}
UNLISTED = frozenset({"heartbeat"})
"""Fields of ``Query`` that introspection does not list, as in pg_graphql."""


@dataclass(frozen=True, slots=True)
class TableField:
    """A root field of a table."""

    kind: TableFieldKind
    view: TableView


class RootFields:
    """The fields of ``Query`` or ``Mutation``, created on demand."""

    def __init__(self, types: TableTypes, *, volatile: bool) -> None:
        self._types = types
        self._volatile = volatile
        registry = types.view.catalog.registry
        self._tables = registry.mutations if volatile else registry.queries

    @cached_property
    def _functions(self) -> dict[str, FunctionField]:
        return function_fields(self._types.view, volatile=self._volatile)

    @cached_property
    def any(self) -> bool:
        return any(self.find(name) is not None for name in self.names())

    def names(self) -> Iterator[str]:
        if not self._volatile:
            yield "node"
        yield from self._tables
        yield from self._functions

    def find(self, name: str) -> TableField | FunctionField | None:
        if name not in self._tables:
            return self._functions.get(name)
        kind, oid = self._tables[name]
        view = self._types.view.table(oid)
        return TableField(kind, view) if view is not None and _TABLE_FIELDS[kind].exists(view) else None

    def field(self, name: str) -> gql.GraphQLField | None:
        match self.find(name):
            case TableField(kind, view):
                return _TABLE_FIELDS[kind].make(self._types, view)
            case FunctionField() as function:
                return _function_field(self._types, function)
            case None:
                return None if self._volatile else COMMON_FIELDS.get(name)


class SubscriptionFields(RootFields):
    """The fields of ``Subscription``: the fields of ``Query`` for which ``subscriptions`` is enabled."""

    def __init__(self, types: TableTypes) -> None:
        super().__init__(types, volatile=False)
        self._everywhere = _FEATURE in types.view.catalog.features

    def find(self, name: str) -> TableField | FunctionField | None:
        field = super().find(name)
        view = None if field is None else field.view
        return field if self._everywhere or (view is not None and _FEATURE in view.features) else None

    def field(self, name: str) -> gql.GraphQLField | None:
        if name in COMMON_FIELDS and (name in UNLISTED or not self._everywhere):
            return None
        return super().field(name)


_FEATURE = FEATURE_OF_SHARED_TYPE[SUBSCRIPTION]


def _function_field(types: TableTypes, function: FunctionField) -> gql.GraphQLField:
    arguments = {}
    overloaded = len(function.overloads) > 1  # graphql-core would count a default as a provided argument
    for name, (item, is_required) in function.arguments().items():
        type_ = OPAQUE if item.composite is not None else types.output_type(item.mapping)
        default = None if overloaded else constant_default(item.argument.default, item.mapping)
        arguments[name] = gql.GraphQLArgument(required(type_) if is_required else type_, default=default)
    if function.view is not None and function.is_list:
        field = collection_field(types, function.view, function.description)
        field.args.update(arguments)
        return field
    if function.view is not None:
        type_ = types.by_name[function.view.name]
    else:
        type_ = OPAQUE if function.mapping is None else types.output_type(function.mapping)
    if function.is_list:
        type_ = gql.GraphQLList(type_)
    return gql.GraphQLField(type_, arguments, description=function.description)


def _collection(types: TableTypes, view: TableView) -> gql.GraphQLField:
    description = view.directives.description or f"A page of the rows of {view.name}."
    return collection_field(types, view, description)


def _by_key(types: TableTypes, view: TableView) -> gql.GraphQLField:
    arguments = {
        field.name: gql.GraphQLArgument(
            required(types.output_type(field.mapping)),
            description=field.description or f"The row's {field.name}.",
        )
        for field in view.by_key
    }
    description = f"The row of {view.name} with a primary key."
    return gql.GraphQLField(types.by_name[view.name], arguments, description=description)


def _insert(types: TableTypes, view: TableView) -> gql.GraphQLField:
    arguments = {
        "objects": gql.GraphQLArgument(
            list_of(types.of(view, TableType.INSERT_INPUT)), description="The rows to add."
        )
    }
    on_conflict = types.find(view, TableType.ON_CONFLICT_INPUT)
    if on_conflict is not None:
        arguments["onConflict"] = gql.GraphQLArgument(
            on_conflict, description="What to do on conflict (default: raise an error)."
        )
    response = types.of(view, TableType.INSERT_RESPONSE)
    return gql.GraphQLField(response, arguments, description=f"Adds rows to {view.name}.")


def _update(types: TableTypes, view: TableView) -> gql.GraphQLField:
    arguments = {
        "set": gql.GraphQLArgument(
            required(types.of(view, TableType.UPDATE_INPUT)),
            description="New values of the columns to change.",
        ),
        **_affected_rows(types, view),
    }
    response = required(types.of(view, TableType.UPDATE_RESPONSE))
    description = f"Changes the rows of {view.name} that match the filter."
    return gql.GraphQLField(response, arguments, description=description)


def _delete(types: TableTypes, view: TableView) -> gql.GraphQLField:
    response = required(types.of(view, TableType.DELETE_RESPONSE))
    description = f"Removes the rows of {view.name} that match the filter."
    return gql.GraphQLField(response, _affected_rows(types, view), description=description)


def _affected_rows(types: TableTypes, view: TableView) -> dict[str, gql.GraphQLArgument]:
    return {
        "filter": gql.GraphQLArgument(
            types.of(view, TableType.FILTER),
            description="Conditions on the rows to change (default: all rows).",
        ),
        "atMost": gql.GraphQLArgument(
            required(gql.GraphQLInt),
            default=gql.GraphQLDefaultInput(value=1),
            description="Maximum number of affected rows. If more would be affected, the mutation fails.",
        ),
    }


class _FieldRecipe(NamedTuple):
    exists: Callable[[TableView], object]
    make: Callable[[TableTypes, TableView], gql.GraphQLField]


_TABLE_FIELDS = {
    TableFieldKind.COLLECTION: _FieldRecipe(lambda _view: True, _collection),
    TableFieldKind.BY_KEY: _FieldRecipe(lambda view: view.by_key, _by_key),
    TableFieldKind.INSERT: _FieldRecipe(lambda view: view.insertable, _insert),
    TableFieldKind.UPDATE: _FieldRecipe(lambda view: view.updatable, _update),
    TableFieldKind.DELETE: _FieldRecipe(lambda view: view.deletable, _delete),
}


class RoleSchema:
    """The types and root fields of one role.

    :ivar strict: whether documents are validated exactly as the GraphQL specification requires.
    """

    def __init__(self, view: CatalogView, *, strict: bool = False) -> None:
        self.view = view
        self.strict = strict
        self._subscription_root = view.catalog.registry.shared.get(SUBSCRIPTION)
        roots: dict[str, Callable[[], gql.GraphQLNamedType | None]] = {
            QUERY: self._query,
            MUTATION: self._mutation,
        }
        if self._subscription_root is not None:
            roots[self._subscription_root] = self._subscription
        self.types = TableTypes(view, {**OBJECT_TYPES, **INPUT_TYPES}, roots)
        self.query_fields = RootFields(self.types, volatile=False)
        self.mutation_fields = RootFields(self.types, volatile=True)
        self.subscription_fields = SubscriptionFields(self.types)
        self.schema = LazySchema(self.types.by_name[QUERY], self.types.by_name, self._subscription_root)

    def _query(self) -> gql.GraphQLObjectType:
        fields = self.query_fields
        return LazyObjectType(QUERY, fields.field, fields.names, "Fields that read data.", UNLISTED)

    def _mutation(self) -> gql.GraphQLObjectType | None:
        fields = self.mutation_fields
        if not fields.any:
            return None
        return LazyObjectType(MUTATION, fields.field, fields.names, "Fields that change data.")

    def _subscription(self) -> gql.GraphQLObjectType | None:
        fields = self.subscription_fields
        if self._subscription_root is None or not fields.any:
            return None
        description = "Fields that read data. A new result is sent whenever the data changes."
        return LazyObjectType(self._subscription_root, fields.field, fields.names, description)

    def dismantle(self) -> None:
        """Break the reference cycles of types, so that they are freed without a garbage collection.

        The schema cannot be used afterwards.
        """
        parts = (*self.types.created(), *self.view.created(), self.types.by_name, self.types)
        for part in (*parts, self.query_fields, self.mutation_fields, self.subscription_fields, self.schema):
            vars(part).clear()

    def root(self, operation: gql.OperationType) -> str:
        if operation is gql.OperationType.SUBSCRIPTION:
            return self._subscription_root or SUBSCRIPTION
        return MUTATION if operation is gql.OperationType.MUTATION else QUERY

    def object_type(self, name: str) -> Any:
        return self.types.by_name[name]

    def missing_key(self, field: str) -> str | None:
        table = self.view.names.keyless_by_field.get(field)
        return missing_key(table) if table is not None and self.view.reads(table) else None

    @cached_property
    def introspects(self) -> bool:
        return self.view.introspectable() is not None

    @cached_property
    def suggests_names(self) -> bool:
        """Whether errors may suggest names, because all of the role's schemas allow introspection."""
        return self.view.introspectable() is self.view


def catalog_view(catalog: Catalog, field_names: CatalogNames, role: str, project: Project) -> CatalogView:
    return CatalogView(
        catalog,
        field_names,
        role,
        non_null=project.graphql_non_null_relationships,
        max_rows=project.db_max_rows,
    )


def schema_text(schema: RoleSchema) -> str:
    """Return the schema in the schema definition language, sorted by name.

    Equal schemas have equal texts.
    """
    lazy = schema.schema
    types = [type_ for name, type_ in lazy.type_map.items() if not name.startswith("__")]
    whole = gql.GraphQLSchema(lazy.query_type, lazy.mutation_type, lazy.subscription_type, types)
    # graphql-core cannot copy a schema with a custom Float. Standard scalars do not change the printed text.
    whole.type_map.update(
        {name: scalar for name, scalar in gql.specified_scalar_types.items() if name in whole.type_map}
    )
    return gql.print_schema(gql.lexicographic_sort_schema(whole)) + "\n"
