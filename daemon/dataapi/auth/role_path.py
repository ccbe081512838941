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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonpath_rfc9535 import JSONPathQuery

_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "==": lambda text, other: text == other,
    "!=": lambda text, other: text != other,
    "^==": str.startswith,
    "==^": str.endswith,
    "*==": lambda text, other: other in text,
}

_NUMBER = "-?[0-9]{1,9}"
_STEP = re.compile(
    r"""\.(?:(?P<bare>[\w$@]+)|"(?P<quoted>[^"]*)")"""
    rf"""|\[(?P<index>{_NUMBER})\]"""
    rf"""|\[(?P<slice>(?P<start>{_NUMBER})?:(?P<stop>{_NUMBER})?)\]"""
    r"""|\[\?\(\s*@\s*(?P<compare>==\^|==|!=|\^==|\*==)\s*"(?P<text>[^"]*)"\s*\)\]"""
)


@dataclass(frozen=True, slots=True)
class MemberStep:
    """The member of an object with this name."""

    name: str


@dataclass(frozen=True, slots=True)
class IndexStep:
    """The element of a list at this position, counted from 0, or from its end when negative."""

    position: int


@dataclass(frozen=True, slots=True)
class SliceStep:
    """The piece of a string from one position up to another, None for its ends."""

    start: int | None
    stop: int | None


@dataclass(frozen=True, slots=True)
class FilterStep:
    """The first string of a list that compares with a text as asked."""

    compare: str
    text: str


Step = MemberStep | IndexStep | SliceStep | FilterStep

_LONGEST_LIST = 100
"""Elements of a list that is made for a role to stand in."""


def parse_role_path(text: str) -> RolePath:
    """Read a path; raises ``ValueError`` that says where the text goes wrong."""
    if not text.startswith("$"):
        return StepPath(_steps(text))
    return _query_path(text)


def _steps(text: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None or not text.startswith("."):  # which only a name begins with
            break
        steps.append(_step(found))
        position = found.end()
    if not steps or position < len(text):
        raise ValueError(
            f'not a path of a claim from character {position + 1} on: expected .name, ."quoted name", '
            f'[0], [1:-1] or [?(@ == "text")], beginning with a name, or a JSON path that begins with $'
        )
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["index"] is not None:
        return IndexStep(int(found["index"]))
    if found["slice"] is not None:
        start, stop = found["start"], found["stop"]
        return SliceStep(None if start is None else int(start), None if stop is None else int(stop))
    if found["compare"] is not None:
        return FilterStep(found["compare"], found["text"])
    return MemberStep(found["quoted"] if found["bare"] is None else found["bare"])


@dataclass(frozen=True, slots=True)
class StepPath:
    """A path of steps, each starting where the one before ended."""

    steps: tuple[Step, ...]

    def find(self, claims: Any) -> Any:
        """Return the value at the path in decoded JSON, or None without one."""
        for step in self.steps:
            match step:
                case MemberStep(name):
                    claims = claims.get(name) if isinstance(claims, dict) else None
                case IndexStep(position):
                    there = isinstance(claims, list) and -len(claims) <= position < len(claims)
                    claims = claims[position] if there else None
                case SliceStep(start, stop):
                    claims = claims[start:stop] if isinstance(claims, str) else None
                case FilterStep(compare, other):
                    texts = claims if isinstance(claims, list) else ()
                    matches = _COMPARE[compare]
                    claims = next(
                        (text for text in texts if isinstance(text, str) and matches(text, other)), None
                    )
        return claims

    def claims_with(self, role: str) -> Any:
        """Return claims with the role at the path, as far as such can be made."""
        claims: Any = role
        for step in reversed(self.steps):
            match step:
                case MemberStep(place) | IndexStep(place):
                    claims = _around(claims, place)
                case FilterStep():
                    claims = [claims]
        return claims


def _around(value: Any, place: str | int) -> Any:
    """Return an object or a list that has the value at a place; a negative position counts from the end."""
    if isinstance(place, str):
        return {place: value}
    if place < 0:
        return [value] + [None] * min(-1 - place, _LONGEST_LIST)
    return [None] * min(place, _LONGEST_LIST) + [value]


@dataclass(frozen=True, slots=True)
class QueryPath:
    """A query of RFC 9535, of whose values the first one counts."""

    query: JSONPathQuery

    def find(self, claims: Any) -> Any:
        """Return the first value that the query finds in decoded JSON, or None when it finds none."""
        from jsonpath_rfc9535 import JSONPathError  # noqa: PLC0415 - see _query_path

        try:
            found = self.query.find_one(claims)
        except (JSONPathError, RecursionError):  # the claims are nested too deeply
            return None
        return None if found is None else found.value

    def claims_with(self, role: str) -> Any:
        """Return claims with the role where the query may find it, as far as such can be made."""
        from jsonpath_rfc9535.selectors import IndexSelector, NameSelector  # noqa: PLC0415 - see _query_path

        claims: Any = role
        for segment in reversed(self.query.segments):
            match segment.selectors[0]:
                case NameSelector(name=place) | IndexSelector(index=place):
                    claims = _around(claims, place)
                case _:
                    claims = [claims]
        return claims


RolePath = StepPath | QueryPath


def _query_path(text: str) -> QueryPath:
    # Imported here because the library takes long to load, and few configurations have such a path.
    import jsonpath_rfc9535 as jsonpath  # noqa: PLC0415

    try:
        query = jsonpath.compile(text)
    except jsonpath.JSONPathError as error:
        position = error.token.index + 1 if error.token else 1
        raise ValueError(f"not a path of a claim from character {position} on: {error.args[0]}") from None
    except RecursionError:
        raise ValueError("not a path of a claim from character 1 on: nested too deeply") from None
    if not query.segments:
        raise ValueError("not a path of a claim from character 2 on: expected .name or [...] after $")
    return QueryPath(query)
