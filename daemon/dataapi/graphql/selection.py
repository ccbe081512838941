"""Selections: fields of a selection set merged by response key, fragments and directives resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graphql import (
    BooleanValueNode,
    DirectiveNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLBoolean,
    InlineFragmentNode,
    SelectionNode,
    SelectionSetNode,
    VariableNode,
)

from dataapi.graphql.arguments import ABSENT, check_present
from dataapi.graphql.sources import Variables
from dataapi.graphql.wrappers import required

_CONDITION = required(GraphQLBoolean)
Fields = dict[str, list[FieldNode]]
"""Fields by response key, in the order in which they stand in the answer."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Collects fields for one operation (GraphQL specification, CollectFields).

    :ivar variables: the coerced variables, which ``@skip`` and ``@include`` may name.
    """

    fragments: Mapping[str, FragmentDefinitionNode]
    variables: Variables

    def fields(self, sets: Iterable[SelectionSetNode | None], type_names: frozenset[str]) -> Fields:
        """Return the merged fields of selection sets on an object.

        :param type_names: the object type's name and its interfaces'.
        :raises GraphQLError: a directive's condition is null.
        """
        found: Fields = {}
        visited: set[str] = set()
        for selection_set in sets:
            if selection_set is not None:
                self._collect(selection_set.selections, type_names, found, visited)
        return found

    def _collect(
        self,
        selections: Iterable[SelectionNode],
        type_names: frozenset[str],
        found: Fields,
        visited: set[str],
    ) -> None:
        for selection in selections:
            if selection.directives and not self._included(selection.directives):
                continue
            if isinstance(selection, FieldNode):
                key = selection.alias.value if selection.alias else selection.name.value
                found.setdefault(key, []).append(selection)
            elif isinstance(selection, InlineFragmentNode):
                condition = selection.type_condition
                if condition is None or condition.name.value in type_names:
                    self._collect(selection.selection_set.selections, type_names, found, visited)
            elif isinstance(selection, FragmentSpreadNode) and selection.name.value not in visited:
                visited.add(selection.name.value)
                fragment = self.fragments[selection.name.value]
                if fragment.type_condition.name.value in type_names:
                    self._collect(fragment.selection_set.selections, type_names, found, visited)

    def _included(self, directives: Iterable[DirectiveNode]) -> bool:
        for directive in directives:
            if directive.name.value in ("skip", "include"):
                condition = self._condition(directive)
                if condition is (directive.name.value == "skip"):
                    return False
        return True

    def _condition(self, directive: DirectiveNode) -> bool:
        for argument in directive.arguments or ():
            if argument.name.value == "if":
                if isinstance(argument.value, VariableNode):
                    value = self.variables.get(argument.value.name.value, ABSENT)
                    check_present(value, _CONDITION, argument.value)
                    return bool(value)
                if isinstance(argument.value, BooleanValueNode):
                    return argument.value.value
        raise AssertionError("validation lets no directive pass without its argument")
