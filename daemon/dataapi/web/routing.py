"""Routing: the project of a host name, and the handler of a path.

The routes are declared on a Klein application; a path is matched once and then remembered.  Klein's own
resource walks its URL map for each request, which costs as much as the rest of a small one.
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

_REMEMBERED = 1024
"""Paths whose match is remembered."""
_LONGEST_REMEMBERED = 300
"""Bytes of the longest such path, to bound the memory."""

_LIMIT_OF_NO_PROJECT = 65_536

_PART = re.compile(r"<(?:\w+:)?_?(\w+)>")

Handler = Callable[..., Awaitable[Reply]]


class ProjectApi(Protocol):
    """Answers the requests of one protocol to one project."""

    async def handle(self, http: Request, caller: Caller) -> Reply:
        """Answer a request; raises ``ApiError`` for errors that the client may read."""


class WebhooksApi(Protocol):
    """Answers requests to the management API of webhooks, which all projects share."""

    @property
    def on(self) -> bool:
        """Whether webhooks are configured."""

    @property
    def portal_origins(self) -> Sequence[str]:
        """The origins whose pages may frame the page for customers."""

    async def answer(self, request: Request, path: str, places: Mapping[str, str]) -> Reply:
        """Answer a request; raises ``ApiError`` for errors that the client may read.

        :param path: the path's form in the table of operations.
        :param places: the path's variable parts.
        """


class ConsoleData(Protocol):
    """Answers the console's questions about one project."""

    async def schema(self, request: Request, caller: Caller) -> bytes:
        """Return the schema as the caller's role sees it, as JSON; raises ``ApiError``."""

    async def identity(self, caller: Caller) -> Mapping[str, Any]:
        """Return as which role a caller's requests run; raises ``ApiError`` where they cannot."""

    async def documents(self, request: Request, caller: Caller) -> bytes:
        """Return the persisted documents, as JSON; raises ``ApiError``."""

    async def health(self, request: Request, caller: Caller) -> Mapping[str, Any]:
        """Return whether the project answers, and what it does; raises ``ApiError``."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One project, ready to answer; ``live`` is None where live queries are off."""

    project: Project
    authenticator: Authenticator
    graphql: ProjectApi
    rest: ProjectApi
    console: ConsoleData | None = None
    live: LiveQueries | None = None


class Backends:
    """The projects of this daemon by the host names they serve.

    A project without host names serves every host that no other project names.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._by_host = {host.lower(): backend for backend in backends for host in backend.project.hosts}
        self._fallback = next((backend for backend in backends if not backend.project.hosts), None)

    def choose(self, host: str | None) -> Backend | None:
        """Return the project that serves a ``Host`` header's value, or None when none does."""
        if not self._by_host or not host:
            return self._fallback
        return self._by_host.get(_host_name(host), self._fallback)


def _host_name(host: str) -> str:
    """Return a ``Host`` header's name in lower case, without port, brackets and final dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


class Route(NamedTuple):
    """A matched path; ``handler`` is None when there is none.

    :ivar form: the path with the names of its variable parts, such as ``/rest/v1/{resource}``; "" when
        there is no handler.
    """

    path: str
    family: ProtocolFamily
    handler: Handler | None
    arguments: dict[str, Any]
    form: str = ""


def route(app: Klein, rule: str) -> Callable[[Handler], Handler]:
    """Declare a handler: it gets the backend, the request and the rule's arguments, and returns a reply."""
    # Klein's handlers take twisted.web's request.
    return cast("Callable[[Handler], Handler]", app.route(rule, strict_slashes=False))


class Routes:
    """Finds the handler of a path."""

    def __init__(self, app: Klein) -> None:
        app.url_map.merge_slashes = False
        # Without Klein's wrapping, which is made for twisted.web's requests.
        self._handlers: dict[str, Handler] = {
            name: cast("Handler", unwrap(endpoint)) for name, endpoint in app.endpoints.items()
        }
        self._urls = app.url_map.bind("")
        self._known: dict[bytes, Route] = {}

    def find(self, raw: bytes) -> Route:
        """Return the route of a path as it stands in the request line; raises ``ApiError``, 400."""
        known = self._known.get(raw)
        if known is not None:
            return known
        path = querystring.path(raw.decode("latin-1"))
        family = family_of(path)
        try:
            rule, arguments = self._urls.match(path, return_rule=True)
        except (HTTPException, RequestRedirect):
            return Route(path, family, None, {})
        handler = self._handlers[str(rule.endpoint)]
        found = Route(path, family, handler, dict(arguments), _PART.sub(r"{\1}", rule.rule))
        if len(raw) <= _LONGEST_REMEMBERED:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[raw] = found
        return found


def no_route(route: Route) -> ApiError:
    """Return the error for a path without a handler."""
    return ApiError(
        404,
        "PGRST125",
        "Invalid path specified in request URL",
        hint="GraphQL is served at /graphql/v1, REST below /rest/v1/."
        if route.family.prefix == "/"
        else None,
    )


class RoutedRequest(NamedTuple):
    """A request with its route and its project, None when its host name has none.

    :ivar started: when its last byte was read, in seconds.
    :ivar facts: those that its steps have reported so far.
    """

    route: Route
    request: Request
    backend: Backend | None
    started: float
    facts: list[Fact]

    @property
    def max_body(self) -> int:
        """Bytes of the largest body that both the protocol family and the project accept."""
        family = self.route.family.max_body
        if self.backend is None or not self.route.family.of_project:
            return _LIMIT_OF_NO_PROJECT if family is None else family
        project = self.backend.project.max_body
        return project if family is None else min(family, project)

    def refuse(self, error: ApiError) -> Reply:
        """Return the answer for an error in the form of the protocol."""
        verbosity = "verbose" if self.backend is None else self.backend.project.client_error_verbosity
        return self.route.family.render_error(error, self.request, verbosity)
