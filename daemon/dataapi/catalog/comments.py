"""Finding directives in comments and taking their members one by one; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dataapi.catalog.model import Problem
from dataapi.http.strict_json import DECODER, INVALID_JSON, is_storable

GRAPHQL = "@graphql"
REST = "@rest"

_DIRECTIVES = {name: re.compile(rf"{name}\((.+)\)", re.DOTALL) for name in (GRAPHQL, REST)}
_LARGEST_PAGE = 2**31 - 1


class Members:
    """The members of one directive, taken one by one; what can't be used is noted."""

    def __init__(
        self,
        place: str,
        members: Mapping[str, Any],
        problems: list[Problem],
        prefix: str = "",
        directive: str = GRAPHQL,
    ) -> None:
        self._place = place
        self._directive = directive
        self._left = dict(members)
        self._problems = problems
        self._prefix = prefix

    def problem(self, message: str) -> None:
        """Note a problem of the directive's object."""
        self._problems.append(Problem(self._place, message))

    def take(self, key: str, accept: Callable[[Any], bool], expected: str) -> Any:
        """Return the member if it is there and acceptable, else None."""
        if key not in self._left:
            return None
        value = self._left.pop(key)
        if accept(value):
            return value
        self.problem(f"{self._directive}: {self._prefix}{key} must be {expected}; it is ignored")
        return None

    def flag(self, key: str) -> bool:
        """Take true or false; False without."""
        return self.take(key, lambda value: isinstance(value, bool), "true or false") is True

    def text(self, key: str) -> str | None:
        """Take a text that can be sent as JSON."""
        result: str | None = self.take(key, is_text, "a text")
        return result

    def rows(self, key: str) -> int | None:
        """Take a page size."""
        result: int | None = self.take(
            key,
            lambda value: (
                isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_PAGE
            ),
            f"a whole number from 1 to {_LARGEST_PAGE}",
        )
        return result

    def enabled(self, key: str) -> bool:
        """Take ``{"enabled": …}``; False without."""
        value = self.take(
            key,
            lambda value: isinstance(value, dict) and isinstance(value.get("enabled"), bool),
            '{"enabled": true} or {"enabled": false}',
        )
        if value is None:
            return False
        for extra in value.keys() - {"enabled"}:
            self.problem(
                f"{self._directive}: {self._prefix}{key} has an unknown key {extra!r}; that key is ignored"
            )
        return value["enabled"] is True

    def strings(self, key: str) -> tuple[str, ...]:
        """Take a list of at least one text; empty without."""
        value = self.take(
            key,
            lambda value: isinstance(value, list) and bool(value) and all(map(is_text, value)),
            "a list of at least one text",
        )
        return tuple(value or ())

    def finish(self) -> None:
        """Note every member that was not taken."""
        for key in self._left:
            self.problem(f"{self._directive}: unknown key {self._prefix + key!r}; it is ignored")


def is_text(value: Any) -> bool:
    """Whether the value is a text that can be stored and sent."""
    return isinstance(value, str) and is_storable(value)


def find_members(
    place: str, comment: str | None, problems: list[Problem], directive: str = GRAPHQL
) -> Members | None:
    """Find the directive in a comment; None when there is none that can be used.

    :param directive: ``GRAPHQL`` or ``REST``.
    """
    found = _DIRECTIVES[directive].search(comment) if comment and f"{directive}(" in comment else None
    if comment is None or found is None:
        return None
    start = found.start(1)
    while comment[start : start + 1].isspace():
        start += 1
    try:
        value, end = DECODER.raw_decode(comment, start)
    except INVALID_JSON as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON ({error})"
        problems.append(Problem(place, f"{directive}: the directive {reason}; it is ignored"))
        return None
    rest = comment[end:].lstrip()
    if not rest.startswith(")"):
        problems.append(
            Problem(place, f"{directive}: {rest[:20]!r} follows the JSON; the directive is ignored")
        )
        return None
    if not isinstance(value, dict):
        problems.append(Problem(place, f"{directive}: the directive must be a JSON object; it is ignored"))
        return None
    if f"{directive}(" in rest:
        problems.append(
            Problem(place, f"{directive}: the comment has several directives; only the first one is used")
        )
    return Members(place, value, problems, directive=directive)


def without_directives(comment: str | None) -> str | None:
    """Return what a comment says to people: directives that can be read are cut out; None for nothing."""
    for pattern in _DIRECTIVES.values():
        while comment and (found := pattern.search(comment)):
            end = _end_of(comment, found.start(1))
            if end is None:
                break
            comment = comment[: found.start()].rstrip() + comment[end:]
    return comment.strip() or None if comment else None


def _end_of(comment: str, start: int) -> int | None:
    """Return where the directive ends whose members begin after white space at ``start``."""
    while comment[start : start + 1].isspace():
        start += 1
    try:
        _, end = DECODER.raw_decode(comment, start)
    except INVALID_JSON:
        return None
    while comment[end : end + 1].isspace():
        end += 1
    return end + 1 if comment[end : end + 1] == ")" else None
