"""The GraphQL schema of one role at one catalog generation, for validation, introspection and as text."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from graphql import (
    GraphQLObjectType,
    GraphQLSchema,
    lexicographic_sort_schema,
    print_schema,
    specified_scalar_types,
)

from dataapi.catalog.field_names import CatalogNames
from dataapi.catalog.model import Catalog
from dataapi.graphql.graphql_core import LazyObjectType, LazySchema
from dataapi.graphql.schema.catalog_view import CatalogView
from dataapi.graphql.schema.input_types import INPUT_TYPES
from dataapi.graphql.schema.root_fields import MUTATION, QUERY, UNLISTED, RootFields
from dataapi.graphql.schema.types import OBJECT_TYPES, TableTypes
from dataapi.settings import Project


class RoleSchema:
    """Everything that documents of one role are compiled with.

    :ivar strict: whether documents are validated by the GraphQL specification's rules alone.
    """

    def __init__(self, view: CatalogView, *, strict: bool = False) -> None:
        self.view = view
        self.strict = strict
        self.types = TableTypes(view, {**OBJECT_TYPES, **INPUT_TYPES})
        self.query_fields = RootFields(self.types, volatile=False)
        self.mutation_fields = RootFields(self.types, volatile=True)
        self.types.add_root(QUERY, self._query)
        self.types.add_root(MUTATION, self._mutation)
        self.schema = LazySchema(self.types.named(QUERY), self.types.by_name)

    def _query(self) -> GraphQLObjectType:
        fields = self.query_fields
        return LazyObjectType(QUERY, fields.field, fields.names, "The entry points that read.", UNLISTED)

    def _mutation(self) -> GraphQLObjectType | None:
        fields = self.mutation_fields
        if not fields.any:
            return None
        return LazyObjectType(MUTATION, fields.field, fields.names, "The entry points that write.")

    def dismantle(self) -> None:
        """Take apart what refers to itself, so that it is freed without waiting for a garbage collection.

        Types refer to each other in circles.  The schema cannot be used afterwards.
        """
        made = (*self.types.made(), *self.view.made(), self.types.by_name, self.types)
        for part in (*made, self.query_fields, self.mutation_fields, self.schema):
            vars(part).clear()

    def object_type(self, name: str) -> Any:
        """Return the object type of that name."""
        return self.types.named(name)

    @cached_property
    def suggests_names(self) -> bool:
        """Whether errors may suggest similar names: introspection is allowed for all that the role sees."""
        return self.view.introspectable() is self.view


def catalog_view(catalog: Catalog, names: CatalogNames, role: str, project: Project) -> CatalogView:
    """Return what a role sees of a catalog, by the project's settings."""
    return CatalogView(
        catalog,
        names,
        role,
        non_null=project.graphql_non_null_relationships,
        max_rows=project.db_max_rows,
        features=project.graphql_features,
    )


def schema_text(schema: RoleSchema) -> str:
    """Return the schema in GraphQL's schema definition language, everything sorted by name.

    The text depends on nothing but what the role may see, so that two of them can be compared.
    """
    lazy = schema.schema
    types = [type_ for name, type_ in lazy.type_map.items() if not name.startswith("__")]
    whole = GraphQLSchema(query=lazy.query_type, mutation=lazy.mutation_type, types=types)
    # graphql-core copies no schema with a Float that is not its own; in print they are the same.
    whole.type_map.update(
        {name: scalar for name, scalar in specified_scalar_types.items() if name in whole.type_map}
    )
    return print_schema(lexicographic_sort_schema(whole)) + "\n"
