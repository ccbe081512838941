"""The cost of an operation: how many rows it may touch, from page sizes and nesting.

It is known before anything runs, so that a request that multiplies small pages into
millions of rows is refused instead of served.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

from dataapi.graphql.sources import Variables


class PageSize(Protocol):
    """A number of rows that a request's variables decide."""

    @property
    def maximum(self) -> int | None:
        """The most rows, None without a bound."""

    def count(self, variables: Variables) -> int:
        """Return the number of rows."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Rows of one page, each with the rows nested in it.

    :ivar page: how many rows: a fixed number or one that a variable gives.
    """

    page: PageSize | int
    nested: tuple[Cost, ...] = ()

    def rows(self, variables: Variables) -> int:
        """Return the number of rows for a request's variables."""
        page = self.page if isinstance(self.page, int) else self.page.count(variables)
        return page * (1 + sum(cost.rows(variables) for cost in self.nested))

    def most(self) -> float:
        """Return the number of rows whatever the variables say; infinite when nothing bounds them."""
        page = self.page if isinstance(self.page, int) else self.page.maximum
        if page is None:
            return inf
        return page * (1 + sum(cost.most() for cost in self.nested))
