"""The one way of every request: read, routed, let through, answered, observed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.errors import ApiError
from dataapi.web import cors, querystring, render, wire
from dataapi.web.areas import area_of
from dataapi.web.backend import Backends
from dataapi.web.exchange import Exchange
from dataapi.web.messages import Reply, Request
from dataapi.web.routing import Call, Route, Routes, no_route

_log = Logger(namespace="dataapi.web")

SERVER = "dataapi"

_LIMIT_OF_NO_PROJECT = 65_536
_CLIENT_CLOSED_REQUEST = 499


class Served(NamedTuple):
    """What is told of each request once it was answered.

    :ivar area: ``graphql``, ``rest`` or ``other``.
    :ivar path: the decoded path; the query string, which may hold a key, is not told.
    :ivar status: of the answer; 499 when the client went away before it.
    :ivar seconds: from the request's last byte to its answer.
    :ivar size: bytes of the answer's body.
    """

    area: str
    request_id: str
    method: str
    path: str
    status: int
    seconds: float
    size: int


Observe = Callable[[Served], object]


class Front:
    """Takes requests from connections to handlers, and answers back.

    :param observe: is told of every request that was answered.
    :param seconds: the clock that durations are measured by.
    :param ids: makes the id of a request that brings none.
    """

    def __init__(
        self,
        routes: Routes,
        backends: Backends,
        observe: Observe,
        seconds: Callable[[], float],
        ids: Callable[[], str],
    ) -> None:
        self._routes = routes
        self._backends = backends
        self._observe = observe
        self._seconds = seconds
        self._ids = ids

    def body_limit(self, exchange: Exchange) -> int:
        """Return how many bytes of a body the project takes."""
        backend = self._backends.choose(exchange.getHeader("host"))
        return _LIMIT_OF_NO_PROJECT if backend is None else backend.project.max_body

    def refuse_body(self, exchange: Exchange) -> None:
        """Answer a request whose body is beyond the limit with 413."""
        started = self._seconds()
        route, request, _ = self._read(exchange, b"")
        error = ApiError(413, "CONTENT_TOO_LARGE", f"The request body is larger than {exchange.limit} bytes")
        self._send(exchange, route, request, route.area.refuse(error, request), started)

    def handle(self, exchange: Exchange) -> None:
        """Answer a request that was read."""
        started = self._seconds()
        assert isinstance(exchange.body, bytes)
        route, request, error = self._read(exchange, exchange.body)
        decision = route.area.refuse(error, request) if error else self._decide(route, request)
        if isinstance(decision, Reply):
            self._send(exchange, route, request, decision, started)
            exchange.finish()
            return
        site = exchange.site
        site.in_flight += 1
        exchange.answering = running = self._routes.run(route, decision)

        def answered(outcome: Reply | Failure) -> None:
            exchange.answering = None
            site.in_flight -= 1
            if exchange.gone:
                self._tell(route, request, _CLIENT_CLOSED_REQUEST, 0, started)
                site.settle()
                return
            reply = outcome if isinstance(outcome, Reply) else self._failed(outcome, route, request)
            self._send(exchange, route, request, reply, started)
            exchange.finish()

        def broken(failure: Failure) -> None:
            _log.failure("the answer could not be written", failure, request_id=request.id)
            if not exchange.gone:
                exchange.channel.abort()

        running.addBoth(answered).addErrback(broken)

    def _read(self, exchange: Exchange, body: bytes) -> tuple[Route, Request, ApiError | None]:
        """Make a value of what was received, and say what of it cannot be read."""
        raw_path, _, raw_query = exchange.uri.partition(b"?")
        error = None
        try:
            route = self._routes.find(raw_path)
            query = querystring.raw_text(raw_query)
        except ApiError as unreadable:
            error, path, query = unreadable, raw_path.decode("latin-1"), ""
            route = Route(path, area_of(path), None, {})
        headers = wire.header_texts(exchange.requestHeaders.getAllRawHeaders())
        request_id = wire.sane_request_id(headers.get("x-request-id")) or self._ids()
        method = exchange.method.decode("ascii")
        return route, Request(request_id, method, route.path, query, headers, body), error

    def _decide(self, route: Route, request: Request) -> Call | Reply:
        """Return the call that answers a request, or at once its answer."""
        area = route.area
        if request.method == "OPTIONS":
            reply = cors.preflight(request, area.methods)
            if reply is not None:
                return reply
        if route.endpoint is None:
            return area.refuse(no_route(route), request)
        allow = ("Allow", ", ".join(area.methods))
        if request.method not in area.methods:
            message = f"Unsupported HTTP method: {request.method}"
            return area.refuse(ApiError(405, "PGRST117", message, headers=(allow,)), request)
        if request.method == "OPTIONS" and not area.own_options:
            return Reply(204, (allow,), b"")
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            message = f"The Content-Encoding {encoding[:60]} is not supported; send the body as it is"
            return area.refuse(ApiError(415, "UNSUPPORTED_MEDIA_TYPE", message), request)
        backend = self._backends.choose(request.headers.get("host"))
        if backend is None:
            return area.refuse(ApiError(404, "PGRST125", "No project is served at this host name"), request)
        return Call(backend, request)

    def _failed(self, failure: Failure, route: Route, request: Request) -> Reply:
        """Answer for a handler that was cancelled, or failed where nothing should fail."""
        if failure.check(CancelledError):
            error = ApiError(503, "57P01", "The request was cancelled", headers=(("Retry-After", "1"),))
            return route.area.refuse(error, request)
        _log.failure("{path} failed", failure, path=request.path, request_id=request.id)
        return route.area.refuse(render.unknown(request.id), request)

    def _send(self, exchange: Exchange, route: Route, request: Request, reply: Reply, started: float) -> None:
        headers: tuple[tuple[str, str], ...] = (
            ("Server", SERVER),
            ("Date", exchange.site.date()),
            ("X-Request-Id", request.id),
        )
        if "origin" in request.headers:
            headers += cors.READABLE
        exchange.send(reply, headers)
        self._tell(route, request, reply.status, len(reply.body), started)

    def tell_unreadable(self, status: int, size: int) -> None:
        """Note that what came over a connection was no request, and was answered so."""
        self._note(Served("other", "", "-", "-", status, 0.0, size))

    def _tell(self, route: Route, request: Request, status: int, size: int, started: float) -> None:
        seconds = self._seconds() - started
        self._note(Served(route.area.name, request.id, request.method, request.path, status, seconds, size))

    def _note(self, served: Served) -> None:
        try:
            self._observe(served)
        except Exception:
            _log.failure("a request could not be noted", request_id=served.request_id)
