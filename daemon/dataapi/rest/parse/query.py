"""Splits a query string into the structure that determines the statement, and the values to bind.

The statuses and messages of errors are PostgREST's (``docs/reference/rest.md``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.rest.parse.body import Objects, WrittenRows
from dataapi.rest.parse.filters import (
    MAX_CONDITIONS,
    FilterOperation,
    LogicTree,
    has_operator,
    leaves,
    read_filter,
    read_logic,
)
from dataapi.rest.parse.select import (
    Embed,
    EmbedPath,
    FieldName,
    Item,
    Term,
    parse_embeds,
    parse_names,
    parse_order,
    parse_select,
    parse_target,
)
from dataapi.rest.parse.window import NEGATIVE, Window, parse_count, parse_range, unsatisfiable

EMBEDDABLE = frozenset({"order", "limit", "offset", "and", "or"})
"""Parameters that may follow the path of an embedded resource, as in ``directors.order``."""
RESERVED = EMBEDDABLE | {"select", "columns", "on_conflict"}
"""Parameters that are not filters. Columns with these names cannot be used in filters."""

LONGEST_LOCATION = 2000
"""Maximum length of a query string in ``Content-Location``. Proxies reject long headers."""
LONGEST_CACHED = 1000
"""Maximum length of a query string whose parsed form is cached."""
LONGEST_CACHED_SELECT = 4000
"""Maximum length of a ``select`` whose parsed form is cached."""

_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*", re.ASCII)


def too_much(details: str) -> ApiError:
    return ApiError(400, "PGRST100", "The request exceeds a limit", details=details)


# ---------------------------------------------------------------- selections

_EQUAL = FilterOperation("eq")

Pairs = tuple[tuple[str, str], ...]


class SelectionShape(NamedTuple):
    """The part of a query string that determines the statement.

    :ivar select: value of ``select``, None if absent.
    :ivar logic: paths of embedded resources and their logic trees.
    :ivar limits: dotted paths of the resources with a limit.
    :ivar offsets: dotted paths of the resources with an offset.
    """

    select: str | None
    filters: tuple[tuple[str, FilterOperation], ...]
    logic: tuple[tuple[EmbedPath, LogicTree], ...]
    orders: Pairs
    limits: tuple[str, ...]
    offsets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows and members that a query string selects, without values. Selections are compared by ``shape``.

    :ivar items: items of ``select``, None if absent.
    :ivar relation_names: pairs of a relation's name and its alias, for parameters that use the name instead
        of the alias.
    :ivar size: length of ``shape`` in characters.
    """

    shape: SelectionShape
    items: tuple[Item, ...] | None = field(compare=False)
    filters: tuple[tuple[FieldName, FilterOperation], ...] = field(compare=False)
    orders: tuple[tuple[EmbedPath, tuple[Term, ...]], ...] = field(compare=False)
    limits: tuple[EmbedPath, ...] = field(compare=False)
    offsets: tuple[EmbedPath, ...] = field(compare=False)
    relation_names: Pairs = field(compare=False)
    size: int = field(compare=False)

    @property
    def equal_columns(self) -> frozenset[str]:
        """The filtered columns if each filter is ``column=eq.value`` on a different column, else empty."""
        if self.shape.logic or any(operation != _EQUAL for _, operation in self.filters):
            return frozenset()
        targets = [target for target, _ in self.filters]
        names = frozenset([target.name for target in targets])
        if len(names) < len(targets) or any(target.embeds or target.path for target in targets):
            return frozenset()
        return names

    def without_filters(self, names: Collection[str]) -> Selection:
        filters = tuple([pair for pair in self.shape.filters if pair[0] not in names])
        return _selection(self.shape._replace(filters=filters))


