"""JSON Schemas, compiled: a predicate accepts valid documents, ``jsonschema`` describes what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

Predicate: TypeAlias = Callable[[Any], bool]

_TYPES = {"array": list, "boolean": bool, "null": type(None), "object": dict, "string": str}
_ANNOTATIONS = frozenset({"default", "description", "examples", "format", "title", "writeOnly"})


class CompiledSchema:
    """A JSON Schema (2020-12), which fetches no other schemas."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # Imported here, as requests are answered before there is a catalogue.
        from jsonschema import Draft202012Validator  # noqa: PLC0415
        from referencing import Registry  # noqa: PLC0415

        self._validator = Draft202012Validator(schema, registry=Registry())
        try:
            self._is_valid = _predicate(schema)
        except (_Unsupported, re.error):
            self._is_valid = self._validator.is_valid

    def errors(self, document: Any) -> Iterator[ValidationError]:
        """Return what is wrong with a document."""
        return iter(()) if self._is_valid(document) else self._validator.iter_errors(document)


class _Unsupported(Exception):
    """The schema has a keyword, or a value of one, that is left to ``jsonschema``."""


def _predicate(schema: Any) -> Predicate:
    """Compile a schema; raises ``_Unsupported``."""
    if not isinstance(schema, Mapping):
        raise _Unsupported
    rest = dict(schema)
    tests = []
    if not rest.keys().isdisjoint(_OF_OBJECTS):
        tests.append(_members(*[rest.pop(name, default) for name, default in _OF_OBJECTS.items()]))
    for keyword, value in rest.items():
        if keyword not in _ANNOTATIONS:
            if keyword not in _KEYWORDS:
                raise _Unsupported
            tests.append(_KEYWORDS[keyword](value))

    def test(value: Any) -> bool:
        for one in tests:  # noqa: SIM110 - a generator takes twice as long
            if not one(value):
                return False
        return True

    return test


def _members(properties: Any, required: Any, further: Any) -> Predicate:
    """Compile what a schema says of the members of an object."""
    if not isinstance(further, bool):
        raise _Unsupported
    members = {name: _predicate(schema) for name, schema in properties.items()}

    def test(value: Any) -> bool:
        if not isinstance(value, dict):
            return True
        for name in required:
            if name not in value:
                return False
        for name, member in value.items():
            predicate = members.get(name)
            if not (further if predicate is None else predicate(member)):
                return False
        return True

    return test


def _type(names: Any) -> Predicate:
    try:
        kinds = tuple([_TYPES[name] for name in ([names] if isinstance(names, str) else names)])
    except KeyError:
        raise _Unsupported from None
    return lambda value: isinstance(value, kinds)


def _enum(values: Any) -> Predicate:
    # Values of other types may be equal to Python and not to JSON: 1 and true.
    if not all(value is None or isinstance(value, str) for value in values):
        raise _Unsupported
    allowed = frozenset(values)
    return lambda value: (value is None or isinstance(value, str)) and value in allowed


def _pattern(pattern: str) -> Predicate:
    search = re.compile(pattern).search
    return lambda value: not isinstance(value, str) or search(value) is not None


_OF_OBJECTS: Mapping[str, Any] = {"properties": {}, "required": (), "additionalProperties": True}
_KEYWORDS: Mapping[str, Callable[[Any], Predicate]] = {
    "const": lambda value: _enum([value]),
    "enum": _enum,
    "maxLength": lambda most: lambda value: not isinstance(value, str) or len(value) <= most,
    "minLength": lambda least: lambda value: not isinstance(value, str) or len(value) >= least,
    "pattern": _pattern,
    "type": _type,
}
