"""What the values of ``select`` and ``order`` say, before any catalog is asked (PostgREST's dialect)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One step into a JSON value: ``->name``, ``->0`` or, with the value as text, ``->>name``."""

    operand: str
    as_text: bool


@dataclass(frozen=True, slots=True)
class Star:
    """``*``: every column."""


@dataclass(frozen=True, slots=True)
class Field:
    """``alias:name->path::cast.aggregate()::cast``; the name is empty for a bare ``count()``."""

    name: str
    alias: str | None = None
    path: tuple[Step, ...] = ()
    cast: str | None = None
    aggregate: str | None = None
    aggregate_cast: str | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """``alias:name!hint!join(items)``, or with ``spread`` the items among the parent's own.

    :ivar hints: what stands behind exclamation marks, ``inner`` and ``left`` included.
    """

    name: str
    items: tuple[Item, ...]
    alias: str | None = None
    hints: tuple[str, ...] = ()
    spread: bool = False

    @property
    def key(self) -> str:
        """The member's name in the answer, by which other parameters know it too."""
        return self.alias or self.name


Item = Star | Field | Embed


@dataclass(frozen=True, slots=True)
class Term:
    """``name.direction.nulls`` of ``order``; None where nothing is said.

    :ivar relation: for ``relation(name)``, the embedded resource that is ordered by.
    """

    name: str
    path: tuple[Step, ...] = ()
    relation: str | None = None
    descending: bool | None = None
    nulls_first: bool | None = None
