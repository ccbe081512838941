"""GraphQL input: types that read the JSON values of variables and the literals of documents.

One pass over a value coerces it, collects its errors and returns its shape. Values are coerced as in
graphql-core, but messages show values in JSON instead of Python syntax.

The compiler sees only the shape of a value. The shape of null is None. The shape of an object is a tuple of
names and shapes. The shape of a list of objects is a tuple of shapes, or ``UniformRows``. A leaf or a list of
leaves has the shape True, unless the value itself determines the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, cast

import graphql as gql

from dataapi.graphql.graphql_core import location_of, offset
from dataapi.graphql.schema.type_mapping import CURSOR, abbreviated
from dataapi.graphql.sources import (
    InputLeaf,
    LiteralOrigin,
    Shape,
    UniformRows,
    shape_of_cursor,
    shape_of_node_id,
)

InputPath: TypeAlias = tuple[Any, ...]
"""Path of a value: its parent's path, and a name or index. Empty for the outermost value."""


MAX_ERRORS = 20
"""Maximum number of reported errors per document or request.

Each error may require a search for similar names.
"""


class InputLimitExceeded(Exception):
    """Raised when input has too many errors or too many input objects."""


MAX_INPUT_OBJECTS = 10_000
"""Maximum number of input objects in a request's variables. Each object becomes a part of a statement."""


class Reading:
    """State of a pass over JSON values: how many input objects may still be read, and the errors so far."""

    objects = MAX_INPUT_OBJECTS
    errors: tuple[tuple[InputPath, str], ...] = ()

    def add_error(self, path: InputPath, message: str) -> None:
        self.errors += ((path, message),)
        if len(self.errors) > MAX_ERRORS:
            raise InputLimitExceeded


def path_steps(path: InputPath) -> list[Any]:
    steps = []
    while path:
        path, step = path
        steps.append(step)
    return steps[::-1]


@dataclass(frozen=True, slots=True)
class VariableUse:
    """A variable or a parameter in a literal.

    ``type`` is the nullable type of its position. ``required`` is the non-null type, or None if null is
    allowed.
    """

    name: str
    type: gql.GraphQLInputType
    node: gql.Node
    required: gql.GraphQLInputType | None = None


@dataclass(frozen=True, slots=True)
class LeafList:
    """A list of leaves that contains variables."""

    items: tuple[Literal, ...]
    node: gql.ValueNode


Literal: TypeAlias = "InputLeaf | VariableUse | LeafList | list[Literal] | dict[str, Literal] | None"
"""A literal with coerced constants. A dict is an input object, a list contains input objects."""

_Node = TypeVar("_Node", bound=gql.Node)


class LiteralReading:
    """State of a pass over literals.

    :ivar certain: False if graphql-core must check the literals too, because this pass does not detect every
        error, such as duplicate members of an object.
    :ivar enum_strings: the offsets of strings that stand for enum values.
    """

    def __init__(self) -> None:
        self.valid = True
        self.certain = True
        self.enum_strings: set[int] = set()

    def use(self, node: gql.ValueNode, type_: gql.GraphQLInputType) -> VariableUse | None:  # noqa: ARG002
        return None

    def constant(self, node: gql.ValueNode, type_: gql.GraphQLInputType) -> tuple[Any, Shape] | None:
        """Return the value and shape of a literal without variables, None if it is invalid."""
        literal = input_type(type_).literal(node, self)
        return _constant(literal, type_) if self.valid else None


class _EnumStrings(gql.Visitor):
    def __init__(self, offsets: Set[int]) -> None:
        super().__init__()
        self._offsets = offsets

    def enter_string_value(self, node: gql.StringValueNode, *_: Any) -> gql.EnumValueNode | None:
        return _enum_value(node) if offset(node) in self._offsets else None


def with_enum_values(node: _Node, offsets: Set[int]) -> _Node:
    if not offsets:
        return node
    visitor = _EnumStrings(offsets)
    replaced: _Node = gql.visit(node, visitor)
    visitor.enter_leave_map.clear()  # breaks a reference cycle
    return replaced


def _enum_value(node: gql.StringValueNode) -> gql.EnumValueNode:
    return gql.EnumValueNode(value=node.value, loc=node.loc)


