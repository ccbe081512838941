"""JSON by RFC 8259, stricter than Python's default, and the text that PostgreSQL can store; pure."""

from __future__ import annotations

import json
import re
from typing import NoReturn

INVALID_JSON = (ValueError, RecursionError)
"""What decoding raises: for malformed text, and for nesting deeper than Python's recursion limit."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class InvalidConstant(ValueError):
    """``NaN`` or an infinity stands where JSON has no such value."""


def reject_constant(name: str) -> NoReturn:
    """Raise ``InvalidConstant`` for ``NaN`` and infinities; the ``parse_constant`` of a decoder."""
    raise InvalidConstant(f"{name} is not a JSON value")


DECODER = json.JSONDecoder(parse_constant=reject_constant)
"""Reads JSON into Python's values."""

EXACT_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=reject_constant)
"""Reads numbers as text, digit by digit; ``int`` would refuse those of thousands of digits."""


def unstorable_at(text: str) -> int | None:
    """Return the index of the first character that PostgreSQL's text cannot hold, or None.

    These are U+0000 and lone surrogates, both of which JSON can write as escapes.
    """
    found = _UNSTORABLE.search(text)
    return None if found is None else found.start()


def is_storable(text: str) -> bool:
    """Whether PostgreSQL's text can hold all of these characters."""
    return _UNSTORABLE.search(text) is None
