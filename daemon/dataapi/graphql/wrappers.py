"""Shorthands for wrapped GraphQL types."""

from __future__ import annotations

from typing import Any

from graphql import GraphQLList, GraphQLNonNull


def required(type_: Any) -> Any:
    """Return the type as non-null."""
    return GraphQLNonNull(type_)


def list_of(type_: Any) -> Any:
    """Return a non-null list of non-null items."""
    return GraphQLNonNull(GraphQLList(GraphQLNonNull(type_)))
