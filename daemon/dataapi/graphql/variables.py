"""The values of variables: coerced, validated, and reduced to the shape that decides how a plan is compiled.

Coercions and shapes are made once for a type.  graphql-core inspects the type again for every value, which
takes most of the time of a request with a thousand rows.  The results are graphql-core's own; its messages
write values as Python does, and ours as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import is_not
from typing import Any

import graphql as gql

from dataapi.graphql.schema.shared_types import nullable
from dataapi.graphql.schema.type_mapping import CURSOR, abbreviated
from dataapi.graphql.sources import Shape, UniformRows, shape_of_cursor, shape_of_node_id

Coerce = Callable[[Any], Any]
Steps = tuple[str | int, ...]


class _Uncoercible(Exception):
    """A value is not valid for its type."""


def coercer(type_: gql.GraphQLInputType) -> Coerce:
    """Return what coerces a value of the type, and raises some exception for an invalid one."""
    if isinstance(type_, gql.GraphQLNonNull):
        return _required(coercer(type_.of_type))
    if isinstance(type_, gql.GraphQLList):
        return _list(coercer(type_.of_type))
    if isinstance(type_, gql.GraphQLInputObjectType):
        return _ObjectCoercion(type_)
    leaf: Coerce = type_.coerce_input_value
    return lambda value: None if value is None else leaf(value)


def _required(inner: Coerce) -> Coerce:
    def coerce(value: Any) -> Any:
        if value is None:
            raise _Uncoercible
        return inner(value)

    return coerce


def _list(item: Coerce) -> Coerce:
    def coerce(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            return [item(value)]  # a lone value is a list of one
        items = []
        for inner in value:
            items.append(item(inner))
        return items

    return coerce


class _ObjectCoercion:
    """Coerces input objects; reads the type with the first one, because types nest in themselves."""

    def __init__(self, type_: gql.GraphQLInputObjectType) -> None:
        self._type = type_
        self._members: dict[str, Coerce] = {}
        self._places: dict[str, int] | None = None
        self._required: frozenset[str] = frozenset()
        self._plain = True

    def _read_type(self) -> dict[str, int]:
        fields = self._type.fields
        self._required = frozenset(
            name for name, field in fields.items() if gql.is_required_input_field(field)
        )
        self._plain = not self._type.is_one_of and all(
            field.default is None and field.out_name is None for field in fields.values()
        )
        self._places = {name: place for place, name in enumerate(fields)}
        return self._places

    def __call__(self, value: Any) -> Any:
        if value is None:
            return None
        places = self._places or self._read_type()
        if not isinstance(value, dict):
            raise _Uncoercible
        if not self._plain:
            coerced = gql.coerce_input_value(value, self._type)
            if coerced is gql.Undefined:
                raise _Uncoercible
            return coerced
        if not self._required.issubset(value):
            raise _Uncoercible
        members = self._members
        coerced = {}
        for name in sorted(value, key=places.__getitem__):  # in the order of the type, as graphql-core
            member = members.get(name)
            if member is None:
                member = members[name] = coercer(self._type.fields[name].type)
            coerced[name] = member(value[name])
        return coerced


def faults(value: Any, type_: gql.GraphQLInputType, place: Steps = ()) -> Iterator[tuple[Steps, str]]:
    """Yield why a value is not one of the type: places in it, each with a message; nothing if it is."""
    if value is None:
        if isinstance(type_, gql.GraphQLNonNull):
            yield place, f"Expected a value of non-null type '{type_}' not to be null."
    elif isinstance(type_, gql.GraphQLList) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from faults(item, type_.of_type, (*place, index))
    elif isinstance(type_, gql.GraphQLNonNull | gql.GraphQLList):  # a lone value is a list of one
        yield from faults(value, type_.of_type, place)
    elif isinstance(type_, gql.GraphQLInputObjectType):
        yield from _faults_of_object(value, type_, place)
    else:
        message = _fault_of_leaf(value, type_)
        if message is not None:
            yield place, message


def _faults_of_object(
    value: Any, type_: gql.GraphQLInputObjectType, place: Steps
) -> Iterator[tuple[Steps, str]]:
    if not isinstance(value, dict):
        yield place, f"Expected value of type '{type_}' to be an object, found: {abbreviated(value)}."
        return
    for name, member in type_.fields.items():
        if name in value:
            yield from faults(value[name], member.type, (*place, name))
        elif gql.is_required_input_field(member):
            yield place, f"Expected value of type '{type_}' to include required field '{name}'."
    for name in value:
        if name not in type_.fields:
            yield place, f"Expected value of type '{type_}' not to include unknown field {abbreviated(name)}."


def _fault_of_leaf(value: Any, type_: Any) -> str | None:
    if isinstance(type_, gql.GraphQLEnumType):
        if not isinstance(value, str):
            return f"Enum '{type_}' cannot represent non-string value: {abbreviated(value)}."
        known = value in type_.values
        return None if known else f"Value {abbreviated(value)} does not exist in '{type_}' enum."
    try:
        type_.coerce_input_value(value)
    except gql.GraphQLError as error:
        if gql.specified_scalar_types.get(type_.name) is not type_:
            return error.message
        # What graphql-core's own scalars say ends in the value as Python writes it.
        return f"{error.message.partition(': ')[0]}: {abbreviated(value)}"
    return None


Shaper = Callable[[Any], Shape]


def shaper(type_: gql.GraphQLInputType) -> Shaper:
    """Return the function that reduces a coerced value to the part that decides the plan.

    Of most leaves that is only whether they are null.  The words of ``OrderByDirection``
    and ``FilterIs``, booleans (they may steer ``@include``), a cursor's nulls and a node
    id's table decide more.

    The compiler sees nothing else of a value.  Null is None, or False for a leaf of which nothing else
    counts; such a leaf with a value is True.  An object is a tuple of names and shapes, a list of objects is
    a tuple of shapes or ``UniformRows``.
    """
    inner = _shaper_of_present(nullable(type_))
    return inner if inner is _is_present else lambda value: None if value is None else inner(value)


def _shaper_of_present(type_: gql.GraphQLInputType) -> Shaper:
    if isinstance(type_, gql.GraphQLList):
        if not holds_objects(type_):
            named = gql.get_named_type(type_)
            shapes = isinstance(named, gql.GraphQLEnumType) and named.extensions.get("shapes")
            return tuple if shapes else _is_present
        items = _LazyShaper(type_.of_type)
        if not gql.get_named_type(type_).extensions.get("rows"):
            return lambda value: tuple(items(item) for item in value)
        # However many rows there are, they are bound as one value (see ``mutations``).
        return lambda value: (
            UniformRows(tuple(value[0])) if is_uniform(value) else tuple(items(item) for item in value)
        )
    if isinstance(type_, gql.GraphQLInputObjectType):
        members = {name: _LazyShaper(field.type) for name, field in type_.fields.items()}
        return lambda value: tuple((name, members[name](member)) for name, member in value.items())
    if type_ is gql.GraphQLID:
        return shape_of_node_id
    if type_ is CURSOR:
        return shape_of_cursor
    if type_ is gql.GraphQLBoolean:
        return BOOLEANS.get
    if isinstance(type_, gql.GraphQLEnumType) and type_.extensions.get("shapes"):
        return _itself
    return _is_present


def _itself(value: Any) -> Shape:
    shape: Shape = value
    return shape


BOOLEANS = {True: "true", False: "false"}
"""The shapes of booleans."""


_is_present: Shaper = partial(is_not, None)


class _LazyShaper:
    """A shaper made at its first use, because input types nest in themselves."""

    def __init__(self, type_: gql.GraphQLInputType) -> None:
        self._type = type_
        self._shaper: Shaper | None = None

    def __call__(self, value: Any) -> Shape:
        if self._shaper is None:
            self._shaper = shaper(self._type)
        return self._shaper(value)


def is_uniform(objects: list[Any]) -> bool:
    """Whether there are several objects, all with the same members, so that they are bound as one value."""
    if len(objects) < 2 or not objects[0]:
        return False
    members = objects[0].keys()
    return all(item is not None and item.keys() == members for item in objects)


def holds_objects(type_: gql.GraphQLInputType) -> bool:
    """Whether a list type's items are input objects."""
    return isinstance(gql.get_named_type(type_), gql.GraphQLInputObjectType)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of an operation, ready to take values.

    :ivar name: the client's name for it.
    :ivar inner_name: the operation's name for it.
    :ivar default: its default's value, ``Undefined`` for none.
    """

    name: str
    inner_name: str
    type: gql.GraphQLInputType
    default: Any
    shape: Shaper
    coerce: Coerce
    node: gql.Node
