"""The routes of the console: its HTML page, its files, and the data that the page displays."""

from __future__ import annotations

import base64
import json
import secrets
import time
from typing import Any

from klein import Klein

from dataapi.auth import keys
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from dataapi.settings import Project
from dataapi.telemetry.version import installed_version
from dataapi.web.assets import Assets
from dataapi.web.console import access
from dataapi.web.console.receivers import STATUSES, Receivers, address
from dataapi.web.families import CONSOLE, JSON
from dataapi.web.klein_routes import route
from dataapi.web.routing import Backend, ConsoleData, Handler, Route, WebhooksApi, no_route

PATH = "/console"

_TOUR_TOKEN_LIFETIME = 24 * 3600
"""Lifetime of the token of the guided tour's user, in seconds."""

_PLAIN = (
    ("Content-Type", "text/plain; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
)


def declare(app: Klein, webhooks: WebhooksApi | None, *, receivers: bool) -> None:
    """Declare the console's routes. Test receivers work only if there is a single process."""
    assets = Assets("dataapi.web.console")

    @route(app, PATH)
    @route(app, f"{PATH}/<_page>")
    async def page(backend: Backend, request: Request, _page: str = "") -> Reply:
        _check(backend, request)
        return await assets.page()

    @route(app, f"{PATH}/assets/<name>")
    async def file(backend: Backend, request: Request, name: str) -> Reply:
        _check(backend, request)
        reply = await assets.file(name, request)
        if reply is None:
            raise _not_found(request)
        return reply

    async def settings(backend: Backend, request: Request) -> Reply:
        local = access.is_local(request)
        described = _settings(backend.project, local=local) | _tour(backend.project, local=local)
        webhooks_enabled = webhooks is not None and webhooks.enabled
        receivers_available = (
            webhooks_enabled and receivers and access.may_use_receivers(backend.project, request)
        )
        return json_reply({**described, "webhooks": webhooks_enabled, "receivers": receivers_available})

    async def schema(backend: Backend, request: Request) -> Reply:
        caller = await backend.authenticator.authenticate(request)
        return _data(await _data_of(backend, request).schema(request, caller))

    async def identity(backend: Backend, request: Request) -> Reply:
        caller = await backend.authenticator.authenticate(request)
        return json_reply(await _data_of(backend, request).identity(caller))

    async def documents(backend: Backend, request: Request) -> Reply:
        caller = await backend.authenticator.authenticate(request)
        return _data(await _data_of(backend, request).documents(request, caller))

    async def advice(backend: Backend, request: Request) -> Reply:
        caller = await backend.authenticator.authenticate(request)
        return json_reply({"findings": await _data_of(backend, request).advice(request, caller)})

    async def health(backend: Backend, request: Request) -> Reply:
        caller = await backend.authenticator.authenticate(request)
        return json_reply(await _data_of(backend, request).health(request, caller))

    declare_data(app, "settings", settings)
    declare_data(app, "identity", identity)
    declare_data(app, "documents", documents)
    declare_data(app, "advice", advice)
    declare_data(app, "health", health)
    declare_data(app, "schema", schema)
    if webhooks is not None and receivers:
        _declare_receivers(app)


def _declare_receivers(app: Klein) -> None:
    receivers = Receivers(time.time, lambda: secrets.token_urlsafe(24), _signing_secret)

    async def create(backend: Backend, request: Request) -> Reply:
        _check_receivers(backend, request)
        _command(request)
        name, receiver = receivers.create()
        url = address(request.headers.get("host", ""), request.peer, name)
        return json_reply({"name": name, "url": url, "secret": receiver.secret})

    async def read(backend: Backend, request: Request, name: str) -> Reply:
        _check_receivers(backend, request)
        command = _command(request) if request.method == "POST" else {}
        receiver = receivers.find(name)
        if receiver is None:
            return json_reply(None)  # a deleted receiver is not an error
        if command:
            receiver.status = _status(command)
        deliveries = [delivery.as_json() for delivery in receiver.received]
        return json_reply({"answer": receiver.status, "received": deliveries})

    @route(app, f"{PATH}/receivers/<name>")
    async def receive(backend: Backend, request: Request, name: str) -> Reply:
        _check_receivers(backend, request)
        access.check_origin(request)
        if request.method != "POST":
            raise _post_only(request)
        status = receivers.receive(name, request.headers, request.body)
        if status is None:
            raise _not_found(request)
        return Reply(status, _PLAIN, b"received" if status == 200 else b"told to refuse")

    declare_data(app, "receivers", create)
    declare_data(app, "receivers/<name>", read)


def _signing_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode("ascii")


def _command(request: Request) -> dict[str, Any]:
    """Return the JSON object sent by a page. HTML forms on other sites cannot send ``application/json``.

    :raises ApiError: the body is invalid.
    """
    if request.method != "POST":
        raise _post_only(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "UNSUPPORTED_MEDIA_TYPE", "Send JSON, as application/json")
    try:
        command = json.loads(request.body)
    except ValueError:
        command = None
    if not isinstance(command, dict):
        raise ApiError(400, "PGRST102", "Expected a JSON object")
    return command


def _post_only(request: Request) -> ApiError:
    message = f"Unsupported HTTP method: {request.method}"
    return ApiError(405, "PGRST117", message, headers=(("Allow", "POST"),))


def _status(command: dict[str, Any]) -> int:
    status = command.get("answer")
    if type(status) is int and status in STATUSES:
        return status
    raise ApiError(400, "PGRST102", f"Expected answer to be one of {', '.join(map(str, STATUSES))}")


def declare_data(app: Klein, name: str, handler: Handler) -> None:
    """Declare ``/console/data/NAME``, for requests from the console's own pages.

    The handler is called with the backend, the request and the path parameters. Unless all users of the
    console may read the data, the handler must authenticate the caller.
    """

    async def respond(backend: Backend, request: Request, **arguments: str) -> Reply:
        _check(backend, request)
        return await handler(backend, request, **arguments)

    respond.__name__ = f"console_{name}"  # Klein identifies routes by the names of their handlers
    route(app, f"{PATH}/data/{name}")(respond)


def json_reply(document: Any) -> Reply:
    return _data(json.dumps(document, ensure_ascii=False).encode())


def _data(body: bytes) -> Reply:
    headers = (("Content-Type", JSON), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
    return Reply(200, headers, body)


def redirect(page: str) -> Reply:
    return Reply(302, (("Location", f"{PATH}{page}"), ("Vary", "Accept")), b"")


def _check(backend: Backend, request: Request) -> None:
    if not access.may_open(backend.project, request):
        raise _not_found(request)
    access.check_origin(request)


def _check_receivers(backend: Backend, request: Request) -> None:
    if not access.may_use_receivers(backend.project, request):
        raise _not_found(request)


def _data_of(backend: Backend, request: Request) -> ConsoleData:
    if backend.console is None:
        raise _not_found(request)
    return backend.console()


def _not_found(request: Request) -> ApiError:
    return no_route(Route(request.path, CONSOLE, None, {}))


def _transaction_end(project: Project) -> str:
    return "rollback" if project.db_tx_end.rolls_back("") else "commit"


def _tour(project: Project, *, local: bool) -> dict[str, Any]:
    """Return the tokens of the demo's guided tour, but only to clients on this machine."""
    if project.tour is None or not local:
        return {}
    now = int(time.time())
    user = keys.sign(project, "authenticated", now, lifetime=_TOUR_TOKEN_LIFETIME, sub=project.tour.account)
    return {"tour": {"user": user, "webhooks": project.tour.webhooks_token}}


def _settings(project: Project, *, local: bool) -> dict[str, Any]:
    """Return the settings of a project for the console's pages.

    The publishable key is returned only to clients on this machine.
    """
    secret = project.jwt_secret
    symmetric = secret is not None and not keys.is_url(secret) and not secret.lstrip().startswith("{")
    return {
        "project": project.ref,
        "version": installed_version(),
        "schemas": project.db_schemas,
        "keyRequired": project.require_api_key,
        "publishableKey": next(iter(project.publishable_keys), None) if local else None,
        "token": {
            "mintable": symmetric,
            "base64": project.jwt_secret_is_base64,
            "audience": project.jwt_aud,
        },
        "plans": project.db_plan_enabled,
        "live": project.live_interval is not None,
        "aggregates": project.db_aggregates_enabled,
        "transactionEnd": _transaction_end(project) if project.db_tx_end.allows_override else None,
        "openapi": project.openapi_mode != "disabled",
        "documents": project.graphql_documents is not None,
        "documentsOnly": project.graphql_documents_only,
    }
