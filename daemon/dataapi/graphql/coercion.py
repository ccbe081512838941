"""Variables' values, coerced by functions that are made once for a type.

graphql-core finds out what each type is anew for every value, which for a thousand rows is
most of the time that a request takes here.  The results are graphql-core's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphql import (
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLList,
    GraphQLNonNull,
    Undefined,
    coerce_input_value,
    is_required_input_field,
)

Coerce = Callable[[Any], Any]


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
        return [item(inner) for inner in value]

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
