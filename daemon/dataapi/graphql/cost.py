"""The cost of an operation: how many rows it may touch, from page sizes, nesting and how many there are.

It is known before anything runs, so that a request that multiplies small pages into
millions of rows is refused instead of served.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from dataapi.catalog.model import Table
from dataapi.graphql.sources import Variables

GROWTH_FACTOR, GROWTH_ROWS = 2, 1_000
"""How far a table may have grown since its rows were estimated: to twice as many, and a thousand more."""


class PageSize(Protocol):
    """A number of rows that a request's variables decide."""

    @property
    def maximum(self) -> int | None:
        """The most rows, None without a bound."""

    def count(self, variables: Variables) -> int:
        """Return the number of rows."""


def capacity(table: Table) -> int | None:
    """Return the most rows that a table is taken to hold, None where PostgreSQL has no estimate."""
    rows = table.estimated_rows
    return None if rows is None else GROWTH_FACTOR * rows + GROWTH_ROWS


@dataclass(frozen=True, slots=True)
class Cost:
    """Rows of one page, each with the rows nested in it.

    :ivar page: how many rows: a fixed number or one that a variable gives.
    :ivar capacity: the most rows that there are, None where that is unknown.
    :ivar disjoint: whether different parents' pages hold different rows, so that all pages together hold
        no more rows than there are.
    """

    page: PageSize | int
    nested: tuple[Cost, ...] = ()
    capacity: int | None = None
    disjoint: bool = False

    def rows(self, variables: Variables) -> int:
        """Return the number of rows for a request's variables."""
        return int(self._rows(lambda page: page.count(variables)))

    def most(self) -> float:
        """Return the number of rows whatever the variables say; infinite when nothing bounds them."""
        return self._rows(lambda page: inf if page.maximum is None else page.maximum)

    def _rows(self, size: Callable[[PageSize], float], parents: float = 1, *, distinct: bool = True) -> float:
        """Return the rows of all parents' pages with what is nested in them.

        :param distinct: whether the parents are different rows.
        """
        page = self.page if isinstance(self.page, int) else size(self.page)
        limit = inf if self.capacity is None else self.capacity
        distinct = distinct and self.disjoint
        rows = min(parents * min(page, limit), limit if distinct else inf)
        return rows + sum(cost._rows(size, rows, distinct=distinct) for cost in self.nested)
