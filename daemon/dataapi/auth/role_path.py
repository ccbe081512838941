"""Path of the role in a token's claims (``jwt-role-claim-key``), in PostgREST's syntax.

A path that begins with ``$`` is a JSONPath query (RFC 9535), as in PostgREST 16: ``$.app.roles[0]``,
``$..roles[?search(@, '^db_')]``. Its first result is used.

A path that begins with ``.`` has the syntax of earlier versions: ``.role``, ``.app.roles[0]``,
``."https://example.org/claims".role``, ``.roles[?(@ ^== "db_")]``. Keys with characters other than letters,
digits, ``_``, ``$`` and ``@`` must be double-quoted. A filter returns the first matching string of a list:
``==`` equal, ``!=`` not equal, ``^==`` starts with, ``==^`` ends with, ``*==`` contains. ``[1:-1]`` returns a
substring.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonpath_rfc9535 import JSONPathQuery

_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
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
    """Selects a member of an object."""

    name: str


@dataclass(frozen=True, slots=True)
class IndexStep:
    """Selects an element of a list. A negative index counts from the end."""

    position: int


@dataclass(frozen=True, slots=True)
class SliceStep:
    """Selects a substring."""

    start: int | None
    stop: int | None


@dataclass(frozen=True, slots=True)
class FilterStep:
    """Selects the first matching string of a list."""

    compare: str
    text: str


Step = MemberStep | IndexStep | SliceStep | FilterStep

_MAX_LIST_LENGTH = 100
"""Maximum number of nulls that ``claims_with`` adds to a list, so that the role has the required index."""


def parse_role_path(text: str) -> RolePath:
    """Parse a path. Raises ``ValueError`` with the position of the error."""
    if not text.startswith("$"):
        return StepPath(_steps(text))
    return _query_path(text)


def _steps(text: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None or not text.startswith("."):  # the first step must be a name
            break
        steps.append(_step(match))
        position = match.end()
    if not steps or position < len(text):
        raise ValueError(
            f'invalid claim path at character {position + 1}: expected .name, ."quoted name", '
            f'[0], [1:-1] or [?(@ == "text")], with a name first, or a JSONPath query that starts with $'
        )
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if match["index"] is not None:
        return IndexStep(int(match["index"]))
    if match["slice"] is not None:
        start, stop = match["start"], match["stop"]
        return SliceStep(None if start is None else int(start), None if stop is None else int(stop))
    if match["compare"] is not None:
        return FilterStep(match["compare"], match["text"])
    return MemberStep(match["quoted"] if match["bare"] is None else match["bare"])


@dataclass(frozen=True, slots=True)
class StepPath:
    """A path that begins with ``.``, as a sequence of steps."""

    steps: tuple[Step, ...]

    def find(self, claims: Any) -> Any:
        for step in self.steps:
            match step:
                case MemberStep(name):
                    claims = claims.get(name) if isinstance(claims, dict) else None
                case IndexStep(position):
                    in_range = isinstance(claims, list) and -len(claims) <= position < len(claims)
                    claims = claims[position] if in_range else None
                case SliceStep(start, stop):
                    claims = claims[start:stop] if isinstance(claims, str) else None
                case FilterStep(compare, other):
                    texts = claims if isinstance(claims, list) else ()
                    matches = _COMPARISONS[compare]
                    claims = next(
                        (text for text in texts if isinstance(text, str) and matches(text, other)), None
                    )
        return claims

    def claims_with(self, role: str) -> Any:
        claims: Any = role
        for step in reversed(self.steps):
            match step:
                case MemberStep(key) | IndexStep(key):
                    claims = _wrap(claims, key)
                case FilterStep():
                    claims = [claims]
        return claims


def _wrap(value: Any, key: str | int) -> Any:
    if isinstance(key, str):
        return {key: value}
    if key < 0:
        return [value] + [None] * min(-1 - key, _MAX_LIST_LENGTH)
    return [None] * min(key, _MAX_LIST_LENGTH) + [value]


@dataclass(frozen=True, slots=True)
class QueryPath:
    """A JSONPath query. Its first result is used."""

    query: JSONPathQuery

    def find(self, claims: Any) -> Any:
        from jsonpath_rfc9535 import JSONPathError  # noqa: PLC0415 - see _query_path

        try:
            node = self.query.find_one(claims)
        except (JSONPathError, RecursionError):  # the claims are nested too deeply
            return None
        return None if node is None else node.value

    def claims_with(self, role: str) -> Any:
        from jsonpath_rfc9535.selectors import IndexSelector, NameSelector  # noqa: PLC0415 - see _query_path

        claims: Any = role
        for segment in reversed(self.query.segments):
            match segment.selectors[0]:
                case NameSelector(name=key) | IndexSelector(index=key):
                    claims = _wrap(claims, key)
                case _:
                    claims = [claims]
        return claims


RolePath = StepPath | QueryPath


def _query_path(text: str) -> QueryPath:
    # Imported here because the library is slow to import and rarely used.
    import jsonpath_rfc9535 as jsonpath  # noqa: PLC0415

    try:
        query = jsonpath.compile(text)
    except jsonpath.JSONPathError as error:
        position = error.token.index + 1 if error.token else 1
        raise ValueError(f"invalid claim path at character {position}: {error.args[0]}") from None
    except RecursionError:
        raise ValueError("invalid claim path at character 1: nested too deeply") from None
    if not query.segments:
        raise ValueError("invalid claim path at character 2: expected .name or [...] after $")
    return QueryPath(query)
