"""The GraphQL schema of one role at one catalog generation, as graphql-core's validator needs it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from graphql import (
    GraphQLAbstractType,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    specified_directives,
)
from graphql.type.schema import InterfaceImplementations

from dataapi.catalog.model import Catalog
from dataapi.catalog.names import Names
from dataapi.graphql.entries import UNLISTED, MutationEntries, QueryEntries
from dataapi.graphql.functions import FunctionViews
from dataapi.graphql.lazy import LazyMap, LazyObjectType
from dataapi.graphql.role_view import RoleView
from dataapi.graphql.types import TableTypes
from dataapi.settings import Project


class LazySchema(GraphQLSchema):
    """A schema whose types are made when first asked for.

    graphql-core's constructor walks every type; this one only takes the map that makes them.
    The schema is valid by construction, which a test shows by validating whole ones.
    """

    def __init__(
        self, query: GraphQLObjectType, mutation: GraphQLObjectType | None, types: LazyMap[GraphQLNamedType]
    ) -> None:
        self.description = None
        self.extensions = {}
        self.ast_node = None
        self.extension_ast_nodes = ()
        self.query_type = query
        self.mutation_type = mutation
        self.subscription_type = None
        self.directives = specified_directives
        self.type_map = types
        self._implementations_map = {}
        self._sub_type_map = {}
        self._validation_errors = []
        self.assume_valid = True

    def get_implementations(self, interface_type: GraphQLInterfaceType) -> InterfaceImplementations:
        """Return the object types with node ids; making them all is needed for introspection only."""
        objects = [
            type_
            for type_ in self.type_map.values()
            if isinstance(type_, GraphQLObjectType) and interface_type in type_.interfaces
        ]
        return InterfaceImplementations(objects=objects, interfaces=[])

    def is_sub_type(self, abstract_type: GraphQLAbstractType, maybe_sub_type: GraphQLNamedType) -> bool:
        """Whether a type is a row with a node id, asked of that type alone."""
        return isinstance(maybe_sub_type, GraphQLObjectType) and abstract_type in maybe_sub_type.interfaces


class RoleSchema:
    """Everything that documents of one role are compiled with.

    :ivar strict: whether documents are validated by the GraphQL specification's rules alone.
    """

    def __init__(self, view: RoleView, *, strict: bool = False) -> None:
        self.view = view
        self.strict = strict
        self.types = TableTypes(view)
        functions = FunctionViews(view)
        self.entries = QueryEntries(self.types, functions)
        self.changes = MutationEntries(self.types, functions)
        query = LazyObjectType(
            "Query", self.entries.field, self.entries.names, "The entry points that read.", UNLISTED
        )
        mutation = None
        if self.changes.any:
            mutation = LazyObjectType(
                "Mutation", self.changes.field, self.changes.names, "The entry points that write."
            )
            self.types.share(mutation)
        self.types.share(query)
        self.schema = LazySchema(query, mutation, self.types.types)

    def object_type(self, name: str) -> Any:
        """Return the object type of that name."""
        return self.types.named(name)

    @cached_property
    def suggests_names(self) -> bool:
        """Whether errors may tell similar names: introspection is allowed for all that the role sees."""
        return self.view.introspectable() is self.view


def role_view(catalog: Catalog, names: Names, role: str, project: Project) -> RoleView:
    """Return what a role sees of a catalog, by the project's settings."""
    return RoleView(
        catalog,
        names,
        role,
        non_null=project.graphql_non_null_relationships,
        max_rows=project.db_max_rows,
        features=project.graphql_features,
    )
