"""Writing a description piece by piece, so that a large one does not keep others waiting; pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_TEXT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Members:
    """The members of an object, made while they are written; their values may be ``Members`` too.

    :param pairs: names and values; each name once.
    """

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        self.pairs = pairs


def members(**values: Any) -> Members:
    """Return members with those names."""
    return Members(values.items())


def without_nothing(**values: Any) -> dict[str, Any]:
    """Return an object of the values that are something: neither None nor an empty list."""
    return {name: value for name, value in values.items() if value is not None and value != []}


def encode(value: Any, pause: Callable[[], None]) -> bytes:
    """Return the value as JSON.

    :param pause: called after each member of ``Members``.
    """
    return b"".join(piece.encode() for piece in _pieces(value, pause))


def _pieces(value: Any, pause: Callable[[], None]) -> Iterator[str]:
    if not isinstance(value, Members):
        yield _TEXT(value)
        return
    mark = "{"
    for name, member in value.pairs:
        yield f"{mark}{_TEXT(name)}:"
        yield from _pieces(member, pause)
        pause()
        mark = ","
    yield "{}" if mark == "{" else "}"
