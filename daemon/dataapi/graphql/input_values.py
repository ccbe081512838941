"""GraphQL input: each type is compiled once, and reads JSON values of variables and constant literals.

One walk over a value coerces it, collects its faults and reduces it to the shape that decides the plan.  The
results are graphql-core's own; its messages write values as Python does, and ours as JSON.

The compiler sees nothing of a value but its shape.  The shape of null is None, that of an object is a tuple
of names and shapes, and that of a list of objects is a tuple of shapes or ``UniformRows``.  A leaf or a list
of leaves has the shape True, unless the value itself decides the plan.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import graphql as gql

from dataapi.graphql.schema.type_mapping import CURSOR, abbreviated
from dataapi.graphql.sources import Shape, UniformRows, shape_of_cursor, shape_of_node_id
from dataapi.graphql.validation import MAX_ERRORS

Place: TypeAlias = tuple[Any, ...]
"""A place in a value: the place around it, empty for a root, and a name or index."""


class UnreadableInput(Exception):
    """Raised when reading stops early: there are too many faults, or too many input objects."""


MAX_INPUT_OBJECTS = 10_000
"""Input objects that one request's variables may hold; each becomes a piece of a statement."""


class Reading:
    """Collects what reading values finds besides the values and their shapes.

    :ivar literal: whether the values are literals, and not JSON.
    :ivar objects: the number of further input objects that may be read.
    :ivar faults: places with messages, in the order of the types' members.
    """

    literal = False
    objects = MAX_INPUT_OBJECTS
    faults: tuple[tuple[Place, str], ...] = ()

    def fault(self, place: Place, message: str) -> None:
        """Add a fault.

        :raises UnreadableInput: there are enough of them.
        """
        self.faults += ((place, message),)
        if len(self.faults) > MAX_ERRORS:
            raise UnreadableInput


class _LiteralReading(Reading):
    """Reads a literal. The limits of documents bound its size."""

    literal = True
    objects = sys.maxsize


def steps_to(place: Place) -> list[Any]:
    """Return the names and indexes that lead to a place, the root's first."""
    steps = []
    while place:
        place, step = place
        steps.append(step)
    return steps[::-1]


class InputType:
    """Reads values of one type."""

    def read(self, value: Any, shapes: list[Shape], reading: Reading, place: Place, step: Any) -> Any:
        """Return the coerced value.  If the value has faults, the result means nothing.

        :param value: JSON, or a constant literal.
        :param shapes: the value's shape is appended to it.
        :param place: the place around the value.
        :param step: the value's name or index there.
        """
        raise NotImplementedError


class _RequiredInput(InputType):
    def __init__(self, type_: gql.GraphQLNonNull[Any]) -> None:
        self._type = type_
        self._inner = input_type(type_.of_type)

    def read(self, value: Any, shapes: list[Shape], reading: Reading, place: Place, step: Any) -> Any:
        if value is None:
            reading.fault((place, step), f"Expected a value of non-null type '{self._type}' not to be null.")
        return self._inner.read(value, shapes, reading, place, step)


class _InputMembers(dict[str, InputType]):
    """Compiles the members of an input object type on first use, because types may contain themselves."""

    def __init__(self, type_: gql.GraphQLInputObjectType) -> None:
        super().__init__()
        self._type = type_

    def __missing__(self, name: str) -> InputType:
        return self.setdefault(name, input_type(self._type.fields[name].type))


class _ObjectInput(InputType):
    """Reads input objects."""

    def __init__(self, type_: gql.GraphQLInputObjectType) -> None:
        self._type = type_
        self._places = {name: place for place, name in enumerate(type_.fields)}
        self._required = frozenset(
            name for name, field in type_.fields.items() if gql.is_required_input_field(field)
        )
        self._members = _InputMembers(type_)

    def read(self, value: Any, shapes: list[Shape], reading: Reading, place: Place, step: Any) -> Any:
        if value is None:
            shapes.append(None)
            return None
        if isinstance(value, gql.ObjectValueNode):
            value = {member.name.value: _opened(member.value) for member in value.fields}
        if not isinstance(value, dict):
            found = "a literal" if isinstance(value, gql.Node) else abbreviated(value)
            message = f"Expected value of type '{self._type}' to be an object, found: {found}."
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
        return names if self._required.issubset(value) else None

    def _fail(self, value: dict[str, Any], reading: Reading, place: Place) -> None:
        """Collect the faults of an object that lacks a member or has an unknown one."""
        start = f"Expected value of type '{self._type}'"
        for name in self._places:
            if name in value:
                self._members[name].read(value[name], [], reading, place, name)
            elif name in self._required:
                reading.fault(place, f"{start} to include required field '{name}'.")
        for name in value:
            if name not in self._places:
                reading.fault(place, f"{start} not to include unknown field {abbreviated(name)}.")


class _ListInput(InputType):
    """Reads lists.  A list of leaves is bound as one array, so only enums' values count in its shape."""

    def __init__(self, type_: gql.GraphQLList[Any]) -> None:
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
        if isinstance(value, gql.ListValueNode):
            value = [_opened(item) for item in value.values]
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
            coerced = self._literal(value) if reading.literal else self._coerce(value)
        except gql.GraphQLError as error:
            return reading.fault((place, step), self._message(value, error))
        shapes.append(True if self._shape is None else self._shape(coerced))
        return coerced

    def _literal(self, node: gql.ValueNode) -> Any:
        value = gql.coerce_input_literal(node, self._type)
        if value is gql.Undefined:
            raise gql.GraphQLError("")  # graphql-core's rules say why
        return value

    def _message(self, value: Any, error: gql.GraphQLError) -> str:
        if isinstance(value, gql.ValueNode):
            return error.message
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


def _opened(node: gql.ValueNode) -> gql.ValueNode | None:
    return None if isinstance(node, gql.NullValueNode) else node


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


def read_literal(node: gql.ValueNode, type_: gql.GraphQLInputType) -> tuple[Any, Shape] | None:
    """Return the value and the shape of a constant literal, None for one that is invalid at its place."""
    shapes, reading = list[Shape](), _LiteralReading()
    try:
        value = input_type(type_).read(_opened(node), shapes, reading, (), None)
    except UnreadableInput:
        return None
    return None if reading.faults else (value, shapes[0])


def _is_uniform(objects: list[Any]) -> bool:
    """Whether there are several objects, all with the same members, so that they are bound as one value."""
    if len(objects) < 2 or not isinstance(objects[0], dict) or not objects[0]:
        return False
    members = objects[0].keys()
    return all(isinstance(item, dict) and item.keys() == members for item in objects)


def holds_objects(type_: gql.GraphQLInputType) -> bool:
    """Whether a list type's items are input objects."""
    return isinstance(gql.get_named_type(type_), gql.GraphQLInputObjectType)
