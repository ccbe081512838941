"""The syntax tree of a query string in PostgREST's dialect, and its bounds; pure.

Values of filters are not part of it: they are collected apart, and looked up by their position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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
class Select:
    """The value of ``select``; its text stands for it when it is compared or hashed."""

    text: str
    items: tuple[Item, ...] = field(compare=False)


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
class OrderParameter:
    """The value of an ``order`` parameter; name and text stand for it when it is compared or hashed.

    :ivar embeds: the path of the embedded resource whose rows are ordered.
    """

    name: str
    text: str
    embeds: EmbedPath = field(compare=False)
    terms: tuple[Term, ...] = field(compare=False)


@dataclass(frozen=True, slots=True)
class FieldName:
    """The field that a parameter names, in the resource at the end of a path of embedded ones."""

    embeds: EmbedPath
    name: str
    path: Path = ()


@dataclass(frozen=True, slots=True)
class FilterOperation:
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


@dataclass(frozen=True, slots=True)
class FilterParameter:
    """A filter that is a parameter of its own; its name stands for the target when it is compared."""

    name: str
    operation: FilterOperation
    target: FieldName = field(compare=False)


def leaves(tree: LogicTree) -> Iterator[LogicFilter]:
    """Yield the filters of a tree in the order of their values."""
    if isinstance(tree, LogicFilter):
        yield tree
    else:
        for part in tree.parts:
            yield from leaves(part)
