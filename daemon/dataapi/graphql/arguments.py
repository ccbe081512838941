"""Selected fields, and their arguments as trees.

A tree is None for null, an ``InputLeaf``, or a list or dict of trees. Lists and dicts determine the structure
of a statement, and leaves become its parameters. Lists contain only input objects. A list of scalars or enum
values is one leaf, because it is bound as one array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import graphql as gql

from dataapi.graphql.compatibility import client_name
from dataapi.graphql.document import GraphQLOperation
from dataapi.graphql.graphql_core import location_of, offset
from dataapi.graphql.input_values import BOOLEANS, LeafList, Literal, VariableUse, has_input_objects
from dataapi.graphql.schema.shared_types import nullable
from dataapi.graphql.schema.type_mapping import TypeMapping, encoder
from dataapi.graphql.sources import InputLeaf, ListOrigin, LiteralOrigin, ResponsePath, Shape, VariableOrigin
from dataapi.sql.algebra import Parameter

Shapes = Mapping[str, Shape]
"""Shapes of a document's parameters and of the provided variables, by name."""
SelectedFields = dict[str, list[gql.FieldNode]]
"""Fields by response key, in the order of the response."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Evaluates selection sets and arguments for variables of given shapes (see ``input_values``).

    CollectFields in the GraphQL specification defines how fields are merged.
    """

    operation: GraphQLOperation
    shapes: Shapes

    def root_fields(self) -> SelectedFields:
        root = self.operation.root
        return self.fields((self.operation.node.selection_set,), frozenset({root}))

    def fields(
        self, sets: Iterable[gql.SelectionSetNode | None], type_names: frozenset[str]
    ) -> SelectedFields:
        """Return the merged fields of selection sets by response key, for an object type and its interfaces.

        :raises GraphQLError: the ``if`` argument of a directive is null.
        """
        fields: SelectedFields = {}
        visited: set[str] = set()
        for selection_set in sets:
            if selection_set is not None:
                self._collect(selection_set.selections, type_names, fields, visited)
        return fields

    def _collect(
        self,
        selections: Iterable[gql.SelectionNode],
        type_names: frozenset[str],
        fields: SelectedFields,
        visited: set[str],
    ) -> None:
        for selection in selections:
            if selection.directives and not self._included(selection.directives):
                continue
            if isinstance(selection, gql.FieldNode):
                node = selection.alias or selection.name
                key = self.operation.adapted.parameters.get(offset(node), node.value)
                fields.setdefault(key, []).append(selection)
            elif isinstance(selection, gql.InlineFragmentNode):
                condition = selection.type_condition
                if condition is None or condition.name.value in type_names:
                    self._collect(selection.selection_set.selections, type_names, fields, visited)
            elif isinstance(selection, gql.FragmentSpreadNode) and selection.name.value not in visited:
                visited.add(selection.name.value)
                fragment = self.operation.fragments[selection.name.value]
                if fragment.type_condition.name.value in type_names:
                    self._collect(fragment.selection_set.selections, type_names, fields, visited)

    def _included(self, directives: Iterable[gql.DirectiveNode]) -> bool:
        for directive in directives:
            name = directive.name.value
            if name in ("skip", "include"):
                condition = self.arguments(directive, gql.GraphQLSkipDirective.args)["if"]
                if as_leaf(condition).shape == BOOLEANS[name == "skip"]:
                    return False
        return True

    def literals(self, owner: gql.FieldNode | gql.DirectiveNode) -> Mapping[str, Literal]:
        return self.operation.adapted.literals.get(offset(owner), {})

    def arguments(
        self,
        owner: gql.FieldNode | gql.DirectiveNode,
        definitions: Mapping[str, gql.GraphQLArgument],
        path: ResponsePath = (),
    ) -> dict[str, InputTree]:
        """Return the arguments of a field or directive as trees, including defaults.

        Arguments without a value are omitted.

        :raises GraphQLError: a required variable has no value.
        """
        literals = self.literals(owner)
        trees: dict[str, InputTree] = {}
        for name, definition in definitions.items():
            literal = literals.get(name)
            is_absent = name not in literals or self._is_absent(literal)
            if is_absent and definition.default is not None:
                origin = LiteralOrigin(definition.default.value)
                trees[name] = InputLeaf(origin, True, location_of(owner), path)
            elif name in literals:
                tree = self._tree(literal, path)
                if not is_absent:
                    trees[name] = tree
        return trees

    def _is_absent(self, literal: Literal) -> bool:
        return isinstance(literal, VariableUse) and literal.name not in self.shapes

    def _tree(self, literal: Literal, path: ResponsePath) -> InputTree:
        match literal:
            case InputLeaf():
                return replace(literal, path=path)
            case VariableUse(name, type_, node, required):
                shape = self.shapes.get(name)
                if shape is None and required is not None:
                    state = "null" if name in self.shapes else "absent"
                    message = (
                        f"Variable '${client_name(name)}' must not be {state} where a value of type "
                        f"'{required}' is expected."
                    )
                    raise gql.GraphQLError(message, node)
                leaf = partial(InputLeaf, location=location_of(node), path=path)
                return _variable_tree(shape, type_, (name,), leaf)
            case LeafList(items, node):
                trees = [self._tree(item, path) for item in items]
                leaves = [tree if isinstance(tree, InputLeaf) else None for tree in trees]
                origins = tuple(None if leaf is None else leaf.origin for leaf in leaves)
                shape = tuple(None if leaf is None else leaf.shape for leaf in leaves)
                return InputLeaf(ListOrigin(origins), shape, location_of(node), path)
            case list():
                return [self._tree(item, path) for item in literal]
            case dict():
                members = {name: self._tree(each, path) for name, each in literal.items()}
                present = {name: members[name] for name, each in literal.items() if not self._is_absent(each)}
                return members if len(present) == len(members) else PartialObject(present)
        return None

    def absent_variables(self, literal: Literal) -> tuple[str, ...]:
        match literal:
            case VariableUse(name):
                return () if name in self.shapes else (client_name(name),)
            case LeafList(items):
                inner: Iterable[Literal] = items
            case list():
                inner = literal
            case dict():
                inner = literal.values()
            case _:
                return ()
        return tuple(dict.fromkeys(name for each in inner for name in self.absent_variables(each)))


