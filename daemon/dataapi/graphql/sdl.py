"""A role's whole schema as text, for code generators and for reading."""

from __future__ import annotations

from graphql import GraphQLSchema, build_schema, lexicographic_sort_schema, print_schema

from dataapi.graphql.schema import RoleSchema


def schema_text(schema: RoleSchema) -> str:
    """Return the schema in GraphQL's schema definition language, everything sorted by name.

    The text depends on nothing but what the role may see, so that two of them can be compared.
    """
    lazy = schema.schema
    types = [type_ for name, type_ in lazy.type_map.items() if not name.startswith("__")]
    whole = GraphQLSchema(query=lazy.query_type, mutation=lazy.mutation_type, types=types)
    # Read back first: graphql-core sorts no schema with a Float that is not its own.
    return print_schema(lexicographic_sort_schema(build_schema(print_schema(whole)))) + "\n"
