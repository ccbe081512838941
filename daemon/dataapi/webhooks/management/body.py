"""Parsing and validating the body of a request: JSON within limits, by the operation's schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dataapi.http.headers import media_type
from dataapi.http.messages import Request
from dataapi.http.strict_json import is_storable, is_storable_number, parse_integer, reject_constant
from dataapi.webhooks.catalogue import CompiledSchema, pointer
from dataapi.webhooks.management.errors import ErrorCode, Issue, IssueCode, ManagementError, invalid

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAX_BYTES = 65_536
MAX_READ = 1_048_576
"""Bytes of published events; as many are read of any body, to report errors that are checked earlier."""

MAX_DEPTH = 64
"""Nesting of arrays and objects."""

MAX_ISSUES = 20

_MEDIA_TYPES = frozenset({"application/json", "application/vnd.api+json"})


def check_length(request: Request, maximum: int = MAX_BYTES) -> None:
    """Raise ``ManagementError`` (413) for a body of more than ``maximum`` bytes, even if none is read."""
    if len(request.body) > maximum:
        raise ManagementError(ErrorCode.TOO_LARGE, f"The request body is larger than {maximum} bytes")


def document(request: Request, *, maximum: int = 0) -> Any:
    """Return the parsed JSON of a body.

    :param maximum: how many documents the body may list; 0 where it is one document.
    :raises ManagementError: 413, 415, or 400 if it is invalid or has text that PostgreSQL cannot store.
    """
    check_length(request, MAX_READ if maximum else MAX_BYTES)
    if media_type(request.headers.get("content-type", "application/json")) not in _MEDIA_TYPES:
        raise ManagementError(ErrorCode.WRONG_MEDIA_TYPE)
    try:
        found = _DECODER.decode(request.body.decode())
        fits = _depth(found) <= MAX_DEPTH
    except RecursionError:
        fits = False
    except _NumberTooLong:
        raise invalid(Issue(IssueCode.VALUE, "A number has too many digits to be stored", "")) from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it holds what JSON does not"
        raise invalid(Issue(IssueCode.JSON, f"The body is not JSON: {reason}", "")) from None
    if not fits:
        raise invalid(Issue(IssueCode.DEPTH, f"The body is nested deeper than {MAX_DEPTH} levels", ""))
    # Only escapes can encode such text: bodies are UTF-8, and JSON has no bare control characters.
    place = _unstorable(found) if b"\\u" in request.body else None
    if place is not None:
        raise invalid(Issue(IssueCode.CHARACTERS, "Text may not hold U+0000 or half a surrogate pair", place))
    if maximum and isinstance(found, list) and not 0 < len(found) <= maximum:
        raise invalid(Issue(IssueCode.LENGTH, f"Expected 1 to {maximum} entries", ""))
    return found


def issues(schema: CompiledSchema, found: Any, place: str = "") -> list[Issue]:
    """Return the issues that a document has by its schema, at most 20.

    It stops after too many entries or members, which schemas check before these themselves.

    :param place: the pointer of the document.
    """
    listed: dict[Issue, None] = {}  # each missing member is an error of its own, and each names all of them
    for error in schema.errors(found):
        listed |= dict.fromkeys(_issues(error, place))
        if len(listed) >= MAX_ISSUES or error.validator in ("maxItems", "maxProperties"):
            break
    return list(listed)[:MAX_ISSUES]


def check(schema: CompiledSchema, found: Any) -> None:
    """Raise ``ManagementError`` with the issues that a document has by its schema."""
    listed = issues(schema, found)
    if listed:
        raise invalid(*listed)


class _NumberTooLong(ValueError):
    """PostgreSQL cannot hold a number."""


def _fraction(digits: str) -> float:
    if not is_storable_number(digits):
        raise _NumberTooLong
    return float(digits)


def _whole(digits: str) -> int | float:
    if not is_storable_number(digits):
        raise _NumberTooLong
    return parse_integer(digits)


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_fraction, parse_constant=reject_constant)


def _depth(found: Any) -> int:
    """Return the depth of nesting, ``MAX_DEPTH + 1`` for anything deeper."""
    level = [found]
    for depth in range(MAX_DEPTH + 1):
        within = [one for one in level if isinstance(one, dict | list)]
        if not within:
            return depth
        level = [member for one in within for member in (one.values() if isinstance(one, dict) else one)]
    return MAX_DEPTH + 1


def _unstorable(found: Any) -> str | None:
    """Return the pointer of a text, or of an object with a name, that PostgreSQL cannot store."""
    waiting: list[tuple[Any, str]] = [(found, "")]
    while waiting:
        value, place = waiting.pop()
        if isinstance(value, str) and not is_storable(value):
            return place
        if isinstance(value, dict):
            if not all(map(is_storable, value)):
                return place
            waiting += [(member, place + pointer(name)) for name, member in value.items()]
        elif isinstance(value, list):
            waiting += [(member, place + pointer(index)) for index, member in enumerate(value)]
    return None


def _issues(error: ValidationError, place: str) -> Iterator[Issue]:
    """Describe a validation error without the value, which may be a secret."""
    place, rule = place + pointer(*error.absolute_path), str(error.validator)
    found: Any = error.instance
    expected: Any = error.validator_value
    if rule == "required":
        for name in expected:
            if name not in found:
                yield Issue(IssueCode.REQUIRED, f"The member {name} is missing", place + pointer(name))
    elif rule == "dependentRequired":
        for name, needed in expected.items():
            for missing in needed if name in found else ():
                if missing not in found:
                    message = f"The member {missing} is missing, without which {name} means nothing"
                    yield Issue(IssueCode.REQUIRED, message, place + pointer(missing))
    elif rule == "additionalProperties":
        members = error.schema["properties"] if isinstance(error.schema, Mapping) else {}
        for name in found:
            if name not in members:
                yield Issue(IssueCode.UNKNOWN, "There is no such member", place + pointer(name))
    else:
        if "propertyNames" in error.absolute_schema_path:
            place += pointer(found)
        code, message = _describe(rule, expected)
        yield Issue(code, message, place)


def _describe(rule: str, expected: Any) -> tuple[IssueCode, str]:
    """Return the code and message for a schema's rule."""
    if rule == "type":
        names = [expected] if isinstance(expected, str) else expected
        return IssueCode.TYPE, "Expected " + " or ".join(_TYPES.get(name, f"a {name}") for name in names)
    if rule == "const":
        return IssueCode.VALUE, f"Expected {json.dumps(expected)}"
    if rule in _BOUNDS:
        return IssueCode.VALUE, _BOUNDS[rule].format(expected)
    if rule in _LENGTHS:
        return IssueCode.LENGTH, _LENGTHS[rule].format(expected)
    return _OTHERS.get(rule, (IssueCode.INVALID, "The value is not valid"))


_TYPES = {"array": "an array", "object": "an object", "null": "null", "integer": "an integer"}
_BOUNDS = {"minimum": "Expected at least {}", "maximum": "Expected at most {}"}
_LENGTHS = {
    "minLength": "Expected at least {} characters",
    "maxLength": "Expected at most {} characters",
    "minItems": "Expected at least {} entries",
    "maxItems": "Expected at most {} entries",
    "maxProperties": "Expected at most {} members",
}
_OTHERS = {
    "enum": (IssueCode.VALUE, "The value is not one of the allowed ones"),
    "pattern": (IssueCode.FORMAT, "The text does not have the expected form"),
}
