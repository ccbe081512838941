"""Shorthands for wrapped GraphQL types."""

from __future__ import annotations

from typing import Any

from graphql import GraphQLInputType, GraphQLList, GraphQLNonNull


def required(type_: Any) -> Any:
    """Return the type as non-null."""
    return GraphQLNonNull(type_)


def nullable(type_: GraphQLInputType) -> GraphQLInputType:
    """Return the type without its non-null wrapper."""
    return type_.of_type if isinstance(type_, GraphQLNonNull) else type_


def list_of(type_: Any) -> Any:
    """Return a non-null list of non-null items."""
    return GraphQLNonNull(GraphQLList(GraphQLNonNull(type_)))
