"""Routing: the project of a host name, and the handler of a path.

Klein declares the routes; a path is matched once and then remembered.  Klein's own resource binds its URL map
and walks it for each request, which costs as much as the rest of a small one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, NamedTuple, Protocol, cast

from klein import Klein
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RequestRedirect

from dataapi.auth.authenticator import Authenticator
from dataapi.auth.caller import Caller
from dataapi.graphql.transport import GraphQLRequest, GraphQLResponse
from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from dataapi.settings import Project
from dataapi.telemetry.logs import request_id
from dataapi.web.families import ProtocolFamily, family_of, internal_error

_log = Logger(namespace="dataapi.web")

_REMEMBERED = 1024
"""Paths whose match is remembered."""
_LONGEST_REMEMBERED = 300
"""Bytes of the longest such path, to bound the memory."""

_WRONG_METHOD = 405
_SERVED_AT = "GraphQL is served at /graphql/v1, REST below /rest/v1/."

Handler = Callable[..., Awaitable[Reply]]


class GraphQLApi(Protocol):
    """Answers GraphQL requests of one project."""

    async def answer(self, request: GraphQLRequest, caller: Caller, http: Request) -> GraphQLResponse:
        """Answer a request; raises ``ApiError`` when it cannot be executed."""


class RestApi(Protocol):
    """Answers REST requests of one project."""

    async def answer(self, request: Request, caller: Caller) -> Reply:
        """Answer a request; raises ``ApiError`` for errors that the client may read."""


class WebhooksApi(Protocol):
    """Answers requests to the management API of webhooks, which all projects share."""

    async def answer(self, request: Request, path: str, places: Mapping[str, str]) -> Reply:
        """Answer a request; raises ``ApiError`` for errors that the client may read.

        :param path: the path's form in the table of operations.
        :param places: the path's variable parts.
        """


@dataclass(frozen=True, slots=True)
class Backend:
    """One project, ready to answer."""

    project: Project
    authenticator: Authenticator
    graphql: GraphQLApi
    rest: RestApi


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


class HandlerCall(NamedTuple):
    """What a handler gets: the project and the request.

    :ivar backend: None only in families that no project answers.
    """

    backend: Backend | None
    request: Request

    @property
    def verbosity(self) -> str:
        """The ``client-error-verbosity`` of the project."""
        return "verbose" if self.backend is None else self.backend.project.client_error_verbosity


class Route(NamedTuple):
    """A matched path; ``endpoint`` is None when there is no handler."""

    path: str
    family: ProtocolFamily
    endpoint: str | None
    arguments: dict[str, Any]


def route(app: Klein, rule: str, family: ProtocolFamily) -> Callable[[Handler], Handler]:
    """Declare a handler: it gets the backend, the request and the rule's arguments, and returns a reply.

    What it raises is answered here in the form of the protocol: an ``ApiError`` as it stands,
    anything else as an internal error whose cause only the log has.
    """

    def declare(handler: Handler) -> Handler:
        @wraps(handler)
        async def answered(call: HandlerCall, **arguments: Any) -> Reply:
            request_id.set(call.request.id)
            try:
                return await _started(await handler(call.backend, call.request, **arguments), call.request)
            except ApiError as error:
                return family.render_error(_with_allow(error, family), call.request, call.verbosity)
            except CancelledError:
                raise
            except Exception:
                _log.failure("{method} {path} failed", method=call.request.method, path=call.request.path)
                return family.render_error(internal_error(call.request.id), call.request, call.verbosity)

        app.route(rule, strict_slashes=False)(cast("Any", answered))
        return handler

    return declare


def _with_allow(error: ApiError, family: ProtocolFamily) -> ApiError:
    """Add ``Allow`` to the error for a method, as RFC 9110 section 15.5.6 demands."""
    if error.status == _WRONG_METHOD and not any(name == "Allow" for name, _ in error.headers):
        error.headers += (("Allow", ", ".join(family.methods)),)
    return error


async def _started(reply: Reply, request: Request) -> Reply:
    """Make the first piece of a streamed answer, while an error can still be answered."""
    if reply.stream is None or request.method == "HEAD":
        return reply
    return replace(reply, body=reply.body + await anext(reply.stream, b""))


class Routes:
    """Finds and runs the handler of a path."""

    def __init__(self, app: Klein) -> None:
        app.url_map.merge_slashes = False
        self._app = app
        self._urls = app.url_map.bind("")
        self._known: dict[bytes, Route] = {}

    def find(self, raw: bytes) -> Route:
        """Return the route of a path as it stands in the request line.

        :raises ApiError: 400, the path cannot be decoded.
        """
        known = self._known.get(raw)
        if known is not None:
            return known
        path = querystring.path(raw.decode("latin-1"))
        family = family_of(path)
        try:
            endpoint, arguments = self._urls.match(path)
        except (HTTPException, RequestRedirect):
            return Route(path, family, None, {})
        found = Route(path, family, endpoint, dict(arguments))
        if len(raw) <= _LONGEST_REMEMBERED:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[raw] = found
        return found

    def run(self, route: Route, call: HandlerCall) -> Deferred[Reply]:
        """Start the handler of a route that has one."""
        assert route.endpoint is not None
        app = cast("Any", self._app)  # Klein's handlers take twisted.web's request, ours take a call
        return cast("Deferred[Reply]", app.execute_endpoint(route.endpoint, call, **route.arguments))


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
