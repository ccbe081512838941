"""JSON by RFC 8259, stricter than Python's default, and the text that PostgreSQL can store; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
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


class ExactNumber(float):
    """A number with the digits that JSON wrote it with, because Python would write others."""

    __slots__ = ("digits",)

    digits: str

    def __new__(cls, digits: str | float) -> ExactNumber:
        """Create it from its digits; a copy is created from its value and is then given the digits."""
        number = super().__new__(cls, digits)
        number.digits = str(digits)
        return number


def _fraction(digits: str) -> float:
    number = float(digits)
    return number if repr(number) == digits else ExactNumber(digits)


def whole(digits: str) -> int | float:
    """Return an integer; one that has more digits than ``int`` reads is a float."""
    try:
        return int(digits)
    except ValueError:
        return ExactNumber(digits)


DIGITS_DECODER = json.JSONDecoder(parse_int=whole, parse_float=_fraction, parse_constant=reject_constant)
"""Reads JSON into Python's values; ``encode`` writes its numbers digit by digit."""


_IN_ASCII = json.JSONEncoder(separators=(",", ":")).encode
_IN_UNICODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode(value: Any, *, ensure_ascii: bool = True) -> str:
    """Write JSON, in which each ``ExactNumber`` has its own digits."""
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


class _Written(str):
    """A part of JSON that is written."""

    __slots__ = ()


_COMMA, _OBJECT_END, _ARRAY_END = map(_Written, (",", "}", "]"))


def _parts(value: Any, plain: Callable[[Any], str]) -> list[str]:
    """Return the parts of a JSON text.  It does not recurse, because values may be deeply nested."""
    parts: list[str] = []
    waiting = [value]  # the next item is the last one
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Written):
            parts.append(item)
        elif isinstance(item, ExactNumber):
            parts.append(item.digits)
        elif isinstance(item, dict):
            parts.append("{")
            within = [_OBJECT_END]
            for name, member in reversed(item.items()):
                text = plain(name if isinstance(name, str) else plain(name))
                within += [member, _Written(f"{text}:"), _COMMA]
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
"""Digits by which a number may be longer when PostgreSQL writes it, which knows no exponents: ``1E400``."""


def is_storable_number(digits: str) -> bool:
    """Whether PostgreSQL's ``jsonb`` can hold a number, without being much longer than its digits."""
    if len(digits) < 300 and "e" not in digits and "E" not in digits:
        return True
    try:
        _, significant, exponent = Decimal(digits).as_tuple()
    except ArithmeticError:
        return False
    assert isinstance(exponent, int)
    before, after = max(0, len(significant) + exponent), max(0, -exponent)
    return before <= 131_072 and after <= 16_383 and before + after <= len(digits) + _MAX_GROWTH


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
