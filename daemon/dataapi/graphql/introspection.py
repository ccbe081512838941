"""Introspection: answered in a thread, from a schema that shows only what allows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from graphql import (
    DocumentNode,
    FieldNode,
    GraphQLSchema,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    execute_sync,
)
from twisted.internet.defer import DeferredLock
from twisted.internet.threads import deferToThread

from dataapi.graphql.cache import BoundedCache
from dataapi.graphql.document import Operation

ANSWERS = 16
"""Answers that are kept per role; clients and tools send few different introspection queries."""


class Introspection:
    """Answers the introspection fields of one role's operations.

    Walking every type of a large schema takes seconds, so it happens in a thread, on a
    schema of its own (types are made on demand, which two threads must not do at once).

    :param make_schema: makes the schema that introspection shows, None when nothing may be shown.
    """

    def __init__(self, make_schema: Callable[[], GraphQLSchema | None]) -> None:
        self._make_schema = make_schema
        self._schema: GraphQLSchema | None = None
        self._lock = DeferredLock()
        self._answers: BoundedCache[str, dict[str, str]] = BoundedCache(ANSWERS)

    async def answer(
        self,
        operation: Operation,
        fields: Mapping[str, list[FieldNode]],
        variables: Mapping[str, Any],
        text: str,
    ) -> dict[str, str]:
        """Return the fields' answers as JSON text by response key, empty when introspection is off."""
        key = json.dumps([text, dict(variables)], sort_keys=True, default=str)
        known = self._answers.get(key)
        if known is None:
            known = await self._lock.run(deferToThread, self._execute, operation, fields, variables)
            self._answers.put(key, known)
        return known

    def _execute(
        self, operation: Operation, fields: Mapping[str, list[FieldNode]], variables: Mapping[str, Any]
    ) -> dict[str, str]:
        if self._schema is None:
            self._schema = self._make_schema()
        if self._schema is None:
            return {}
        selections = tuple(node for nodes in fields.values() for node in nodes)
        definition = OperationDefinitionNode(
            operation=OperationType.QUERY,
            variable_definitions=operation.node.variable_definitions,
            directives=(),
            selection_set=SelectionSetNode(selections=selections),
        )
        document = DocumentNode(definitions=(definition, *operation.fragments.values()))
        result = execute_sync(self._schema, document, variable_values=dict(variables))
        return {name: json.dumps(value) for name, value in (result.data or {}).items()}
