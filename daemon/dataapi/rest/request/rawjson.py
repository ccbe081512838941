"""Takes JSON apart without changing what is inside: numbers keep their digits, members their order; pure."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]

from dataapi.strict_json import no_constant

DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=no_constant)
"""Reads JSON with numbers as they are written: ``int`` would refuse those of thousands of digits."""

_BLANKS = re.compile(r"[ \t\n\r]*")


def members(text: str) -> dict[str, str] | None:
    """Return the members of an object as JSON texts, the last of a name; None for what is no object.

    :raises ValueError: the text is no JSON; one that is nested too deeply raises ``RecursionError``.
    """
    at = _blanks(text, 0)
    if text[at : at + 1] != "{":
        DECODER.decode(text)
        return None
    found: dict[str, str] = {}
    at = _blanks(text, at + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise ValueError(f"expected a member's name at character {at + 1}")
        name, at = scanstring(text, at + 1)
        at = _past(text, _blanks(text, at), ":")
        found[name], at = _value(text, at)
        if text[at : at + 1] != "}":
            at = _past(text, at, ",")
            if text[at : at + 1] == "}":
                raise ValueError(f"expected a member's name at character {at + 1}")
    _check_end(text, at + 1)
    return found


def elements(text: str) -> list[str] | None:
    """Return the elements of an array as JSON texts; None for what is no array.

    :raises ValueError: the text is no JSON; one that is nested too deeply raises ``RecursionError``.
    """
    at = _blanks(text, 0)
    if text[at : at + 1] != "[":
        DECODER.decode(text)
        return None
    found = []
    at = _blanks(text, at + 1)
    while text[at : at + 1] != "]":
        value, at = _value(text, at)
        found.append(value)
        if text[at : at + 1] != "]":
            at = _past(text, at, ",")
            if text[at : at + 1] == "]":
                raise ValueError(f"expected a value at character {at + 1}")
    _check_end(text, at + 1)
    return found


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that begins here as it stands, and where the next token begins."""
    _, end = DECODER.raw_decode(text, at)
    return text[at:end], _blanks(text, end)


def _past(text: str, at: int, sign: str) -> int:
    """Return where the token behind a sign begins."""
    if text[at : at + 1] != sign:
        raise ValueError(f"expected {sign} at character {at + 1}")
    return _blanks(text, at + 1)


def _blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


def _check_end(text: str, at: int) -> None:
    if _blanks(text, at) != len(text):
        raise ValueError(f"expected the end at character {at + 1}")
