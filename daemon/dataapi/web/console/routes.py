"""The routes of the console: its page, its files, and the data that only its own pages may ask for."""

from __future__ import annotations

import json
from typing import Any

from klein import Klein

from dataapi.auth import keys
from dataapi.auth.caller import Caller
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from dataapi.settings import Project
from dataapi.telemetry.version import installed_version
from dataapi.web.console import access
from dataapi.web.console.assets import Assets
from dataapi.web.families import CONSOLE, JSON
from dataapi.web.routing import Backend, Handler, Route, no_route, route

PATH = "/console"


def declare(app: Klein, *, webhooks: bool) -> None:
    """Declare the console's routes.

    :param webhooks: whether the daemon has a management API of webhooks.
    """
    assets = Assets()

    @route(app, PATH)
    @route(app, f"{PATH}/<_page>")
    async def page(backend: Backend, request: Request, _page: str = "") -> Reply:
        _check(backend, request)
        return await assets.page()

    @route(app, f"{PATH}/assets/<name>")
    async def file(backend: Backend, request: Request, name: str) -> Reply:
        _check(backend, request)
        found = await assets.file(name, request)
        if found is None:
            raise _nothing(request)
        return found

    async def settings(backend: Backend, request: Request) -> Reply:
        described = _settings(backend.project, local=access.is_local(request))
        return json_reply({**described, "webhooks": webhooks})

    async def identify(backend: Backend, request: Request) -> Caller:
        caller = await backend.authenticator.authenticate(request)
        request.facts.role, request.facts.subject = caller.role, caller.subject
        return caller

    async def schema(backend: Backend, request: Request) -> Reply:
        caller = await identify(backend, request)
        if backend.console is None:
            raise _nothing(request)
        return _data(await backend.console.schema(request, caller))

    async def health(backend: Backend, request: Request) -> Reply:
        caller = await identify(backend, request)
        if backend.console is None:
            raise _nothing(request)
        return json_reply(backend.console.health(caller))

    declare_data(app, "settings", settings)
    declare_data(app, "health", health)
    declare_data(app, "schema", schema)


def declare_data(app: Klein, name: str, handler: Handler) -> None:
    """Declare ``/console/data/NAME``, which the console's own pages may ask for.

    The handler gets the backend and the request, as those of all routes do.  It authenticates the caller
    itself where the data is not for everybody who may open the console.
    """

    async def answer(backend: Backend, request: Request) -> Reply:
        _check(backend, request)
        return await handler(backend, request)

    answer.__name__ = f"console_{name}"  # Klein knows routes by their handlers' names
    route(app, f"{PATH}/data/{name}")(answer)


def json_reply(document: Any) -> Reply:
    """Return data for the console, which nothing keeps."""
    return _data(json.dumps(document, ensure_ascii=False).encode())


def _data(body: bytes) -> Reply:
    headers = (("Content-Type", JSON), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
    return Reply(200, headers, body)


def redirect(page: str) -> Reply:
    """Lead a browser to a page of the console."""
    return Reply(302, (("Location", f"{PATH}{page}"), ("Vary", "Accept")), b"")


def _check(backend: Backend, request: Request) -> None:
    if not access.may_open(backend.project, request):
        raise _nothing(request)
    access.check_own(request)


def _nothing(request: Request) -> ApiError:
    return no_route(Route(request.path, CONSOLE, None, {}))


def _settings(project: Project, *, local: bool) -> dict[str, Any]:
    """Return what the console's pages need to know of a project.

    A key that web pages are made to carry is handed to people at this machine alone.
    """
    secret = project.jwt_secret
    symmetric = secret is not None and not keys.is_url(secret) and not secret.lstrip().startswith("{")
    return {
        "project": project.ref,
        "version": installed_version(),
        "schemas": project.db_schemas,
        "keyRequired": project.require_api_key,
        "publishableKey": next(iter(project.publishable_keys), None) if local else None,
        "anonymousRole": project.db_anon_role,
        "token": {
            "mintable": symmetric,
            "base64": project.jwt_secret_is_base64,
            "audience": project.jwt_aud,
        },
        "plans": project.db_plan_enabled,
        "openapi": project.openapi_mode != "disabled",
        "documents": project.graphql_documents is not None,
        "documentsOnly": project.graphql_documents_only,
    }
