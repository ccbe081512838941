"""Routing: the project for a host name, and the handler for a path.

Matched paths are cached, because Klein's URL map takes as long as the rest of a small request.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

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

Handler = Callable[..., Awaitable[Reply]]


class ProjectApi(Protocol):
    """Handles a project's requests in one protocol."""

    async def handle(self, http: Request, caller: Caller, /) -> Reply: ...


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
    """The console's data about one project. Methods raise ``ApiError`` if the caller may not see the data."""

    async def schema(self, request: Request, caller: Caller) -> bytes: ...

    async def identity(self, caller: Caller) -> Mapping[str, Any]: ...

    async def documents(self, request: Request, caller: Caller) -> bytes: ...

    async def advice(self, request: Request, caller: Caller) -> Sequence[Mapping[str, str]]: ...

    async def health(self, request: Request, caller: Caller) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Backend:
    """A project that serves requests. Live queries and tools may be disabled."""

    project: Project
    authenticator: Authenticator
    graphql: ProjectApi
    rest: ProjectApi
    console: Callable[[], ConsoleData] | None = None
    live: LiveQueries | None = None
    tools: ProjectApi | None = None


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
    """A matched path, with its template such as ``/rest/v1/{resource}``.

    If no route matches, the handler is None and the template is "".
    """

    path: str
    family: ProtocolFamily
    handler: Handler | None
    arguments: dict[str, Any]
    form: str = ""


_PARAMETER = re.compile(r"<(?P<path>path:)?_?(?P<name>\w+)>")


class DirectRoute:
    """A route that is matched without Klein's URL map. It is also declared in the map.

    :ivar rule: Klein's rule. The parameters of the path are not passed to the handler.
    :ivar form: path template, such as ``/rest/v1/{resource}``.
    """

    def __init__(self, rule: str, handler: Handler) -> None:
        self.rule = rule
        self.handler = handler
        self.form = form_of(rule)
        self._pattern = re.compile(_PARAMETER.sub(_pattern_of, rule) + "/?")

    def matches(self, path: str) -> bool:
        return self._pattern.fullmatch(path) is not None


def form_of(rule: str) -> str:
    return _PARAMETER.sub(r"{\g<name>}", rule)


def _pattern_of(parameter: re.Match[str]) -> str:
    return "[^/].*?" if parameter["path"] else "[^/]+"


class DeclaredRoutes(Protocol):
    """The routes that are declared on a Klein application."""

    def find(self, path: str) -> Route | None: ...


class Routes:
    """The routes of a site.

    :param direct: the routes of the APIs, ordered from the most specific to the least specific.
    :param load: imports Klein and returns all routes. Called for the first path that no direct route matches.
    """

    def __init__(self, direct: Sequence[DirectRoute], load: Callable[[], DeclaredRoutes]) -> None:
        self._direct = direct
        self._load = load
        self._declared: DeclaredRoutes | None = None
        self._cache: dict[bytes, Route] = {}

    def find(self, raw: bytes) -> Route:
        """Return the route for a raw path. Raises ``ApiError`` (400)."""
        cached = self._cache.get(raw)
        if cached is not None:
            return cached
        path = querystring.path(raw.decode("latin-1"))
        match = self._match(path)
        if match is None:
            return Route(path, family_of(path), None, {})
        if len(raw) <= _LONGEST_CACHED:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[raw] = match
        return match

    def _match(self, path: str) -> Route | None:
        for each in self._direct:
            if each.matches(path):
                return Route(path, family_of(path), each.handler, {}, each.form)
        if self._declared is None:
            self._declared = self._load()
        return self._declared.find(path)


def no_route(route: Route) -> ApiError:
    return ApiError(
        404,
        "PGRST125",
        "Invalid path specified in request URL",
        hint="GraphQL is served at /graphql/v1, REST under /rest/v1/."
        if route.family.prefix == "/"
        else None,
    )


class RoutedRequest(NamedTuple):
    """A request with its route, and the project that serves the host, if any.

    ``started`` is when the last byte was read, in seconds.
    """

    route: Route
    request: Request
    backend: Backend | None
    started: float
    facts: list[Fact]

    @property
    def max_body(self) -> int:
        """Maximum size of the body in bytes: the lower of the protocol's and the project's limit."""
        family = self.route.family.max_body
        if self.backend is None or not self.route.family.of_project:
            return _MAX_BODY_WITHOUT_PROJECT if family is None else family
        project = self.backend.project.max_body
        return project if family is None else min(family, project)

    def refuse(self, error: ApiError) -> Reply:
        verbosity = "verbose" if self.backend is None else self.backend.project.client_error_verbosity
        return self.route.family.render_error(error, self.request, verbosity)
