"""The one way of every request: read, routed, let through, answered, observed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from dataapi.deadlines import Deadlines
from dataapi.errors import ApiError
from dataapi.web import cors, querystring, render, target, wire
from dataapi.web.areas import area_of
from dataapi.web.backend import Backend, Backends
from dataapi.web.exchange import Exchange, too_large
from dataapi.web.messages import Reply, Request, Stream
from dataapi.web.routing import Call, Route, Routes, no_route
from dataapi.web.streaming import Stalled
from dataapi.web.timing import Timing

_log = Logger(namespace="dataapi.web")

SERVER = "dataapi"

_LIMIT_OF_NO_PROJECT = 65_536
_LIMIT_OF_OTHERS = 60.0
"""Seconds that a request has which no project answers."""
_CLIENT_CLOSED_REQUEST = 499


class Served(NamedTuple):
    """What is told of each request once it was answered.

    :ivar area: ``graphql``, ``rest``, ``webhooks`` or ``other``.
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


class Asked(NamedTuple):
    """A request on its way to its answer.

    :ivar backend: the project that is asked, None when none is served at that host name.
    :ivar started: when its last byte was read, in seconds.
    """

    route: Route
    request: Request
    backend: Backend | None
    started: float

    @property
    def most_body(self) -> int:
        """How many bytes of a body are taken: what both the area and the project take."""
        area = self.route.area.max_body
        if self.backend is None or not self.route.area.of_project:
            return _LIMIT_OF_NO_PROJECT if area is None else area
        project = self.backend.project.max_body
        return project if area is None else min(area, project)

    def refusal(self) -> Reply | None:
        """Return the answer to a request without the API key that its project asks for, None to others."""
        if self.backend is None or not self.route.area.of_project:
            return None
        try:
            self.backend.gate.check_key(self.request)
        except ApiError as error:
            return self.refuse(error)
        return None

    def refuse(self, error: ApiError) -> Reply:
        """Return the answer that tells an error."""
        verbosity = "verbose" if self.backend is None else self.backend.project.client_error_verbosity
        return self.route.area.refuse(error, self.request, verbosity)


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
        self._deadlines: dict[float, Deadlines] = {}

    def expect(self, exchange: Exchange, length: int | None) -> None:
        """Refuse a request by its head while its body is still to come, or say how much of that is taken.

        :param length: of the body, None where the head does not tell.
        """
        asked, error = self._read(exchange, b"")
        exchange.limit = asked.most_body
        decision = asked.refuse(error) if error else _decide(asked, length or 0)
        if isinstance(decision, Call):
            decision = asked.refusal() or decision
        if isinstance(decision, Reply):
            self._send_early(exchange, asked, decision)
        else:
            exchange.asked = asked

    def refuse(self, exchange: Exchange, error: ApiError) -> None:
        """Answer a request of which not all was read with an error."""
        asked, _ = self._read(exchange, b"")
        self._send_early(exchange, asked, asked.refuse(error))

    def handle(self, exchange: Exchange, body: bytes) -> None:
        """Answer a request that was read."""
        error = None
        if exchange.asked is None:
            asked, error = self._read(exchange, body)
        else:
            asked = self._with_body(exchange.asked, body)
        decision = asked.refuse(error) if error else _decide(asked, len(body))
        if isinstance(decision, Reply):
            self._send(exchange, asked, decision)
            exchange.finish()
            return
        site = exchange.site
        site.in_flight += 1
        exchange.answering = running = self._routes.run(asked.route, decision)
        deadlines = self._deadlines_of(asked, site.reactor)

        def answered(outcome: Reply | Failure) -> Deferred[None] | None:
            late = deadlines.end(running) and isinstance(outcome, Failure)
            if isinstance(outcome, Reply) and outcome.stream is not None:
                streaming = Deferred.fromCoroutine(
                    self._stream(exchange, asked, outcome, outcome.stream, deadlines)
                )
                exchange.answering = None if streaming.called else streaming
                return streaming
            exchange.answering = None
            site.in_flight -= 1
            if exchange.gone:
                self._tell(asked, _CLIENT_CLOSED_REQUEST, 0)
                site.settle()
                return None
            reply = outcome if isinstance(outcome, Reply) else _failed(outcome, asked)
            self._send(exchange, asked, asked.refuse(_timed_out(deadlines.limit)) if late else reply)
            exchange.finish()
            return None

        def broken(failure: Failure) -> None:
            _log.failure("the answer could not be written", failure, request_id=asked.request.id)
            if not exchange.gone:
                exchange.channel.abort()

        running.addBoth(answered).addErrback(broken)
        if exchange.answering is running:
            deadlines.begin(running)

    def rest(self) -> None:
        """Take note that nobody is connected."""
        for deadlines in self._deadlines.values():
            deadlines.rest()

    def _deadlines_of(self, asked: Asked, clock: IReactorTime) -> Deadlines:
        limit = _LIMIT_OF_OTHERS if asked.backend is None else asked.backend.project.request_timeout
        return self._deadlines.get(limit) or self._deadlines.setdefault(limit, Deadlines(clock, limit))

    async def _stream(
        self, exchange: Exchange, asked: Asked, reply: Reply, stream: Stream, deadlines: Deadlines
    ) -> None:
        """Send an answer that is made meanwhile; cut it off when that fails, so that its end is missing.

        Each piece has as long to be made as a whole answer has that is made before it is sent.
        """
        site, status, size = exchange.site, reply.status, 0
        try:
            async with aclosing(stream):
                if exchange.gone:
                    status = _CLIENT_CLOSED_REQUEST
                    return
                timely = deadlines.each(stream, lambda: _timed_out(deadlines.limit))
                size = await exchange.send_stream(reply, timely, self._headers(exchange, asked))
        except CancelledError:
            status = _CLIENT_CLOSED_REQUEST
        except Exception as error:
            told = isinstance(error, ApiError | Stalled)
            _log.failure("the answer was cut off", level=LogLevel.info if told else LogLevel.critical)
            if not exchange.gone:
                exchange.channel.abort()
        else:
            exchange.finish()
        finally:
            exchange.answering = None
            site.in_flight -= 1
            self._tell(asked, status, size)
            site.settle()

    def _read(self, exchange: Exchange, body: bytes) -> tuple[Asked, ApiError | None]:
        """Make a value of what was received, and say what of it cannot be read."""
        started = self._seconds()
        headers = wire.header_texts(exchange.requestHeaders.getAllRawHeaders())
        error, host, query = None, None, ""
        raw_path = exchange.uri.partition(b"?")[0]
        try:
            host, raw_path, raw_query = target.judge(exchange.uri, headers.get("host"), exchange.clientproto)
            route = self._routes.find(raw_path)
            query = querystring.raw_text(raw_query)
        except ApiError as unreadable:
            error, path = unreadable, raw_path.decode("latin-1")
            route = Route(path, area_of(path), None, {})
        request_id = wire.sane_request_id(headers.get("x-request-id")) or self._ids()
        method = exchange.method.decode("ascii")
        backend = self._backends.choose(host)
        timed = backend is not None and backend.project.server_timing_enabled
        timing = Timing(self._seconds) if timed else None
        if exchange.channel.crowded:
            exchange.channel.persistent = False
            error = _crowded()
        request = Request(request_id, method, route.path, query, headers, body, timing, exchange.channel.peer)
        return Asked(route, request, backend, started), error

    def _with_body(self, asked: Asked, body: bytes) -> Asked:
        """Return what was asked with the body, whose last byte was read now."""
        started = self._seconds()
        timing = None if asked.request.timing is None else Timing(self._seconds)
        return asked._replace(request=replace(asked.request, body=body, timing=timing), started=started)

    def _headers(self, exchange: Exchange, asked: Asked) -> tuple[tuple[str, str], ...]:
        """Return what every answer says beside its own headers."""
        request = asked.request
        headers: tuple[tuple[str, str], ...] = (
            ("Server", SERVER),
            ("Date", exchange.site.date()),
            ("X-Request-Id", request.id),
        )
        project = None if asked.backend is None else asked.backend.project
        origins = project.server_cors_allowed_origins if project else ()
        if "origin" in request.headers or origins or request.method == "OPTIONS":
            headers += cors.readable(request, origins)
        if project and project.server_trace_header:
            headers += _traced(request, project.server_trace_header)
        if request.timing is not None:
            headers += (("Server-Timing", request.timing.header()),)
        return headers

    def _send_early(self, exchange: Exchange, asked: Asked, reply: Reply) -> None:
        """Answer a request of which more is to come, the last one on its connection."""
        exchange.discard_body()
        self._send(exchange, asked, reply)
        exchange.channel.end_sending()

    def _send(self, exchange: Exchange, asked: Asked, reply: Reply) -> None:
        exchange.send(reply, self._headers(exchange, asked))
        self._tell(asked, reply.status, len(reply.body))

    def _tell(self, asked: Asked, status: int, size: int) -> None:
        seconds, request = self._seconds() - asked.started, asked.request
        area = asked.route.area.name
        self._note(Served(area, request.id, request.method, request.path, status, seconds, size))

    def _note(self, served: Served) -> None:
        try:
            self._observe(served)
        except Exception:
            _log.failure("a request could not be noted", request_id=served.request_id)


