"""One role's view of a catalog, and the plans cached for the role."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dataapi.catalog.model import Privileges, Table
from dataapi.concurrency.cache import BoundedCache
from dataapi.rest.negotiation import Media, Offers, RowHandler, negotiate
from dataapi.rest.parse.query import Selection
from dataapi.rest.parse.request import PlanInput
from dataapi.rest.plan.functions import RoleFunctions, content_of
from dataapi.rest.plan.model import StatementPlan, StreamPlan
from dataapi.rest.plan.rows import RowPlanner
from dataapi.rest.plan.tables import CatalogTables, Relation, RoleTables
from dataapi.settings import Project
from dataapi.sql.dialect import dialect_of
from dataapi.sql.statement import qualified

PLANS_PER_ROLE = 500
"""Maximum number of cached plans per role."""
LONGEST_CACHED_INPUT = 8000
"""Maximum length of a cached plan's input, in characters."""
LONGEST_CACHED_STATEMENTS = 100_000
"""Maximum total length of a cached plan's statements, in characters."""
PLAN_CHARACTERS = 4_000_000
"""Maximum total length of one role's cached statements and inputs, in characters."""


@dataclass(slots=True)
class PlanCacheFigures:
    """Hits and misses of the plan cache, across all catalogs."""

    hits: int = 0
    misses: int = 0


class RestRole:
    """One role's view of a catalog, and the plans cached for the role."""

    def __init__(self, project: Project, tables: CatalogTables, role: str, figures: PlanCacheFigures) -> None:
        self._anonymous = anonymous = role == project.db_anon_role
        self.name = role
        self.project = project
        self.catalog = tables.catalog
        self.dialect = dialect_of(tables.catalog)
        self.tables = RoleTables(tables, role, anonymous=anonymous)
        self._figures = figures
        self._plans: BoundedCache[PlanInput, StatementPlan | StreamPlan] = BoundedCache(
            PLANS_PER_ROLE, PLAN_CHARACTERS
        )

    def cached(self, plan_input: PlanInput) -> StatementPlan | StreamPlan | None:
        plan = self._plans.get(plan_input)
        if plan is not None:
            self._figures.hits += 1
        return plan

    def cache(self, plan_input: PlanInput, plan: StatementPlan | StreamPlan) -> StatementPlan | StreamPlan:
        """Cache a plan and return it.

        If the plan is too long to cache, its statements are not prepared, because they would displace
        prepared statements that are used again.
        """
        self._figures.misses += 1
        size, length = plan_input.size, sum(len(each.statement.text) for each in plan.statements)
        if isinstance(plan, StatementPlan) and plan.current is not None:
            length += len(plan.current.statement.text)
        if size > LONGEST_CACHED_INPUT or length > LONGEST_CACHED_STATEMENTS:
            return plan._replace(statements=tuple([each.unprepared() for each in plan.statements]))
        self._plans.put(plan_input, plan, size + length)
        return plan

    @cached_property
    def functions(self) -> RoleFunctions:
        return RoleFunctions(self.catalog, self.name, anonymous=self._anonymous)

    @cached_property
    def row_handlers(self) -> tuple[RowHandler, ...]:
        catalog, privileges = self.catalog, Privileges(self.catalog, self.name)
        return tuple(
            RowHandler(
                each.media_type,
                qualified(each),
                each.table,
                content_of(catalog, catalog.types[each.type]),
            )
            for each in catalog.media_handlers
            if privileges.can_execute(each)
        )

    def planner(self, relation: Relation, selection: Selection) -> RowPlanner:
        return RowPlanner(self.tables, relation, selection, self.project)

    def media(
        self,
        plan_input: PlanInput,
        table: Table | None,
        *,
        raw: tuple[str, ...] = (),
        lines: bool = False,
    ) -> Media:
        """Return the available media type that the client prefers, given the table of the response's rows.

        :param raw: media types in which a scalar function's value can be returned unchanged.
        :raises ApiError: PGRST107 (406) if none of the accepted media types is available.
        """
        # A media type handler for a table accepts only whole rows.
        whole = plan_input.selection.shape.select in (None, "*")
        oid = table.oid if table is not None and whole else 0
        return negotiate(
            plan_input.accept, Offers(self.row_handlers, oid, raw, lines, self.project.db_plan_enabled)
        )
