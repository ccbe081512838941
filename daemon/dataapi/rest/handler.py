"""Answers the REST requests of one project: parses, plans, runs and responds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import TypeVar

from dataapi.auth.caller import Caller
from dataapi.auth.transaction import MultiMessageRunner, MultiMessageTransactions, UnknownRole, catalog_for
from dataapi.catalog.model import Catalog
from dataapi.catalog.reflect import OUTDATED, Refresh, Regrant, as_granted, as_it_is
from dataapi.concurrency.tasks import Worker
from dataapi.database.message import Bound
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request, StageEnd
from dataapi.rest import batch
from dataapi.rest.execute import execute
from dataapi.rest.openapi.descriptions import Descriptions
from dataapi.rest.parse.preferences import not_followed
from dataapi.rest.parse.request import ApiRequest, parse_request
from dataapi.rest.plan import call, read, write
from dataapi.rest.plan.role import BoundPlan, PlanCacheFigures, Planned, RestRole, StreamPlan
from dataapi.rest.plan.tables import CatalogTables, PrivilegeDenied
from dataapi.rest.run_batch import run_batch
from dataapi.rest.stream import stream
from dataapi.settings import Project
from dataapi.sql.dialect import dialect_of

LONG = 20_000
"""Bytes of a body beyond which it is parsed in a thread; a CSV of the largest size can take a second."""
LONG_QUERY = 4_000
"""Characters of a query string beyond which it is parsed and planned in a thread."""
LONG_BATCH = 2_000
"""Bytes of a batch beyond which its requests are parsed and planned in a thread."""

_NEWER_CATALOGS = 2
"""How often a request is answered again: a new name may be followed by a new privilege for it."""
_WRONG_METHOD = 405
_OUTDATED = OUTDATED | {"PGRST200", "PGRST202", "PGRST204", "PGRST205"}

S = TypeVar("S")
T = TypeVar("T")


class RestHandler:
    """Answers REST requests.

    :param catalog: returns the current snapshot, None before the first one.
    :param refresh: makes sure that a catalog is not outdated.
    :param worker: runs what takes long.
    :param regrant: makes sure that a privilege that a catalog denies was not granted since.
    :ivar figures: hits and misses of the cache of statements.
    :ivar requests: requests that have come.
    """

    def __init__(
        self,
        project: Project,
        runner: MultiMessageRunner,
        catalog: Callable[[], Catalog | None],
        refresh: Refresh = as_it_is,
        regrant: Regrant = as_granted,
        worker: Worker | None = None,
    ) -> None:
        self._project = project
        self._refresh = refresh
        self._regrant = regrant
        self._catalog = catalog
        self._transactions = MultiMessageTransactions(project, runner)
        self._served: Catalog | None = None
        self._tables: CatalogTables | None = None
        self._roles: dict[str, RestRole] = {}
        self._descriptions = Descriptions(project)
        self._worker = worker or Worker()
        self.figures = PlanCacheFigures()
        self.requests = 0

    async def handle(self, http: Request, caller: Caller) -> Reply:
        """Answer a request: parse, plan, bind, run, respond.

        A name, a type and a grant may be newer than the catalog: nothing has been done yet, so the
        request is answered again by a newer catalog where there is one.

        :raises ApiError: a failure, as the client may read it.
        """
        self.requests += 1
        catalog = self._catalog()
        if catalog is None or catalog is not self._served or caller.role not in self._roles:
            catalog = await self._serve(catalog, caller)
        if http.method == "POST" and batch.is_batch(http):
            answer = partial(self._answer_batch, http, caller, await self._parsed_batch(http, catalog))
        else:
            parse = partial(parse_request, http, self._project, catalog.timezones)
            request = await self._worker.run(parse) if _is_long(http) else parse()
            answer = partial(self._answer, http, caller, request)
        http.context.report(StageEnd("parse", perf_counter()))
        for _ in range(_NEWER_CATALOGS):
            try:
                return await answer(catalog)
            except ApiError as error:
                newer = await self._newer(catalog, caller, error)
                if newer.is_like(catalog):
                    raise
            catalog = await self._serve(newer, caller)
        return await answer(catalog)

    async def _answer(self, http: Request, caller: Caller, request: ApiRequest, catalog: Catalog) -> Reply:
        if not request.target:
            return await self._describe(http, caller, request, catalog)
        role = self._roles[caller.role]
        try:
            make = partial(plan, role, request)
            planned = await self._worker.run(make) if _is_long(http) else make()
            http.context.report(StageEnd("plan", perf_counter()))
            if isinstance(planned, Reply):
                return planned
            if isinstance(planned, StreamPlan):
                return await stream(self._transactions, catalog, http, caller, planned)
            run = partial(
                self._transactions.run, catalog, http, caller, read_only=planned.plan.read_only,
                settings=planned.plan.settings, by_replica=planned.plan.by_replica,
            )  # fmt: skip
            estimate = partial(self._estimate, catalog, http, caller)
            return await execute(request, planned, run, estimate)
        except ApiError as error:
            if error.status == _WRONG_METHOD and not any(name == "Allow" for name, _ in error.headers):
                raise error.replaced(headers=error.headers + _allow(role, request)) from error
            raise

    async def _estimate(self, catalog: Catalog, http: Request, caller: Caller, statement: Bound) -> int:
        dialect = dialect_of(catalog)
        [found] = await self._transactions.explain(catalog, http, caller, (statement,), dialect.of_planner)
        return dialect.planned_rows(found["plan"])

    async def _serve(self, catalog: Catalog | None, caller: Caller) -> Catalog:
        """Return a catalog that has the caller's role, with which the role is ready; raises ``ApiError``."""
        try:
            served = catalog_for(catalog, caller)
        except UnknownRole:
            served = await self._with_role(catalog, caller)
        if self._tables is None or not served.is_like(self._served):
            self._tables = CatalogTables(served)
            self._roles.clear()
        self._served = served
        if caller.role not in self._roles:
            self._roles[caller.role] = RestRole(self._project, self._tables, caller.role, self.figures)
        return served

    async def _newer(self, catalog: Catalog, caller: Caller, error: ApiError) -> Catalog:
        """Return the catalog that serves, where an error may be one of an outdated catalog."""
        if isinstance(error, PrivilegeDenied):
            return await self._regrant(catalog, caller.role, error.item)
        return await self._refresh(catalog) if error.code in _OUTDATED else catalog

    async def _with_role(self, catalog: Catalog | None, caller: Caller) -> Catalog:
        """Return a catalog that has the caller's role; PostgreSQL itself reports why it cannot be assumed."""
        await self._transactions.assume(caller.role)
        assert catalog is not None, "without a catalog no role is looked for"
        return catalog_for(await self._refresh(catalog), caller)

    async def _describe(self, http: Request, caller: Caller, request: ApiRequest, catalog: Catalog) -> Reply:
        """Answer a request of the root with the description of the API."""
        if request.reads:
            await self._transactions.run_pre_request(catalog, http, caller)
            http.context.report(StageEnd("transaction", perf_counter()))
        reply = await self._descriptions.answer(http, request, catalog, caller.role)
        http.context.report(StageEnd("plan", perf_counter()))
        return reply

    # ------------------------------------------------------------ batches

    async def _parsed_batch(self, http: Request, catalog: Catalog) -> list[tuple[Request, ApiRequest]]:
        def parse() -> list[tuple[Request, ApiRequest]]:
            return _each(
                batch.read(http), lambda each: (each, parse_request(each, self._project, catalog.timezones))
            )

        return await self._worker.run(parse) if len(http.body) > LONG_BATCH else parse()

    async def _answer_batch(
        self, http: Request, caller: Caller, requests: list[tuple[Request, ApiRequest]], catalog: Catalog
    ) -> Reply:
        """Answer a batch: all of its requests are planned before the first one runs."""
        role = self._roles[caller.role]
        work = partial(_each, requests, lambda each: (*each, plan(role, each[1])))
        parts = await self._worker.run(work) if len(http.body) > LONG_BATCH else work()
        http.context.report(StageEnd("plan", perf_counter()))
        max_bytes = self._project.max_answer
        return batch.answer(await run_batch(self._transactions, http, caller, catalog, parts, max_bytes))


