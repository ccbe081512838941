"""Routing: the project for a host name, and the handler for a path.

Routes are declared on a Klein application. Matched paths are cached, because Klein's URL map takes as long as
the rest of a small request.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import unwrap
from typing import Any, NamedTuple, Protocol, cast

from klein import Klein
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RequestRedirect

from dataapi.auth.authenticator import Authenticator
from dataapi.auth.caller import Caller
from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.http.messages import Fact, Reply, Request
from dataapi.live.queries import LiveQueries
from dataapi.settings import Project
from dataapi.web.families import ProtocolFamily, family_of

_MAX_CACHED = 1024
"""Maximum number of cached paths."""
_LONGEST_CACHED = 300
"""Maximum length of a cached path in bytes."""

_MAX_BODY_WITHOUT_PROJECT = 65_536

_PART = re.compile(r"<(?:\w+:)?_?(\w+)>")

Handler = Callable[..., Awaitable[Reply]]


class ProjectApi(Protocol):
    """One protocol of one project."""

    async def handle(self, http: Request, caller: Caller) -> Reply: ...


class WebhooksApi(Protocol):
    """The management API of webhooks. All projects share it."""

    @property
    def enabled(self) -> bool: ...

    @property
    def portal_origins(self) -> Sequence[str]: ...

    async def handle(self, request: Request, path: str, parameters: Mapping[str, str]) -> Reply:
        """Handle a request.

        :param path: the path template, as in the table of operations.
        :param parameters: values of the path parameters.
        :raises ApiError: an error that the client may see.
        """


class ConsoleData(Protocol):
    """The console's data about one project. All methods raise ``ApiError`` if the caller may not see it."""

    async def schema(self, request: Request, caller: Caller) -> bytes: ...

    async def identity(self, caller: Caller) -> Mapping[str, Any]: ...

    async def documents(self, request: Request, caller: Caller) -> bytes: ...

    async def health(self, request: Request, caller: Caller) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Backend:
    """A project that serves requests.

    :ivar live: None if live queries are disabled.
    """

    project: Project
    authenticator: Authenticator
    graphql: ProjectApi
    rest: ProjectApi
    console: ConsoleData | None = None
    live: LiveQueries | None = None


class Backends:
    """The projects of this process by host name.

    A project without host names serves all hosts that no other project serves.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._by_host = {host.lower(): backend for backend in backends for host in backend.project.hosts}
        self._fallback = next((backend for backend in backends if not backend.project.hosts), None)

    def choose(self, host: str | None) -> Backend | None:
        if not self._by_host or not host:
            return self._fallback
        return self._by_host.get(_host_name(host), self._fallback)


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


class Route(NamedTuple):
    """A matched path.

    :ivar handler: None if no route matches.
    :ivar form: path template such as ``/rest/v1/{resource}``, or "" if no route matches.
    """

    path: str
    family: ProtocolFamily
    handler: Handler | None
    arguments: dict[str, Any]
    form: str = ""


def route(app: Klein, rule: str) -> Callable[[Handler], Handler]:
    """Declare a handler. It is called with the backend, the request and the arguments of the rule."""
    # By its types, Klein passes twisted.web's request to handlers.
    return cast("Callable[[Handler], Handler]", app.route(rule, strict_slashes=False))


class Routes:
    """The routes of an application."""

    def __init__(self, app: Klein) -> None:
        app.url_map.merge_slashes = False
        # Klein wraps the handlers for requests of twisted.web.
        self._handlers: dict[str, Handler] = {
            name: cast("Handler", unwrap(endpoint)) for name, endpoint in app.endpoints.items()
        }
        self._urls = app.url_map.bind("")
        self._cache: dict[bytes, Route] = {}

    def find(self, raw: bytes) -> Route:
        """Return the route for a raw path. Raises ``ApiError`` (400)."""
        cached = self._cache.get(raw)
        if cached is not None:
            return cached
        path = querystring.path(raw.decode("latin-1"))
        family = family_of(path)
        try:
            rule, arguments = self._urls.match(path, return_rule=True)
        except (HTTPException, RequestRedirect):
            return Route(path, family, None, {})
        handler = self._handlers[str(rule.endpoint)]
        match = Route(path, family, handler, dict(arguments), _PART.sub(r"{\1}", rule.rule))
        if len(raw) <= _LONGEST_CACHED:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[raw] = match
        return match


def no_route(route: Route) -> ApiError:
    return ApiError(
        404,
        "PGRST125",
        "Invalid path specified in request URL",
        hint="GraphQL is served at /graphql/v1, REST below /rest/v1/."
        if route.family.prefix == "/"
        else None,
    )


class RoutedRequest(NamedTuple):
    """A request with its route and its project.

    :ivar backend: None if no project serves the host.
    :ivar started: time when the last byte was read, in seconds.
    :ivar facts: facts that the steps have reported so far.
    """

    route: Route
    request: Request
    backend: Backend | None
    started: float
    facts: list[Fact]

    @property
    def max_body(self) -> int:
        """Maximum size of the body in bytes: the lower limit of protocol and project."""
        family = self.route.family.max_body
        if self.backend is None or not self.route.family.of_project:
            return _MAX_BODY_WITHOUT_PROJECT if family is None else family
        project = self.backend.project.max_body
        return project if family is None else min(family, project)

    def refuse(self, error: ApiError) -> Reply:
        verbosity = "verbose" if self.backend is None else self.backend.project.client_error_verbosity
        return self.route.family.render_error(error, self.request, verbosity)