InputTree: TypeAlias = "InputLeaf | list[InputTree] | dict[str, InputTree] | None"
"""The value of an argument.

If a variable contains a list of objects with the same members, the whole list is one leaf.
"""
InputObject = Mapping[str, InputTree]


def as_leaf(tree: InputTree) -> InputLeaf:
    assert isinstance(tree, InputLeaf), "a scalar, an enum value or a list of these"
    return tree


def as_items(tree: InputTree) -> list[InputTree]:
    assert isinstance(tree, list), "a list of input objects"
    return tree


def as_object(tree: InputTree) -> InputObject:
    assert isinstance(tree, dict), "an input object"
    return tree


def stored_value(mapping: TypeMapping, tree: InputTree) -> Parameter | None:
    if tree is None:
        return None
    return Parameter(as_leaf(tree).source(encoder(mapping)), mapping.parameter)


class PartialObject(dict[str, InputTree]):
    """An input object that lacks members because their variables are absent."""


def is_partial(tree: InputTree) -> bool:
    """Whether an input object lacks members because of absent variables, at any depth."""
    if isinstance(tree, list):
        return any(map(is_partial, tree))
    return isinstance(tree, PartialObject) or (isinstance(tree, dict) and any(map(is_partial, tree.values())))


def _variable_tree(
    shape: Any,
    type_: gql.GraphQLInputType,
    steps: tuple[str | int, ...],
    leaf: Callable[[VariableOrigin, Shape], InputLeaf],
) -> InputTree:
    type_ = nullable(type_)
    if shape is None:
        return None
    if isinstance(type_, gql.GraphQLList) and has_input_objects(type_) and isinstance(shape, tuple):
        item_type = type_.of_type
        return [_variable_tree(item, item_type, (*steps, index), leaf) for index, item in enumerate(shape)]
    if isinstance(type_, gql.GraphQLInputObjectType):
        fields = type_.fields
        return {
            name: _variable_tree(member, fields[name].type, (*steps, name), leaf) for name, member in shape
        }
    return leaf(VariableOrigin(steps), shape)