class Values(NamedTuple):
    """The values of a request to bind to a statement's parameters.

    :ivar literals: values of filters, logic trees, limits and offsets, in this order.
    :ivar offset: number of skipped rows, for ``Content-Range``.
    :ivar objects: objects in the body, if each of them identifies a row by its key.
    :ivar groups: groups of rows to write, indexed by ``RowGroup.number``.
    :ivar arguments: values of a call's arguments by name, in the request's order, unless the arguments are
        members of the body.
    :ivar filter_texts: parameters of a call that look like filters but may be arguments.
    :ivar maximum: maximum number of rows that may be affected or returned, None for no limit.
    """

    literals: tuple[str, ...] = ()
    offset: int = 0
    body: str = ""
    objects: Objects = ()
    groups: tuple[WrittenRows, ...] = ()
    arguments: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    filter_texts: Pairs = ()
    maximum: int | None = None


def grouped(pairs: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: tuple(each) for name, each in values.items()}


def _selection(shape: SelectionShape) -> Selection:
    text = shape.select
    items = None
    if text is not None:
        items = (_cached_items if len(text) <= LONGEST_CACHED_SELECT else parse_select)(text)
    filters = tuple([(parse_target(name), operation) for name, operation in shape.filters])
    orders = tuple([(parse_embeds(name)[:-1], parse_order(order)) for name, order in shape.orders])
    limits = tuple([parse_embeds(embeds) if embeds else () for embeds in shape.limits])
    offsets = tuple([parse_embeds(embeds) if embeds else () for embeds in shape.offsets])
    paths = [target.embeds for target, _ in filters] + [path for path, _ in shape.logic]
    paths += [*limits, *offsets, *[path for path, _ in orders]]
    names = dict.fromkeys(pair for path in paths for pair in _relation_names(path, items or ()))
    return Selection(shape, items, filters, orders, limits, offsets, tuple(names), _size(shape))


def _size(shape: SelectionShape) -> int:
    texts = [shape.select or "", *shape.limits, *shape.offsets, *[name for name, _ in shape.filters]]
    texts += [text for order in shape.orders for text in order]
    trees = [leaf for _, tree in shape.logic for leaf in leaves(tree)]
    texts += [text for leaf in trees for text in (leaf.name, *(step.operand for step in leaf.path))]
    return sum(map(len, texts)) + 10 * (len(shape.filters) + len(trees))


_cached_items = lru_cache(maxsize=128)(parse_select)
_cached_selection = lru_cache(maxsize=1024)(_selection)


def _relation_names(path: EmbedPath, items: tuple[Item, ...]) -> Iterator[tuple[str, str]]:
    for name in path:
        embeds = [item for item in items if isinstance(item, Embed)]
        embed = next((each for each in embeds if name in (each.name, each.alias)), None)
        if embed is None:
            return
        if embed.alias is not None and name != embed.alias:
            yield name, embed.alias
        items = embed.items


# ---------------------------------------------------------------- query strings


class QueryParameters(NamedTuple):
    """A parsed query string.

    :ivar canonical: query string sorted by parameter name, for ``Content-Location``. None if it is too long
        or the response has no ``Content-Location``.
    :ivar windowed: whether there is a ``limit`` or an ``offset``.
    """

    selection: Selection
    values: Values
    canonical: str | None = None
    columns: tuple[str, ...] | None = None
    conflict: tuple[str, ...] | None = None
    windowed: bool = False


def parse_query(
    query: str, header_range: str | None = None, *, is_call: bool = False, reads: bool = True
) -> QueryParameters:
    """Parse a raw query string.

    :param header_range: the ``Range`` header of a GET.
    :param is_call: whether a function is called. If the request only reads, the query string contains the
        arguments.
    :param reads: whether the request only reads. ``columns`` and ``on_conflict`` are then ignored.
    :raises ApiError: PGRST100 (400) for a syntax error, PGRST103 (416) for an invalid range.
    """
    size = len(query) + len(header_range or "")
    return (_cached if size <= LONGEST_CACHED else _parse)(query, header_range, is_call, reads)


