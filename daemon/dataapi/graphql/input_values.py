"""GraphQL input: types that read the JSON values of variables and the literals of documents.

One walk over a value coerces it, collects its faults and reduces it to the shape that decides the plan.  The
results are graphql-core's own; its messages write values as Python does, and ours as JSON.

The compiler sees nothing of a value but its shape.  The shape of null is None, that of an object is a tuple
of names and shapes, and that of a list of objects is a tuple of shapes or ``UniformRows``.  A leaf or a list
of leaves has the shape True, unless the value itself decides the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, cast

import graphql as gql

from dataapi.graphql.graphql_core import offset, place_of
from dataapi.graphql.schema.type_mapping import CURSOR, abbreviated
from dataapi.graphql.sources import (
    InputLeaf,
    LiteralOrigin,
    Shape,
    UniformRows,
    shape_of_cursor,
    shape_of_node_id,
)

Place: TypeAlias = tuple[Any, ...]
"""A place in a value: the place around it, empty for a root, and a name or index."""


MAX_ERRORS = 20
"""Errors of a document or its variables after which checking stops; each may search for similar names."""


class UnreadableInput(Exception):
    """Raised when reading stops early: there are too many faults, or too many input objects."""


MAX_INPUT_OBJECTS = 10_000
"""Input objects that one request's variables may hold; each becomes a piece of a statement."""


class Reading:
    """Collects what reading values finds besides the values and their shapes.

    :ivar objects: the number of further input objects that may be read.
    :ivar faults: places with messages, in the order of the types' members.
    """

    objects = MAX_INPUT_OBJECTS
    faults: tuple[tuple[Place, str], ...] = ()

    def fault(self, place: Place, message: str) -> None:
        """Add a fault.

        :raises UnreadableInput: there are enough of them.
        """
        self.faults += ((place, message),)
        if len(self.faults) > MAX_ERRORS:
            raise UnreadableInput


def steps_to(place: Place) -> list[Any]:
    """Return the names and indexes that lead to a place, the root's first."""
    steps = []
    while place:
        place, step = place
        steps.append(step)
    return steps[::-1]


@dataclass(frozen=True, slots=True)
class VariableUse:
    """A variable or a parameter in a literal.

    :ivar type: the nullable type of its position.
    :ivar required: the non-null type of its position, None if null is allowed.
    """

    name: str
    type: gql.GraphQLInputType
    node: gql.Node
    required: gql.GraphQLInputType | None = None


@dataclass(frozen=True, slots=True)
class LeafList:
    """A list of leaves with variables among its items."""

    items: tuple[Literal, ...]
    node: gql.ValueNode


Literal: TypeAlias = "InputLeaf | VariableUse | LeafList | list[Literal] | dict[str, Literal] | None"
"""A literal with its constants coerced. A list holds input objects, None is null."""

_Node = TypeVar("_Node", bound=gql.Node)


class LiteralReading:
    """Collects what reading literals finds besides their values.

    :ivar valid: whether all literals are valid.
    :ivar certain: whether graphql-core's rules find no fault in valid ones.
    :ivar enum_strings: offsets of strings that stand for enum values.
    """

    def __init__(self) -> None:
        self.valid = True
        self.certain = True
        self.enum_strings: set[int] = set()

    def use(self, node: gql.ValueNode, type_: gql.GraphQLInputType) -> VariableUse | None:  # noqa: ARG002
        """Return the variable or parameter that a node stands for, None for other literals."""
        return None

    def constant(self, node: gql.ValueNode, type_: gql.GraphQLInputType) -> tuple[Any, Shape] | None:
        """Return the value and the shape of a literal without variables, None if it is invalid."""
        literal = input_type(type_).literal(node, self)
        return _constant(literal, type_) if self.valid else None


class _EnumStrings(gql.Visitor):
    """Replaces strings with enum values.

    :param offsets: the strings' offsets in the text.
    """

    def __init__(self, offsets: Set[int]) -> None:
        super().__init__()
        self._offsets = offsets

    def enter_string_value(self, node: gql.StringValueNode, *_: Any) -> gql.EnumValueNode | None:
        return _enum_value(node) if offset(node) in self._offsets else None


