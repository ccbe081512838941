"""The routes of the console: its page, its files, and the data that only its own pages may ask for."""

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
from dataapi.web.console.receivers import ANSWERS, Receivers, address
from dataapi.web.families import CONSOLE, JSON
from dataapi.web.routing import Backend, ConsoleData, Handler, Route, WebhooksApi, no_route, route

PATH = "/console"

_PLAIN = (
    ("Content-Type", "text/plain; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
)


def declare(app: Klein, webhooks: WebhooksApi | None, *, receivers: bool) -> None:
    """Declare the console's routes.

    :param webhooks: the management API of webhooks, None if the daemon has none.
    :param receivers: whether it has receivers for trying them, which only one process can.
    """
    assets = Assets("dataapi.web.console")

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
        managed = webhooks is not None and webhooks.on
        tried = managed and receivers and access.may_try(backend.project, request)
        return json_reply({**described, "webhooks": managed, "receivers": tried})

    async def schema(backend: Backend, request: Request) -> Reply:
        caller = await backend.authenticator.authenticate(request)
        return _data(await _of(backend, request).schema(request, caller))

    async def identity(backend: Backend, request: Request) -> Reply:
        caller = await backend.authenticator.authenticate(request)
        return json_reply(await _of(backend, request).identity(caller))

    async def documents(backend: Backend, request: Request) -> Reply:
        caller = await backend.authenticator.authenticate(request)
        return _data(await _of(backend, request).documents(request, caller))

    async def health(backend: Backend, request: Request) -> Reply:
        caller = await backend.authenticator.authenticate(request)
        return json_reply(await _of(backend, request).health(request, caller))

    declare_data(app, "settings", settings)
    declare_data(app, "identity", identity)
    declare_data(app, "documents", documents)
    declare_data(app, "health", health)
    declare_data(app, "schema", schema)
    if webhooks is not None and receivers:
        _declare_receivers(app)


def _declare_receivers(app: Klein) -> None:
    """Declare receivers of deliveries for trying (docs/console.md, A receiver for trying)."""
    held = Receivers(time.time, lambda: secrets.token_urlsafe(24), _signing_secret)

    async def create(backend: Backend, request: Request) -> Reply:
        _check_trying(backend, request)
        _command(request)
        name, made = held.create()
        url = address(request.headers.get("host", ""), request.peer, name)
        return json_reply({"name": name, "url": url, "secret": made.secret})

    async def read(backend: Backend, request: Request, name: str) -> Reply:
        _check_trying(backend, request)
        command = _command(request) if request.method == "POST" else {}
        receiver = held.find(name)
        if receiver is None:
            return json_reply(None)  # it is no mistake of the page that a receiver is gone
        if command:
            receiver.answer = _answer(command)
        deliveries = [each.as_json() for each in receiver.received]
        return json_reply({"answer": receiver.answer, "received": deliveries})

    @route(app, f"{PATH}/receivers/<name>")
    async def receive(backend: Backend, request: Request, name: str) -> Reply:
        _check_trying(backend, request)
        access.check_own(request)
        if request.method != "POST":
            raise _post_alone(request)
        status = held.receive(name, request.headers, request.body)
        if status is None:
            raise _nothing(request)
        return Reply(status, _PLAIN, b"received" if status == 200 else b"told to refuse")

    declare_data(app, "receivers", create)
    declare_data(app, "receivers/<name>", read)


def _signing_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode("ascii")


def _command(request: Request) -> dict[str, Any]:
    """Return the JSON object that a page sent; a form of another site cannot send this media type.

    :raises ApiError: it is something else.
    """
    if request.method != "POST":
        raise _post_alone(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "UNSUPPORTED_MEDIA_TYPE", "Send JSON, as application/json")
    try:
        found = json.loads(request.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ApiError(400, "PGRST102", "Expected a JSON object")
    return found


def _post_alone(request: Request) -> ApiError:
    message = f"Unsupported HTTP method: {request.method}"
    return ApiError(405, "PGRST117", message, headers=(("Allow", "POST"),))


def _answer(command: dict[str, Any]) -> int:
    found = command.get("answer")
    if type(found) is int and found in ANSWERS:
        return found
    raise ApiError(400, "PGRST102", f"Expected answer to be one of {', '.join(map(str, ANSWERS))}")


def declare_data(app: Klein, name: str, handler: Handler) -> None:
    """Declare ``/console/data/NAME``, which the console's own pages may ask for.

    The handler gets the backend, the request and the name's variable parts, as those of all routes do.  It
    authenticates the caller itself where the data is not for everybody who may open the console.
    """

    async def answer(backend: Backend, request: Request, **arguments: str) -> Reply:
        _check(backend, request)
        return await handler(backend, request, **arguments)

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


def _check_trying(backend: Backend, request: Request) -> None:
    if not access.may_try(backend.project, request):
        raise _nothing(request)


def _of(backend: Backend, request: Request) -> ConsoleData:
    if backend.console is None:
        raise _nothing(request)
    return backend.console


def _nothing(request: Request) -> ApiError:
    return no_route(Route(request.path, CONSOLE, None, {}))


def _end(project: Project) -> str:
    return "rollback" if project.db_tx_end.rolls_back("") else "commit"


def _settings(project: Project, *, local: bool) -> dict[str, Any]:
    """Return what the console's pages need to know of a project.

    A key that web pages are made to carry is given only to clients on this machine.
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
        "transactionEnd": _end(project) if project.db_tx_end.allows_override else None,
        "openapi": project.openapi_mode != "disabled",
        "documents": project.graphql_documents is not None,
        "documentsOnly": project.graphql_documents_only,
    }
