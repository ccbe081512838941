"""Reads a request's body: JSON within limits, and everything that a schema has against it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from dataapi.headers import media_type
from dataapi.strict_json import no_constant
from dataapi.web.messages import Request
from dataapi.webhooks.catalogue import pointer
from dataapi.webhooks.management.codes import IssueCode
from dataapi.webhooks.management.refusals import Issue, invalid, too_large, wrong_media_type

MOST_BYTES = 65_536
MOST_READ = 1_048_576
"""Bytes that are read of a longer body, so that what is checked before it is told before it."""

DEEPEST = 64
"""Arrays and objects within each other."""

_MEDIA_TYPES = frozenset({"application/json", "application/vnd.api+json"})
_MOST_ISSUES = 20
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def check_length(request: Request) -> None:
    """Raise ``ManagementError`` (413) for a body that is too long, whether or not anybody reads it."""
    if len(request.body) > MOST_BYTES:
        raise too_large(MOST_BYTES)


def document(request: Request) -> Any:
    """Return the JSON of a body.

    :raises ManagementError: 415, or 400 for what is no JSON or holds what PostgreSQL cannot.
    """
    if media_type(request.headers.get("content-type", "application/json")) not in _MEDIA_TYPES:
        raise wrong_media_type()
    try:
        found = json.loads(request.body.decode(), parse_constant=no_constant, parse_float=_finite)
        fits = _depth(found) <= DEEPEST
    except RecursionError:
        fits = False
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it holds what JSON does not"
        raise invalid(Issue(IssueCode.JSON, f"The body is not JSON: {reason}", "")) from None
    if not fits:
        raise invalid(Issue(IssueCode.DEPTH, f"The body is nested deeper than {DEEPEST} levels", ""))
    # It comes as an escape only: bodies are UTF-8, and JSON has no bare control characters.
    place = _unstorable(found) if b"\\u" in request.body else None
    if place is not None:
        raise invalid(Issue(IssueCode.CHARACTERS, "Text may not hold U+0000 or half a surrogate pair", place))
    return found


def check(validator: Draft202012Validator, found: Any) -> None:
    """Raise ``ManagementError`` with every issue that a schema has with a document, 20 at most.

    After too many entries or members, which schemas name before what these are, it looks no further.
    """
    issues: dict[Issue, None] = {}  # each missing member is an error of its own, and each names all of them
    for error in validator.iter_errors(found):
        issues |= dict.fromkeys(_issues(error))
        if len(issues) >= _MOST_ISSUES or error.validator in ("maxItems", "maxProperties"):
            break
    if issues:
        raise invalid(*list(issues)[:_MOST_ISSUES])


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _depth(found: Any) -> int:
    """Return how many arrays and objects are within each other, ``DEEPEST + 1`` for more of them."""
    level = [found]
    for depth in range(DEEPEST + 1):
        within = [one for one in level if isinstance(one, dict | list)]
        if not within:
            return depth
        level = [member for one in within for member in (one.values() if isinstance(one, dict) else one)]
    return DEEPEST + 1


def _unstorable(found: Any) -> str | None:
    """Return the pointer of a text, or of an object with a name, that PostgreSQL cannot keep."""
    waiting: list[tuple[Any, str]] = [(found, "")]
    while waiting:
        value, place = waiting.pop()
        if isinstance(value, str) and _UNSTORABLE.search(value):
            return place
        if isinstance(value, dict):
            if any(map(_UNSTORABLE.search, value)):
                return place
            waiting += [(member, place + pointer(name)) for name, member in value.items()]
        elif isinstance(value, list):
            waiting += [(member, place + pointer(index)) for index, member in enumerate(value)]
    return None


def _issues(error: ValidationError) -> Iterator[Issue]:
    """Tell a schema's finding without what was found, which may be a secret."""
    place, rule = pointer(*error.absolute_path), str(error.validator)
    found: Any = error.instance
    expected: Any = error.validator_value
    if rule == "required":
        for name in expected:
            if name not in found:
                yield Issue(IssueCode.REQUIRED, f"The member {name} is missing", place + pointer(name))
    elif rule == "additionalProperties":
        known = error.schema["properties"] if isinstance(error.schema, Mapping) else {}
        for name in found:
            if name not in known:
                yield Issue(IssueCode.UNKNOWN, "There is no such member", place + pointer(name))
    else:
        if "propertyNames" in error.absolute_schema_path:
            place += pointer(found)
        code, message = _told(rule, expected)
        yield Issue(code, message, place)


def _told(rule: str, expected: Any) -> tuple[IssueCode, str]:
    """Return code and message of a schema's rule."""
    if rule == "type":
        names = [expected] if isinstance(expected, str) else expected
        return IssueCode.TYPE, "Expected " + " or ".join(_TYPES.get(name, f"a {name}") for name in names)
    if rule == "const":
        return IssueCode.VALUE, f"Expected {json.dumps(expected)}"
    if rule in _LENGTHS:
        return IssueCode.LENGTH, _LENGTHS[rule].format(expected)
    return _OTHERS.get(rule, (IssueCode.INVALID, "The value is not valid"))


_TYPES = {"array": "an array", "object": "an object", "null": "null", "integer": "an integer"}
_LENGTHS = {
    "minLength": "Expected at least {} characters",
    "maxLength": "Expected at most {} characters",
    "minItems": "Expected at least {} entries",
    "maxItems": "Expected at most {} entries",
    "maxProperties": "Expected at most {} members",
}
_OTHERS = {
    "enum": (IssueCode.VALUE, "The value is not one of those that are known"),
    "pattern": (IssueCode.FORMAT, "The text is not of the form that is expected"),
}