class InputType:
    """Reads values and literals of one type."""

    _type: Any

    def read(self, value: Any, shapes: list[Shape], reading: Reading, path: InputPath, step: Any) -> Any:
        """Return the coerced value and append its shape. The result is undefined if the value is invalid.

        ``path`` is the path of the parent, and ``step`` is the value's name or index in the parent.
        """
        raise NotImplementedError

    def literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        """Return a literal with coerced constants. The result is undefined if the literal is invalid."""
        if isinstance(node, gql.NullValueNode):
            return None
        return reading.use(node, self._type) or self._literal(node, reading)

    def _literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        raise NotImplementedError


class _RequiredInput(InputType):
    def __init__(self, type_: gql.GraphQLNonNull[Any]) -> None:
        self._type = type_
        self._inner = input_type(type_.of_type)

    def read(self, value: Any, shapes: list[Shape], reading: Reading, path: InputPath, step: Any) -> Any:
        if value is None:
            reading.add_error(
                (path, step), f"Expected a value of non-null type '{self._type}' not to be null."
            )
        return self._inner.read(value, shapes, reading, path, step)

    def literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        literal = self._inner.literal(node, reading)
        reading.valid &= not isinstance(node, gql.NullValueNode)
        return replace(literal, required=self._type) if isinstance(literal, VariableUse) else literal


class InputMembers(dict[str, InputType]):
    """Input types of arguments or members, compiled on first use because types may be recursive."""

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
    def __init__(self, type_: gql.GraphQLInputObjectType) -> None:
        self._type = type_
        self._positions = {name: position for position, name in enumerate(type_.fields)}
        self._members = InputMembers(type_.fields)

    def read(self, value: Any, shapes: list[Shape], reading: Reading, path: InputPath, step: Any) -> Any:
        if value is None:
            shapes.append(None)
            return None
        if not isinstance(value, dict):
            message = f"Expected value of type '{self._type}' to be an object, found: {abbreviated(value)}."
            return reading.add_error((path, step), message)
        path = path, step
        reading.objects -= 1
        if reading.objects < 0:
            raise InputLimitExceeded
        names = self._names(value)
        if names is None:
            return self._fail(value, reading, path)
        members, coerced, inner = self._members, {}, list[Shape]()
        for name in names:
            coerced[name] = members[name].read(value[name], inner, reading, path, name)
        shapes.append(tuple(zip(names, inner, strict=False)))
        return coerced

    def _literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        if isinstance(node, gql.ObjectValueNode):
            return self._members.literals(node.fields, reading)
        reading.valid = False
        return None

    def read_rows(self, rows: list[dict[str, Any]], reading: Reading, path: InputPath) -> list[Any] | None:
        names, ignored = self._names(rows[0]), list[Shape]()
        if names is None:
            return None
        members = [(name, self._members[name].read) for name in names]
        return [
            {name: read(row[name], ignored, reading, (path, index), name) for name, read in members}
            for index, row in enumerate(rows)
        ]

    def _names(self, value: dict[str, Any]) -> list[str] | None:
        try:
            names = sorted(value, key=self._positions.__getitem__)
        except KeyError:
            return None
        return names if self._members.required.issubset(value) else None

    def _fail(self, value: dict[str, Any], reading: Reading, path: InputPath) -> None:
        start = f"Expected value of type '{self._type}'"
        for name in self._positions:
            if name in value:
                self._members[name].read(value[name], [], reading, path, name)
            elif name in self._members.required:
                reading.add_error(path, f"{start} to include required field '{name}'.")
        for name in value:
            if name not in self._positions:
                reading.add_error(path, f"{start} not to include unknown field {abbreviated(name)}.")


