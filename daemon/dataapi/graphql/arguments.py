"""Selections and arguments: a selection set's fields, and their arguments as trees.

A tree is null (None), an ``InputLeaf``, a list of trees or a dict of trees by input field: structure that
shapes a statement, and leaves that become slots.  An absent value is ``Undefined``.  Only lists of input
objects are lists: a list of scalars or enums is one leaf, because it is bound as one array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import graphql as gql

from dataapi.graphql.compatibility import client_name
from dataapi.graphql.document import GraphQLOperation
from dataapi.graphql.graphql_core import offset, place_of
from dataapi.graphql.input_values import BOOLEANS, LeafList, Literal, VariableUse, holds_objects
from dataapi.graphql.schema.shared_types import nullable
from dataapi.graphql.schema.type_mapping import TypeMapping, encoder
from dataapi.graphql.sources import (
    InputLeaf,
    ListOrigin,
    LiteralOrigin,
    ResponsePath,
    Shape,
    VariableOrigin,
)
from dataapi.sql.algebra import Parameter

Shapes = Mapping[str, Shape]
"""The shapes of the variables that have a value, and of the parameters of the document, by name."""
SelectedFields = dict[str, list[gql.FieldNode]]
"""Fields by response key, in the order in which they stand in the answer."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Collects fields and arguments for one operation and its variables' shapes.

    See CollectFields in the GraphQL specification.
    """

    operation: GraphQLOperation
    shapes: Shapes

    def root_fields(self) -> SelectedFields:
        """Return the operation's root fields by response key."""
        root = self.operation.root
        return self.fields((self.operation.node.selection_set,), frozenset({root}))

    def fields(
        self, sets: Iterable[gql.SelectionSetNode | None], type_names: frozenset[str]
    ) -> SelectedFields:
        """Return the merged fields of selection sets on an object.

        :param type_names: the object type's name and its interfaces'.
        :raises GraphQLError: a directive's condition is null.
        """
        found: SelectedFields = {}
        visited: set[str] = set()
        for selection_set in sets:
            if selection_set is not None:
                self._collect(selection_set.selections, type_names, found, visited)
        return found

    def _collect(
        self,
        selections: Iterable[gql.SelectionNode],
        type_names: frozenset[str],
        found: SelectedFields,
        visited: set[str],
    ) -> None:
        for selection in selections:
            if selection.directives and not self._included(selection.directives):
                continue
            if isinstance(selection, gql.FieldNode):
                node = selection.alias or selection.name
                key = self.operation.adapted.parameters.get(offset(node), node.value)
                found.setdefault(key, []).append(selection)
            elif isinstance(selection, gql.InlineFragmentNode):
                condition = selection.type_condition
                if condition is None or condition.name.value in type_names:
                    self._collect(selection.selection_set.selections, type_names, found, visited)
            elif isinstance(selection, gql.FragmentSpreadNode) and selection.name.value not in visited:
                visited.add(selection.name.value)
                fragment = self.operation.fragments[selection.name.value]
                if fragment.type_condition.name.value in type_names:
                    self._collect(fragment.selection_set.selections, type_names, found, visited)

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
        """Return the trees of a field's or directive's arguments, defaults applied, absent ones left out.

        :param path: the field's response path, for errors.
        :raises GraphQLError: a required variable has no value.
        """
        literals = self.literals(owner)
        trees: dict[str, InputTree] = {}
        for name, definition in definitions.items():
            literal = literals.get(name)
            is_absent = name not in literals or self._is_absent(literal)
            if is_absent and definition.default is not None:
                origin = LiteralOrigin(definition.default.value)
                trees[name] = InputLeaf(origin, True, place_of(owner), path)
            elif name in literals:
                tree = self._tree(literal, path)
                if not is_absent:
                    trees[name] = tree
        return trees

    def _is_absent(self, literal: Literal) -> bool:
        return isinstance(literal, VariableUse) and literal.name not in self.shapes

    def _tree(self, literal: Literal, path: ResponsePath) -> InputTree:
        """Return the tree of a literal, null for an absent variable.

        :raises GraphQLError: a required variable has no value.
        """
        match literal:
            case InputLeaf():
                return replace(literal, path=path)
            case VariableUse(name, type_, node, required):
                shape = self.shapes.get(name)
                if shape is None and required is not None:
                    what = "null" if name in self.shapes else "absent"
                    message = (
                        f"Variable '${client_name(name)}' must not be {what} where a value of type "
                        f"'{required}' is expected."
                    )
                    raise gql.GraphQLError(message, node)
                leaf = partial(InputLeaf, place=place_of(node), path=path)
                return _variable_tree(shape, type_, (name,), leaf)
            case LeafList(items, node):
                trees = [self._tree(item, path) for item in items]
                leaves = [tree if isinstance(tree, InputLeaf) else None for tree in trees]
                origins = tuple(None if leaf is None else leaf.origin for leaf in leaves)
                shape = tuple(None if leaf is None else leaf.shape for leaf in leaves)
                return InputLeaf(ListOrigin(origins), shape, place_of(node), path)
            case list():
                return [self._tree(item, path) for item in literal]
            case dict():
                members = {name: self._tree(each, path) for name, each in literal.items()}
                present = {name: members[name] for name, each in literal.items() if not self._is_absent(each)}
                return members if len(present) == len(members) else PartialObject(present)
        return None

    def absent_variables(self, literal: Literal) -> tuple[str, ...]:
        """Return the client's names of a literal's variables that have no value, each once."""
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
"""A list of objects that all have the same members, which a variable holds, is also one leaf."""
InputObject = Mapping[str, InputTree]