def with_enum_values(node: _Node, offsets: Set[int]) -> _Node:
    """Return a node with enum values in place of the strings at these offsets in the text."""
    if not offsets:
        return node
    visitor = _EnumStrings(offsets)
    replaced: _Node = gql.visit(node, visitor)
    visitor.enter_leave_map.clear()  # it refers to the visitor
    return replaced


def _enum_value(node: gql.StringValueNode) -> gql.EnumValueNode:
    return gql.EnumValueNode(value=node.value, loc=node.loc)


class InputType:
    """Reads values and literals of one type."""

    _type: Any

    def read(self, value: Any, shapes: list[Shape], reading: Reading, place: Place, step: Any) -> Any:
        """Return the coerced value.  If the value has faults, the result means nothing.

        :param shapes: the value's shape is appended to it.
        :param place: the place around the value.
        :param step: the value's name or index there.
        """
        raise NotImplementedError

    def literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        """Return a literal with its constants coerced.  If it is invalid, the result means nothing."""
        if isinstance(node, gql.NullValueNode):
            return None
        return reading.use(node, self._type) or self._literal(node, reading)

    def _literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        raise NotImplementedError


class _RequiredInput(InputType):
    def __init__(self, type_: gql.GraphQLNonNull[Any]) -> None:
        self._type = type_
        self._inner = input_type(type_.of_type)

    def read(self, value: Any, shapes: list[Shape], reading: Reading, place: Place, step: Any) -> Any:
        if value is None:
            reading.fault((place, step), f"Expected a value of non-null type '{self._type}' not to be null.")
        return self._inner.read(value, shapes, reading, place, step)

    def literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        literal = self._inner.literal(node, reading)
        reading.valid &= not isinstance(node, gql.NullValueNode)
        return replace(literal, required=self._type) if isinstance(literal, VariableUse) else literal


class InputMembers(dict[str, InputType]):
    """Arguments, or members of an input object type.

    They are compiled on first use, because types may contain themselves.
    """

    def __init__(self, definitions: Mapping[str, gql.GraphQLArgument | gql.GraphQLInputField]) -> None:
        super().__init__()
        self._definitions = definitions
        self.required = frozenset(
            name
            for name, each in definitions.items()
            if isinstance(each.type, gql.GraphQLNonNull) and each.default is None
        )

    def __missing__(self, name: str) -> InputType:
        return self.setdefault(name, input_type(self._definitions[name].type))

    def literals(
        self, nodes: Iterable[gql.ArgumentNode | gql.ObjectFieldNode], reading: LiteralReading
    ) -> dict[str, Literal]:
        """Return the literals by name."""
        literals: dict[str, Literal] = {}
        for node in nodes:
            name = node.name.value
            is_known = name in self._definitions
            reading.valid &= is_known and name not in literals
            if is_known:
                literals[name] = self[name].literal(node.value, reading)
        reading.valid &= self.required.issubset(literals)
        return literals


