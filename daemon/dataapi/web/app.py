"""Assembles the HTTP interface: the APIs of a project, the routes, and the site.

Importing this module imports both APIs and the HTTP server. This takes about as long as reading the catalog
of a database with a thousand tables, so both are done concurrently at start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from klein import Klein

from dataapi.auth.authenticator import Authenticator, without_api_key
from dataapi.auth.transaction import MultiMessageRunner
from dataapi.catalog.watcher import CatalogWatcher
from dataapi.concurrency.tasks import WorkerThread
from dataapi.graphql import transport
from dataapi.graphql.document_store import DocumentFolder
from dataapi.graphql.engine import Engine
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request, StageEnd
from dataapi.live.events import wants_events
from dataapi.live.protocols import live_graphql, live_rest
from dataapi.live.queries import LiveQueries
from dataapi.rest.handler import RestHandler
from dataapi.settings import Project, Settings
from dataapi.web import portal
from dataapi.web.console import routes as console
from dataapi.web.console.access import may_open
from dataapi.web.console.data import ProjectData
from dataapi.web.families import GRAPHQL, REST, ProtocolFamily, family_of
from dataapi.web.pipeline import Observe, Pipeline
from dataapi.web.routing import Backend, Backends, Route, Routes, WebhooksApi, no_route, route
from dataapi.web.server.site import ApiSite
from dataapi.webhooks.management.api import BY_PATH


def make_app(webhooks: WebhooksApi | None = None, *, receivers: bool = True) -> Klein:
    """Return an application with all routes.

    :param receivers: whether the console offers test receivers for deliveries.
    """
    app = Klein()

    @route(app, "/")
    async def start_page(backend: Backend, request: Request) -> Reply:
        if not _wants_console(backend, request):
            raise no_route(Route("/", family_of("/"), None, {}))
        return console.redirect("")

    @route(app, "/graphql/v1")
    async def graphql(backend: Backend, request: Request) -> Reply:
        if request.method != "POST" and _wants_console(backend, request):
            return console.redirect("/graphql")
        if backend.live is not None and wants_events(request):
            return await backend.live.subscribe(request, backend.live.graphql)
        caller = await backend.authenticator.authenticate(request)
        request.context.report(StageEnd("jwt", time.perf_counter()))
        return await backend.graphql.handle(request, caller)

    # The route for functions exists only to label metrics and traces.
    @route(app, "/rest/v1")
    @route(app, "/rest/v1/<path:_resource>")
    @route(app, "/rest/v1/rpc/<_function>")
    async def rest(backend: Backend, request: Request, _resource: str = "", _function: str = "") -> Reply:
        if backend.live is not None and request.method == "GET" and wants_events(request):
            return await backend.live.subscribe(request, backend.live.rest)
        caller = await backend.authenticator.authenticate(request)
        request.context.report(StageEnd("jwt", time.perf_counter()))
        if "apikey=" in request.query:
            request = without_api_key(request)
        return await backend.rest.handle(request, caller)

    console.declare(app, webhooks, receivers=receivers)
    if webhooks is not None:
        portal.declare(app, webhooks)
        for path in BY_PATH:
            _declare_operations(app, path, webhooks)
    return app


def _wants_console(backend: Backend, request: Request) -> bool:
    return transport.wants_page(request) and may_open(backend.project, request)


def _declare_operations(app: Klein, path: str, webhooks: WebhooksApi) -> None:
    async def operate(_backend: Backend | None, request: Request, **parameters: Any) -> Reply:
        return await webhooks.handle(request, path, parameters)

    operate.__name__ = path  # Klein knows routes by their handlers' names
    route(app, path.replace("{", "<").replace("}", ">"))(operate)


def _error_body(family: ProtocolFamily, project: Project, error: ApiError, request: Request) -> bytes:
    return family.render_error(error, request, project.client_error_verbosity).body


class ProjectApis:
    """Both APIs of a project, its persisted documents, and the backend for the routes.

    :param live: creates the live queries, or None if they are disabled.
    """

    def __init__(
        self,
        project: Project,
        runner: MultiMessageRunner,
        watcher: CatalogWatcher,
        authenticator: Authenticator,
        data: ProjectData,
        live: Callable[..., LiveQueries] | None = None,
    ) -> None:
        self.documents = folder = DocumentFolder(project.graphql_documents)
        worker = WorkerThread()
        self._engine = Engine(
            project, runner, lambda: watcher.current, lambda: folder.documents, watcher.refresh, worker
        )
        self._rest = RestHandler(
            project, runner, lambda: watcher.current, watcher.refresh, watcher.regrant, worker
        )
        self.live: LiveQueries | None = None
        if live is not None:
            rest = live_rest(authenticator, self._rest.handle, partial(_error_body, REST, project))
            graphql = live_graphql(authenticator, self._engine, partial(_error_body, GRAPHQL, project))
            self.live = live(rest, graphql)
        self.backend = Backend(project, authenticator, self._engine, self._rest, data, self.live)

    @property
    def requests(self) -> int:
        return self._engine.requests + self._rest.requests

    @property
    def plan_lookups(self) -> tuple[int, int]:
        engine, figures = self._engine, self._rest.figures
        return engine.hits + figures.hits, engine.misses + figures.misses


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
    :param webhooks: the management API, or None if its paths should not exist.
    :param receivers: whether the console offers test receivers. They work only if there is a single process.
    :param now: returns Unix seconds, for the ``Date`` header.
    :param ids: request ids for requests without one (default: unique in this process).
    :param settings: limits of connections and bodies.
    """
    routes = Routes(make_app(webhooks, receivers=receivers))
    pipeline = Pipeline(routes, Backends(backends), observe, time.perf_counter, now, ids)
    return ApiSite(pipeline, reactor, settings)
