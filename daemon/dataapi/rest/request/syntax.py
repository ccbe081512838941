"""What the parameters of a query string say, before any catalog is asked (PostgREST's dialect).

Values of filters are not among it: they are lifted, and found again by their place.
"""

from __future__ import annotations

from dataclasses import dataclass

ASIDE = frozenset({"columns", "on_conflict"})
"""Parameters that say something of a body."""
EMBEDDABLE = frozenset({"order", "limit", "offset", "and", "or"})
"""Parameters that may have the way to an embedded resource before them, such as ``directors.order``."""
RESERVED = frozenset({"select"}) | ASIDE | EMBEDDABLE
"""Parameters that are no filters, so that columns of these names cannot be filtered by."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step into a JSON value: ``->name`` or, with the value as text, ``->>name``.

    :ivar place: whether the operand is a number that stands for a place in an array.
    """

    operand: str
    as_text: bool
    place: bool = False


Path = tuple[Step, ...]


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
        """The member's name in the answer."""
        return self.alias or self.name

    @property
    def silent(self) -> bool:
        """Whether nothing of the resource is shown: it is there to be filtered by."""
        return all(isinstance(item, Embed) and item.silent for item in self.items)

    @property
    def member(self) -> str | None:
        """The name under which the resource is shown; None when it is not, or its items are spread."""
        return None if self.spread or self.silent else self.key


Item = Star | Field | Embed


@dataclass(frozen=True, slots=True)
class Term:
    """``name.direction.nulls`` of ``order``; None where nothing is said.

    :ivar relation: for ``relation(name)``, the embedded resource that is ordered by.
    """

    name: str
    path: Path = ()
    relation: str | None = None
    descending: bool | None = None
    nulls_first: bool | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What a parameter's name names: a field of the resource at the end of a way through embedded ones."""

    way: tuple[str, ...]
    name: str
    path: Path = ()


@dataclass(frozen=True, slots=True)
class Operation:
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
    def places(self) -> int:
        """How many values it has."""
        return 0 if self.word is not None else 2 if self.modifier == "language" else 1


@dataclass(frozen=True, slots=True)
class Leaf:
    """A filter within ``and`` and ``or``."""

    name: str
    path: Path
    operation: Operation


@dataclass(frozen=True, slots=True)
class Branch:
    """``and(…)`` or ``or(…)``.

    :ivar every: whether all must hold, and not just any.
    """

    every: bool
    negated: bool
    parts: tuple[Leaf | Branch, ...]


Tree = Leaf | Branch
