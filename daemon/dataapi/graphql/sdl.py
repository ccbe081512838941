"""A role's whole schema as text, for code generators and for reading."""

from __future__ import annotations

from graphql import GraphQLSchema, lexicographic_sort_schema, print_schema, specified_scalar_types

from dataapi.graphql.schema import RoleSchema


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
