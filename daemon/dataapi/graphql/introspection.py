"""Executes introspection fields, using a schema of the types that introspection may show."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import graphql as gql

from dataapi.concurrency.cache import BoundedCache
from dataapi.graphql.arguments import Selector
from dataapi.graphql.document import GraphQLOperation, OperationPlanInput
from dataapi.graphql.plan import INTROSPECTION, result_name
from dataapi.graphql.validation import without_python

Results = dict[str, str]

CACHED_RESULTS = 16
"""Maximum number of cached results per role. Clients and tools send few different introspection queries."""
RESULT_CHARACTERS = 50_000_000
"""Maximum size of the cached results per role, in characters."""
FIELDS_PER_TYPE = 1_000
"""Maximum number of fields that one request may resolve per type of the schema.

A code generator's query needs a tenth of this number. Aliases and cycles through interfaces could otherwise
take minutes and gigabytes.
"""


class Introspection:
    """Executes the introspection fields of one role's operations.

    Visiting every type of a large schema takes seconds, so introspection runs on the worker thread.
    """

    def __init__(self, make_schema: Callable[[], gql.GraphQLSchema | None]) -> None:
        self._make_schema = make_schema
        self._schema: gql.GraphQLSchema | None = None
        self._results: BoundedCache[str, Results] = BoundedCache(CACHED_RESULTS, RESULT_CHARACTERS)

    def results(
        self,
        operation: GraphQLOperation,
        plan_input: OperationPlanInput,
        variables: Mapping[str, Any],
        text: str,
    ) -> Results:
        """Return the results of an operation's introspection fields as JSON text, by variable name.

        :raises GraphQLError: the operation resolves too many fields.
        """
        # Introspection fields have only Boolean and String arguments, so they cannot use other variables. The
        # introspection schema may lack the types of these variables.
        own_variables = [
            each for each in operation.variables() if each.type in (gql.GraphQLBoolean, gql.GraphQLString)
        ]
        own = {
            each.name: variables[each.inner_name] for each in own_variables if each.inner_name in variables
        }
        name = operation.node.name.value if operation.node.name else ""
        key = json.dumps([f"{name}:{text}", own], sort_keys=True)
        results = self._results.get(key)
        if results is None:
            fields = Selector(operation, operation.shapes(plan_input)).root_fields()
            chosen = [nodes for nodes in fields.values() if nodes[0].name.value in INTROSPECTION]
            types = {each.name: str(each.type) for each in own_variables}
            results = self._execute(_document(types, chosen, operation.fragments), own)
            self._results.put(key, results, sum(map(len, results.values())))
        return results

    def _execute(self, document: gql.DocumentNode, variables: Mapping[str, Any]) -> Results:
        if self._schema is None:
            self._schema = self._make_schema()
        assert self._schema is not None, "only operations with introspection fields are executed here"
        maximum = FIELDS_PER_TYPE * len(self._schema.type_map)
        resolved = itertools.count(1)

        def counted(resolve: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            if next(resolved) > maximum:
                raise _TooManyFields
            return resolve(*arguments, **named)

        try:
            result = gql.execute_sync(
                self._schema, document, variable_values=dict(variables), middleware=[counted]
            )
        except _TooManyFields:
            raise gql.GraphQLError("The introspection query is too complex.") from None
        for error in result.errors or ():  # for example, a required variable has no value
            raise gql.GraphQLError(without_python(error.message), error.nodes, path=error.path)
        return {result_name(name): json.dumps(value) for name, value in (result.data or {}).items()}


class _TooManyFields(BaseException):
    """Raised to stop an execution. graphql-core would turn an ``Exception`` into a field's error."""


def _document(
    types: Mapping[str, str],
    fields: list[list[gql.FieldNode]],
    fragments: Mapping[str, gql.FragmentDefinitionNode],
) -> gql.DocumentNode:
    variables = tuple(
        gql.VariableDefinitionNode(
            variable=gql.VariableNode(name=gql.NameNode(value=name)),
            type=gql.NamedTypeNode(name=gql.NameNode(value=type_)),
        )
        for name, type_ in types.items()
    )
    operation = gql.OperationDefinitionNode(
        operation=gql.OperationType.QUERY,
        variable_definitions=variables,
        directives=(),
        selection_set=gql.SelectionSetNode(selections=tuple(node for nodes in fields for node in nodes)),
    )
    return gql.DocumentNode(definitions=(operation, *fragments.values()))
