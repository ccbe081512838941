"""Parses a query string and ``Range`` into a selection of rows: its shape apart from its values; pure.

The shape decides the statement.  Statuses and messages are PostgREST's (``docs/reference/rest.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.rest.parse.filters import read_filter, read_logic
from dataapi.rest.parse.select import parse_embeds, parse_names, parse_order, parse_select, parse_target
from dataapi.rest.parse.syntax import (
    BODY_PARAMETERS,
    EMBEDDABLE,
    MOST_CONDITIONS,
    EmbedPath,
    FilterOperation,
    FilterParameter,
    LogicTree,
    OrderParameter,
    Select,
    leaves,
    too_much,
)

MOST = 2**63 - 1
"""The largest number that PostgreSQL takes for a limit or an offset."""

_NEGATIVE = "Limit should be greater than or equal to zero."
_NUMBER = re.compile(r"(-?)([0-9]+)", re.ASCII)
_RANGE = re.compile(r"(?:items=)?([0-9]{1,18})-([0-9]{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a result.

    :ivar limit: None for all rows from the offset on.
    """

    limit: int | None = None
    offset: int = 0

    def within(self, other: Window) -> Window:
        """Return the intersection of both."""
        offset = max(self.offset, other.offset)
        ends = [window.offset + window.limit for window in (self, other) if window.limit is not None]
        return Window(max(0, min(ends) - offset) if ends else None, offset)


def narrow(asked: Window, header: str | None) -> Window:
    """Return the rows that both the parameters and a ``Range`` header request.

    As in PostgREST, a limit of zero needs no valid range.

    :raises ApiError: PGRST103 (416), nothing is left although rows were requested.
    """
    if asked.limit == 0:
        return Window(0)
    both = asked.within(window_of_header(header))
    if both.limit == 0:
        raise unsatisfiable(_NEGATIVE)
    return both


def count_of(text: str, parameter: str) -> int | None:
    """Return the value of a ``limit`` or ``offset`` parameter, at most ``LARGEST_COUNT``.

    A value that is not a whole number, and a negative offset of embedded rows, are ignored; the offset of
    the outermost rows may be negative, as in PostgREST.

    :raises ApiError: PGRST103 (416), the limit is negative.
    """
    number = _NUMBER.fullmatch(text.strip())
    if number is None:
        return None
    sign, digits = number.groups()
    count = MOST if len(digits) > 18 else int(digits)
    if not sign:
        return count
    if parameter == "offset":
        return -count
    if parameter.endswith("offset"):
        return None
    raise unsatisfiable(_NEGATIVE)


def window_of_header(text: str | None) -> Window:
    """Return the window of a ``Range`` header; as HTTP demands, other units are ignored.

    :raises ApiError: PGRST103 (416), the range ends before it begins.
    """
    match = _RANGE.fullmatch(text.strip()) if text else None
    if match is None:
        return Window()
    first = int(match[1])
    if not match[2]:
        return Window(None, first)
    last = int(match[2])
    if last < first:
        raise unsatisfiable(
            "The lower boundary must be lower than or equal to the upper boundary in the Range header."
        )
    return Window(last - first + 1, first)


def content_range(offset: int, rows: int, total: int | None) -> str:
    """Return the ``Content-Range`` of an answer's rows."""
    given = f"{offset}-{offset + rows - 1}" if rows and total != 0 else "*"
    return f"{given}/{'*' if total is None else total}"


def status_of(offset: int, rows: int, total: int | None) -> int:
    """Return 206 if there are known to be more rows than answered, else 200.

    :raises ApiError: PGRST103 (416), the offset lies beyond the last row.
    """
    if total is None:
        return 200
    if offset > total:
        details = f"An offset of {offset} was requested, but there are only {total} rows."
        raise unsatisfiable(details, ("Content-Range", content_range(offset, 0, total)))
    return 206 if rows < total else 200


def unsatisfiable(details: str, *headers: tuple[str, str]) -> ApiError:
    """Return the error of a range that no result can have."""
    return ApiError(416, "PGRST103", "Requested range not satisfiable", details=details, headers=headers)


