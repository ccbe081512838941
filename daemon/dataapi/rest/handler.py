"""Handles the REST requests of one project: parses, plans, runs and responds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dataapi.auth.caller import Caller
from dataapi.auth.transaction import MultiMessageRunner, MultiMessageTransactions, UnknownRole, catalog_for
from dataapi.catalog.model import Catalog
from dataapi.catalog.reflect import OUTDATED_CODES, Refresh, Regrant, no_refresh, no_regrant
from dataapi.concurrency.tasks import WorkerThread
from dataapi.database.message import Bound
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request, StageEnd
from dataapi.rest import batch
from dataapi.rest.conditional import write_conditionally
from dataapi.rest.execute import Rows, execute
from dataapi.rest.parse.preferences import not_followed
from dataapi.rest.parse.request import ApiRequest, PlanInput, parse_request
from dataapi.rest.plan import call, read, write
from dataapi.rest.plan.model import AdaptedValues, Plan, StatementPlan, StreamPlan
from dataapi.rest.plan.role import PlanCacheFigures, RestRole
from dataapi.rest.plan.tables import CatalogTables, PrivilegeDenied
from dataapi.rest.respond import conditional_reply
from dataapi.rest.run_batch import Part, run_batch
from dataapi.rest.stream import stream
from dataapi.settings import Project
from dataapi.sql.dialect import dialect_of

if TYPE_CHECKING:
    from dataapi.rest.openapi.descriptions import Descriptions

LONG_BODY = 20_000
"""Maximum bytes of a body that the reactor's thread parses. Parsing the largest CSV can take a second."""
LONG_QUERY = 4_000
"""Maximum length of a query string that the reactor's thread parses and plans."""
LONG_BATCH = 2_000
"""Maximum bytes of a batch whose requests the reactor's thread parses and plans."""
LONG_NESTED = 2_000
"""Maximum bytes of a body with related rows that the reactor's thread plans."""

_MAX_REPLANS = 2
"""Maximum number of times to replan a request: once for a new name, and once for a new privilege."""
_METHOD_NOT_ALLOWED = 405
_OUTDATED = OUTDATED_CODES | {"PGRST200", "PGRST202", "PGRST204", "PGRST205"}

S = TypeVar("S")
T = TypeVar("T")


