"""Arguments as trees: structure that shapes a statement, and leaves that become slots.

A tree is None (null), a ``Leaf``, a list of trees or a dict of trees by input field; an
absent value is ``ABSENT``.  Only lists of input objects are lists: a list of scalars or
enums is one leaf, because it is bound as one array.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from graphql import (
    FieldNode,
    GraphQLArgument,
    GraphQLBoolean,
    GraphQLEnumType,
    GraphQLError,
    GraphQLID,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLList,
    GraphQLNonNull,
    ListValueNode,
    Node,
    NullValueNode,
    ObjectValueNode,
    Undefined,
    ValueNode,
    VariableNode,
    coerce_input_literal,
    get_named_type,
)

from dataapi.graphql.compatibility import client_name
from dataapi.graphql.identifiers import decode_cursor, decode_node_id
from dataapi.graphql.parsing import place_of
from dataapi.graphql.scalars import CURSOR
from dataapi.graphql.sources import Constant, InVariable, Leaf, ListOf, Origin, Path, Variables
from dataapi.graphql.wrappers import nullable
from dataapi.pauses import pause


class Absent:
    """The type of ``ABSENT``."""

    def __bool__(self) -> bool:
        return False


MANY = 2
"""From how many objects on a list of them may be bound as one value."""

ABSENT: Final = Absent()
Tree = Any  # None | Leaf | list[Tree] | dict[str, Tree] | Absent


class ObjectList(list[Tree]):
    """The trees of a list of input objects that a variable holds as a whole.

    :ivar leaf: the list as one value.
    """

    def __init__(self, trees: list[Tree], leaf: Leaf) -> None:
        super().__init__(trees)
        self.leaf = leaf

    @property
    def uniform(self) -> bool:
        """Whether there are several objects, all with the same members."""
        return _uniform(self)


def _uniform(objects: list[Any]) -> bool:
    if len(objects) < MANY or not objects[0]:
        return False
    members = objects[0].keys()
    return all(item is not None and item.keys() == members for item in objects)


def holds_objects(type_: GraphQLInputType) -> bool:
    """Whether a list type's items are input objects."""
    while isinstance(type_, GraphQLNonNull | GraphQLList):
        type_ = type_.of_type
    return isinstance(type_, GraphQLInputObjectType)


def argument_trees(
    field: FieldNode, arguments: Mapping[str, GraphQLArgument], variables: Variables, path: Path = ()
) -> dict[str, Tree]:
    """Return the trees of a field's arguments, defaults applied, absent ones left out.

    :param variables: the request's coerced variables.
    :param path: the field's response path, for errors.
    :raises GraphQLError: a variable has no value where one is needed.
    """
    reader = _Reader(variables, path)
    given = {node.name.value: node.value for node in field.arguments or ()}
    trees: dict[str, Tree] = {}
    for name, argument in arguments.items():
        node = given.get(name)
        tree = ABSENT if node is None else reader.literal(node, argument.type)
        if tree is ABSENT and argument.default is not None:
            tree = reader.leaf(Constant(argument.default.value), argument.default.value, field)
        if node is not None:
            check_present(tree, argument.type, node)
        if tree is not ABSENT:
            trees[name] = tree
    return trees


def check_present(tree: Tree, type_: GraphQLInputType, node: ValueNode) -> None:
    """Refuse a variable without a value where a value is needed.

    Validation does not look at the values of variables, and sees to it that no literal is null there.

    :raises GraphQLError: naming the variable and what is expected.
    """
    if not isinstance(type_, GraphQLNonNull) or not (tree is None or tree is ABSENT):
        return
    assert isinstance(node, VariableNode), "validation lets no null pass where a value is needed"
    name, what = client_name(node.name.value), "null" if tree is None else "absent"
    message = f"Variable '${name}' must not be {what} where a value of type '{type_}' is expected."
    raise GraphQLError(message, node)


def absent_variables(node: ValueNode, variables: Variables) -> tuple[str, ...]:
    """Return the client's names of a literal's variables that have no value, each once."""
    match node:
        case VariableNode():
            return () if node.name.value in variables else (client_name(node.name.value),)
        case ListValueNode():
            inner = node.values
        case ObjectValueNode():
            inner = tuple(member.value for member in node.fields)
        case _:
            return ()
    return tuple(dict.fromkeys(name for value in inner for name in absent_variables(value, variables)))


