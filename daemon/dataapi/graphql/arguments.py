"""Selections and arguments: a selection set's fields, and their arguments as trees.

A tree is null (None), an ``InputLeaf``, a list of trees or a dict of trees by input field: structure that
shapes a statement, and leaves that become slots.  An absent value is ``Undefined``.  Only lists of input
objects are lists: a list of scalars or enums is one leaf, because it is bound as one array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import graphql as gql

from dataapi.graphql.compatibility import client_name
from dataapi.graphql.graphql_core import place_of
from dataapi.graphql.input_values import BOOLEANS, holds_objects, read_literal
from dataapi.graphql.schema.shared_types import nullable
from dataapi.graphql.schema.type_mapping import TypeMapping, encoder
from dataapi.graphql.sources import (
    InputLeaf,
    ListOrigin,
    LiteralOrigin,
    Origin,
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
    """Collects fields for one operation and its variables' shapes (GraphQL specification, CollectFields)."""

    fragments: Mapping[str, gql.FragmentDefinitionNode]
    shapes: Shapes

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
                key = selection.alias.value if selection.alias else selection.name.value
                found.setdefault(key, []).append(selection)
            elif isinstance(selection, gql.InlineFragmentNode):
                condition = selection.type_condition
                if condition is None or condition.name.value in type_names:
                    self._collect(selection.selection_set.selections, type_names, found, visited)
            elif isinstance(selection, gql.FragmentSpreadNode) and selection.name.value not in visited:
                visited.add(selection.name.value)
                fragment = self.fragments[selection.name.value]
                if fragment.type_condition.name.value in type_names:
                    self._collect(fragment.selection_set.selections, type_names, found, visited)

    def _included(self, directives: Iterable[gql.DirectiveNode]) -> bool:
        for directive in directives:
            name = directive.name.value
            if name in ("skip", "include"):
                condition = argument_trees(directive, gql.GraphQLSkipDirective.args, self.shapes)["if"]
                if as_leaf(condition).shape == BOOLEANS[name == "skip"]:
                    return False
        return True


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


def argument_trees(
    owner: gql.FieldNode | gql.DirectiveNode,
    arguments: Mapping[str, gql.GraphQLArgument],
    shapes: Shapes,
    path: ResponsePath = (),
) -> dict[str, InputTree]:
    """Return the trees of the arguments of a field or directive, defaults applied, absent ones left out.

    :param arguments: those that it may have, by name.
    :param shapes: those of the request's variables.
    :param path: the field's response path, for errors.
    :raises GraphQLError: a variable has no value where one is needed.
    """
    reader = _ArgumentReader(shapes, path)
    provided = {node.name.value: node.value for node in owner.arguments or ()}
    trees: dict[str, InputTree] = {}
    for name, argument in arguments.items():
        node = provided.get(name)
        tree: InputTree | gql.UndefinedType = (
            gql.Undefined if node is None else reader.literal(node, argument.type)
        )
        if tree is gql.Undefined and argument.default is not None:
            tree = reader.leaf(LiteralOrigin(argument.default.value), True, owner)
        if node is not None:
            _check_present(tree, argument.type, node)
        if not isinstance(tree, gql.UndefinedType):
            trees[name] = tree
    return trees


def _check_present(tree: object, type_: gql.GraphQLInputType, node: gql.ValueNode) -> None:
    """Check that a variable has a value where one is needed.

    Validation does not look at the values of variables, and sees to it that no literal is null there.

    :raises GraphQLError: naming the variable and the expected value.
    """
    if not isinstance(type_, gql.GraphQLNonNull) or not (tree is None or tree is gql.Undefined):
        return
    assert isinstance(node, gql.VariableNode), "validation lets no null pass where a value is needed"
    name, what = client_name(node.name.value), "null" if tree is None else "absent"
    message = f"Variable '${name}' must not be {what} where a value of type '{type_}' is expected."
    raise gql.GraphQLError(message, node)