class _ListInput(InputType):
    """Reads lists.

    A list of leaves is bound as one array. The list's shape is True, or the tuple of its values if they are
    enum values that determine the plan.
    """

    def __init__(self, type_: gql.GraphQLList[Any]) -> None:
        self._type = type_
        named: Any = gql.get_named_type(type_)
        self._item = input_type(type_.of_type)
        self._has_objects = has_input_objects(type_)
        self._shapes = bool(named.extensions.get("shapes"))
        self._rows = _object_input(named) if named.extensions.get("rows") else None

    def read(self, value: Any, shapes: list[Shape], reading: Reading, path: InputPath, step: Any) -> Any:
        if value is None:
            shapes.append(None)
            return None
        read, inner = self._item.read, list[Shape]()
        if isinstance(value, list):
            path = path, step
            if self._rows is not None and _is_uniform(value):
                rows = self._rows.read_rows(value, reading, path)
                if rows is not None:
                    shapes.append(UniformRows(tuple(rows[0])))
                    return rows
                reading.objects += len(value)
            values = [read(item, inner, reading, path, index) for index, item in enumerate(value)]
        else:
            values = [read(value, inner, reading, path, step)]  # a single value is coerced to a list
        if self._has_objects:
            shapes.append(tuple(inner))
        else:
            shapes.append(tuple(values) if self._shapes else True)
        return values

    def _literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        items = node.values if isinstance(node, gql.ListValueNode) else (node,)
        literals = [self._item.literal(item, reading) for item in items]
        if self._has_objects:
            return literals
        if any(isinstance(each, VariableUse | LeafList) for each in literals):
            return LeafList(tuple(literals), node)
        values = tuple(_constant(item, self._type)[0] for item in literals)
        return InputLeaf(LiteralOrigin(values), values if self._shapes else True, location_of(node))


class _LeafInput(InputType):
    """Reads scalars and enum values.

    For most types, the plan only depends on whether the value is null. For enums such as ``FilterIs`` and for
    booleans (``@include``), it depends on the value. For cursors and node ids, it depends on a part of the
    value.
    """

    def __init__(self, type_: Any) -> None:
        self._type = type_
        self._coerce: Callable[[Any], Any] = type_.coerce_input_value
        self._shape = _shape_of(type_)

    def read(self, value: Any, shapes: list[Shape], reading: Reading, path: InputPath, step: Any) -> Any:
        if value is None:
            shapes.append(None)
            return None
        try:
            coerced = self._coerce(value)
        except gql.GraphQLError as error:
            return reading.add_error((path, step), self._message(value, error))
        shapes.append(True if self._shape is None else self._shape(coerced))
        return coerced

    def _literal(self, node: gql.ValueNode, reading: LiteralReading) -> Literal:
        reading.certain &= not isinstance(node, gql.ObjectValueNode)  # an object may have duplicate members
        if isinstance(node, gql.StringValueNode) and isinstance(self._type, gql.GraphQLEnumType):
            reading.enum_strings.add(offset(node))
            node = _enum_value(node)
        value = gql.coerce_input_literal(node, self._type)
        if value is gql.Undefined:
            reading.valid = False
            return None
        shape = True if self._shape is None else self._shape(value)
        return InputLeaf(LiteralOrigin(value), shape, location_of(node))

    def _message(self, value: Any, error: gql.GraphQLError) -> str:
        if isinstance(self._type, gql.GraphQLEnumType):
            if isinstance(value, str):
                return f"Value {abbreviated(value)} does not exist in '{self._type}' enum."
            return f"Enum '{self._type}' cannot represent non-string value: {abbreviated(value)}."
        if gql.specified_scalar_types.get(self._type.name) is not self._type:
            return error.message
        # The messages of graphql-core's scalars end with the value in Python syntax.
        return f"{error.message.partition(': ')[0]}: {abbreviated(value)}"


def _shape_of(type_: Any) -> Callable[[Any], Shape] | None:
    """Return the function from a coerced leaf to its shape, None if all non-null shapes are equal."""
    if type_ is gql.GraphQLID:
        return shape_of_node_id
    if type_ is CURSOR:
        return shape_of_cursor
    if type_ is gql.GraphQLBoolean:
        return BOOLEANS.get
    return _itself if type_.extensions.get("shapes") else None


BOOLEANS = {True: "true", False: "false"}


def _itself(value: Any) -> Shape:
    shape: Shape = value
    return shape


_COMPILED = "input"
"""Key of the cached ``_ObjectInput`` in the ``extensions`` of an input object type."""


def input_type(type_: gql.GraphQLInputType) -> InputType:
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
    if len(objects) < 2 or not isinstance(objects[0], dict) or not objects[0]:
        return False
    members = objects[0].keys()
    return all(isinstance(item, dict) and item.keys() == members for item in objects)


def has_input_objects(type_: gql.GraphQLInputType) -> bool:
    return isinstance(gql.get_named_type(type_), gql.GraphQLInputObjectType)
