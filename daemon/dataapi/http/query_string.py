"""Reads query strings: names and values percent-decoded, errors name their place."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote_to_bytes

from dataapi.http.errors import ApiError

_SEGMENT_ESCAPE = re.compile("%2[5Ff]")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def pairs(query: str) -> list[tuple[str, str]]:
    """Return the parameters in order; a ``+`` is a space.

    :raises ApiError: 400, a parameter is not UTF-8 or holds U+0000.
    """
    found = []
    for part in query.split("&"):
        if part:
            name, _, value = part.replace("+", " ").partition("=")
            found.append((_decoded(name, name), _decoded(value, name)))
    return found


def lenient_pairs(query: str) -> list[tuple[str, str]]:
    """Return the parameters in order, with replacement characters where they are not UTF-8."""
    return parse_qsl(query, keep_blank_values=True, errors="replace")


def not_utf8(error: UnicodeDecodeError) -> ApiError:
    return _bad(f"The query string is not UTF-8: byte {error.start + 1}")


def path(text: str) -> str:
    """Percent-decode a path, but for a slash and for the percent sign itself, which ``segment`` decodes.

    :raises ApiError: 400, the path has a broken escape, is not UTF-8 or holds U+0000.
    """
    broken = _BROKEN_ESCAPE.search(text)
    if broken is not None:
        raise _bad(f"The path has a percent sign at character {broken.start() + 1} that begins no escape")
    try:
        decoded = unquote_to_bytes(_SEGMENT_ESCAPE.sub(_kept, text)).decode()
    except UnicodeDecodeError as error:
        raise _bad(f"The path is not UTF-8 once decoded: byte {error.start + 1}") from None
    if "\0" in decoded:
        raise _bad(f"The path holds the character U+0000 at character {decoded.index(chr(0)) + 1}")
    return decoded


def segment(text: str) -> str:
    """Return a segment of a decoded path as it is meant: only here an escaped slash is one."""
    return text.replace("%2F", "/").replace("%25", "%")


def _kept(escape: re.Match[str]) -> str:
    """Return an escape that must remain as it is."""
    return f"%25{escape[0][1:].upper()}"


def _decoded(text: str, parameter: str) -> str:
    # A lone percent sign stays one: "like.50%" is how people write it, and PostgREST takes it.
    if "%" not in text:
        return text
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise _bad(
            f"The parameter {parameter[:60]} is not UTF-8 once decoded: byte {error.start + 1}"
        ) from None
    if "\0" in decoded:
        raise _bad(f"The parameter {parameter[:60]} holds the character U+0000, which text cannot hold")
    return decoded


def _bad(message: str) -> ApiError:
    return ApiError(400, "PGRST100", message)
