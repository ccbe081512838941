"""Reads a request's body: JSON within limits, and everything that a schema has against it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from dataapi.web.messages import Request
from dataapi.webhooks.management.refusals import Issue, invalid, too_large, wrong_media_type

MOST_BYTES = 65_536
DEEPEST = 64
"""Arrays and objects within each other."""

_MEDIA_TYPES = frozenset({"application/json", "application/vnd.api+json"})
_MOST_ISSUES = 20


def document(request: Request) -> Any:
    """Return the JSON of a body.

    :raises ManagementError: 413, 415, or 400 for what is no JSON or holds what PostgreSQL cannot.
    """
    if len(request.body) > MOST_BYTES:
        raise too_large(MOST_BYTES)
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type not in _MEDIA_TYPES:
        raise wrong_media_type()
    try:
        found = json.loads(request.body.decode(), parse_constant=_no_constant, parse_float=_finite)
        issue = _unfit(found)
    except RecursionError:
        issue = _too_deep("")
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it holds what JSON does not"
        raise invalid(Issue("json", f"The body is not JSON: {reason}", "")) from None
    if issue is not None:
        raise invalid(issue)
    return found


def check(validator: Draft202012Validator, found: Any) -> None:
    """Raise ``ManagementError`` with every issue that a schema has with a document, 20 at most."""
    # Each missing member is an error of its own, and each of these errors names all of them.
    issues = dict.fromkeys(issue for error in validator.iter_errors(found) for issue in _issues(error))
    if issues:
        raise invalid(*list(issues)[:_MOST_ISSUES])


def pointer(*steps: str | int) -> str:
    """Write a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _unfit(found: Any) -> Issue | None:
    """Say what of a document cannot be kept: U+0000 and halves of surrogate pairs, or too deep nesting."""
    waiting: list[tuple[Any, str, int]] = [(found, "", 0)]
    while waiting:
        value, place, depth = waiting.pop()
        if depth > DEEPEST:
            return _too_deep(place)
        if isinstance(value, str) and not _storable(value):
            return Issue("characters", "Text may not hold U+0000 or half a surrogate pair", place)
        if isinstance(value, dict):
            if not all(map(_storable, value)):
                return Issue("characters", "A name holds U+0000 or half a surrogate pair", place)
            waiting += [(member, place + pointer(name), depth + 1) for name, member in value.items()]
        elif isinstance(value, list):
            waiting += [(member, place + pointer(index), depth + 1) for index, member in enumerate(value)]
    return None


def _storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _too_deep(place: str) -> Issue:
    return Issue("depth", f"The body is nested deeper than {DEEPEST} levels", place)


def _issues(error: ValidationError) -> Iterator[Issue]:
    """Tell a schema's finding without what was found, which may be a secret."""
    place, rule = pointer(*error.absolute_path), str(error.validator)
    found: Any = error.instance
    expected: Any = error.validator_value
    if rule == "required":
        for name in expected:
            if name not in found:
                yield Issue("required", f"The member {name} is missing", place + pointer(name))
    elif rule == "additionalProperties":
        known = error.schema["properties"] if isinstance(error.schema, Mapping) else {}
        for name in found:
            if name not in known:
                yield Issue("unknown", "There is no such member", place + pointer(name))
    else:
        if "propertyNames" in error.absolute_schema_path:
            place += pointer(found)
        code, message = _told(rule, expected)
        yield Issue(code, message, place)


def _told(rule: str, expected: Any) -> tuple[str, str]:
    """Return code and message of a schema's rule."""
    if rule == "type":
        names = [expected] if isinstance(expected, str) else expected
        return "type", "Expected " + " or ".join(_TYPES.get(name, f"a {name}") for name in names)
    if rule == "const":
        return "value", f"Expected {json.dumps(expected)}"
    if rule in _LENGTHS:
        return "length", _LENGTHS[rule].format(expected)
    return _OTHERS.get(rule, ("invalid", "The value is not valid"))


_TYPES = {"array": "an array", "object": "an object", "null": "null", "integer": "an integer"}
_LENGTHS = {
    "minLength": "Expected at least {} characters",
    "maxLength": "Expected at most {} characters",
    "minItems": "Expected at least {} entries",
    "maxItems": "Expected at most {} entries",
    "maxProperties": "Expected at most {} members",
}
_OTHERS = {
    "enum": ("value", "The value is not one of those that are known"),
    "pattern": ("format", "The text is not of the form that is expected"),
}