def _is_long(http: Request) -> bool:
    """Return whether a request may take long to parse and plan, in which others must be answered."""
    return len(http.body) > LONG or len(http.query) > LONG_QUERY


def _each(items: Iterable[S], make: Callable[[S], T]) -> list[T]:
    """Apply a function to each request of a batch; errors have the index of theirs."""
    results = []
    for index, item in enumerate(items):
        try:
            results.append(make(item))
        except ApiError as error:
            raise error.replaced(index=index) from error
    return results


def plan(role: RestRole, request: ApiRequest) -> Planned:
    """Return the plan of a request, with the settings that the client prefers besides its own.

    That of a table may be one that was made before: what decides it is all in the key, and its values are
    bound afterwards.

    :raises ApiError: PGRST122 (400), a preference is unknown, and nothing else is wrong.
    """
    query, rows, key = request.query, request.rows, None
    if not request.is_call and request.objects is None:
        key = (
            *(request.method, request.schema, request.target, query.selection.shape, request.accept),
            *(request.preferences, query.columns, query.conflict, rows.columns, rows.many, rows.as_text),
        )
        known = role.plans.get(key)
        if known is not None:
            role.figures.hits += 1
            return BoundPlan(known, query.values if known.read_only else write.values_of(request, rows))
    planned = _plan(role, request)
    if isinstance(planned, Reply):
        return planned
    if request.preferences.unknown:
        raise not_followed(*request.preferences.unknown)
    settings = request.preferences.settings
    if isinstance(planned, StreamPlan):
        return planned._replace(settings=planned.settings + settings)
    made = planned.plan._replace(settings=planned.plan.settings + settings)
    if key is not None:
        names = [*rows.columns, *(query.columns or ()), *(query.conflict or ())]
        role.keep(key, made, query.selection.size + len(request.accept or "") + sum(map(len, names)))
    return BoundPlan(made, planned.values)


def _plan(role: RestRole, request: ApiRequest) -> Planned:
    if request.is_call:
        return call.plan(role, request)
    if request.reads or request.method == "OPTIONS":
        return read.plan(role, request)
    return write.plan(role, request)


def _allow(role: RestRole, request: ApiRequest) -> tuple[tuple[str, str], ...]:
    """Return the ``Allow`` header of an answer to OPTIONS."""
    try:
        options = _plan(role, request._replace(method="OPTIONS"))
    except ApiError:
        return ()
    assert isinstance(options, Reply)
    return options.headers