class _ObjectInput(InputType):
    """Reads input objects."""

    def __init__(self, type_: gql.GraphQLInputObjectType) -> None:
        self._type = type_
        self._places = {name: place for place, name in enumerate(type_.fields)}
        self._members = InputMembers(type_.fields)

    def read(self, value: Any, shapes: list[Shape], reading: Reading, place: Place, step: Any) -> Any:
        if value is None:
            shapes.append(None)
            return None
        if not isinstance(value, dict):
            message = f"Expected value of type '{self._type}' to be an object, found: {abbreviated(value)}."
            return reading.fault((place, step), message)
        place = place, step
        reading.objects -= 1
        if reading.objects < 0:
            raise UnreadableInput
        names = self._names(value)
        if names is None:
            return self._fail(value, reading, place)
        members, coerced, inner = self._members, {}, list[Shape]()
        for name in names:
            coerced[name] = members[name].read(value[name], inner, reading, place, name)
        shapes.append(tuple(zip(names, inner, strict=False)))
        return coerced

    def _literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        if isinstance(node, gql.ObjectValueNode):
            return self._members.literals(node.fields, reading)
        reading.valid = False
        return None

    def read_rows(self, rows: list[dict[str, Any]], reading: Reading, place: Place) -> list[Any] | None:
        """Return the coerced values of objects that all have the same members, None if these are invalid."""
        names, ignored = self._names(rows[0]), list[Shape]()
        if names is None:
            return None
        members = [(name, self._members[name].read) for name in names]
        return [
            {name: read(row[name], ignored, reading, (place, index), name) for name, read in members}
            for index, row in enumerate(rows)
        ]

    def _names(self, value: dict[str, Any]) -> list[str] | None:
        """Return an object's members in the order of the type, None if one is unknown or missing."""
        try:
            names = sorted(value, key=self._places.__getitem__)
        except KeyError:
            return None
        return names if self._members.required.issubset(value) else None

    def _fail(self, value: dict[str, Any], reading: Reading, place: Place) -> None:
        """Collect the faults of an object that lacks a member or has an unknown one."""
        start = f"Expected value of type '{self._type}'"
        for name in self._places:
            if name in value:
                self._members[name].read(value[name], [], reading, place, name)
            elif name in self._members.required:
                reading.fault(place, f"{start} to include required field '{name}'.")
        for name in value:
            if name not in self._places:
                reading.fault(place, f"{start} not to include unknown field {abbreviated(name)}.")


class _ListInput(InputType):
    """Reads lists.  A list of leaves is bound as one array, so only enums' values count in its shape."""

    def __init__(self, type_: gql.GraphQLList[Any]) -> None:
        self._type = type_
        named: Any = gql.get_named_type(type_)
        self._item = input_type(type_.of_type)
        self._holds_objects = holds_objects(type_)
        self._shapes = bool(named.extensions.get("shapes"))
        self._rows = _object_input(named) if named.extensions.get("rows") else None

    def read(self, value: Any, shapes: list[Shape], reading: Reading, place: Place, step: Any) -> Any:
        if value is None:
            shapes.append(None)
            return None
        read, inner = self._item.read, list[Shape]()
        if isinstance(value, list):
            place = place, step
            if self._rows is not None and _is_uniform(value):
                rows = self._rows.read_rows(value, reading, place)
                if rows is not None:
                    shapes.append(UniformRows(tuple(rows[0])))
                    return rows
                reading.objects += len(value)
            values = [read(item, inner, reading, place, index) for index, item in enumerate(value)]
        else:
            values = [read(value, inner, reading, place, step)]  # a lone value is a list of one
        if self._holds_objects:
            shapes.append(tuple(inner))
        else:
            shapes.append(tuple(values) if self._shapes else True)
        return values

    def _literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        items = node.values if isinstance(node, gql.ListValueNode) else (node,)
        literals = [self._item.literal(item, reading) for item in items]
        if self._holds_objects:
            return literals
        if any(isinstance(each, VariableUse | LeafList) for each in literals):
            return LeafList(tuple(literals), node)
        values = tuple(_constant(item, self._type)[0] for item in literals)
        return InputLeaf(LiteralOrigin(values), values if self._shapes else True, place_of(node))


