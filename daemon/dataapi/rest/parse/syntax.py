"""A query string in PostgREST's dialect as a syntax tree, with the values apart from it; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dataapi.http.errors import ApiError

MOST_ITEMS = 1600
"""Items of ``select``: as many as a table may have columns."""
MOST_RESOURCES = 100
"""Resources embedded by one request."""
MOST_MEMBERS = 1600
"""Members of one object: PostgreSQL makes rows of little more."""
MOST_MEMBERS_IN_ALL = 5000
"""Members of the objects of all resources, those that stars stand for included."""
MOST_CONDITIONS = 1000
"""Filters of one request, those in logic trees included; a list of ``in`` counts as one."""
MOST_TERMS = 100
"""Terms of one ``order``."""
MOST_STEPS = 100
"""Steps of one path into a JSON value."""
MOST_NAMES = 1600
"""Names in ``columns`` and ``on_conflict``."""
MOST_RESOURCES_AND_CONDITIONS = 2500
"""Resources and conditions where they stand in a statement: some are there more than once."""


def too_much(details: str) -> ApiError:
    """Return the error of a request that goes beyond a bound which no single parameter does."""
    return ApiError(400, "PGRST100", "The request asks for too much at once", details=details)


BODY_PARAMETERS = frozenset({"columns", "on_conflict"})
"""Parameters that concern the body."""
EMBEDDABLE = frozenset({"order", "limit", "offset", "and", "or"})
"""Parameters that may follow the path of an embedded resource, as in ``directors.order``."""
RESERVED = frozenset({"select"}) | BODY_PARAMETERS | EMBEDDABLE
"""Parameters that are not filters, so that columns of these names cannot be filtered by."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step into a JSON value: ``->name`` or, with the value as text, ``->>name``.

    :ivar is_index: whether the operand is an index of an array.
    """

    operand: str
    as_text: bool
    is_index: bool = False


Path = tuple[Step, ...]

EmbedPath = tuple[str, ...]
"""The names of embedded resources, each within the one before."""


@dataclass(frozen=True, slots=True)
class Star:
    """``*``: every column."""


@dataclass(frozen=True, slots=True)
class Field:
    """``alias:name->path::cast.aggregate()::cast``; the name is empty for a bare ``count()``."""

    name: str
    alias: str | None = None
    path: Path = ()
    cast: str | None = None
    aggregate: str | None = None
    aggregate_cast: str | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """``alias:name!hint!join(items)``, or with ``spread`` the items among the parent's own.

    :ivar inner: whether rows without a related one are left out.
    """

    name: str
    items: tuple[Item, ...]
    alias: str | None = None
    hint: str | None = None
    inner: bool = False
    spread: bool = False

    @property
    def key(self) -> str:
        """The name in the answer."""
        return self.alias or self.name

    @property
    def silent(self) -> bool:
        """Whether the answer has nothing of the resource: it is only filtered by."""
        return all(isinstance(item, Embed) and item.silent for item in self.items)

    @property
    def member(self) -> str | None:
        """The resource's name in the answer; None if it is silent or spread."""
        return None if self.spread or self.silent else self.key


Item = Star | Field | Embed


@dataclass(frozen=True, slots=True)
class Term:
    """``name.direction.nulls`` of ``order``; None for what is omitted.

    :ivar relation: for ``relation(name)``, the embedded resource that is ordered by.
    """

    name: str
    path: Path = ()
    relation: str | None = None
    descending: bool | None = None
    nulls_first: bool | None = None


@dataclass(frozen=True, slots=True)
class FieldName:
    """The field that a parameter names, in the resource at the end of a path of embedded ones."""

    embeds: EmbedPath
    name: str
    path: Path = ()