LONGEST_REMEMBERED = 1000
"""Characters of a query string whose result is cached: clients repeat themselves."""

LONGEST_REMEMBERED_SELECT = 4000
"""Characters of a ``select`` whose items are cached, whatever the rest of the query string."""
LONGEST_REMEMBERED_NAME = 300
"""Characters of a parameter's name, or of an order, that is cached likewise."""

_EQUAL = FilterOperation("eq")


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a query string decides the statement; hashable, to be part of a plan's shape.

    :ivar select: None when there is no ``select`` parameter.
    :ivar logic: paths of embedded resources, with the logic tree on each.
    :ivar limits, offsets: paths of the resources that have one.
    :ivar has_paths: whether some parameter may have the path of an embedded resource before its name.
    :ivar size: characters of it all, for ``RestRole.plan``.
    """

    select: Select | None
    filters: tuple[FilterParameter, ...]
    logic: tuple[tuple[EmbedPath, LogicTree], ...]
    orders: tuple[OrderParameter, ...]
    limits: tuple[EmbedPath, ...]
    offsets: tuple[EmbedPath, ...]
    has_paths: bool = field(compare=False)
    size: int = field(compare=False)

    @property
    def is_whole(self) -> bool:
        """Whether whole rows are selected."""
        return self.select is None or self.select.text == "*"

    def equalities(self, values: HasLiterals) -> Mapping[str, str] | None:
        """Return the value of each column when all filters are plain ``column=eq.value``, else None."""
        if self.logic or any(each.operation != _EQUAL for each in self.filters):
            return None
        targets = [each.target for each in self.filters]
        names = [target.name for target in targets]
        if len(set(names)) < len(names) or any(target.embeds or target.path for target in targets):
            return None
        return dict(zip(names, values.literals, strict=False))


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a selection, as its sources look them up.

    :ivar literals: of the filters, the logic trees, the limits and the offsets, in this order.
    :ivar offset: how many rows of the whole are skipped, for ``Content-Range``.
    """

    literals: tuple[str, ...]
    offset: int = 0


class HasLiterals(Protocol):
    """What the sources of a selection look values up in: ``Values``, or another class with ``literals``."""

    @property
    def literals(self) -> tuple[str, ...]:
        """As of ``Values``."""


def parse(query: str, header_range: str | None = None) -> tuple[Selection, Values]:
    """Parse a raw query string; ``columns`` and ``on_conflict`` are ignored.

    :param header_range: the ``Range`` header of a GET.
    :raises ApiError: PGRST100 (400) a syntax error; PGRST103 (416), an impossible range.
    """
    size = len(query) + len(header_range or "")
    return _remembered(query, header_range) if size <= LONGEST_REMEMBERED else _parse(query, header_range)


def _parse(query: str, header_range: str | None) -> tuple[Selection, Values]:
    parts = query.split("&")
    # As in PostgREST, a name without "=" is ignored.
    given = query if len(parts) == 1 and "=" in query else "&".join([part for part in parts if "=" in part])
    return parse_pairs(querystring.pairs(given), header_range)


_remembered = lru_cache(maxsize=1024)(_parse)


def parse_pairs(
    pairs: Iterable[tuple[str, str]], header_range: str | None = None
) -> tuple[Selection, Values]:
    """Parse decoded parameters as ``parse`` does, such as those of a call that are not arguments."""
    gathering = _QueryParser()
    for name, value in pairs:
        gathering.take(name, value)
    return gathering.result(header_range)


def _select(text: str) -> Select:
    return Select(text, parse_select(text))


def _order(name: str, text: str) -> OrderParameter:
    return OrderParameter(name, text, parse_embeds(name)[:-1], parse_order(text))


_remembered_select = lru_cache(maxsize=128)(_select)
_remembered_order = lru_cache(maxsize=256)(_order)
_remembered_target = lru_cache(maxsize=1024)(parse_target)


