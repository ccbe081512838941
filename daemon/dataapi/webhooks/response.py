"""What is kept of a receiver's answer, as text that any JSON document and PostgreSQL can hold."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BODY_KEPT = 16_384
"""Bytes of the body that are read and kept; the connection is dropped when more come."""

HEADERS_KEPT = 64
HEADER_BYTES_KEPT = 16_384

_REPLACEMENT = "\ufffd"


def body_text(body: bytes) -> str:
    """Return the first bytes of a body as text, what is no UTF-8 replaced.

    A character that the limit cuts in two is left out.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return storable(decoder.decode(body[:BODY_KEPT], final=len(body) <= BODY_KEPT))


def header_texts(headers: Iterable[tuple[bytes, Iterable[bytes]]]) -> tuple[tuple[str, str], ...]:
    """Return names in lower case with their values, repeated ones joined by ``", "``, as many as are kept."""
    kept: list[tuple[str, str]] = []
    size = 0
    for name, values in headers:
        value = b", ".join(values)
        size += len(name) + len(value)
        if len(kept) == HEADERS_KEPT or size > HEADER_BYTES_KEPT:
            break
        kept.append((storable(name.decode("latin-1")).lower(), storable(value.decode("latin-1"))))
    return tuple(kept)


def storable(text: str) -> str:
    """Replace what PostgreSQL's text cannot hold: NUL and lone surrogates."""
    return text.replace("\0", _REPLACEMENT).encode("utf-8", "replace").decode()
