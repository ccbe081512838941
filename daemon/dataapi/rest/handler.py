"""Answers REST requests of one project: finds what a request is about, plans it and runs the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from dataapi.access.caller import Caller
from dataapi.access.gate import REST_PREFIX
from dataapi.access.long import LongRunner, LongTransactions
from dataapi.access.transaction import UnknownRole, catalog_for
from dataapi.catalog.freshness import UNKNOWN_NAMES, Refresh, as_it_is
from dataapi.catalog.model import Catalog
from dataapi.errors import ApiError
from dataapi.rest import batch, reading, writing
from dataapi.rest.context import Context, Planned, Streamed
from dataapi.rest.functions import calling
from dataapi.rest.request import preferences
from dataapi.rest.resolve.tables import Tables
from dataapi.rest.role import Figures, RoleView
from dataapi.rest.root import Root, plan_function
from dataapi.rest.running import Part, run_alone, run_together
from dataapi.rest.streaming import stream
from dataapi.settings import Project
from dataapi.threads import SharedWork
from dataapi.web.messages import Reply, Request

FUNCTIONS = "rpc/"
"""What the paths of functions begin with."""

LONG = 20_000
"""Bytes of a body beyond which it is read beside the reactor; one that brings a CSV can take a second."""
LONG_BATCH = 2_000
"""Bytes of a batch beyond which its requests are planned beside the reactor."""

_WRONG_METHOD = 405
_UNKNOWN = UNKNOWN_NAMES | {"PGRST200", "PGRST202", "PGRST204", "PGRST205"}

S = TypeVar("S")
T = TypeVar("T")


class RestHandler:
    """Answers REST requests.

    :param catalog: returns the snapshot that serves now, None while there is none.
    :param refresh: makes sure that a catalog is not outdated.
    :ivar figures: how often plans were there already.
    """

    def __init__(
        self,
        project: Project,
        runner: LongRunner,
        catalog: Callable[[], Catalog | None],
        refresh: Refresh = as_it_is,
    ) -> None:
        self._project = project
        self._refresh = refresh
        self._catalog = catalog
        self._transactions = LongTransactions(project, runner)
        self._tables: Tables | None = None
        self._roles: dict[str, RoleView] = {}
        self._root = Root(project)
        self._beside: SharedWork[object, Any] = SharedWork(lambda _request, _result: None)
        self.figures = Figures()

    async def answer(self, request: Request, caller: Caller) -> Reply:
        """Answer a request; raises ``ApiError`` for whatever a client may read of a failure.

        An unknown name may be one that nobody told us of: nothing has happened yet, so that the request is
        answered by a newer catalog where there is one.
        """
        catalog = await self._serving(caller)
        try:
            return await self._answer(request, caller, catalog)
        except ApiError as error:
            if error.code not in _UNKNOWN:
                raise
            newer = await self._refresh(catalog)
            if newer.is_like(catalog):
                raise
        return await self._answer(request, caller, await self._serving(caller))

    async def _answer(self, request: Request, caller: Caller, catalog: Catalog) -> Reply:
        if batch.is_batch(request):
            return await self._batch(request, caller, catalog)
        context = self._context(request, caller, catalog)
        request.mark("parse")
        try:
            return await self._answer_one(context)
        except ApiError as error:
            if error.status == _WRONG_METHOD and not any(name == "Allow" for name, _ in error.headers):
                error.headers += _allow(context)
            raise

    async def _answer_one(self, context: Context) -> Reply:
        request = context.request
        if not context.target and self._project.db_root_spec is None:
            return await self._described(context)
        planned = await self._done(len(request.body) > LONG, lambda: _planned(context))
        request.mark("plan")
        match planned:
            case Planned():
                return await run_alone(self._transactions, context, planned)
            case Streamed():
                return await stream(self._transactions, context, planned)
        return planned

    async def _described(self, context: Context) -> Reply:
        """Answer at the root."""
        if not context.reading:
            return await self._root.answer(context)
        await self._transactions.admit(context.catalog, context.request, context.caller)
        context.request.mark("transaction")
        reply = await self._root.answer(context)
        context.request.mark("plan")
        return reply

    async def _serving(self, caller: Caller) -> Catalog:
        """Return the catalog; what is wrong with a role that it does not know, PostgreSQL says itself."""
        catalog = self._catalog()
        try:
            return catalog_for(catalog, caller)
        except UnknownRole:
            await self._transactions.assume(caller.role)
            assert catalog is not None
            return catalog_for(await self._refresh(catalog), caller)

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
        if self._tables is None or not self._tables.catalog.is_like(catalog):
            self._tables = Tables(catalog)
            self._roles.clear()
        view = self._roles.get(name)
        if view is None:
            anonymous = name == self._project.db_anon_role
            view = RoleView(self._tables, name, self.figures, anonymous=anonymous)
            self._roles[name] = view
        return view

    async def _batch(self, request: Request, caller: Caller, catalog: Catalog) -> Reply:
        """Answer a batch: all of its requests are understood before the first one runs."""
        is_long = len(request.body) > LONG_BATCH
        requests = await self._done(is_long, lambda: batch.read(request))
        contexts = _each(requests, lambda each: self._context(each, caller, catalog))
        parts = await self._done(
            is_long, lambda: _each(contexts, lambda context: Part(context, _planned(context)))
        )
        request.mark("plan")
        return batch.answer(await run_together(self._transactions, request, caller, catalog, parts))

    async def _done(self, is_long: bool, work: Callable[[], T]) -> T:
        """Do a piece of work, a long one in a thread.

        One at a time, whoever goes away meanwhile, so that the reactor gets its turns.
        """
        if not is_long:
            return work()
        done: T = await self._beside.result(object(), work)
        return done


def _each(items: Iterable[S], make: Callable[[S], T]) -> list[T]:
    """Make something of each request of a batch; errors say of which one they are."""
    made = []
    for index, item in enumerate(items):
        try:
            made.append(make(item))
        except ApiError as error:
            error.index = index
            raise
    return made


def _planned(context: Context) -> Planned | Streamed | Reply:
    """Return the plan with the settings that the client prefers beside its own.

    :raises ApiError: PGRST122 (400), nothing else is wrong but a preference that nobody knows.
    """
    planned, preferred = _plan(context), context.preferences
    if isinstance(planned, Reply):
        return planned
    if preferred.unknown:
        raise preferences.not_followed(*preferred.unknown)
    if not preferred.settings:
        return planned
    return replace(planned, settings=planned.settings + preferred.settings)


def _plan(context: Context) -> Planned | Streamed | Reply:
    if not context.target and context.project.db_root_spec is not None:
        return plan_function(context, context.project.db_root_spec)
    if context.target.startswith(FUNCTIONS):
        return calling.plan(replace(context, target=context.target[len(FUNCTIONS) :]))
    if context.reading or context.request.method == "OPTIONS":
        return reading.plan(context)
    return writing.plan(context)


def _allow(context: Context) -> tuple[tuple[str, str], ...]:
    """Return the header that says which methods are taken, as an answer to OPTIONS does."""
    request = replace(context.request, method="OPTIONS", body=b"")
    try:
        options = _plan(replace(context, request=request))
    except ApiError:
        return ()
    assert isinstance(options, Reply)
    return options.headers


def target_of(path: str) -> str:
    """Return the table, or the function behind ``rpc/``, that a path names; "" for the root.

    :raises ApiError: PGRST125 (404), the path can be neither.
    """
    name = path[len(REST_PREFIX) :].removeprefix("/") if path.startswith(REST_PREFIX) else path
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
