"""Parsing and validation of request bodies: JSON within limits that matches the operation's schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dataapi.http.headers import media_type
from dataapi.http.messages import Request
from dataapi.http.strict_json import is_storable, is_storable_number, parse_integer, reject_constant
from dataapi.webhooks.catalogue import CompiledSchema, pointer
from dataapi.webhooks.management.errors import ErrorCode, Issue, IssueCode, ManagementError, invalid
from dataapi.webhooks.management.limits import MAX_READ

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAX_BYTES = 65_536
MAX_DEPTH = 64
"""Maximum nesting of arrays and objects."""

MAX_ISSUES = 20

_MEDIA_TYPES = frozenset({"application/json", "application/vnd.api+json"})


def check_length(request: Request, maximum: int = MAX_BYTES) -> None:
    """Raise ``ManagementError`` (413) if the body is too large, even for an operation without a body."""
    if len(request.body) > maximum:
        raise ManagementError(ErrorCode.TOO_LARGE, f"The request body is larger than {maximum} bytes")


def document(request: Request, *, maximum: int = 0) -> Any:
    """Parse and return the body.

    :param maximum: maximum number of documents in a list, or 0 for a single document.
    :raises ManagementError: 413, 415, or 400 if the body is invalid or contains text that PostgreSQL cannot
        store.
    """
    check_length(request, MAX_READ if maximum else MAX_BYTES)
    if media_type(request.headers.get("content-type", "application/json")) not in _MEDIA_TYPES:
        raise ManagementError(ErrorCode.WRONG_MEDIA_TYPE)
    try:
        value = _DECODER.decode(request.body.decode())
        fits = _depth(value) <= MAX_DEPTH
    except RecursionError:
        fits = False
    except _NumberTooLong:
        raise invalid(Issue(IssueCode.VALUE, "A number has too many digits to be stored", "")) from None
    except ValueError as error:
        reason = (
            error.msg
            if isinstance(error, json.JSONDecodeError)
            else "it contains a value that JSON does not allow"
        )
        raise invalid(Issue(IssueCode.JSON, f"The body is not valid JSON: {reason}", "")) from None
    if not fits:
        raise invalid(Issue(IssueCode.DEPTH, f"The body is nested deeper than {MAX_DEPTH} levels", ""))
    # Only an escape can contain such text: UTF-8 has no surrogates, and JSON allows no raw control
    # characters.
    location = _unstorable(value) if b"\\u" in request.body else None
    if location is not None:
        raise invalid(
            Issue(IssueCode.CHARACTERS, "Text must not contain U+0000 or unpaired surrogates", location)
        )
    if maximum and isinstance(value, list) and not 0 < len(value) <= maximum:
        raise invalid(Issue(IssueCode.LENGTH, f"Expected 1 to {maximum} entries", ""))
    return value


def issues(schema: CompiledSchema, document: Any, location: str = "") -> list[Issue]:
    """Return up to 20 errors in a document. Checking stops at an error for too many entries or members."""
    collected: dict[
        Issue, None
    ] = {}  # without duplicates: each missing member causes an error that lists all missing members
    for error in schema.errors(document):
        collected |= dict.fromkeys(_issues(error, location))
        if len(collected) >= MAX_ISSUES or error.validator in ("maxItems", "maxProperties"):
            break
    return list(collected)[:MAX_ISSUES]


def check(schema: CompiledSchema, document: Any) -> None:
    collected = issues(schema, document)
    if collected:
        raise invalid(*collected)


class _NumberTooLong(ValueError):
    pass


def _parse_float(digits: str) -> float:
    if not is_storable_number(digits):
        raise _NumberTooLong
    return float(digits)


def _parse_integer(digits: str) -> int | float:
    if not is_storable_number(digits):
        raise _NumberTooLong
    return parse_integer(digits)


_DECODER = json.JSONDecoder(
    parse_int=_parse_integer, parse_float=_parse_float, parse_constant=reject_constant
)


def _depth(value: Any) -> int:
    level = [value]
    for depth in range(MAX_DEPTH + 1):
        nested = [child for child in level if isinstance(child, dict | list)]
        if not nested:
            return depth
        level = [
            member for child in nested for member in (child.values() if isinstance(child, dict) else child)
        ]
    return MAX_DEPTH + 1


def _unstorable(document: Any) -> str | None:
    pending: list[tuple[Any, str]] = [(document, "")]
    while pending:
        value, location = pending.pop()
        if isinstance(value, str) and not is_storable(value):
            return location
        if isinstance(value, dict):
            if not all(map(is_storable, value)):
                return location
            pending += [(member, location + pointer(name)) for name, member in value.items()]
        elif isinstance(value, list):
            pending += [(member, location + pointer(index)) for index, member in enumerate(value)]
    return None


def _issues(error: ValidationError, location: str) -> Iterator[Issue]:
    """Yield the issues of a validation error, without the value because it may be a secret."""
    location, rule = location + pointer(*error.absolute_path), str(error.validator)
    instance: Any = error.instance
    expected: Any = error.validator_value
    if rule == "required":
        for name in expected:
            if name not in instance:
                yield Issue(IssueCode.REQUIRED, f"The member {name} is missing", location + pointer(name))
    elif rule == "dependentRequired":
        for name, needed in expected.items():
            for missing in needed if name in instance else ():
                if missing not in instance:
                    message = f"The member {missing} is missing, which {name} requires"
                    yield Issue(IssueCode.REQUIRED, message, location + pointer(missing))
    elif rule == "additionalProperties":
        members = error.schema["properties"] if isinstance(error.schema, Mapping) else {}
        for name in instance:
            if name not in members:
                yield Issue(IssueCode.UNKNOWN, "Unknown member", location + pointer(name))
    else:
        if "propertyNames" in error.absolute_schema_path:
            location += pointer(instance)
        code, message = _describe(rule, expected)
        yield Issue(code, message, location)


def _describe(rule: str, expected: Any) -> tuple[IssueCode, str]:
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
    "enum": (IssueCode.VALUE, "The value is not one of the allowed values"),
    "pattern": (IssueCode.FORMAT, "The text does not have the expected format"),
}
