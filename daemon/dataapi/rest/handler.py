"""Answers the REST requests of one project: parses, plans, runs and responds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from dataapi.auth.caller import REST_PREFIX, Caller
from dataapi.auth.multi_message import MultiMessageRunner, MultiMessageTransactions
from dataapi.auth.transaction import UnknownRole, catalog_for
from dataapi.catalog.model import Catalog
from dataapi.catalog.reflect import UNKNOWN_NAMES, Refresh, as_it_is
from dataapi.concurrency.cache import BoundedCache
from dataapi.concurrency.long_work import Naps, SharedWork
from dataapi.http.errors import ApiError
from dataapi.http.headers import CALLER
from dataapi.http.messages import Reply, Request
from dataapi.rest import batch, respond
from dataapi.rest.execute import BatchPart, run_batch, run_plan, stream
from dataapi.rest.openapi.description import Version, describe, negotiate_description, with_address
from dataapi.rest.parse import preferences
from dataapi.rest.plan import call, read, write
from dataapi.rest.plan.plan import PlanCacheFigures, RestRequest, RestRole, StatementPlan, StreamPlan
from dataapi.rest.plan.tables import CatalogTables
from dataapi.settings import Project

FUNCTIONS = "rpc/"
"""What the paths of functions begin with."""

LONG = 20_000
"""Bytes of a body beyond which it is parsed in a thread; a CSV of the largest size can take a second."""
LONG_BATCH = 2_000
"""Bytes of a batch beyond which its requests are planned in a thread."""

_ALLOW = ("Allow", "OPTIONS,GET,HEAD")
_WRONG_METHOD = 405
_UNKNOWN = UNKNOWN_NAMES | {"PGRST200", "PGRST202", "PGRST204", "PGRST205"}

DESCRIPTIONS = 64
"""Descriptions that are cached."""
DESCRIPTION_BYTES = 50_000_000
"""Bytes of the descriptions that are cached."""

S = TypeVar("S")
T = TypeVar("T")


class RestHandler:
    """Answers REST requests.

    :param catalog: returns the current snapshot, None before the first one.
    :param refresh: makes sure that a catalog is not outdated.
    :ivar figures: hits and misses of the cache of statements.
    """

    def __init__(
        self,
        project: Project,
        runner: MultiMessageRunner,
        catalog: Callable[[], Catalog | None],
        refresh: Refresh = as_it_is,
    ) -> None:
        self._project = project
        self._refresh = refresh
        self._catalog = catalog
        self._transactions = MultiMessageTransactions(project, runner)
        self._tables: CatalogTables | None = None
        self._roles: dict[str, RestRole] = {}
        self._descriptions = Descriptions(project)
        self._long_work: SharedWork[object, Any] = SharedWork(lambda _request, _result: None)
        self.figures = PlanCacheFigures()

    async def answer(self, request: Request, caller: Caller) -> Reply:
        """Answer a request; raises ``ApiError`` for failures that the client may read.

        An unknown name may be newer than the catalog: nothing has been done yet, so the request is
        answered again by a newer catalog if there is one.
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
        parsed = self._parse(request, caller, catalog)
        request.mark("parse")
        try:
            return await self._answer_one(parsed)
        except ApiError as error:
            if error.status == _WRONG_METHOD and not any(name == "Allow" for name, _ in error.headers):
                error.headers += _allow(parsed)
            raise

    async def _answer_one(self, parsed: RestRequest) -> Reply:
        request = parsed.http
        if not parsed.target and self._project.db_root_spec is None:
            return await self._described(parsed)
        planned = await self._run(len(request.body) > LONG, lambda: _planned(parsed))
        request.mark("plan")
        match planned:
            case StatementPlan():
                return await run_plan(self._transactions, parsed, planned)
            case StreamPlan():
                return await stream(self._transactions, parsed, planned)
        return planned

    async def _described(self, parsed: RestRequest) -> Reply:
        """Answer at the root."""
        if not parsed.reading:
            return await self._descriptions.answer(parsed)
        await self._transactions.run_pre_request(parsed.catalog, parsed.http, parsed.caller)
        parsed.http.mark("transaction")
        reply = await self._descriptions.answer(parsed)
        parsed.http.mark("plan")
        return reply

    async def _serving(self, caller: Caller) -> Catalog:
        """Return the catalog; PostgreSQL itself reports what is wrong with an unknown role."""
        catalog = self._catalog()
        try:
            return catalog_for(catalog, caller)
        except UnknownRole:
            await self._transactions.assume(caller.role)
            assert catalog is not None
            return catalog_for(await self._refresh(catalog), caller)

    def _parse(self, request: Request, caller: Caller, catalog: Catalog) -> RestRequest:
        schema = schema_of(request, self._project.db_schemas)
        target = target_of(request.path)
        preferred = preferences.read(
            request.headers.get("prefer"),
            catalog.timezones,
            overrides_end=self._project.db_tx_end.allows_override,
        )
        role = self._role(catalog, caller.role)
        return RestRequest(request, caller, catalog, role, self._project, target, schema, preferred)

    def _role(self, catalog: Catalog, name: str) -> RestRole:
        if self._tables is None or not self._tables.catalog.is_like(catalog):
            self._tables = CatalogTables(catalog)
            self._roles.clear()
        view = self._roles.get(name)
        if view is None:
            anonymous = name == self._project.db_anon_role
            view = RestRole(self._tables, name, self.figures, anonymous=anonymous)
            self._roles[name] = view
        return view

    async def _batch(self, request: Request, caller: Caller, catalog: Catalog) -> Reply:
        """Answer a batch: all of its requests are planned before the first one runs."""
        is_long = len(request.body) > LONG_BATCH
        requests = await self._run(is_long, lambda: batch.read(request))
        parsed_requests = _each(requests, lambda each: self._parse(each, caller, catalog))
        parts = await self._run(
            is_long, lambda: _each(parsed_requests, lambda parsed: BatchPart(parsed, _planned(parsed)))
        )
        request.mark("plan")
        return batch.answer(await run_batch(self._transactions, request, caller, catalog, parts))

    async def _run(self, is_long: bool, work: Callable[[], T]) -> T:
        """Do a piece of work, a long one in a thread.

        One at a time, even if a client disconnects, so that the reactor gets its turns.
        """
        if not is_long:
            return work()
        done: T = await self._long_work.result(object(), work)
        return done


