"""Declares all routes on a Klein application: APIs, console, portal, management API, and agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klein import Klein

from dataapi.graphql.transport import wants_page
from dataapi.http.messages import Reply, Request
from dataapi.web import portal
from dataapi.web.console import routes as console
from dataapi.web.console.access import may_open
from dataapi.web.families import OTHER
from dataapi.web.klein_routes import route
from dataapi.web.routing import Backend, DirectRoute, Handler, Route, WebhooksApi, no_route
from dataapi.webhooks.management.api import BY_PATH


def make_app(
    apis: Sequence[DirectRoute],
    webhooks: WebhooksApi | None = None,
    *,
    receivers: bool = True,
    mcp: bool = False,
) -> Klein:
    app = Klein()
    for api in apis:
        route(app, api.rule)(_without_arguments(api))

    @route(app, "/")
    async def start_page(backend: Backend, request: Request) -> Reply:
        if not (wants_page(request) and may_open(backend.project, request)):
            raise no_route(Route("/", OTHER, None, {}))
        return console.redirect("")

    if mcp:
        from dataapi.web.mcp import declare  # noqa: PLC0415 - few daemons have it

        declare(app)
    console.declare(app, webhooks, receivers=receivers)
    if webhooks is not None:
        portal.declare(app, webhooks)
        for path in BY_PATH:
            _declare_operations(app, path, webhooks)
    return app


def _without_arguments(api: DirectRoute) -> Handler:
    async def handle(backend: Backend, request: Request, **_parameters: str) -> Reply:
        return await api.handler(backend, request)

    handle.__name__ = api.rule  # Klein identifies routes by the names of their handlers
    return handle


def _declare_operations(app: Klein, path: str, webhooks: WebhooksApi) -> None:
    async def operate(_backend: Backend | None, request: Request, **parameters: Any) -> Reply:
        return await webhooks.handle(request, path, parameters)

    operate.__name__ = path
    route(app, path.replace("{", "<").replace("}", ">"))(operate)
