"""What one role sees of one catalog, with the plans that were made for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from dataapi.cache import BoundedCache
from dataapi.query.sql import Compiled
from dataapi.rest.functions import Functions
from dataapi.rest.tables import ReadableTables, Tables

PLANS_PER_ROLE = 500
"""Requests' shapes that are kept compiled for one role."""
LONGEST_KEPT = 8000
"""Characters of a shape beyond which its plan is not kept, to bound the memory."""


class Figures:
    """How often a plan was there already, and was not; they outlive catalogs."""

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0


class RoleView:
    """A role's tables and functions and its plans, at one catalog generation.

    :param anonymous: whether it is the role of callers that are nobody.
    """

    def __init__(self, tables: Tables, role: str, figures: Figures, *, anonymous: bool) -> None:
        self.name = role
        self.catalog = tables.catalog
        self.tables = ReadableTables(tables, role, anonymous=anonymous)
        self.functions = Functions(tables.catalog, role, anonymous=anonymous)
        self._figures = figures
        self._plans: BoundedCache[Hashable, tuple[Compiled, ...]] = BoundedCache(PLANS_PER_ROLE)

    def plan(
        self, shape: Hashable, size: int, compile_: Callable[[], tuple[Compiled, ...]]
    ) -> tuple[Compiled, ...]:
        """Return the statements of a shape, compiled at its first use.

        :param size: characters of the shape.
        :param compile_: makes the statements; what it raises is not remembered.
        """
        found = self._plans.get(shape)
        if found is not None:
            self._figures.hits += 1
            return found
        self._figures.misses += 1
        made = compile_()
        if size <= LONGEST_KEPT:
            self._plans.put(shape, made)
        return made
