"""The page for customers, to which portal links lead (docs/reference/webhooks.md, Portal links).

It asks the management API alone, with the link's token, which its own script takes from the address: neither
this server nor any other is sent what stands behind ``#``.
"""

from __future__ import annotations

from klein import Klein

from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from dataapi.web.assets import Assets
from dataapi.web.families import PORTAL
from dataapi.web.routing import Backend, Route, WebhooksApi, no_route, route


def declare(app: Klein, webhooks: WebhooksApi) -> None:
    """Declare the routes of the page; they are there while webhooks are on."""
    assets = Assets("dataapi.web.portal", "portal.html")

    @route(app, PORTAL.prefix)
    async def portal(_backend: Backend | None, request: Request) -> Reply:
        _check(webhooks, request)
        return await assets.page(webhooks.portal_origins)

    @route(app, f"{PORTAL.prefix}/assets/<name>")
    async def portal_file(_backend: Backend | None, request: Request, name: str) -> Reply:
        _check(webhooks, request)
        found = await assets.file(name, request)
        if found is None:
            raise _nothing(request)
        return found


def _check(webhooks: WebhooksApi, request: Request) -> None:
    if not webhooks.on:
        raise _nothing(request)
    if request.method not in PORTAL.methods:
        message = f"Unsupported HTTP method: {request.method}"
        raise ApiError(405, "PGRST117", message, headers=(PORTAL.allow,))


def _nothing(request: Request) -> ApiError:
    return no_route(Route(request.path, PORTAL, None, {}))