class FilterOperation(NamedTuple):
    """``not.operator(quantifier)``, without the value.

    :ivar operator: as it is written, such as ``eq`` or ``plfts``.
    :ivar modifier: ``any`` or ``all`` for comparisons; ``language`` where a text search has one, which is
        a value before the words.
    :ivar word: what ``is`` compares with; it has no value.
    """

    operator: str
    negated: bool = False
    modifier: str | None = None
    word: str | None = None

    @property
    def value_count(self) -> int:
        """The number of values that are bound to it."""
        return 0 if self.word is not None else 2 if self.modifier == "language" else 1


@dataclass(frozen=True, slots=True)
class LogicFilter:
    """A filter within ``and`` and ``or``."""

    name: str
    path: Path
    operation: FilterOperation


@dataclass(frozen=True, slots=True)
class LogicGroup:
    """``and(…)`` or ``or(…)``.

    :ivar every: whether all must hold, and not just any.
    """

    every: bool
    negated: bool
    parts: tuple[LogicFilter | LogicGroup, ...]


LogicTree = LogicFilter | LogicGroup


def leaves(tree: LogicTree) -> Iterator[LogicFilter]:
    """Yield the filters of a tree in the order of their values."""
    if isinstance(tree, LogicFilter):
        yield tree
    else:
        for part in tree.parts:
            yield from leaves(part)


# ---------------------------------------------------------------- selections

_EQUAL = FilterOperation("eq")

Pairs = tuple[tuple[str, str], ...]
"""Names and values."""


class SelectionShape(NamedTuple):
    """What of a query string decides the statement; selections of the same shape are equal.

    :ivar select: the value of ``select``, None without it.
    :ivar filters: names of parameters, with the operation of each.
    :ivar logic: paths of embedded resources, with the logic tree on each.
    :ivar orders: names of ``order`` parameters, with their values.
    :ivar limits, offsets: paths of the resources that have one, joined by periods.
    """

    select: str | None
    filters: tuple[tuple[str, FilterOperation], ...]
    logic: tuple[tuple[EmbedPath, LogicTree], ...]
    orders: Pairs
    limits: tuple[str, ...]
    offsets: tuple[str, ...]

    @property
    def size(self) -> int:
        """About how many characters it has; values are no part of it."""
        names = [self.select or "", *self.limits, *self.offsets]
        names += [text for order in self.orders for text in order]
        names += [name for name, _ in self.filters]
        trees = [leaf for _, tree in self.logic for leaf in leaves(tree)]
        names += [text for leaf in trees for text in (leaf.name, *(step.operand for step in leaf.path))]
        return sum(map(len, names)) + 10 * (len(self.filters) + len(trees))


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows and members that a query string selects, apart from values; hashable by its shape.

    :ivar items: the items of ``select``; None without it.
    :ivar limits, offsets: paths of the resources that have one.
    :ivar relation_names: names of relations that parameters use although these have an alias, with the alias.
    :ivar size: characters of the shape, for ``RestRole.plan``.
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
    def logic(self) -> tuple[tuple[EmbedPath, LogicTree], ...]:
        """Paths of embedded resources, with the logic tree on each."""
        return self.shape.logic

    @property
    def is_whole(self) -> bool:
        """Whether whole rows are selected."""
        return self.shape.select in (None, "*")

    def equalities(self, values: Values) -> Mapping[str, str] | None:
        """Return the value of each column when all filters are plain ``column=eq.value``, else None."""
        if self.logic or any(operation != _EQUAL for _, operation in self.filters):
            return None
        targets = [target for target, _ in self.filters]
        names = [target.name for target in targets]
        if len(set(names)) < len(names) or any(target.embeds or target.path for target in targets):
            return None
        return dict(zip(names, values.literals, strict=False))


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a request, as the sources of a statement's slots look them up.

    :ivar literals: of the filters, the logic trees, the limits and the offsets, in this order.
    :ivar offset: how many rows of the whole are skipped, for ``Content-Range``.
    :ivar body: the text of the body.
    :ivar arguments: those of a call that have a slot each, by name.
    :ivar most: how many rows may be affected or returned, None without a limit.
    """

    literals: tuple[str, ...] = ()
    offset: int = 0
    body: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    most: int | None = None
