"""The path of the role within a token's claims, ``jwt-role-claim-key``, as PostgREST writes it.

A path that begins with ``$`` is a query of RFC 9535, as PostgREST 16 takes it: ``$.app.roles[0]``,
``$..roles[?search(@, '^db_')]``, ``$.accounts[*].role``.  The first value that it finds counts.

A path that begins with ``.`` is what PostgREST took before: ``.role``, ``.app.roles[0]``,
``."https://example.org/claims".role``, ``.roles[?(@ ^== "db_")]``.
A key of other characters than letters, digits, ``_``, ``$`` and ``@`` stands in double quotes.
A filter takes the first string of a list that compares: ``==`` equal, ``!=`` not equal,
``^==`` begins with, ``==^`` ends with, ``*==`` contains.  ``[1:-1]`` takes a piece of a string.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

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
    rf"""|\[(?P<index>{_NUMBER})\]"""
    rf"""|\[(?P<slice>(?P<start>{_NUMBER})?:(?P<stop>{_NUMBER})?)\]"""
    r"""|\[\?\(\s*@\s*(?P<compare>==\^|==|!=|\^==|\*==)\s*"(?P<wanted>[^"]*)"\s*\)\]"""
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

_LONGEST_LIST = 100
"""Elements of a list that is made for a role to stand in."""


class RolePath(Protocol):
    """Where the role stands in a token's claims."""

    def find(self, claims: Any) -> Any:
        """Return what stands at the path in decoded JSON, or None when nothing does."""

    def claims_with(self, role: str) -> Any:
        """Return claims with the role where the path may find it, as far as such can be made."""


def parse(text: str) -> RolePath:
    """Read a path.

    :raises ValueError: the text is no path; the message says where it goes wrong.
    """
    if not text.startswith("$"):
        return Steps(_steps(text))
    # Importing the library takes long, and most configurations have no such path.
    from dataapi.access import claim_query  # noqa: PLC0415

    return claim_query.parse(text)


def _steps(text: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    position = 0
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
            f'[0], [1:-1] or [?(@ == "text")], beginning with a name, or a JSON path that begins with $'
        )
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["index"] is not None:
        return Index(int(found["index"]))
    if found["slice"] is not None:
        start, stop = found["start"], found["stop"]
        return Slice(None if start is None else int(start), None if stop is None else int(stop))
    if found["compare"] is not None:
        return Filter(found["compare"], found["wanted"])
    return Key(found["quoted"] if found["bare"] is None else found["bare"])


@dataclass(frozen=True, slots=True)
class Steps:
    """A path of steps, each taken from where the one before led to."""

    steps: tuple[Step, ...]

    def find(self, claims: Any) -> Any:
        """Return what stands at the path in decoded JSON, or None when nothing does."""
        for step in self.steps:
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

    def claims_with(self, role: str) -> Any:
        """Return claims with the role at the path, as far as such can be made."""
        claims: Any = role
        for step in reversed(self.steps):
            match step:
                case Key(name):
                    claims = {name: claims}
                case Index(position):
                    claims = listed(position, claims)
                case Filter():
                    claims = [claims]
        return claims


def listed(position: int, value: Any) -> list[Any]:
    """Return a list that has the value at a position; a negative one counts from the end."""
    if position < 0:
        return [value] + [None] * min(-1 - position, _LONGEST_LIST)
    return [None] * min(position, _LONGEST_LIST) + [value]