class _Reader:
    """Reads literals and variables' values into trees."""

    def __init__(self, variables: Variables, path: Path) -> None:
        self._variables = variables
        self._path = path

    def leaf(self, origin: Origin, sample: Any, node: Node) -> Leaf:
        return Leaf(origin, sample, place_of(node), self._path)

    def literal(self, node: ValueNode, type_: GraphQLInputType) -> Tree:
        """Return the tree of a literal, which may hold variables."""
        pause()
        type_ = nullable(type_)
        if isinstance(node, VariableNode):
            name = node.name.value
            return (
                self.value(self._variables[name], type_, (name,), node) if name in self._variables else ABSENT
            )
        if isinstance(node, NullValueNode):
            return None
        if isinstance(type_, GraphQLList):
            items = node.values if isinstance(node, ListValueNode) else (node,)
            trees = [self._inner(item, type_.of_type) for item in items]
            if holds_objects(type_):
                return [None if tree is ABSENT else tree for tree in trees]
            return self._leaf_of_items([tree or None for tree in trees], node)
        if isinstance(type_, GraphQLInputObjectType):
            return self._object(node, type_)
        value = coerce_input_literal(node, type_)
        if value is Undefined:
            raise GraphQLError(f"Invalid input for {type_} type", node)
        return self.leaf(Constant(value), value, node)

    def _inner(self, node: ValueNode, type_: GraphQLInputType) -> Tree:
        """Return the tree of an item or a member."""
        tree = self.literal(node, type_)
        check_present(tree, type_, node)
        return tree

    def _leaf_of_items(self, items: list[Leaf | None], node: Node) -> Leaf:
        sample = [None if item is None else item.sample for item in items]
        if all(item is None or isinstance(item.origin, Constant) for item in items):
            return self.leaf(Constant(tuple(sample)), sample, node)
        origins = tuple(None if item is None else item.origin for item in items)
        return self.leaf(ListOf(origins), sample, node)

    def _object(self, node: ValueNode, type_: GraphQLInputObjectType) -> dict[str, Tree]:
        if not isinstance(node, ObjectValueNode):
            raise GraphQLError(f"Invalid input for {type_} type", node)
        trees = {}
        for member in node.fields:
            name = member.name.value
            tree = self._inner(member.value, type_.fields[name].type)
            if tree is not ABSENT:
                trees[name] = tree
        return trees

    def value(self, value: Any, type_: GraphQLInputType, place: tuple[str | int, ...], node: Node) -> Tree:
        """Return the tree of a variable's coerced value."""
        pause()
        type_ = nullable(type_)
        if value is None:
            return None
        if isinstance(type_, GraphQLList) and holds_objects(type_):
            items = [
                self.value(item, type_.of_type, (*place, index), node) for index, item in enumerate(value)
            ]
            return ObjectList(items, self.leaf(InVariable(place), value, node))
        if isinstance(type_, GraphQLInputObjectType):
            return {
                name: self.value(member, type_.fields[name].type, (*place, name), node)
                for name, member in value.items()
            }
        return self.leaf(InVariable(place), value, node)


# ---------------------------------------------------------------- shapes

Shaper = Callable[[Any], Hashable]


def _shape_of_cursor(text: str) -> Hashable:
    try:
        return tuple(value is None for value in decode_cursor(text))
    except GraphQLError:
        return text  # compiling it reports the error with its place


def _shape_of_node_id(text: str) -> Hashable:
    try:
        key = decode_node_id(text)
    except GraphQLError:
        return text
    return key.schema, key.table, len(key.values)


def shaper(type_: GraphQLInputType) -> Shaper:
    """Return the function that gives what of a coerced value decides the statement's text.

    Of most leaves that is only whether they are null.  The words of ``OrderByDirection``
    and ``FilterIs``, booleans (they may steer ``@include``), a cursor's nulls and a node
    id's table decide more.
    """
    inner = _shaper_of_present(nullable(type_))
    return lambda value: None if value is None else inner(value)


def _shaper_of_present(type_: GraphQLInputType) -> Shaper:
    if isinstance(type_, GraphQLList):
        if not holds_objects(type_):
            named = get_named_type(type_)
            shapes = isinstance(named, GraphQLEnumType) and named.extensions.get("shapes")
            return tuple if shapes else (lambda _value: True)
        items = _Late(type_.of_type)
        if not get_named_type(type_).extensions.get("rows"):
            return lambda value: tuple(items(item) for item in value)
        # However many rows there are, they are bound as one value (see ``bulk``).
        return lambda value: (True, *value[0]) if _uniform(value) else tuple(items(item) for item in value)
    if isinstance(type_, GraphQLInputObjectType):
        members = {name: _Late(field.type) for name, field in type_.fields.items()}
        return lambda value: tuple((name, members[name](member)) for name, member in value.items())
    if type_ is GraphQLID:
        return _shape_of_node_id
    if type_ is CURSOR:
        return _shape_of_cursor
    if type_ is GraphQLBoolean or (isinstance(type_, GraphQLEnumType) and type_.extensions.get("shapes")):
        return lambda value: (value,)
    return lambda _value: True


class _Late:
    """A shaper made at its first use, because input types nest in themselves."""

    def __init__(self, type_: GraphQLInputType) -> None:
        self._type = type_
        self._shaper: Shaper | None = None

    def __call__(self, value: Any) -> Hashable:
        if self._shaper is None:
            self._shaper = shaper(self._type)
        return self._shaper(value)
