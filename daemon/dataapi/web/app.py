"""Assembles the HTTP interface: the APIs of a project, the routes, and the site.

Importing an API takes about as long as reading the catalog of a database with a thousand tables. Each API is
therefore imported when its first request arrives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dataapi.auth.authenticator import Authenticator, without_api_key
from dataapi.auth.caller import Caller
from dataapi.auth.transaction import MultiMessageRunner
from dataapi.catalog.watcher import CatalogWatcher
from dataapi.concurrency.on_demand import OnDemand
from dataapi.concurrency.tasks import WorkerThread
from dataapi.graphql.document_store import DocumentFolder
from dataapi.graphql.transport import wants_page
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request, StageEnd
from dataapi.live.cohort import LiveProtocols
from dataapi.live.events import wants_events
from dataapi.live.queries import LiveQueries
from dataapi.settings import Project, Settings
from dataapi.web.console.access import may_open
from dataapi.web.families import GRAPHQL, REST, ProtocolFamily
from dataapi.web.pipeline import Observe, Pipeline
from dataapi.web.routing import (
    Backend,
    Backends,
    ConsoleData,
    DeclaredRoutes,
    DirectRoute,
    Routes,
    WebhooksApi,
)
from dataapi.web.server.site import ApiSite

if TYPE_CHECKING:
    from dataapi.graphql.engine import Engine
    from dataapi.live.protocols import Handle
    from dataapi.mcp.server import ToolServer
    from dataapi.rest.handler import RestHandler


async def _graphql(backend: Backend, request: Request) -> Reply:
    if request.method != "POST":
        if backend.live is not None and "upgrade" in request.headers:
            from dataapi.web import websocket  # noqa: PLC0415 - few clients use WebSockets

            if websocket.is_requested(request):
                return websocket.upgrade(backend, backend.live, request)
        if wants_page(request) and may_open(backend.project, request):
            from dataapi.web.console import routes as console  # noqa: PLC0415 - only if it is opened

            return console.redirect("/graphql")
    if backend.live is not None and wants_events(request):
        return await backend.live.subscribe(request, (await backend.live.protocols.get()).graphql)
    caller = await backend.authenticator.authenticate(request)
    request.context.report(StageEnd("jwt", time.perf_counter()))
    return await backend.graphql.handle(request, caller)


async def _rest(backend: Backend, request: Request) -> Reply:
    if backend.live is not None and request.method == "GET" and wants_events(request):
        return await backend.live.subscribe(request, (await backend.live.protocols.get()).rest)
    caller = await backend.authenticator.authenticate(request)
    request.context.report(StageEnd("jwt", time.perf_counter()))
    if "apikey=" in request.query:
        request = without_api_key(request)
    return await backend.rest.handle(request, caller)


# The route for functions exists only to label metrics and traces.
API_ROUTES = (
    DirectRoute("/graphql/v1", _graphql),
    DirectRoute("/rest/v1/rpc/<_function>", _rest),
    DirectRoute("/rest/v1/<path:_resource>", _rest),
    DirectRoute("/rest/v1", _rest),
)


def _error_body(family: ProtocolFamily, project: Project, error: ApiError, request: Request) -> bytes:
    return family.render_error(error, request, project.client_error_verbosity).body


class ApiOnDemand:
    """An API that is imported, in a thread, when its first request arrives.

    From the second request on, ``handle`` is the method of the API itself.
    """

    def __init__(self, api: OnDemand[Any]) -> None:
        self._api = api
        self.handle: Callable[[Request, Caller], Coroutine[Any, Any, Reply]] = self._handle_first

    async def _handle_first(self, request: Request, caller: Caller) -> Reply:
        self.handle = (await self._api.get()).handle
        return await self.handle(request, caller)


class ProjectApis:
    """The GraphQL and REST APIs of a project, its persisted documents, and the backend for the routes.

    :param live: creates the live queries, or None if they are disabled.
    :param tools: creates the tools for agents from the handler of REST requests, or None if they are
        disabled.
    """

    def __init__(
        self,
        project: Project,
        runner: MultiMessageRunner,
        watcher: CatalogWatcher,
        authenticator: Authenticator,
        data: Callable[[], ConsoleData],
        live: Callable[..., LiveQueries] | None = None,
        tools: Callable[[Handle], ToolServer] | None = None,
    ) -> None:
        self._project, self._runner, self._watcher = project, runner, watcher
        self._authenticator = authenticator
        self.documents = DocumentFolder(project.graphql_documents)
        self._worker = WorkerThread()
        self._engine, self._rest = OnDemand(self._make_engine), OnDemand(self._make_rest)
        self.live = None if live is None else live(OnDemand(self._make_protocols))
        rest = ApiOnDemand(self._rest)
        self.tools = None if tools is None else tools(rest.handle)
        self.backend = Backend(
            project, authenticator, ApiOnDemand(self._engine), rest, data, self.live, self.tools
        )

    def _make_engine(self) -> Engine:
        from dataapi.graphql.engine import Engine  # noqa: PLC0415 - takes as long as the rest of startup

        watcher = self._watcher
        return Engine(
            self._project,
            self._runner,
            lambda: watcher.current,
            lambda: self.documents.documents,
            watcher.refresh,
            self._worker,
        )

    def _make_rest(self) -> RestHandler:
        from dataapi.rest.handler import RestHandler  # noqa: PLC0415 - as above

        watcher = self._watcher
        return RestHandler(
            self._project,
            self._runner,
            lambda: watcher.current,
            watcher.refresh,
            watcher.regrant,
            self._worker,
        )

    def _make_protocols(self) -> LiveProtocols:
        from dataapi.live.protocols import live_graphql, live_rest, live_websocket  # noqa: PLC0415 - as above

        project = self._project
        rest = live_rest(
            self._authenticator, self._rest.created().handle, partial(_error_body, REST, project)
        )
        parts = self._authenticator, self._engine.created(), partial(_error_body, GRAPHQL, project)
        return LiveProtocols(rest, live_graphql(*parts), live_websocket(*parts))

    @property
    def requests(self) -> int:
        return sum(api.value.requests for api in (self._engine, self._rest) if api.value is not None)

    @property
    def plan_lookups(self) -> tuple[int, int]:
        engine, rest = self._engine.value, self._rest.value
        hits, misses = (0, 0) if engine is None else (engine.hits, engine.misses)
        if rest is not None:
            hits, misses = hits + rest.figures.hits, misses + rest.figures.misses
        return hits, misses


def make_site(
    backends: Sequence[Backend],
    reactor: Any,
    observe: Observe = lambda _served: None,
    *,
    webhooks: WebhooksApi | None = None,
    receivers: bool = True,
    now: Callable[[], float] = time.time,
    ids: Iterator[str] | None = None,
    settings: Settings = Settings(()),  # noqa: B008 - immutable
) -> ApiSite:
    """Return the protocol factory of the public sockets.

    :param observe: called after every request, for logs and metrics.
    :param webhooks: the management API of webhooks, or None if its paths should not exist.
    :param receivers: whether the console offers test receivers. Test receivers require a single process.
    :param now: returns Unix seconds, for the ``Date`` header.
    :param ids: request ids for requests without ``X-Request-Id`` (default: unique in this process).
    """

    def load() -> DeclaredRoutes:
        from dataapi.web.klein_routes import KleinRoutes  # noqa: PLC0415 - takes a tenth of the start
        from dataapi.web.routes import make_app  # noqa: PLC0415

        return KleinRoutes(make_app(API_ROUTES, webhooks, receivers=receivers, mcp=settings.mcp))

    routes = Routes(API_ROUTES, load)
    pipeline = Pipeline(routes, Backends(backends), observe, time.perf_counter, now, ids)
    return ApiSite(pipeline, reactor, settings)