def absent_variables(node: gql.ValueNode, shapes: Shapes) -> tuple[str, ...]:
    """Return the client's names of a literal's variables that have no value, each once."""
    match node:
        case gql.VariableNode():
            return () if node.name.value in shapes else (client_name(node.name.value),)
        case gql.ListValueNode():
            inner = node.values
        case gql.ObjectValueNode():
            inner = tuple(member.value for member in node.fields)
        case _:
            return ()
    return tuple(dict.fromkeys(name for value in inner for name in absent_variables(value, shapes)))


class _ArgumentReader:
    """Reads literals and the shapes of variables into trees."""

    def __init__(self, shapes: Shapes, path: ResponsePath) -> None:
        self._shapes = shapes
        self._path = path

    def leaf(self, origin: Origin, shape: Shape, node: gql.Node) -> InputLeaf:
        return InputLeaf(origin, shape, place_of(node), self._path)

    def literal(self, node: gql.ValueNode, type_: gql.GraphQLInputType) -> InputTree | gql.UndefinedType:
        """Return the tree of a literal, which may hold variables."""
        type_ = nullable(type_)
        if isinstance(node, gql.VariableNode):
            name = node.name.value
            if name not in self._shapes:
                return gql.Undefined
            return self.value(self._shapes[name], type_, (name,), node)
        if isinstance(node, gql.NullValueNode):
            return None
        if isinstance(type_, gql.GraphQLInputObjectType):
            return self._object(node, type_)
        items = node.values if isinstance(node, gql.ListValueNode) else (node,)
        if isinstance(type_, gql.GraphQLList) and holds_objects(type_):
            trees = [self._inner(item, type_.of_type) for item in items]
            return [None if isinstance(tree, gql.UndefinedType) else tree for tree in trees]
        if isinstance(type_, gql.GraphQLList) and any(isinstance(item, gql.VariableNode) for item in items):
            return self._list(items, type_.of_type, node)
        read = read_literal(node, type_)
        assert read is not None, "validation lets no invalid literal pass"
        value, shape = read
        return self.leaf(LiteralOrigin(tuple(value) if isinstance(value, list) else value), shape, node)

    def _list(self, items: Iterable[gql.ValueNode], type_: gql.GraphQLInputType, node: gql.Node) -> InputLeaf:
        """Return the leaf of a list of leaves with variables among them."""
        trees = [self._inner(item, type_) for item in items]
        leaves = [tree if isinstance(tree, InputLeaf) else None for tree in trees]
        origins = tuple(None if leaf is None else leaf.origin for leaf in leaves)
        shape = tuple(None if leaf is None else leaf.shape for leaf in leaves)
        return self.leaf(ListOrigin(origins), shape, node)

    def _inner(self, node: gql.ValueNode, type_: gql.GraphQLInputType) -> InputTree | gql.UndefinedType:
        """Return the tree of an item or a member."""
        tree = self.literal(node, type_)
        _check_present(tree, type_, node)
        return tree

    def _object(self, node: gql.ValueNode, type_: gql.GraphQLInputObjectType) -> dict[str, InputTree]:
        assert isinstance(node, gql.ObjectValueNode), "validation lets no other literal pass"
        trees: dict[str, InputTree] = {}
        for member in node.fields:
            name = member.name.value
            tree = self._inner(member.value, type_.fields[name].type)
            if not isinstance(tree, gql.UndefinedType):
                trees[name] = tree
        return trees if len(trees) == len(node.fields) else PartialObject(trees)

    def value(
        self, shape: Any, type_: gql.GraphQLInputType, place: tuple[str | int, ...], node: gql.Node
    ) -> InputTree:
        """Return the tree of a variable's value by its shape."""
        type_ = nullable(type_)
        if shape is None:
            return None
        if isinstance(type_, gql.GraphQLList) and holds_objects(type_) and isinstance(shape, tuple):
            return [
                self.value(item, type_.of_type, (*place, index), node) for index, item in enumerate(shape)
            ]
        if isinstance(type_, gql.GraphQLInputObjectType):
            return {
                name: self.value(member, type_.fields[name].type, (*place, name), node)
                for name, member in shape
            }
        return self.leaf(VariableOrigin(place), shape, node)
