"""Variables' values, coerced by functions that are made once for a type, and what is wrong with them.

graphql-core finds out what each type is anew for every value, which for a thousand rows is
most of the time that a request takes here.  The results are graphql-core's own; its messages
speak Python, and clients JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from graphql import (
    GraphQLEnumType,
    GraphQLError,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLList,
    GraphQLNonNull,
    Undefined,
    coerce_input_value,
    is_required_input_field,
    specified_scalar_types,
)

from dataapi.graphql.messages import shown
from dataapi.pauses import pause

Coerce = Callable[[Any], Any]
Place = tuple[str | int, ...]


class _Uncoercible(Exception):
    """A value is none of its type's."""


def coercer(type_: GraphQLInputType) -> Coerce:
    """Return what coerces a value of the type, giving ``Undefined`` for one that is none."""
    coerce = _coercer(type_)

    def coerced(value: Any) -> Any:
        try:
            return coerce(value)
        except RecursionError:
            raise
        except Exception:  # a scalar may refuse in any way
            return Undefined

    return coerced


def _coercer(type_: GraphQLInputType) -> Coerce:
    if isinstance(type_, GraphQLNonNull):
        return _required(_coercer(type_.of_type))
    if isinstance(type_, GraphQLList):
        return _list(_coercer(type_.of_type))
    if isinstance(type_, GraphQLInputObjectType):
        return _Object(type_)
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
            pause()
            items.append(item(inner))
        return items

    return coerce


class _Object:
    """Coerces input objects; it looks at the type with the first one, as types nest in themselves."""

    def __init__(self, type_: GraphQLInputObjectType) -> None:
        self._type = type_
        self._members: dict[str, Coerce] = {}
        self._places: dict[str, int] | None = None
        self._required: frozenset[str] = frozenset()
        self._plain = True

    def _look(self) -> dict[str, int]:
        fields = self._type.fields
        self._required = frozenset(name for name, field in fields.items() if is_required_input_field(field))
        self._plain = not self._type.is_one_of and all(
            field.default is None and field.out_name is None for field in fields.values()
        )
        self._places = {name: place for place, name in enumerate(fields)}
        return self._places

    def __call__(self, value: Any) -> Any:
        if value is None:
            return None
        places = self._places or self._look()
        if not isinstance(value, dict):
            raise _Uncoercible
        if not self._plain:
            return self._by_graphql_core(value)
        if not self._required.issubset(value):
            raise _Uncoercible
        members = self._members
        coerced = {}
        for name in sorted(value, key=places.__getitem__):  # in the order of the type, as graphql-core
            member = members.get(name)
            if member is None:
                member = members[name] = _coercer(self._type.fields[name].type)
            coerced[name] = member(value[name])
        return coerced

    def _by_graphql_core(self, value: Any) -> Any:
        coerced = coerce_input_value(value, self._type)
        if coerced is Undefined:
            raise _Uncoercible
        return coerced


# ---------------------------------------------------------------- faults


def faults(value: Any, type_: GraphQLInputType, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield what keeps a value from being one of the type: places in it, each with a message.

    None of a value that coerces.
    """
    if value is None:
        if isinstance(type_, GraphQLNonNull):
            yield place, f"Expected a value of non-null type '{type_}' not to be null."
    elif isinstance(type_, GraphQLNonNull):
        yield from faults(value, type_.of_type, place)
    elif isinstance(type_, GraphQLList):
        if not isinstance(value, list):
            yield from faults(value, type_.of_type, place)
        else:
            for index, item in enumerate(value):
                pause()
                yield from faults(item, type_.of_type, (*place, index))
    elif isinstance(type_, GraphQLInputObjectType):
        yield from _faults_of_object(value, type_, place)
    else:
        message = _fault_of_leaf(value, type_)
        if message is not None:
            yield place, message


def _faults_of_object(value: Any, type_: GraphQLInputObjectType, place: Place) -> Iterator[tuple[Place, str]]:
    if not isinstance(value, dict):
        yield place, f"Expected value of type '{type_}' to be an object, found: {shown(value)}."
        return
    for name, member in type_.fields.items():
        if name in value:
            yield from faults(value[name], member.type, (*place, name))
        elif is_required_input_field(member):
            yield place, f"Expected value of type '{type_}' to include required field '{name}'."
    for name in value:
        if name not in type_.fields:
            yield place, f"Expected value of type '{type_}' not to include unknown field {shown(name)}."


def _fault_of_leaf(value: Any, type_: Any) -> str | None:
    if isinstance(type_, GraphQLEnumType):
        if isinstance(value, str):
            return (
                None if value in type_.values else f"Value {shown(value)} does not exist in '{type_}' enum."
            )
        return f"Enum '{type_}' cannot represent non-string value: {shown(value)}."
    try:
        type_.coerce_input_value(value)
    except GraphQLError as error:
        if specified_scalar_types.get(type_.name) is not type_:
            return error.message
        # What graphql-core's own scalars say ends in the value as Python writes it.
        return f"{error.message.partition(': ')[0]}: {shown(value)}"
    return None
