"""What a query string asks of rows: its shape, which decides the statement, apart from its values; pure.

``parse`` takes a query string apart without asking any catalog.  ``selecting`` turns the shape into the
algebra for one role: reading puts a table under it, calling a function, and writing shows changed rows by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from dataapi.rest.request.bounds import MOST_CONDITIONS, too_much
from dataapi.rest.request.filters import read_filter, read_logic
from dataapi.rest.request.grammar import parse_target
from dataapi.rest.request.ranges import Window, count_of, narrowed
from dataapi.rest.request.syntax import ASIDE, EMBEDDABLE, Operation, Tree
from dataapi.rest.resolve.resources import leaves
from dataapi.web import querystring

LONGEST_REMEMBERED = 1000
"""Characters of a query string that is remembered once it was understood: clients repeat themselves."""

_EQUAL = Operation("eq")


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a query string decides the statement; hashable, to be part of a plan's shape.

    :ivar select: the ``select`` parameter, None when there is none.
    :ivar filters: names of parameters, with what they do with their values.
    :ivar logic: ways to embedded resources, with the tree that holds there.
    :ivar orders: names of parameters, such as ``directors.order``, with their values.
    :ivar limited, moved: names without the last word of those that have a limit, and an offset.
    :ivar size: characters of it all, for ``RoleView.plan``.
    """

    select: str | None
    filters: tuple[tuple[str, Operation], ...]
    logic: tuple[tuple[tuple[str, ...], Tree], ...]
    orders: tuple[tuple[str, str], ...]
    limited: tuple[str, ...]
    moved: tuple[str, ...]
    size: int = field(compare=False)

    @property
    def is_whole(self) -> bool:
        """Whether rows are shown as they are."""
        return self.select in (None, "*")

    def equalities(self, values: HasLifted) -> Mapping[str, str] | None:
        """Return the value of each column when all filters are plain ``column=eq.value``, else None."""
        if self.logic or any(operation != _EQUAL for _, operation in self.filters):
            return None
        targets = [parse_target(name) for name, _ in self.filters]
        names = [target.name for target in targets]
        if len(set(names)) < len(names) or any(target.way or target.path for target in targets):
            return None
        return dict(zip(names, values.lifted, strict=False))


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a selection, in the places that its sources know.

    :ivar lifted: of the filters, the logic trees, the limits and the offsets, in this order.
    :ivar offset: how many rows of the whole are skipped, for ``Content-Range``.
    """

    lifted: tuple[str, ...]
    offset: int = 0


class HasLifted(Protocol):
    """What ``bind`` of a selection's sources takes: ``Values``, or another class with its ``lifted``."""

    @property
    def lifted(self) -> tuple[str, ...]:
        """As of ``Values``."""


def parse(query: str, header_range: str | None = None) -> tuple[Selection, Values]:
    """Take a raw query string apart; ``columns`` and ``on_conflict`` are left aside.

    :param header_range: the ``Range`` header of a GET.
    :raises ApiError: PGRST100 (400) for what cannot be understood, PGRST103 (416) for impossible ranges.
    """
    size = len(query) + len(header_range or "")
    return _remembered(query, header_range) if size <= LONGEST_REMEMBERED else _parse(query, header_range)


def _parse(query: str, header_range: str | None) -> tuple[Selection, Values]:
    parts = query.split("&")
    # As in PostgREST, a name without any value is no parameter.
    given = query if len(parts) == 1 and "=" in query else "&".join([part for part in parts if "=" in part])
    return parse_pairs(querystring.pairs(given), header_range)


_remembered = lru_cache(maxsize=1024)(_parse)


def parse_pairs(
    pairs: Iterable[tuple[str, str]], header_range: str | None = None
) -> tuple[Selection, Values]:
    """Take decoded parameters apart as ``parse`` does, such as those of a call that are no arguments."""
    gathering = _Gathering()
    for name, value in pairs:
        gathering.take(name, value)
    return gathering.result(header_range)


class _Gathering:
    """The parameters of one request, as they come."""

    def __init__(self) -> None:
        self._select: str | None = None
        self._filters: list[tuple[str, Operation]] = []
        self._filter_values: list[str] = []
        self._logic: list[tuple[tuple[str, ...], Tree]] = []
        self._logic_values: list[str] = []
        self._orders: dict[str, str] = {}
        self._limits: dict[str, int] = {}
        self._offsets: dict[str, int] = {}
        self._size = 0
        self._parameters = 0

    def take(self, name: str, value: str) -> None:
        """Take a parameter; of those that can stand only once the first counts, of limits the last."""
        self._count(1)
        if name == "select":
            self._select = value if self._select is None else self._select
            self._size += len(value)
        elif name not in ASIDE:
            way, _, word = name.rpartition(".")
            if word in EMBEDDABLE:
                self._size += len(name) + len(value)
                self._take_embeddable(name, way, word, value)
            else:
                operation, values = read_filter(value)
                self._filters.append((name, operation))
                self._filter_values += values
                self._size += len(name) + 10

    def _take_embeddable(self, name: str, way: str, word: str, value: str) -> None:
        if word == "order":
            self._orders.setdefault(name, value)
        elif word in ("and", "or"):
            names, tree, values = read_logic(name, value)
            self._logic.append((names, tree))
            self._logic_values += values
            self._count(sum(1 for _ in leaves(tree)))
        else:
            counts = self._limits if word == "limit" else self._offsets
            counts.pop(way, None)
            count = count_of(value, name)
            if count is not None:
                counts[way] = count

    def _count(self, parameters: int) -> None:
        self._parameters += parameters
        if self._parameters > MOST_CONDITIONS:
            raise too_much(f"At most {MOST_CONDITIONS} parameters are allowed, with filters in logic trees")

    def result(self, header: str | None) -> tuple[Selection, Values]:
        """Return the shape and the values, within the window that the ``Range`` header asks for."""
        limits, offsets = self._limits, self._offsets
        top = narrowed(Window(limits.get(""), offsets.pop("", 0)), header)
        if top.limit is not None:
            limits[""] = top.limit
        if top.offset:
            offsets[""] = top.offset
        lifted = [*self._filter_values, *self._logic_values]
        lifted += [str(limit) for limit in limits.values()]
        lifted += [str(offset) for offset in offsets.values()]
        selection = Selection(
            self._select,
            tuple(self._filters),
            tuple(self._logic),
            tuple(self._orders.items()),
            tuple(limits),
            tuple(offsets),
            self._size,
        )
        return selection, Values(tuple(lifted), top.offset)