class _LeafInput(InputType):
    """Reads scalars and enum values.

    For most, only whether they are null decides the statement.  For words such as ``FilterIs``, booleans
    (they may steer ``@include``), the nulls of a cursor and the table of a node id, the value does.
    """

    def __init__(self, type_: Any) -> None:
        self._type = type_
        self._coerce: Callable[[Any], Any] = type_.coerce_input_value
        self._shape = _shape_of(type_)

    def read(self, value: Any, shapes: list[Shape], reading: Reading, place: Place, step: Any) -> Any:
        if value is None:
            shapes.append(None)
            return None
        try:
            coerced = self._coerce(value)
        except gql.GraphQLError as error:
            return reading.fault((place, step), self._message(value, error))
        shapes.append(True if self._shape is None else self._shape(coerced))
        return coerced

    def _literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        reading.certain &= not isinstance(node, gql.ObjectValueNode)  # it may have a member twice
        if isinstance(node, gql.StringValueNode) and isinstance(self._type, gql.GraphQLEnumType):
            reading.enum_strings.add(offset(node))
            node = _enum_value(node)
        value = gql.coerce_input_literal(node, self._type)
        if value is gql.Undefined:
            reading.valid = False
            return None
        shape = True if self._shape is None else self._shape(value)
        return InputLeaf(LiteralOrigin(value), shape, place_of(node))

    def _message(self, value: Any, error: gql.GraphQLError) -> str:
        if isinstance(self._type, gql.GraphQLEnumType):
            if isinstance(value, str):
                return f"Value {abbreviated(value)} does not exist in '{self._type}' enum."
            return f"Enum '{self._type}' cannot represent non-string value: {abbreviated(value)}."
        if gql.specified_scalar_types.get(self._type.name) is not self._type:
            return error.message
        # The message of one of graphql-core's own scalars ends in the value as Python writes it.
        return f"{error.message.partition(': ')[0]}: {abbreviated(value)}"


def _shape_of(type_: Any) -> Callable[[Any], Shape] | None:
    """Return the function that reduces a coerced leaf to its shape, None if only its presence counts."""
    if type_ is gql.GraphQLID:
        return shape_of_node_id
    if type_ is CURSOR:
        return shape_of_cursor
    if type_ is gql.GraphQLBoolean:
        return BOOLEANS.get
    return _itself if type_.extensions.get("shapes") else None


BOOLEANS = {True: "true", False: "false"}
"""The shapes of booleans."""


def _itself(value: Any) -> Shape:
    shape: Shape = value
    return shape


_COMPILED = "input"
"""The extension of an input object type that holds its compiled form."""


def input_type(type_: gql.GraphQLInputType) -> InputType:
    """Return what reads values of a type.  Input object types are compiled once."""
    if isinstance(type_, gql.GraphQLNonNull):
        return _RequiredInput(type_)
    if isinstance(type_, gql.GraphQLList):
        return _ListInput(type_)
    if not isinstance(type_, gql.GraphQLInputObjectType):
        return _LeafInput(type_)
    return _object_input(type_)


def _object_input(type_: gql.GraphQLInputObjectType) -> _ObjectInput:
    compiled: _ObjectInput | None = type_.extensions.get(_COMPILED)
    return compiled or type_.extensions.setdefault(_COMPILED, _ObjectInput(type_))


def _constant(literal: Literal, type_: gql.GraphQLInputType) -> tuple[Any, Shape]:
    """Return the value and the shape of a literal without variables."""
    match literal:
        case InputLeaf(LiteralOrigin(value), shape):
            return value, shape
        case list():
            items = [_constant(item, type_) for item in literal]
            return [value for value, _ in items], tuple(shape for _, shape in items)
        case dict():
            fields: Mapping[str, gql.GraphQLInputField] = cast("Any", gql.get_named_type(type_)).fields
            members = {
                name: _constant(literal[name], field.type)
                for name, field in fields.items()
                if name in literal
            }
            shape = tuple((name, shape) for name, (_, shape) in members.items())
            return {name: value for name, (value, _) in members.items()}, shape
    return None, None


def _is_uniform(objects: list[Any]) -> bool:
    """Whether there are several objects, all with the same members, so that they are bound as one value."""
    if len(objects) < 2 or not isinstance(objects[0], dict) or not objects[0]:
        return False
    members = objects[0].keys()
    return all(isinstance(item, dict) and item.keys() == members for item in objects)


def holds_objects(type_: gql.GraphQLInputType) -> bool:
    """Whether a list type's items are input objects."""
    return isinstance(gql.get_named_type(type_), gql.GraphQLInputObjectType)
