"""Introspection: answered from a schema that shows only what allows it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import graphql as gql

from dataapi.concurrency.cache import BoundedCache
from dataapi.graphql.arguments import Selector
from dataapi.graphql.document import GraphQLOperation, OperationPlanInput
from dataapi.graphql.plan import INTROSPECTION, answer_name
from dataapi.graphql.validation import without_python

Answers = dict[str, str]

ANSWERS = 16
"""Answers cached per role; clients and tools send few different introspection queries."""
ANSWER_CHARACTERS = 50_000_000
"""Characters of the answers cached per role."""
FIELDS_PER_TYPE = 1_000
"""How many fields one request may resolve for each type of the schema.

A code generator's query takes a tenth of it; a few aliases and detours over interfaces would take
minutes and gigabytes.
"""


class Introspection:
    """Answers the introspection fields of one role's operations.

    Walking every type of a large schema takes seconds, so it happens on the worker thread.

    :param make_schema: makes the schema that introspection shows, None when introspection is off.
    """

    def __init__(self, make_schema: Callable[[], gql.GraphQLSchema | None]) -> None:
        self._make_schema = make_schema
        self._schema: gql.GraphQLSchema | None = None
        self._answers: BoundedCache[str, Answers] = BoundedCache(ANSWERS, ANSWER_CHARACTERS)

    def answers(
        self,
        operation: GraphQLOperation,
        plan_input: OperationPlanInput,
        variables: Mapping[str, Any],
        text: str,
    ) -> Answers:
        """Return the JSON text of the operation's introspection fields by the names of their variables.

        :raises GraphQLError: the operation resolves too many fields.
        """
        # Variables of other types are for other fields; their types may even be hidden from introspection.
        usable = [
            each for each in operation.variables() if each.type in (gql.GraphQLBoolean, gql.GraphQLString)
        ]
        own = {each.name: variables[each.inner_name] for each in usable if each.inner_name in variables}
        name = operation.node.name.value if operation.node.name else ""
        key = json.dumps([f"{name}:{text}", own], sort_keys=True)
        found = self._answers.get(key)
        if found is None:
            fields = Selector(operation, operation.shapes(plan_input)).root_fields()
            chosen = [nodes for nodes in fields.values() if nodes[0].name.value in INTROSPECTION]
            types = {each.name: str(each.type) for each in usable}
            found = self._execute(_document(types, chosen, operation.fragments), own)
            self._answers.put(key, found, sum(map(len, found.values())))
        return found

    def _execute(self, document: gql.DocumentNode, variables: Mapping[str, Any]) -> Answers:
        if self._schema is None:
            self._schema = self._make_schema()
        assert self._schema is not None, "the plan says that the operation introspects"
        maximum = FIELDS_PER_TYPE * len(self._schema.type_map)
        resolved = itertools.count(1)

        def counted(resolve: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            if next(resolved) > maximum:
                raise _TooMuch
            return resolve(*arguments, **named)

        try:
            result = gql.execute_sync(
                self._schema, document, variable_values=dict(variables), middleware=[counted]
            )
        except _TooMuch:
            raise gql.GraphQLError("Too much is asked of introspection at once.") from None
        for error in result.errors or ():  # a variable without a value that is needed
            raise gql.GraphQLError(without_python(error.message), error.nodes, path=error.path)
        return {answer_name(name): json.dumps(value) for name, value in (result.data or {}).items()}


class _TooMuch(BaseException):
    """Ends an execution at once: graphql-core makes a field's error of every ``Exception``."""


def _document(
    types: Mapping[str, str],
    fields: list[list[gql.FieldNode]],
    fragments: Mapping[str, gql.FragmentDefinitionNode],
) -> gql.DocumentNode:
    """Return a document that selects only the introspection fields.

    :param types: names of its variables' types by their names.
    """
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
