"""What one role sees of one catalog, with the plans that were made for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from dataapi.cache import BoundedCache
from dataapi.query.sql import Compiled
from dataapi.rest.functions.callable import Functions
from dataapi.rest.resolve.tables import ReadableTables, Tables

PLANS_PER_ROLE = 500
"""Requests' shapes that are kept compiled for one role."""
LONGEST_KEPT = 8000
"""Characters of a shape beyond which its plan is not kept, to bound the memory."""
LONGEST_STATEMENTS = 100_000
"""Characters of the statements beyond which a plan is not kept."""
PLAN_CHARACTERS = 4_000_000
"""Characters of all plans that are kept for one role, their shapes included."""


class Figures:
    """How often a plan was there already, and was not; they outlive catalogs."""

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0


class RoleView:
    """A role's tables and functions and its plans, at one catalog generation.

    :param anonymous: whether it is the role of callers that are nobody.
    :ivar plans: the statements that are kept, by their shapes.
    """

    def __init__(self, tables: Tables, role: str, figures: Figures, *, anonymous: bool) -> None:
        self.name = role
        self.catalog = tables.catalog
        self.tables = ReadableTables(tables, role, anonymous=anonymous)
        self.functions = Functions(tables.catalog, role, anonymous=anonymous)
        self._figures = figures
        self.plans: BoundedCache[Hashable, tuple[Compiled, ...]] = BoundedCache(
            PLANS_PER_ROLE, PLAN_CHARACTERS
        )

    def plan(
        self, shape: Hashable, size: int, compile_: Callable[[], tuple[Compiled, ...]]
    ) -> tuple[Compiled, ...]:
        """Return the statements of a shape, compiled at its first use.

        What is too long to be kept is not prepared either: it would take the place of what comes again.

        :param size: characters of the shape.
        :param compile_: makes the statements; what it raises is not remembered.
        """
        found = self.plans.get(shape)
        if found is not None:
            self._figures.hits += 1
            return found
        self._figures.misses += 1
        made = compile_()
        length = sum(len(each.statement.text) for each in made)
        if size > LONGEST_KEPT or length > LONGEST_STATEMENTS:
            return tuple([each.unprepared() for each in made])
        self.plans.put(shape, made, size + length)
        return made