class RestHandler:
    """Handles REST requests.

    :param catalog: returns the current catalog, None before the first one is loaded.
    :param regrant: rereads a privilege that was denied, and returns the updated catalog.
    """

    def __init__(
        self,
        project: Project,
        runner: MultiMessageRunner,
        catalog: Callable[[], Catalog | None],
        refresh: Refresh = no_refresh,
        regrant: Regrant = no_regrant,
        worker: WorkerThread | None = None,
    ) -> None:
        self._project = project
        self._refresh = refresh
        self._regrant = regrant
        self._catalog = catalog
        self._transactions = MultiMessageTransactions(project, runner)
        self._served: Catalog | None = None
        self._tables: CatalogTables | None = None
        self._roles: dict[str, RestRole] = {}
        self._descriptions: Descriptions | None = None
        self._worker = worker or WorkerThread()
        self.figures = PlanCacheFigures()
        self.requests = 0

    async def handle(self, http: Request, caller: Caller) -> Reply:
        """Handle a request: parse, plan, run, respond.

        The catalog may lack a new name, type or grant. The request then fails without effect, and is planned
        again if there is a newer catalog.

        :raises ApiError: The request failed. The error has the form that clients see.
        """
        self.requests += 1
        catalog = self._catalog()
        if catalog is None or catalog is not self._served or caller.role not in self._roles:
            catalog = await self._serve(catalog, caller)
        parsed: ApiRequest | list[tuple[Request, ApiRequest]]
        if http.method == "POST" and batch.is_batch(http):
            parsed = await self._parse_batch(http, catalog)
        elif _is_long(http):
            parsed = await self._worker.run(parse_request, http, self._project, catalog.timezones)
        else:
            parsed = parse_request(http, self._project, catalog.timezones)
        http.context.report(StageEnd("parse", perf_counter()))
        replans = 0
        while True:
            try:
                if isinstance(parsed, ApiRequest):
                    return await self._respond(http, caller, parsed, catalog)
                return await self._respond_batch(http, caller, parsed, catalog)
            except ApiError as error:
                newer = (
                    await self._newer_catalog(catalog, caller, error) if replans < _MAX_REPLANS else catalog
                )
                if newer.has_same_content(catalog):
                    raise
            catalog = await self._serve(newer, caller)
            replans += 1

    async def _respond(self, http: Request, caller: Caller, request: ApiRequest, catalog: Catalog) -> Reply:
        if not request.input.target:
            return await self._describe(http, caller, request, catalog)
        role = self._roles[caller.role]
        try:
            if request.nested is not None:
                request = await self._with_groups(http, role, request)
            plan = role.cached(request.input) or await self._plan(http, role, request.input)
            if not isinstance(plan, Reply) and plan.adapted is not None:
                request = await self._adapt(http, request, plan.adapted)
            http.context.report(StageEnd("plan", perf_counter()))
            if isinstance(plan, StatementPlan):
                if plan.current is not None:
                    return await write_conditionally(
                        self._transactions, catalog, http, caller, request, plan, plan.current
                    )
                return await execute(
                    request, plan, _SingleMessageExecution(self._transactions, catalog, http, caller)
                )
            if isinstance(plan, StreamPlan):
                return await stream(self._transactions, catalog, http, caller, request, plan)
            return plan
        except ApiError as error:
            if error.status == _METHOD_NOT_ALLOWED and not any(name == "Allow" for name, _ in error.headers):
                raise error.replaced(headers=error.headers + _allow(role, request.input)) from error
            raise

    async def _plan(self, http: Request, role: RestRole, plan_input: PlanInput) -> Plan:
        if _is_long(http) or (plan_input.rows.groups and len(http.body) > LONG_NESTED):
            return await self._worker.run(make_plan, role, plan_input)
        return make_plan(role, plan_input)

    async def _with_groups(self, http: Request, role: RestRole, request: ApiRequest) -> ApiRequest:
        from dataapi.rest.plan.nested import with_groups  # noqa: PLC0415 - only if configured

        if len(http.body) > LONG_NESTED:
            return await self._worker.run(with_groups, role, request)
        return with_groups(role, request)

    async def _adapt(self, http: Request, request: ApiRequest, adapted: AdaptedValues) -> ApiRequest:
        if _is_long(http):
            return request._replace(values=await self._worker.run(adapted.adapt, request.values))
        return request._replace(values=adapted.adapt(request.values))

    async def _serve(self, catalog: Catalog | None, caller: Caller) -> Catalog:
        try:
            served = catalog_for(catalog, caller)
        except UnknownRole:
            served = await self._catalog_with_role(catalog, caller)
        if self._tables is None or not served.has_same_content(self._served):
            self._tables = CatalogTables(served)
            self._roles.clear()
        self._served = served
        if caller.role not in self._roles:
            self._roles[caller.role] = RestRole(self._project, self._tables, caller.role, self.figures)
        return served

    async def _newer_catalog(self, catalog: Catalog, caller: Caller, error: ApiError) -> Catalog:
        if isinstance(error, PrivilegeDenied):
            return await self._regrant(catalog, caller.role, error.item)
        return await self._refresh(catalog) if error.code in _OUTDATED else catalog

    async def _catalog_with_role(self, catalog: Catalog | None, caller: Caller) -> Catalog:
        """Return a newer catalog with the caller's role.

        If the role cannot be assumed, PostgreSQL's error is raised.
        """
        await self._transactions.assume(caller.role)
        assert catalog is not None, "UnknownRole is only raised if a catalog is loaded"
        return catalog_for(await self._refresh(catalog), caller)

    async def _describe(self, http: Request, caller: Caller, request: ApiRequest, catalog: Catalog) -> Reply:
        if request.input.reads:
            await self._transactions.run_pre_request(catalog, http, caller)
            http.context.report(StageEnd("transaction", perf_counter()))
        if self._descriptions is None:
            from dataapi.rest.openapi.descriptions import Descriptions  # noqa: PLC0415 - few requests

            self._descriptions = Descriptions(self._project)
        reply = await self._descriptions.respond(http, request, catalog, caller.role)
        http.context.report(StageEnd("plan", perf_counter()))
        if request.preconditions is not None:
            return conditional_reply(request.preconditions, reply, exists=True)
        return reply

    # ------------------------------------------------------------ batches

    async def _parse_batch(self, http: Request, catalog: Catalog) -> list[tuple[Request, ApiRequest]]:
        def parse() -> list[tuple[Request, ApiRequest]]:
            return _map_requests(
                batch.read(http), lambda each: (each, parse_request(each, self._project, catalog.timezones))
            )

        return await self._worker.run(parse) if len(http.body) > LONG_BATCH else parse()

    async def _respond_batch(
        self, http: Request, caller: Caller, requests: list[tuple[Request, ApiRequest]], catalog: Catalog
    ) -> Reply:
        role = self._roles[caller.role]

        def plan() -> list[Part]:
            return _map_requests(requests, partial(_part, role))

        parts = await self._worker.run(plan) if len(http.body) > LONG_BATCH else plan()
        http.context.report(StageEnd("plan", perf_counter()))
        max_bytes = self._project.max_answer
        return batch.combined_reply(
            await run_batch(self._transactions, http, caller, catalog, parts, max_bytes)
        )