def _decide(asked: Asked, length: int) -> Call | Reply:
    """Return the call that answers a request with so long a body, or at once its answer."""
    route, request, backend = asked.route, asked.request, asked.backend
    area = route.area
    if request.method == "OPTIONS":
        origins = backend.project.server_cors_allowed_origins if backend else ()
        reply = cors.preflight(request, area.methods, origins)
        if reply is not None:
            return reply
    if route.endpoint is None:
        return asked.refuse(no_route(route))
    allow = ("Allow", ", ".join(area.methods))
    if request.method not in area.methods and not area.own_methods:
        message = f"Unsupported HTTP method: {request.method}"
        return asked.refuse(ApiError(405, "PGRST117", message, headers=(allow,)))
    if request.method == "OPTIONS" and not area.own_options:
        return Reply(204, (allow,), b"")
    if length > asked.most_body:
        return asked.refuse(too_large(asked.most_body))
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        message = f"The Content-Encoding {encoding[:60]} is not supported; send the body as it is"
        return asked.refuse(ApiError(415, "UNSUPPORTED_MEDIA_TYPE", message))
    if backend is None and area.of_project:
        return asked.refuse(ApiError(404, "PGRST125", "No project is served at this host name"))
    return Call(backend, request)


def _timed_out(limit: float) -> ApiError:
    """Return the error for a request whose time is up; what it began is cancelled."""
    return ApiError(
        504,
        "REQUEST_TIMEOUT",
        f"The request was not answered within {limit:g} seconds",
        details="Whether a change that it asked for took effect is not known.",
    )


def _failed(failure: Failure, asked: Asked) -> Reply:
    """Answer for a handler that was cancelled, or failed where nothing should fail."""
    if failure.check(CancelledError):
        headers = (("Retry-After", "1"),)
        return asked.refuse(ApiError(503, "57P01", "The request was cancelled", headers=headers))
    request = asked.request
    _log.failure("{path} failed", failure, path=request.path, request_id=request.id)
    return asked.refuse(render.unknown(request.id))


def _crowded() -> ApiError:
    hint = "Send the request again later, over a connection that stays open for further ones."
    headers = (("Retry-After", "1"),)
    return ApiError(503, "TOO_MANY_CONNECTIONS", "There are too many connections", hint=hint, headers=headers)


def _traced(request: Request, name: str) -> tuple[tuple[str, str], ...]:
    """Return the header by which requests are traced, as it came; the request id is told anyway."""
    value = request.headers.get(name.lower())
    return ((name, value),) if value is not None and name.lower() != "x-request-id" else ()