def as_leaf(tree: InputTree) -> InputLeaf:
    """Return a tree where validation lets only a value pass that is not null."""
    assert isinstance(tree, InputLeaf), "a scalar, an enum value or a list of them"
    return tree


def as_items(tree: InputTree) -> list[InputTree]:
    """Return the items where validation lets only a list of input objects pass that is not null."""
    assert isinstance(tree, list), "a list of input objects"
    return tree


def as_object(tree: InputTree) -> InputObject:
    """Return the members where validation lets only an input object pass that is not null."""
    assert isinstance(tree, dict), "an input object"
    return tree


def stored_value(mapping: TypeMapping, tree: InputTree) -> Parameter | None:
    """Return the slot of a value to store in a column or to call a function with, None for null."""
    if tree is None:
        return None
    return Parameter(as_leaf(tree).source(encoder(mapping)), mapping.parameter)


class PartialObject(dict[str, InputTree]):
    """The members of an input object of which others were left out, because their variables are absent."""


def is_partial(tree: InputTree) -> bool:
    """Whether members were left out of an input object, at any depth."""
    if isinstance(tree, list):
        return any(map(is_partial, tree))
    return isinstance(tree, PartialObject) or (isinstance(tree, dict) and any(map(is_partial, tree.values())))


def _variable_tree(
    shape: Any,
    type_: gql.GraphQLInputType,
    steps: tuple[str | int, ...],
    leaf: Callable[[VariableOrigin, Shape], InputLeaf],
) -> InputTree:
    """Return the tree of a variable's value by its shape."""
    type_ = nullable(type_)
    if shape is None:
        return None
    if isinstance(type_, gql.GraphQLList) and holds_objects(type_) and isinstance(shape, tuple):
        item_type = type_.of_type
        return [_variable_tree(item, item_type, (*steps, index), leaf) for index, item in enumerate(shape)]
    if isinstance(type_, gql.GraphQLInputObjectType):
        fields = type_.fields
        return {
            name: _variable_tree(member, fields[name].type, (*steps, name), leaf) for name, member in shape
        }
    return leaf(VariableOrigin(steps), shape)