class _SingleMessageExecution(NamedTuple):
    transactions: MultiMessageTransactions
    catalog: Catalog
    http: Request
    caller: Caller

    async def run(self, plan: StatementPlan, statements: tuple[Bound, ...]) -> Rows:
        return await self.transactions.run(
            self.catalog, self.http, self.caller, statements,
            read_only=plan.read_only, settings=plan.settings, by_replica=plan.by_replica,
        )  # fmt: skip

    async def estimate(self, statement: Bound) -> int:
        dialect = dialect_of(self.catalog)
        [result] = await self.transactions.explain(
            self.catalog, self.http, self.caller, (statement,), dialect.planner_settings
        )
        return dialect.planned_rows(result["plan"])


def _is_long(http: Request) -> bool:
    return len(http.body) > LONG_BODY or len(http.query) > LONG_QUERY


def _map_requests(items: Iterable[S], make: Callable[[S], T]) -> list[T]:
    results = []
    for index, item in enumerate(items):
        try:
            results.append(make(item))
        except ApiError as error:
            raise error.replaced(index=index) from error
    return results


def _part(role: RestRole, parsed: tuple[Request, ApiRequest]) -> Part:
    http, request = parsed
    if request.nested is not None:
        from dataapi.rest.plan.nested import with_groups  # noqa: PLC0415 - only if configured

        request = with_groups(role, request)
    plan = role.cached(request.input) or make_plan(role, request.input)
    if not isinstance(plan, Reply) and plan.adapted is not None:
        request = request._replace(values=plan.adapted.adapt(request.values))
    return Part(http, request, plan)


def make_plan(role: RestRole, plan_input: PlanInput) -> Plan:
    """Plan a request and cache the plan.

    :raises ApiError: The request is invalid. PGRST122 (400) if an unknown preference is the only problem.
    """
    plan = _plan(role, plan_input)
    if isinstance(plan, Reply):
        return plan
    preferences = plan_input.preferences
    if preferences.unknown:
        raise not_followed(*preferences.unknown)
    return role.cache(plan_input, plan._replace(settings=plan.settings + preferences.settings))


def _plan(role: RestRole, plan_input: PlanInput) -> Plan:
    if plan_input.is_call:
        return call.plan(role, plan_input)
    if plan_input.reads or plan_input.method == "OPTIONS":
        return read.plan(role, plan_input)
    return write.plan(role, plan_input)


def _allow(role: RestRole, plan_input: PlanInput) -> tuple[tuple[str, str], ...]:
    try:
        options = _plan(role, plan_input._replace(method="OPTIONS"))
    except ApiError:
        return ()
    assert isinstance(options, Reply)
    return options.headers