def _each(items: Iterable[S], make: Callable[[S], T]) -> list[T]:
    """Apply a function to each request of a batch; errors have the index of theirs."""
    results = []
    for index, item in enumerate(items):
        try:
            results.append(make(item))
        except ApiError as error:
            error.index = index
            raise
    return results


def _planned(parsed: RestRequest) -> StatementPlan | StreamPlan | Reply:
    """Return the plan with the settings that the client prefers besides its own.

    :raises ApiError: PGRST122 (400), a preference is unknown, and nothing else is wrong.
    """
    planned, preferred = _plan(parsed), parsed.preferences
    if isinstance(planned, Reply):
        return planned
    if preferred.unknown:
        raise preferences.not_followed(*preferred.unknown)
    if not preferred.settings:
        return planned
    return replace(planned, settings=planned.settings + preferred.settings)


def _plan(parsed: RestRequest) -> StatementPlan | StreamPlan | Reply:
    if not parsed.target and parsed.project.db_root_spec is not None:
        return call.plan_root(parsed, parsed.project.db_root_spec)
    if parsed.target.startswith(FUNCTIONS):
        return call.plan(replace(parsed, target=parsed.target[len(FUNCTIONS) :]))
    if parsed.reading or parsed.http.method == "OPTIONS":
        return read.plan(parsed)
    return write.plan(parsed)


def _allow(parsed: RestRequest) -> tuple[tuple[str, str], ...]:
    """Return the ``Allow`` header of an answer to OPTIONS."""
    request = replace(parsed.http, method="OPTIONS", body=b"")
    try:
        options = _plan(replace(parsed, http=request))
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


class DescriptionKey(NamedTuple):
    """What a description depends on.

    :ivar generation: the catalog's.
    """

    generation: int
    role: str
    schema: str
    version: Version


class Descriptions:
    """The OpenAPI descriptions of one project, made in threads and cached."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._cache: BoundedCache[DescriptionKey, bytes] = BoundedCache(DESCRIPTIONS, DESCRIPTION_BYTES)
        self._work: SharedWork[DescriptionKey, bytes] = SharedWork(self._put)

    async def answer(self, parsed: RestRequest) -> Reply:
        """Describe what the role may use of the schema.

        :raises ApiError: PGRST126 (404), descriptions are switched off; PGRST107 (406), none of the
            accepted media types is available; PGRST117 (405), the root cannot be written.
        """
        request = parsed.http
        if self._project.openapi_mode == "disabled":
            raise ApiError(404, "PGRST126", "Root endpoint metadata is disabled")
        if request.method == "OPTIONS":
            return Reply(200, (_ALLOW,), b"")
        if not parsed.reading:
            raise respond.unsupported(request.method, _ALLOW)
        media_type, version = negotiate_description(request.headers.get("accept"), request.query)
        description = await self.get(parsed.catalog, parsed.caller.role, parsed.schema, version)
        headers = (("Content-Type", media_type), *parsed.profile, ("Vary", f"Accept, {CALLER}"))
        return Reply(200, headers, with_address(self._project, request, version, description))

    async def get(self, catalog: Catalog, role: str, schema: str, version: Version) -> bytes:
        """Return what ``describe`` does, made in a thread at its first use."""
        key = DescriptionKey(catalog.generation, role, schema, version)
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        return await self._work.result(
            key, lambda: describe(self._project, catalog, role, schema, version, Naps())
        )

    def _put(self, key: DescriptionKey, description: bytes) -> None:
        self._cache.put(key, description, len(description))
