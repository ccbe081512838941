"""The path of the role within a token's claims, ``jwt-role-claim-key``, as PostgREST writes it.

``.role``, ``.app.roles[0]``, ``."https://example.org/claims".role``, ``.roles[?(@ ^== "db_")]``.
A key of other characters than letters, digits, ``_``, ``$`` and ``@`` stands in double quotes.
A filter takes the first string of a list that compares: ``==`` equal, ``!=`` not equal,
``^==`` begins with, ``==^`` ends with, ``*==`` contains.  ``[1:-1]`` takes a piece of a string.

What RFC 9535 writes otherwise is read as well: ``$`` before the path, ``['name']`` or ``["name"]`` for a
key, ``[-1]`` from the end, and filters without parentheses or with single quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "==": lambda text, wanted: text == wanted,
    "!=": lambda text, wanted: text != wanted,
    "^==": str.startswith,
    "==^": str.endswith,
    "*==": lambda text, wanted: wanted in text,
}

_NUMBER = "-?[0-9]{1,9}"
_STEP = re.compile(
    r"""\.(?:(?P<bare>[\w$@]+)|"(?P<quoted>[^"]*)")"""
    r"""|\[(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)')\]"""
    rf"""|\[(?P<index>{_NUMBER})\]"""
    rf"""|\[(?P<slice>(?P<start>{_NUMBER})?:(?P<stop>{_NUMBER})?)\]"""
    r"""|\[\?(?P<open>\()?\s*@\s*(?P<compare>==\^|==|!=|\^==|\*==)\s*"""
    r"""(?:"(?P<wanted>[^"]*)"|'(?P<wanted_too>[^']*)')\s*(?(open)\))\]"""
)


@dataclass(frozen=True, slots=True)
class Key:
    """The member of an object with this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """The element of a list at this position, counted from 0, or from its end when negative."""

    position: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The piece of a string from one position up to another, None for its ends."""

    start: int | None
    stop: int | None


@dataclass(frozen=True, slots=True)
class Filter:
    """The first string of a list that compares with a wanted text."""

    compare: str
    wanted: str


Step = Key | Index | Slice | Filter
RolePath = tuple[Step, ...]


def parse(text: str) -> RolePath:
    """Read a path.

    :raises ValueError: the text is no path; the message says where it goes wrong.
    """
    steps: list[Step] = []
    position = int(text.startswith("$"))
    while position < len(text):
        found = _STEP.match(text, position)
        step = None if found is None else _step(found)
        if found is None or step is None or not (steps or isinstance(step, Key)):
            break
        steps.append(step)
        position = found.end()
    if not steps or position < len(text):
        raise ValueError(
            f'no path of a claim from character {position + 1} on: expected .name, ."quoted name", '
            f'[0], [1:-1] or [?(@ == "text")], beginning with a name'
        )
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["index"] is not None:
        return Index(int(found["index"]))
    if found["slice"] is not None:
        start, stop = found["start"], found["stop"]
        return Slice(None if start is None else int(start), None if stop is None else int(stop))
    if found["compare"] is not None:
        return Filter(found["compare"], _first(found.group("wanted", "wanted_too")))
    return Key(_first(found.group("bare", "quoted", "double", "single")))


def _first(texts: tuple[str | None, ...]) -> str:
    """Return the one that matched of several ways to write a text."""
    return next(text for text in texts if text is not None)


def render(path: RolePath) -> str:
    """Write a path in the form that ``parse`` reads."""
    written = []
    for step in path:
        match step:
            case Key(name):
                bare = re.fullmatch(r"[\w$@]+", name) is not None
                written.append(f".{name}" if bare else f"[{_quoted(name)}]")
            case Index(position):
                written.append(f"[{position}]")
            case Slice(start, stop):
                written.append(f"[{'' if start is None else start}:{'' if stop is None else stop}]")
            case Filter(compare, wanted):
                written.append(f"[?(@ {compare} {_quoted(wanted)})]")
    return "".join(written)


def _quoted(text: str) -> str:
    return f"'{text}'" if '"' in text else f'"{text}"'


def walk(path: RolePath, claims: Any) -> Any:
    """Return what stands at the path in decoded JSON, or None when nothing does."""
    for step in path:
        match step:
            case Key(name):
                claims = claims.get(name) if isinstance(claims, dict) else None
            case Index(position):
                there = isinstance(claims, list) and -len(claims) <= position < len(claims)
                claims = claims[position] if there else None
            case Slice(start, stop):
                claims = claims[start:stop] if isinstance(claims, str) else None
            case Filter(compare, wanted):
                texts = claims if isinstance(claims, list) else ()
                matches = _COMPARE[compare]
                claims = next(
                    (text for text in texts if isinstance(text, str) and matches(text, wanted)), None
                )
    return claims
