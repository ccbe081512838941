"""The routes for agents: the endpoint of the Model Context Protocol, and its OAuth metadata (RFC 9728)."""

from __future__ import annotations

import json
import time

from klein import Klein

from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request, StageEnd
from dataapi.settings import Project
from dataapi.web.families import JSON, MCP, METADATA, requested_url
from dataapi.web.klein_routes import route
from dataapi.web.routing import Backend, Route, no_route


def declare(app: Klein) -> None:
    @route(app, MCP.prefix)
    async def mcp(backend: Backend, request: Request) -> Reply:
        if backend.tools is None:
            raise no_route(Route(request.path, MCP, None, {}))
        check_page(backend.project, request)
        caller = await backend.authenticator.authenticate(request)
        request.context.report(StageEnd("jwt", time.perf_counter()))
        return await backend.tools.handle(request, caller)

    # Clients request either of these paths.
    @route(app, METADATA.prefix)
    @route(app, f"{METADATA.prefix}{MCP.prefix}")
    async def protected_resource(backend: Backend, request: Request) -> Reply:
        metadata = {
            "resource": f"{requested_url(request)}{MCP.prefix}",
            "authorization_servers": backend.project.mcp_authorization_servers,
            "bearer_methods_supported": ["header"],
        }
        present = {name: value for name, value in metadata.items() if value}
        return Reply(
            200, (("Content-Type", JSON), ("Vary", "Host, X-Forwarded-Proto")), json.dumps(present).encode()
        )


def check_page(project: Project, request: Request) -> None:
    """Reject requests from other origins, such as a site whose name resolves to this machine (DNS rebinding).

    :raises ApiError: 403.
    """
    origin = request.headers.get("origin")
    if origin is not None and origin not in project.server_cors_allowed_origins:
        hint = "Add the origin to server-cors-allowed-origins."
        raise ApiError(403, "CROSS_ORIGIN_REQUEST", "Pages from this origin may not use the tools", hint=hint)
