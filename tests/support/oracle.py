"""Checks GraphQL results by comparing them with graphql-core's results for the same data.

The data of the result is passed to graphql-core's executor as the values of the fields. The executor merges
fields, resolves fragments and directives, and completes values by the rules of the GraphQL specification. So
every difference is detected: extra or missing members, wrong order, forbidden nulls, and values of wrong
types.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dataapi.graphql.sources import decode_node_id
from graphql import GraphQLSchema, execute_sync, get_named_type, is_enum_type, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dataapi.graphql.schema.role_schema import RoleSchema

_STRINGS = frozenset({"BigInt", "BigFloat", "UUID", "Date", "Time", "Datetime", "JSON"})


def check_answer(
    schema: RoleSchema, text: str, variables: Mapping[str, Any], operation: str | None, data: Any
) -> None:
    """Check that the data is a complete result of the operation, in the order of the query."""

    def resolve(source: Any, info: Any, **arguments: Any) -> Any:
        value = source[info.path.key]
        if info.field_name == "node" and "nodeId" in arguments and value is not None:
            key = decode_node_id(arguments["nodeId"])
            target = schema.view.table_named(key.schema, key.table)
            assert target is not None, "a row came from a table that is not in the role's schema"
            return {**value, "\0type": target.name}
        type_: Any = get_named_type(info.return_type)
        if type_.name in _STRINGS:
            _each(_check_string, value)
        return _each(type_.parse_value, value) if is_enum_type(type_) else value

    result = execute_sync(
        schema.schema,
        parse(text),
        root_value=data,
        variable_values=dict(variables),
        operation_name=operation,
        field_resolver=resolve,
        type_resolver=lambda value, _info, _type: value["\0type"],
    )
    assert result.errors is None, result.errors
    assert json.dumps(result.data) == json.dumps(data)


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to a value or to the items of a list, skipping null."""
    if isinstance(value, list):
        return [_each(function, item) for item in value]
    return None if value is None else function(value)


def _check_string(value: Any) -> Any:
    assert isinstance(value, str), f"{value!r} must travel as a string"
    return value


def eager(schema: RoleSchema) -> GraphQLSchema:
    """Return the complete schema, as graphql-core itself would build it."""
    types = [type_ for name, type_ in schema.schema.type_map.items() if not name.startswith("__")]
    return GraphQLSchema(query=schema.schema.query_type, mutation=schema.schema.mutation_type, types=types)