def _parse(query: str, header_range: str | None, is_call: bool, reads: bool) -> QueryParameters:
    pairs = querystring.pairs(query)
    parser = _QueryParser(has_arguments=is_call and reads)
    if is_call or not query or all("=" in part for part in query.split("&")):
        parser.add(pairs)
    else:  # As in PostgREST, a name without "=" is ignored.
        parser.add(querystring.pairs("&".join([part for part in query.split("&") if "=" in part])))
    selection, values = parser.result(header_range, cached=len(query) <= LONGEST_CACHED)
    if is_call and reads:
        arguments, filters = grouped(parser.arguments), tuple(parser.filter_texts)
        return QueryParameters(selection, values._replace(arguments=arguments, filter_texts=filters))
    if reads:
        return QueryParameters(
            selection, values, _canonical(pairs) if len(query) <= LONGEST_LOCATION else None
        )
    named = dict(reversed(pairs))
    columns, conflict = (
        parse_names(named[name], name) if name in named else None for name in ("columns", "on_conflict")
    )
    return QueryParameters(selection, values, None, columns, conflict, "limit" in named or "offset" in named)


_cached = lru_cache(maxsize=1024)(_parse)


def _canonical(pairs: Iterable[tuple[str, str]]) -> str:
    listed = sorted(pairs, key=itemgetter(0))
    return "&".join([f"{_escaped(name)}={_escaped(value)}" for name, value in listed])


def _escaped(text: str) -> str:
    return text if _UNRESERVED.fullmatch(text) else _quoted(text)


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return quote(text, safe="")


class _QueryParser:
    """Classifies parameters. In a call that only reads, parameters without an operator are arguments."""

    def __init__(self, *, has_arguments: bool) -> None:
        self.arguments: list[tuple[str, str]] = []
        self.filter_texts: list[tuple[str, str]] = []
        self._has_arguments = has_arguments
        self._select: str | None = None
        self._filters: list[tuple[str, FilterOperation]] = []
        self._filter_values: list[str] = []
        self._logic: list[tuple[EmbedPath, LogicTree]] = []
        self._logic_values: list[str] = []
        self._orders: dict[str, str] = {}
        self._limits: dict[str, int] = {}
        self._offsets: dict[str, int] = {}
        self._conditions = 0

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Add parameters.

        Filters, ``and``, ``or`` and arguments can be repeated. For other repeated parameters, the first value
        is used, except that the last ``limit`` and ``offset`` are used.
        """
        for name, value in pairs:
            embeds, _, word = name.rpartition(".")
            if self._has_arguments and name not in RESERVED and word not in EMBEDDABLE:
                if not has_operator(value):
                    self.arguments.append((name, value))
                    continue
                self.filter_texts.append((name, value))
            self._count(1)
            if name == "select":
                self._select = value if self._select is None else self._select
            elif word in EMBEDDABLE:
                self._add_embeddable(name, embeds, word, value)
            elif name not in RESERVED:
                operation, values = read_filter(value)
                self._filters.append((name, operation))
                self._filter_values += values

    def _add_embeddable(self, name: str, embeds: str, word: str, value: str) -> None:
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
            count = parse_count(value, name)
            if count is not None:
                counts[embeds] = count

    def _count(self, conditions: int) -> None:
        self._conditions += conditions
        if self._conditions > MAX_CONDITIONS:
            raise too_much(
                f"At most {MAX_CONDITIONS} parameters are allowed, including filters in logic trees"
            )

    def result(self, header: str | None, *, cached: bool) -> tuple[Selection, Values]:
        limits, offsets, top = self._limits, self._offsets, Window()
        if header or limits or offsets:
            top = Window(limits.get(""), offsets.pop("", 0))
            if top.limit == 0:  # As in PostgREST, an invalid Range header is ignored if the limit is 0.
                top = Window(0)
            else:
                top = top.within(parse_range(header))
                if top.limit == 0:
                    raise unsatisfiable(NEGATIVE)
            if top.limit is not None:
                limits[""] = top.limit
            if top.offset:
                offsets[""] = top.offset
        literals = [*self._filter_values, *self._logic_values]
        literals += [str(limit) for limit in limits.values()]
        literals += [str(offset) for offset in offsets.values()]
        shape = SelectionShape(
            self._select,
            tuple(self._filters),
            tuple(self._logic),
            tuple(self._orders.items()),
            tuple(limits),
            tuple(offsets),
        )
        selection = (_cached_selection if cached else _selection)(shape)
        return selection, Values(tuple(literals), top.offset)