class _QueryParser:
    """Collects the parameters of one request."""

    def __init__(self) -> None:
        self._select: str | None = None
        self._filters: list[FilterParameter] = []
        self._filter_values: list[str] = []
        self._logic: list[tuple[EmbedPath, LogicTree]] = []
        self._logic_values: list[str] = []
        self._orders: dict[str, str] = {}
        self._limits: dict[str, int] = {}
        self._offsets: dict[str, int] = {}
        self._has_paths = False
        self._size = 0
        self._parameters = 0

    def take(self, name: str, value: str) -> None:
        """Add a parameter; of repeated ones the first counts, of limits and offsets the last."""
        self._count(1)
        if name == "select":
            self._select = value if self._select is None else self._select
            self._size += len(value)
        elif name not in BODY_PARAMETERS:
            embeds, dot, word = name.rpartition(".")
            if dot:
                self._has_paths = True
            if word in EMBEDDABLE:
                self._size += len(name) + len(value)
                self._take_embeddable(name, embeds, word, value)
            else:
                operation, values = read_filter(value)
                target = (_remembered_target if len(name) <= LONGEST_REMEMBERED_NAME else parse_target)(name)
                self._filters.append(FilterParameter(name, operation, target))
                self._filter_values += values
                self._size += len(name) + 10

    def _take_embeddable(self, name: str, embeds: str, word: str, value: str) -> None:
        if word == "order":
            self._orders.setdefault(name, value)
        elif word in ("and", "or"):
            names, tree, values = read_logic(name, value)
            self._logic.append((names, tree))
            self._logic_values += values
            self._count(sum(1 for _ in leaves(tree)))
        else:
            counts = self._limits if word == "limit" else self._offsets
            counts.pop(embeds, None)
            count = count_of(value, name)
            if count is not None:
                counts[embeds] = count

    def _count(self, parameters: int) -> None:
        self._parameters += parameters
        if self._parameters > MOST_CONDITIONS:
            raise too_much(f"At most {MOST_CONDITIONS} parameters are allowed, with filters in logic trees")

    def result(self, header: str | None) -> tuple[Selection, Values]:
        """Return the shape and the values, within the window that the ``Range`` header asks for."""
        limits, offsets = self._limits, self._offsets
        top = narrow(Window(limits.get(""), offsets.pop("", 0)), header)
        if top.limit is not None:
            limits[""] = top.limit
        if top.offset:
            offsets[""] = top.offset
        literals = [*self._filter_values, *self._logic_values]
        literals += [str(limit) for limit in limits.values()]
        literals += [str(offset) for offset in offsets.values()]
        selection = Selection(
            self._parsed_select(),
            tuple(self._filters),
            tuple(self._logic),
            tuple([_parsed_order(name, text) for name, text in self._orders.items()]),
            tuple([parse_embeds(embeds) if embeds else () for embeds in limits]),
            tuple([parse_embeds(embeds) if embeds else () for embeds in offsets]),
            self._has_paths,
            self._size,
        )
        return selection, Values(tuple(literals), top.offset)

    def _parsed_select(self) -> Select | None:
        text = self._select
        if text is None:
            return None
        return (_remembered_select if len(text) <= LONGEST_REMEMBERED_SELECT else _select)(text)


def _parsed_order(name: str, text: str) -> OrderParameter:
    return (_remembered_order if len(name) + len(text) <= LONGEST_REMEMBERED_NAME else _order)(name, text)


# ---------------------------------------------------------------- columns and on_conflict


class BodyParameters(NamedTuple):
    """The parameters that concern a request's body.

    :ivar columns, conflict: ``columns`` and ``on_conflict``, None where they are missing.
    :ivar windowed: whether there is a ``limit`` or an ``offset``, which no ``PUT`` may have.
    """

    columns: tuple[str, ...] | None
    conflict: tuple[str, ...] | None
    windowed: bool


@lru_cache(maxsize=256)
def parse_body_parameters(query: str) -> BodyParameters:
    """Parse the parameters of a query string that concern the request's body.

    :raises ApiError: PGRST100 (400) a syntax error.
    """
    given = dict(reversed(querystring.pairs(query)))
    columns, conflict = (
        parse_names(given[name], name) if name in given else None for name in ("columns", "on_conflict")
    )
    return BodyParameters(columns, conflict, "limit" in given or "offset" in given)
