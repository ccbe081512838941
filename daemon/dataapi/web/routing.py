"""Routes: Klein declares them, a path is matched once and then remembered.

Klein's own resource binds its URL map and walks it for each request, which costs as much as
the rest of a small one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple, cast

from klein import Klein
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RequestRedirect

from dataapi.errors import ApiError
from dataapi.logs import request_id
from dataapi.web import querystring, render
from dataapi.web.areas import Area, area_of
from dataapi.web.backend import Backend
from dataapi.web.messages import Reply, Request

_log = Logger(namespace="dataapi.web")

_REMEMBERED = 1024
"""Paths whose match is remembered."""
_LONGEST_REMEMBERED = 300
"""Bytes of the longest such path, to bound the memory."""

_WRONG_METHOD = 405

Handler = Callable[..., Awaitable[Reply]]


class Call(NamedTuple):
    """What a handler is given: the project, and what is asked of it.

    :ivar backend: None only in areas that are not of a project.
    """

    backend: Backend | None
    request: Request

    @property
    def verbosity(self) -> str:
        """How much of errors is told."""
        return "verbose" if self.backend is None else self.backend.project.client_error_verbosity


class Route(NamedTuple):
    """Where a path leads; ``endpoint`` is None when it leads nowhere."""

    path: str
    area: Area
    endpoint: str | None
    arguments: dict[str, Any]


def route(app: Klein, rule: str, area: Area) -> Callable[[Handler], Handler]:
    """Declare a handler: it gets the backend, the request and the rule's arguments, and returns a reply.

    What it raises becomes an answer here, in the form of the area: an ``ApiError`` as it
    stands, anything else as an internal error whose cause only the log tells.
    """

    def declare(handler: Handler) -> Handler:
        @wraps(handler)
        async def answered(call: Call, **arguments: Any) -> Reply:
            request_id.set(call.request.id)
            try:
                return await _begun(await handler(call.backend, call.request, **arguments), call.request)
            except ApiError as error:
                return area.refuse(_allowing(error, area), call.request, call.verbosity)
            except CancelledError:
                raise
            except Exception:
                _log.failure("{method} {path} failed", method=call.request.method, path=call.request.path)
                return area.refuse(render.unknown(call.request.id), call.request, call.verbosity)

        app.route(rule, strict_slashes=False)(cast("Any", answered))
        return handler

    return declare


def _allowing(error: ApiError, area: Area) -> ApiError:
    """Have the refusal of a method say which ones are taken, as RFC 9110 section 15.5.6 demands."""
    if error.status == _WRONG_METHOD and not any(name == "Allow" for name, _ in error.headers):
        error.headers += (("Allow", ", ".join(area.methods)),)
    return error


async def _begun(reply: Reply, request: Request) -> Reply:
    """Make the first piece of an answer that is made while it is sent, as long as errors can be told."""
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
        """Return where a path leads, as it stands in the request line.

        :raises ApiError: 400, the path cannot be decoded.
        """
        known = self._known.get(raw)
        if known is not None:
            return known
        path = querystring.path(raw.decode("latin-1"))
        area = area_of(path)
        try:
            endpoint, arguments = self._urls.match(path)
        except (HTTPException, RequestRedirect):
            return Route(path, area, None, {})
        found = Route(path, area, endpoint, dict(arguments))
        if len(raw) <= _LONGEST_REMEMBERED:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[raw] = found
        return found

    def run(self, route: Route, call: Call) -> Deferred[Reply]:
        """Start the handler of a route that leads somewhere."""
        assert route.endpoint is not None
        app = cast("Any", self._app)  # Klein's handlers take twisted.web's request, ours a call
        return cast("Deferred[Reply]", app.execute_endpoint(route.endpoint, call, **route.arguments))


def no_route(route: Route) -> ApiError:
    """Return what a client is told whose path leads nowhere."""
    return ApiError(
        404,
        "PGRST125",
        "Invalid path specified in request URL",
        hint="GraphQL is served at /graphql/v1, REST below /rest/v1/." if route.area.prefix == "/" else None,
    )
