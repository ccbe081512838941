"""Answers REST requests of one project: finds what a request is about, plans it and runs the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dataapi.access.caller import Caller
from dataapi.access.gate import REST_PREFIX
from dataapi.access.long import LongRunner, LongTransactions
from dataapi.access.transaction import catalog_for
from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound
from dataapi.errors import ApiError, DatabaseError
from dataapi.query.answers import Answered
from dataapi.rest import calling, preferences, reading, refusals, writing
from dataapi.rest.context import Context, Planned, Streamed
from dataapi.rest.explaining import explaining, plan_reply
from dataapi.rest.role import Figures, RoleView
from dataapi.rest.root import Root, plan_function
from dataapi.rest.streaming import stream
from dataapi.rest.tables import Tables
from dataapi.settings import Project
from dataapi.web.messages import Reply, Request

FUNCTIONS = "rpc/"
"""What the paths of functions begin with."""


class RestHandler:
    """Answers REST requests.

    :param catalog: returns the snapshot that serves now, None while there is none.
    :ivar figures: how often plans were there already.
    """

    def __init__(self, project: Project, runner: LongRunner, catalog: Callable[[], Catalog | None]) -> None:
        self._project = project
        self._catalog = catalog
        self._transactions = LongTransactions(project, runner)
        self._tables: Tables | None = None
        self._roles: dict[str, RoleView] = {}
        self._root = Root(project)
        self.figures = Figures()

    async def answer(self, request: Request, caller: Caller) -> Reply:
        """Answer a request; raises ``ApiError`` for whatever a client may read of a failure."""
        catalog = catalog_for(self._catalog(), caller)
        context = self._context(request, caller, catalog)
        request.mark("parse")
        if not context.target and self._project.db_root_spec is None:
            return await self._root.answer(context)
        planned = _with_preferred(context, _plan(context))
        request.mark("plan")
        match planned:
            case Planned():
                return await self._run(context, planned)
            case Streamed():
                return stream(self._transactions, context, planned)
        return planned

    def _context(self, request: Request, caller: Caller, catalog: Catalog) -> Context:
        schema = schema_of(request, self._project.db_schemas)
        target = target_of(request.path)
        preferred = preferences.read(
            request.headers.get("prefer"),
            catalog.timezones,
            overrides_end=self._project.db_tx_end.allows_override,
        )
        role = self._role(catalog, caller.role)
        return Context(request, caller, catalog, role, self._project, target, schema, preferred)

    def _role(self, catalog: Catalog, name: str) -> RoleView:
        if self._tables is None or self._tables.catalog is not catalog:
            self._tables = Tables(catalog)
            self._roles.clear()
        view = self._roles.get(name)
        if view is None:
            view = self._roles[name] = RoleView(self._tables, name, self.figures)
        return view

    async def _run(self, context: Context, planned: Planned) -> Reply:
        media = planned.media
        if media is not None and media.explain is not None:
            explained = replace(planned, statements=explaining(planned.statements, media.explain))
            return plan_reply(context, media, await self._rows(context, explained))
        [row] = await self._rows(context, planned)
        answered = Answered.of(row)
        beyond = planned.estimated_beyond
        if planned.estimated is not None and (
            answered.total is None or (beyond is not None and answered.total > beyond)
        ):
            answered = replace(answered, total=await self._estimate(context, planned.estimated))
        return planned.finish(answered)

    async def _rows(self, context: Context, planned: Planned) -> list[tuple[Any, ...]]:
        """Run the statements and return the last one's rows."""
        try:
            rows = await self._transactions.run(
                context.catalog,
                context.request,
                context.caller,
                planned.statements,
                read_only=planned.read_only,
                settings=planned.settings,
            )
        except DatabaseError as error:
            raise refusals.told(error) from None
        context.request.mark("transaction")
        return rows

    async def _estimate(self, context: Context, statement: Bound) -> int:
        """Return how many rows the planner expects of a statement."""
        [explained] = await self._transactions.explain(
            context.catalog, context.request, context.caller, (statement,)
        )
        return int(explained["plan"][0]["Plan"]["Plan Rows"])


def _plan(context: Context) -> Planned | Streamed | Reply:
    if not context.target and context.project.db_root_spec is not None:
        return plan_function(context, context.project.db_root_spec)
    if context.target.startswith(FUNCTIONS):
        return calling.plan(replace(context, target=context.target[len(FUNCTIONS) :]))
    if context.reading or context.request.method == "OPTIONS":
        return reading.plan(context)
    return writing.plan(context)


def _with_preferred(context: Context, planned: Planned | Streamed | Reply) -> Planned | Streamed | Reply:
    """Return the plan with the settings that the client prefers beside its own."""
    preferred = context.preferences.settings
    if not preferred or isinstance(planned, Reply):
        return planned
    return replace(planned, settings=planned.settings + preferred)


def target_of(path: str) -> str:
    """Return the table, or the function behind ``rpc/``, that a path names; "" for the root.

    :raises ApiError: PGRST125 (404), the path can be neither.
    """
    name = path[len(REST_PREFIX) :].strip("/") if path.startswith(REST_PREFIX) else path
    if "/" in name.removeprefix(FUNCTIONS) or name == FUNCTIONS:
        raise ApiError(404, "PGRST125", "Invalid path specified in request URL")
    return name


def schema_of(request: Request, schemas: tuple[str, ...]) -> str:
    """Return the exposed schema that a request asks for, the first one when it asks for none.

    :raises ApiError: PGRST106 (406), the schema is not exposed.
    """
    header = "accept-profile" if request.method in ("GET", "HEAD", "OPTIONS") else "content-profile"
    asked = request.headers.get(header)
    if asked is None:
        return schemas[0]
    if asked not in schemas:
        hint = f"Only the following schemas are exposed: {', '.join(schemas)}"
        raise ApiError(406, "PGRST106", f"Invalid schema: {asked}", hint=hint)
    return asked
