"""Strict JSON (RFC 8259), and checks for what PostgreSQL can store."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NoReturn

INVALID_JSON = (ValueError, RecursionError)
"""Exceptions that decoding raises for malformed text, and for nesting beyond Python's recursion limit."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # JSON can contain these characters as escapes


class InvalidConstant(ValueError):
    """Raised for ``NaN`` and infinities, because they are not valid JSON."""


class TooDeep(ValueError):
    """Raised when values are nested too deeply."""


def reject_constant(name: str) -> NoReturn:
    raise InvalidConstant(f"{name} is not a JSON value")


DECODER = json.JSONDecoder(parse_constant=reject_constant)

EXACT_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=reject_constant)
"""Decodes numbers as strings, because ``int`` rejects numbers with thousands of digits."""


class ExactNumber(float):
    """A number that is serialized with its original digits. Python would change them."""

    __slots__ = ("digits",)

    digits: str

    # Copying and unpickling call this with the float, and then set ``digits``.
    def __new__(cls, digits: str | float) -> ExactNumber:
        number = super().__new__(cls, digits)
        number.digits = str(digits)
        return number


def _fraction(digits: str) -> float:
    number = float(digits)
    return number if repr(number) == digits else ExactNumber(digits)


def parse_integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return ExactNumber(digits)


DIGITS_DECODER = json.JSONDecoder(
    parse_int=parse_integer, parse_float=_fraction, parse_constant=reject_constant
)
"""Decodes JSON into Python values. ``encode`` restores the original digits of its numbers."""


_IN_ASCII = json.JSONEncoder(separators=(",", ":")).encode
_IN_UNICODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode(value: Any, *, ensure_ascii: bool = True) -> str:
    plain = _IN_ASCII if ensure_ascii else _IN_UNICODE
    return "".join(_parts(value, plain)) if _has_exact_number(value) else plain(value)


def _has_exact_number(value: Any) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
        elif isinstance(item, ExactNumber):
            return True
    return False


class _EncodedPart(str):
    __slots__ = ()


_COMMA, _OBJECT_END, _ARRAY_END = map(_EncodedPart, (",", "}", "]"))


# Iterative, because values may be deeply nested.
def _parts(value: Any, plain: Callable[[Any], str]) -> list[str]:
    parts: list[str] = []
    waiting = [value]  # the next item to encode is the last in the list
    while waiting:
        item = waiting.pop()
        if isinstance(item, _EncodedPart):
            parts.append(item)
        elif isinstance(item, ExactNumber):
            parts.append(item.digits)
        elif isinstance(item, dict):
            parts.append("{")
            within = [_OBJECT_END]
            for name, member in reversed(item.items()):
                text = plain(name if isinstance(name, str) else plain(name))
                within += [member, _EncodedPart(f"{text}:"), _COMMA]
            waiting += within[: -1 if item else None]
        elif isinstance(item, list | tuple):
            parts.append("[")
            within = [_ARRAY_END]
            for one in reversed(item):
                within += [one, _COMMA]
            waiting += within[: -1 if item else None]
        else:
            parts.append(plain(item))
    return parts


_MAX_GROWTH = 1000
"""Maximum number of digits that PostgreSQL may add to a number.

PostgreSQL adds digits because it expands exponents such as ``1E400``.
"""


def is_storable_number(digits: str) -> bool:
    if len(digits) < 300 and "e" not in digits and "E" not in digits:
        return True
    try:
        _, significant, exponent = Decimal(digits).as_tuple()
    except ArithmeticError:
        return False
    assert isinstance(exponent, int)
    before, after = max(0, len(significant) + exponent), max(0, -exponent)
    return before <= 131_072 and after <= 16_383 and before + after <= len(digits) + _MAX_GROWTH


_DECODED_DEPTH = 500
"""Nesting depth that Python's decoder handles safely."""
MAX_DEPTH = 5000
"""Nesting depth that PostgreSQL handles with its default stack size."""
_BRACKET = re.compile(r""""(?:[^"\\]|\\.)*"|[\[\]{}]""", re.DOTALL)


def decode(text: str, decoder: json.JSONDecoder = EXACT_DECODER) -> Any:
    """Return the value of a JSON text, with null in place of values nested too deeply for Python.

    PostgreSQL parses the complete text and rejects invalid JSON in those values.

    :raises ValueError: if the text is invalid JSON, or is nested too deeply for PostgreSQL.
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        return decoder.decode(_shallow(text))


def _shallow(text: str) -> str:
    parts, at, begin, depth = [], 0, 0, 0
    for match in _BRACKET.finditer(text):
        if match[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise TooDeep(f"it is nested more than {MAX_DEPTH} values deep")
            if depth == _DECODED_DEPTH:
                begin = match.start()
        elif match[0] in "]}":
            if depth == _DECODED_DEPTH:
                parts += [text[at:begin], "null"]
                at = match.end()
            depth -= 1
    return "".join([*parts, text[at:]])


def unstorable_at(text: str) -> int | None:
    match = _UNSTORABLE.search(text)
    return None if match is None else match.start()


def is_storable(text: str) -> bool:
    return _UNSTORABLE.search(text) is None
