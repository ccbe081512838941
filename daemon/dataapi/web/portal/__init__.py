"""The page that portal links open for customers (docs/reference/webhooks.md, Portal links).

Its script reads the token from the URL's fragment and sends the token only to the management API. Browsers do
not send fragments to servers.
"""

from __future__ import annotations

from klein import Klein

from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from dataapi.web.assets import Assets
from dataapi.web.families import PORTAL
from dataapi.web.klein_routes import route
from dataapi.web.routing import Backend, Route, WebhooksApi, no_route


def declare(app: Klein, webhooks: WebhooksApi) -> None:
    assets = Assets("dataapi.web.portal", "portal.html")

    @route(app, PORTAL.prefix)
    async def portal(_backend: Backend | None, request: Request) -> Reply:
        _check(webhooks, request)
        return await assets.page(webhooks.portal_origins)

    @route(app, f"{PORTAL.prefix}/assets/<name>")
    async def portal_file(_backend: Backend | None, request: Request, name: str) -> Reply:
        _check(webhooks, request)
        reply = await assets.file(name, request)
        if reply is None:
            raise _not_found(request)
        return reply


def _check(webhooks: WebhooksApi, request: Request) -> None:
    if not webhooks.enabled:
        raise _not_found(request)
    if request.method not in PORTAL.methods:
        message = f"Unsupported HTTP method: {request.method}"
        raise ApiError(405, "PGRST117", message, headers=(PORTAL.allow,))


def _not_found(request: Request) -> ApiError:
    return no_route(Route(request.path, PORTAL, None, {}))
