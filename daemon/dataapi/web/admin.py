"""The admin listener, which is never public: probes, metrics, catalogs, the version, ``POST /reload``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from socket import gethostname
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import RESPONSES, Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from dataapi.http.messages import Reply
from dataapi.settings import Settings
from dataapi.telemetry.metrics import Snapshot, exposition, merge
from dataapi.telemetry.postgrest_metrics import postgrest_metrics
from dataapi.telemetry.readiness import Operated, Reloaded
from dataapi.telemetry.version import installed_version, version_row
from dataapi.web.origins import is_loopback, is_of_another_origin, is_of_another_site, may_be_rebound

_log = Logger(namespace="dataapi.admin")
_CHECKED = ("host", "origin", "sec-fetch-site")
_PLAIN = "text/plain; charset=utf-8"
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def _json(status: int, document: Mapping[str, Any], *headers: tuple[str, str]) -> Reply:
    body = json.dumps(document, ensure_ascii=False).encode() + b"\n"
    return Reply(status, (("Content-Type", "application/json; charset=utf-8"), *headers), body)


class AdminApi(Resource):
    """Answers the admin paths for what is operated: this process, or its workers."""

    isLeaf = True  # noqa: N815 - IResource

    def __init__(
        self,
        operated: Operated,
        reload: Callable[[], Awaitable[Reloaded]],
        settings: Callable[[], Settings],
    ) -> None:
        super().__init__()
        self._operated = operated
        self._settings = settings
        self._reload_all = reload
        self._version = installed_version()
        self._routes: dict[str, tuple[str, Callable[[Request], Awaitable[Reply]]]] = {
            "/live": ("GET", self._live),
            "/ready": ("GET", self._ready),
            "/metrics": ("GET", self._metrics),
            "/schema_cache": ("GET", self._schema_cache),
            "/version": ("GET", self._versions),
            "/reload": ("POST", self._reload),
        }

    def render(self, request: Request) -> int:
        """Answer a request; an unknown path is 404 and a wrong method 405 with ``Allow``."""
        method, path = (part.decode("ascii", "replace") for part in (request.method, request.path))
        answering = Deferred.fromCoroutine(self._reply(request, method, path))
        request.notifyFinish().addErrback(lambda _: answering.cancel())
        answering.addCallback(lambda reply: _send(request, reply)).addErrback(self._failed, request)
        return NOT_DONE_YET

    async def _reply(self, request: Request, method: str, path: str) -> Reply:
        refusal = _refusal(request, method)
        if refusal is not None:
            return _json(403, {"message": refusal})
        route = self._routes.get(path)
        if route is None:
            return _json(404, {"message": f"there is no {path} here", "paths": sorted(self._routes)})
        expected, handler = route
        allowed = ("GET", "HEAD") if expected == "GET" else (expected,)
        if method not in allowed:
            return _json(405, {"message": f"{path} takes {expected}"}, ("Allow", ", ".join(allowed)))
        return await handler(request)

    async def _live(self, _request: Request) -> Reply:
        return Reply(200, (("Content-Type", _PLAIN),), b"live\n")

    async def _ready(self, request: Request) -> Reply:
        state = await self._operated.state()
        refs = [ref.decode("ascii", "replace") for ref in request.args.get(b"project", ())]
        try:
            requires_all = self._settings().ready_requires == "all"
            state = state.of(refs) if refs else replace(state, requires_all=requires_all)
        except KeyError as unknown:
            known = [project.ref for project in state.projects]
            return _json(404, {"message": f"there is no project {unknown}", "projects": known})
        if state.ready:
            return _json(200, state.as_json())
        return _json(503, state.as_json(), ("Retry-After", "1"))

    async def _metrics(self, _request: Request) -> Reply:
        build: Snapshot = {"dataapi_build_info": {(self._version,): 1.0}}
        operated = await self._operated.snapshot()
        body = exposition(merge([build, operated, postgrest_metrics(operated)]))
        return Reply(200, (("Content-Type", _EXPOSITION),), body)

    async def _schema_cache(self, _request: Request) -> Reply:
        return _json(200, await self._operated.catalogs())

    async def _versions(self, _request: Request) -> Reply:
        return _json(200, version_row(self._version))

    async def _reload(self, _request: Request) -> Reply:
        reloaded = await self._reload_all()
        return _json(503 if reloaded.failures else 200, reloaded.as_json())

    @staticmethod
    def _failed(failure: Failure, request: Request) -> None:
        if failure.check(CancelledError) is None:
            _log.failure("an admin request failed", failure)
            _send(request, _json(500, {"message": "internal error; the log says more"}))


def _refusal(request: Request, method: str) -> str | None:
    """Return why a request is refused that a page of a foreign site may have had a browser send.

    Such a page can also have its own name lead to this machine, where the listener is by default. Other
    machines may call this one by any name.
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
        return f"the Host {host} is not known here: ask by an address, by localhost or by this machine's name"
    if method == "POST" and (is_of_another_site(headers) or is_of_another_origin(headers)):
        return "pages of other sites may not do this"
    return None


def _send(request: Request, reply: Reply) -> None:
    request.setResponseCode(reply.status, RESPONSES.get(reply.status))
    for name, value in reply.headers:
        request.responseHeaders.setRawHeaders(name, [value])
    request.setHeader("Content-Length", str(len(reply.body)))
    if request.method != b"HEAD":
        request.write(reply.body)
    request.finish()


class _AdminSite(Site):
    """A site without twisted.web's access log."""

    noisy = False

    def log(self, request: Request) -> None:
        """Write nothing: probes and scrapes are no news."""


def make_admin_site(
    operated: Operated,
    reactor: Any,
    reload: Callable[[], Awaitable[Reloaded]],
    settings: Callable[[], Settings],
) -> Site:
    """Make the factory that the admin endpoints serve.

    :param reload: reads the configuration again, too.
    :param settings: returns those that serve.
    """
    return _AdminSite(AdminApi(operated, reload, settings), parsePOSTFormSubmission=False, reactor=reactor)
