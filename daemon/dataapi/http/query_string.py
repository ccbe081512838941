"""Query strings and paths, percent-decoded."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote_to_bytes

from dataapi.http.errors import ApiError

_SEGMENT_ESCAPE = re.compile("%2[5Ff]")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def pairs(query: str) -> list[tuple[str, str]]:
    """Return the parameters in order. A ``+`` is decoded as a space.

    :raises ApiError: 400 if a parameter is not UTF-8 or contains U+0000.
    """
    parameters = []
    for part in query.split("&"):
        if part:
            name, _, value = part.replace("+", " ").partition("=")
            parameters.append((_decode(name, name), _decode(value, name)))
    return parameters


def lenient_pairs(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query, keep_blank_values=True, errors="replace")


def not_utf8(error: UnicodeDecodeError) -> ApiError:
    return _bad(f"The query string is not valid UTF-8 (byte {error.start + 1})")


def path(text: str) -> str:
    """Percent-decode a path, except slashes and percent signs (see ``segment``).

    :raises ApiError: 400 if the path has an invalid escape, is not UTF-8 or contains U+0000.
    """
    broken = _BROKEN_ESCAPE.search(text)
    if broken is not None:
        raise _bad(f"The path has an invalid percent-encoding at character {broken.start() + 1}")
    try:
        decoded = unquote_to_bytes(_SEGMENT_ESCAPE.sub(_double_escape, text)).decode()
    except UnicodeDecodeError as error:
        raise _bad(f"The decoded path is not valid UTF-8 (byte {error.start + 1})") from None
    if "\0" in decoded:
        raise _bad(f"The path contains the character U+0000 (character {decoded.index(chr(0)) + 1})")
    return decoded


def segment(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")


def _double_escape(escape: re.Match[str]) -> str:
    return f"%25{escape[0][1:].upper()}"


def _decode(text: str, parameter: str) -> str:
    # Like PostgREST, accept a percent sign that begins no escape: clients send "like.50%".
    if "%" not in text:
        return text
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise _bad(
            f"The decoded parameter {parameter[:60]} is not valid UTF-8 (byte {error.start + 1})"
        ) from None
    if "\0" in decoded:
        raise _bad(f"The parameter {parameter[:60]} contains the character U+0000")
    return decoded


def _bad(message: str) -> ApiError:
    return ApiError(400, "PGRST100", message)
