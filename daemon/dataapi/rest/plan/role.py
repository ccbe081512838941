"""Plans as values that can be cached, and one role's view of a catalog, with the plans made for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dataapi.catalog.model import Privileges, Table
from dataapi.concurrency.cache import BoundedCache
from dataapi.database.message import Bound
from dataapi.http.messages import Reply
from dataapi.rest.negotiation import Media, Offers, RowHandler, negotiate
from dataapi.rest.parse.preferences import Action
from dataapi.rest.parse.query import Selection, Values
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.plan.functions import RoleFunctions, content_of
from dataapi.rest.plan.rows import RowPlanner
from dataapi.rest.plan.tables import CatalogTables, Relation, RoleTables
from dataapi.settings import Project
from dataapi.sql.dialect import dialect_of
from dataapi.sql.statement import Compiled, qualified


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """The rows of a table."""


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """The effect of a change on a table's rows.

    :ivar represents: whether the body holds the rows.
    :ivar merges: whether the inserted rows are counted apart from the updated ones.
    """

    action: Action
    table: str
    represents: bool
    merges: bool


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """The result of a function.

    :ivar is_void: whether the function returns nothing.
    :ivar is_single: whether it is one value or row.
    :ivar is_binary: whether the body is the value of a ``bytea``.
    :ivar unwrapped: whether the one member of an array stands without its brackets.
    """

    is_void: bool
    is_single: bool
    is_binary: bool
    unwrapped: bool


Answer = ReadAnswer | WriteAnswer | CallAnswer
"""How the row of a statement becomes the answer."""


class StatementPlan(NamedTuple):
    """Statements to run in order, and how the row of the last one becomes the answer.

    :ivar statements: the last one's row is a ``ResultRow``.
    :ivar media: the negotiated media type; with its ``explain`` the statement's plan is the answer.
    :ivar settings: further settings of the transaction, ``(name, value)``.
    :ivar estimated: a statement without its page, whose planned number of rows becomes the row's total
        when that is None or beyond ``estimated_beyond``.
    :ivar by_replica: whether a replica may run it.
    """

    statements: tuple[Compiled, ...]
    media: Media
    answer: Answer
    read_only: bool
    settings: tuple[tuple[str, str], ...] = ()
    estimated: Compiled | None = None
    estimated_beyond: int | None = None
    by_replica: bool = False

    @property
    def explained(self) -> Compiled:
        """The statement whose plan a client gets: the one that changes rows, if another one reads them."""
        return self.statements[-2] if len(self.statements) > 1 else self.statements[-1]


class StreamPlan(NamedTuple):
    """A read whose rows are sent while they come.

    :ivar statement: returns one text per row: the bytes to send.
    :ivar head: the reply without its body.
    :ivar prefix: the bytes before the first row, such as a header line.
    :ivar offset: how many rows of the whole are skipped, for ``Content-Range``.
    :ivar by_replica: whether a replica may run it.
    """

    statement: Bound
    head: Reply
    prefix: bytes = b""
    settings: tuple[tuple[str, str], ...] = ()
    offset: int = 0
    by_replica: bool = False


class BoundPlan(NamedTuple):
    """A plan, which requests share, with the values of one request."""

    plan: StatementPlan
    values: Values


Planned = BoundPlan | StreamPlan | Reply
"""How a request is answered; a ``Reply`` needs nothing from the database."""


PLANS_PER_ROLE = 500
"""Plans, and compiled statements, that are cached for one role."""
LONGEST_CACHED_SHAPE = 8000
"""Characters of a shape beyond which its statements are not cached, to bound the memory."""
LONGEST_CACHED_STATEMENTS = 100_000
"""Characters of statements beyond which they are not cached."""
PLAN_CHARACTERS = 4_000_000
"""Characters of all statements that are cached for one role, their shapes included."""


@dataclass(slots=True)
class PlanCacheFigures:
    """Hits and misses of the cache of statements, over all catalogs."""

    hits: int = 0
    misses: int = 0


class RestRole:
    """One role's view of a catalog, with the statements compiled for it.

    :ivar dialect: in which statements are written.
    :ivar plans: the cached plans of requests of tables, by the parts of a request that decide them.
    :ivar compiled: the cached statements, by their shapes; plans for different clients share them.
    """

    def __init__(self, project: Project, tables: CatalogTables, role: str, figures: PlanCacheFigures) -> None:
        self._anonymous = anonymous = role == project.db_anon_role
        self.name = role
        self.project = project
        self.catalog = tables.catalog
        self.dialect = dialect_of(tables.catalog)
        self.tables = RoleTables(tables, role, anonymous=anonymous)
        self.figures = figures
        self.plans: BoundedCache[Hashable, StatementPlan] = BoundedCache(PLANS_PER_ROLE, PLAN_CHARACTERS)
        self.compiled: BoundedCache[Hashable, tuple[Compiled, ...]] = BoundedCache(
            PLANS_PER_ROLE, PLAN_CHARACTERS
        )

    @cached_property
    def functions(self) -> RoleFunctions:
        return RoleFunctions(self.catalog, self.name, anonymous=self._anonymous)

    @cached_property
    def row_handlers(self) -> tuple[RowHandler, ...]:
        """The aggregates that make media types of rows."""
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

    def compile(
        self, shape: Hashable, size: int, compile_: Callable[[], tuple[Compiled, ...]]
    ) -> tuple[Compiled, ...]:
        """Return the statements of a shape, compiled at its first use.

        Statements too long to be cached are not prepared either: they would displace repeated ones.

        :param size: characters of the shape.
        :param compile_: makes the statements; its errors are not cached.
        """
        found = self.compiled.get(shape)
        if found is not None:
            self.figures.hits += 1
            return found
        self.figures.misses += 1
        compiled = compile_()
        length = sum(len(each.statement.text) for each in compiled)
        if size > LONGEST_CACHED_SHAPE or length > LONGEST_CACHED_STATEMENTS:
            return tuple([each.unprepared() for each in compiled])
        self.compiled.put(shape, compiled, size + length)
        return compiled

    def keep(self, key: Hashable, plan: StatementPlan, size: int) -> None:
        """Cache a plan, unless it is too long or its statements are not cached either.

        :param size: characters of what decides it.
        """
        if size <= LONGEST_CACHED_SHAPE and all(each.statement.prepared for each in plan.statements):
            self.plans.put(key, plan, size + sum(len(each.statement.text) for each in plan.statements))

    def planner(self, relation: Relation, selection: Selection) -> RowPlanner:
        """Return what turns a selection of rows that are read into the algebra."""
        return RowPlanner(self.tables, relation, selection, self.project)

    def media(
        self,
        request: ApiRequest,
        table: Table | None,
        *,
        raw: tuple[str, ...] = (),
        lines: bool = False,
    ) -> Media:
        """Return the media type of an answer that its client prefers of those available.

        :param table: of the rows of the answer, None when they are of no table.
        :param raw: media types that the one value of a function is as it stands.
        :param lines: whether the rows can be sent while they come.
        :raises ApiError: PGRST107 (406), none of the accepted media types is available.
        """
        # An aggregate of the database for a table takes whole rows only.
        whole = request.query.selection.shape.select in (None, "*")
        oid = table.oid if table is not None and whole else 0
        return negotiate(
            request.accept, Offers(self.row_handlers, oid, raw, lines, self.project.db_plan_enabled)
        )
