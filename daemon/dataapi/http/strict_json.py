"""JSON by RFC 8259, stricter than Python's default, and the text that PostgreSQL can store; pure."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

INVALID_JSON = (ValueError, RecursionError)
"""What decoding raises: for malformed text, and for nesting deeper than Python's recursion limit."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class InvalidConstant(ValueError):
    """``NaN`` or an infinity stands where JSON has no such value."""


class TooDeep(ValueError):
    """The values are nested more deeply than is read."""


def reject_constant(name: str) -> NoReturn:
    """Raise ``InvalidConstant`` for ``NaN`` and infinities; the ``parse_constant`` of a decoder."""
    raise InvalidConstant(f"{name} is not a JSON value")


DECODER = json.JSONDecoder(parse_constant=reject_constant)
"""Reads JSON into Python's values."""

EXACT_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=reject_constant)
"""Reads numbers as text, digit by digit; ``int`` would refuse those of thousands of digits."""


_DEEP = 500
"""Values within one another that Python's decoder reads without coming near its limit."""
DEEPEST = 5000
"""Values within one another that PostgreSQL reads with the stack that it has by default."""
_BRACKET = re.compile(r""""(?:[^"\\]|\\.)*"|[\[\]{}]""", re.DOTALL)


def decode(text: str, decoder: json.JSONDecoder = EXACT_DECODER) -> Any:
    """Return the value of a text, in which null stands for values nested too deeply for Python.

    PostgreSQL reads all of it, and refuses invalid JSON there.

    :raises ValueError: the text is no JSON, or is nested more deeply than PostgreSQL reads.
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        return decoder.decode(_shallow(text))


def _shallow(text: str) -> str:
    """Return the text with null in place of values nested too deeply to be decoded."""
    parts, at, begin, depth = [], 0, 0, 0
    for match in _BRACKET.finditer(text):
        if match[0] in "[{":
            depth += 1
            if depth > DEEPEST:
                raise TooDeep(f"it is nested more than {DEEPEST} values deep")
            if depth == _DEEP:
                begin = match.start()
        elif match[0] in "]}":
            if depth == _DEEP:
                parts += [text[at:begin], "null"]
                at = match.end()
            depth -= 1
    return "".join([*parts, text[at:]])


def unstorable_at(text: str) -> int | None:
    """Return the index of the first character that PostgreSQL's text cannot hold, or None.

    These are U+0000 and lone surrogates, both of which JSON can write as escapes.
    """
    found = _UNSTORABLE.search(text)
    return None if found is None else found.start()


def is_storable(text: str) -> bool:
    """Whether PostgreSQL's text can hold all of these characters."""
    return _UNSTORABLE.search(text) is None
