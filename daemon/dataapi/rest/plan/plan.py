"""A request with what it is planned against, and what planning gives: statements and their reply."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from dataapi.auth.caller import Caller
from dataapi.catalog.model import Catalog, Table
from dataapi.concurrency.cache import BoundedCache
from dataapi.database.message import Bound
from dataapi.http.messages import Reply, Request
from dataapi.rest.negotiation import Media, Offers, negotiate
from dataapi.rest.parse.preferences import Preferences
from dataapi.rest.parse.query import Selection
from dataapi.rest.plan.functions import RoleFunctions
from dataapi.rest.plan.rows import RowPlanner
from dataapi.rest.plan.tables import CatalogTables, RoleTables
from dataapi.rest.statements import ResultRow
from dataapi.settings import Project
from dataapi.sql.statement import Compiled

PLANS_PER_ROLE = 500
"""Compiled statements that are cached for one role."""
LONGEST_CACHED_SHAPE = 8000
"""Characters of a shape beyond which its statements are not cached, to bound the memory."""
LONGEST_CACHED_STATEMENTS = 100_000
"""Characters of statements beyond which they are not cached."""
PLAN_CHARACTERS = 4_000_000
"""Characters of all statements that are cached for one role, their shapes included."""


class PlanCacheFigures:
    """Hits and misses of the cache of statements; they outlive catalogs."""

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0


class RestRole:
    """One role's tables, functions and compiled statements, for one catalog.

    :param anonymous: whether it is the role of anonymous callers.
    :ivar plans: the cached statements, by their shapes.
    """

    def __init__(
        self, tables: CatalogTables, role: str, figures: PlanCacheFigures, *, anonymous: bool
    ) -> None:
        self.name = role
        self.catalog = tables.catalog
        self.tables = RoleTables(tables, role, anonymous=anonymous)
        self.functions = RoleFunctions(tables.catalog, role, anonymous=anonymous)
        self._figures = figures
        self.plans: BoundedCache[Hashable, tuple[Compiled, ...]] = BoundedCache(
            PLANS_PER_ROLE, PLAN_CHARACTERS
        )

    def plan(
        self, shape: Hashable, size: int, compile_: Callable[[], tuple[Compiled, ...]]
    ) -> tuple[Compiled, ...]:
        """Return the statements of a shape, compiled at its first use.

        What is too long to be cached is not prepared either: it would displace what comes again.

        :param size: characters of the shape.
        :param compile_: makes the statements; its errors are not cached.
        """
        found = self.plans.get(shape)
        if found is not None:
            self._figures.hits += 1
            return found
        self._figures.misses += 1
        compiled = compile_()
        length = sum(len(each.statement.text) for each in compiled)
        if size > LONGEST_CACHED_SHAPE or length > LONGEST_CACHED_STATEMENTS:
            return tuple([each.unprepared() for each in compiled])
        self.plans.put(shape, compiled, size + length)
        return compiled


@dataclass(frozen=True, slots=True)
class RestRequest:
    """A request with everything that its plan depends on; planning is pure.

    :ivar role: what the caller's role sees of the catalog, with the plans made for it.
    :ivar target: the name of the table or function, "" for the root.
    :ivar schema: the exposed schema that the request chose.
    """

    http: Request
    caller: Caller
    catalog: Catalog
    role: RestRole
    project: Project
    target: str
    schema: str
    preferences: Preferences

    @property
    def reading(self) -> bool:
        """Whether the method only reads."""
        return self.http.method in ("GET", "HEAD")

    @property
    def profile(self) -> tuple[tuple[str, str], ...]:
        """The ``Content-Profile`` header, where several schemas are exposed."""
        return (("Content-Profile", self.schema),) if len(self.project.db_schemas) > 1 else ()

    def planner(self, selection: Selection) -> RowPlanner:
        """Return what turns a selection of rows that are read into the algebra."""
        project = self.project
        return RowPlanner(
            self.role.tables, selection, project.db_max_rows, aggregates=project.db_aggregates_enabled
        )


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """Statements to run, and how their result becomes the reply.

    :ivar statements: run in order in one transaction; the last one's row is an ``ResultRow``.
    :ivar finish: makes the reply; raises ``ApiError`` where the row is not an answer (such as PGRST116).
    :ivar settings: further settings of the transaction, ``(name, value)``.
    :ivar media: the negotiated media type; with its ``explain`` the last statement's plan is the answer.
    :ivar estimated: a statement without its page, whose planned number of rows becomes the row's total
        when that is None or beyond ``estimated_beyond``.
    """

    statements: tuple[Bound, ...]
    read_only: bool
    finish: Callable[[ResultRow], Reply]
    settings: tuple[tuple[str, str], ...] = ()
    estimated: Bound | None = None
    estimated_beyond: int | None = None
    media: Media | None = None


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A read whose rows are sent while they come.

    :ivar statement: returns one text per row: the bytes to send.
    :ivar head: the reply without its body.
    :ivar prefix: what is sent before the first row, such as a header line.
    :ivar offset: how many rows of the whole are skipped, for ``Content-Range``.
    """

    statement: Bound
    head: Reply
    prefix: bytes = b""
    settings: tuple[tuple[str, str], ...] = ()
    offset: int = 0


def negotiate_media(
    request: RestRequest,
    table: Table | None,
    *,
    whole: bool = True,
    raw: tuple[str, ...] = (),
    lines: bool = False,
) -> Media:
    """Return the form that the request's client likes best of those that there are.

    :param table: what the rows of the answer are of, None when they are of no table.
    :param whole: whether rows are answered whole, because nothing was selected of them:
        aggregates of the database for a table take nothing else.
    :param raw: media types that the one value of a function is as it stands.
    :param lines: whether the rows can be sent while they come.
    :raises ApiError: PGRST107 (406), none of the accepted forms is available.
    """
    oid = table.oid if table is not None and whole else 0
    offers = Offers(request.role.functions.row_handlers, oid, raw, lines, request.project.db_plan_enabled)
    return negotiate(request.http.headers.get("accept"), offers)
