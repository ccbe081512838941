"""The admin listener, which must not be public: probes, metrics, catalogs, version, and ``POST /reload``.

The listener is a Klein application on twisted.web. It receives few requests, so speed matters little.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from socket import gethostname
from typing import Any, cast

from klein import Klein, Response
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import Request
from twisted.web.server import Site
from werkzeug.exceptions import MethodNotAllowed, NotFound

from dataapi.http.messages import Reply
from dataapi.settings import Settings
from dataapi.telemetry.metrics import Snapshot, exposition, merge
from dataapi.telemetry.postgrest_metrics import postgrest_metrics
from dataapi.telemetry.readiness import DaemonControl, Reloaded
from dataapi.telemetry.version import installed_version, version_row
from dataapi.web.origins import is_loopback, is_of_another_origin, is_of_another_site, may_be_rebound

_log = Logger(namespace="dataapi.admin")
_CHECKED = ("host", "origin", "sec-fetch-site")
_PLAIN = "text/plain; charset=utf-8"
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def _json(status: int, document: Mapping[str, Any], *headers: tuple[str, str]) -> Reply:
    body = json.dumps(document, ensure_ascii=False).encode() + b"\n"
    return Reply(status, (("Content-Type", "application/json; charset=utf-8"), *headers), body)


Handler = Callable[[Request], Awaitable[Reply]]


def make_admin_app(
    operated: DaemonControl, reload: Callable[[], Awaitable[Reloaded]], settings: Callable[[], Settings]
) -> Klein:
    app, version = Klein(), installed_version()
    paths: list[str] = []

    def route(path: str, method: str = "GET") -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            async def respond(request: Request) -> Response:
                return _response(_reject_foreign(request) or await handler(request))

            respond.__name__ = path  # Klein identifies routes by the names of their handlers
            cast("Any", app.route(path, methods=[method]))(respond)
            paths.append(path)
            return handler

        return declare

    @route("/live")
    async def live(_request: Request) -> Reply:
        return Reply(200, (("Content-Type", _PLAIN),), b"live\n")

    @route("/ready")
    async def ready(request: Request) -> Reply:
        state = await operated.state()
        refs = [ref.decode("ascii", "replace") for ref in request.args.get(b"project", ())]
        try:
            requires_all = settings().ready_requires == "all"
            state = state.for_projects(refs) if refs else replace(state, requires_all=requires_all)
        except KeyError as unknown:
            known = [project.ref for project in state.projects]
            return _json(404, {"message": f"there is no project {unknown}", "projects": known})
        if state.ready:
            return _json(200, state.as_json())
        return _json(503, state.as_json(), ("Retry-After", "1"))

    @route("/metrics")
    async def metrics(_request: Request) -> Reply:
        build: Snapshot = {"dataapi_build_info": {(version,): 1.0}}
        snapshot = await operated.snapshot()
        body = exposition(merge([build, snapshot, postgrest_metrics(snapshot)]))
        return Reply(200, (("Content-Type", _EXPOSITION),), body)

    @route("/schema_cache")
    async def schema_cache(_request: Request) -> Reply:
        return _json(200, await operated.catalogs())

    @route("/version")
    async def versions(_request: Request) -> Reply:
        return _json(200, version_row(version))

    @route("/reload", "POST")
    async def reload_all(_request: Request) -> Reply:
        reloaded = await reload()
        return _json(503 if reloaded.failures else 200, reloaded.as_json())

    def unmatched(request: Request, failure: Failure) -> Response:
        return _response(_reject_foreign(request) or _unmatched(request, failure.value, paths))

    def failed(_request: Request, failure: Failure) -> Response:
        _log.failure("an admin request failed", failure)
        return _response(_json(500, {"message": "internal error; see the log"}))

    # Klein's types declare the interface of requests, not the class.
    handle: Any = app.handle_errors
    handle(NotFound, MethodNotAllowed)(unmatched)
    handle(Exception)(failed)
    return app


def _response(reply: Reply) -> Response:
    headers: dict[str | bytes, bytes | Sequence[str | bytes]]
    headers = {name: value.encode() for name, value in reply.headers}
    headers["Content-Length"] = b"%d" % len(reply.body)
    return Response(reply.status, headers, reply.body)


def _unmatched(request: Request, error: BaseException | None, paths: Sequence[str]) -> Reply:
    path = request.path.decode("ascii", "replace")
    if isinstance(error, MethodNotAllowed):
        allowed = sorted(error.valid_methods or ())
        return _json(405, {"message": f"{path} requires {allowed[0]}"}, ("Allow", ", ".join(allowed)))
    return _json(404, {"message": f"unknown path: {path}", "paths": sorted(paths)})


def _reject_foreign(request: Request) -> Reply | None:
    """Return the response to a request that may come from a page on another site, or None.

    Another site can point its own name to this machine (DNS rebinding), so requests from this machine must
    use one of the machine's own names. Clients on other machines may use any name.
    """
    headers = {
        name: request.getHeader(name) or "" for name in _CHECKED if request.requestHeaders.hasHeader(name)
    }
    host = headers.get("host", "")
    if (
        host
        and is_loopback(getattr(request.getClientAddress(), "host", ""))
        and may_be_rebound(host, gethostname())
    ):
        message = f"unknown Host {host}: use an IP address, localhost or the name of this machine"
        return _json(403, {"message": message})
    if request.method == b"POST" and (is_of_another_site(headers) or is_of_another_origin(headers)):
        return _json(403, {"message": "requests from pages on other sites are not allowed"})
    return None


class _AdminSite(Site):
    noisy = False

    def getResourceFor(self, request: Any) -> Any:  # noqa: N802 - twisted's name
        """Return the resource. Invalid UTF-8 in the path is replaced, because Klein would log a traceback."""
        request.postpath = [segment.decode("utf-8", "replace").encode() for segment in request.postpath]
        return super().getResourceFor(request)

    def log(self, request: Request) -> None:
        """Log nothing, because probes and scrapes are frequent."""


def make_admin_site(
    operated: DaemonControl,
    reactor: Any,
    reload: Callable[[], Awaitable[Reloaded]],
    settings: Callable[[], Settings],
) -> Site:
    app = make_admin_app(operated, reload, settings)
    return _AdminSite(app.resource(), parsePOSTFormSubmission=False, reactor=reactor)
