"""The path of the role within a token's claims, ``jwt-role-claim-key``, as PostgREST writes it.

``.role``, ``.app.roles[0]``, ``."https://example.org/claims".role``, ``.roles[?(@ ^== "db_")]``.
A key of other characters than letters, digits, ``_``, ``$`` and ``@`` stands in double quotes.
A filter takes the first string of a list that compares: ``==`` equal, ``!=`` not equal,
``^==`` begins with, ``==^`` ends with, ``*==`` contains.
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

_STEP = re.compile(
    r"""\.(?:(?P<bare>[\w$@]+)|"(?P<quoted>[^"]*)")"""
    r"""|\[(?P<index>[0-9]{1,9})\]"""
    r"""|\[\?\(@\s*(?P<compare>==\^|==|!=|\^==|\*==)\s*"(?P<wanted>[^"]*)"\)\]"""
)


@dataclass(frozen=True, slots=True)
class Key:
    """The member of an object with this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """The element of a list at this position, counted from 0."""

    position: int


@dataclass(frozen=True, slots=True)
class Filter:
    """The first string of a list that compares with a wanted text."""

    compare: str
    wanted: str


Step = Key | Index | Filter
RolePath = tuple[Step, ...]


def parse(text: str) -> RolePath:
    """Read a path.

    :raises ValueError: the text is no path; the message says where it goes wrong.
    """
    steps: list[Step] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None or (not steps and found["bare"] is None and found["quoted"] is None):
            break
        steps.append(_step(found))
        position = found.end()
    if not steps or position < len(text):
        raise ValueError(
            f'no path of a claim from character {position + 1} on: expected .name, ."quoted name", '
            f'[0] or [?(@ == "text")], beginning with a name'
        )
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["index"] is not None:
        return Index(int(found["index"]))
    if found["compare"] is not None:
        return Filter(found["compare"], found["wanted"])
    return Key(found["bare"] if found["bare"] is not None else found["quoted"])


def render(path: RolePath) -> str:
    """Write a path in the form that ``parse`` reads."""
    written = []
    for step in path:
        match step:
            case Key(name):
                written.append(f".{name}" if re.fullmatch(r"[\w$@]+", name) else f'."{name}"')
            case Index(position):
                written.append(f"[{position}]")
            case Filter(compare, wanted):
                written.append(f'[?(@ {compare} "{wanted}")]')
    return "".join(written)


def walk(path: RolePath, claims: Any) -> Any:
    """Return what stands at the path in decoded JSON, or None when nothing does."""
    for step in path:
        match step:
            case Key(name):
                claims = claims.get(name) if isinstance(claims, dict) else None
            case Index(position):
                there = isinstance(claims, list) and position < len(claims)
                claims = claims[position] if there else None
            case Filter(compare, wanted):
                texts = claims if isinstance(claims, list) else ()
                matches = _COMPARE[compare]
                claims = next(
                    (text for text in texts if isinstance(text, str) and matches(text, wanted)), None
                )
    return claims
