"""Processes every request: limits, route, API key, handler, response, observer."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from email.utils import formatdate
from functools import lru_cache, partial
from itertools import count
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger, LogLevel

from dataapi.concurrency.tasks import next_item
from dataapi.http.errors import ApiError
from dataapi.http.headers import parse_traceparent
from dataapi.http.messages import (
    Commit,
    Fact,
    Feed,
    Reply,
    Request,
    RequestContext,
    Stream,
    server_timing,
)
from dataapi.telemetry.logs import request_id, trace_id
from dataapi.telemetry.requests import CompletedRequest
from dataapi.web import cors
from dataapi.web.families import family_of, internal_error
from dataapi.web.routing import Backend, Backends, Route, RoutedRequest, Routes, no_route
from dataapi.web.server.parser import parse_target
from dataapi.web.server.request import (
    ServerRequest,
    body_too_large,
    too_many_connections,
    too_many_subscriptions,
)

T = TypeVar("T")

_log = Logger(namespace="dataapi.web")

SERVER = "dataapi"

_TIMEOUT_WITHOUT_PROJECT = 60.0
"""Timeout of requests without a project, in seconds."""
_CLIENT_CLOSED_REQUEST = 499
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_http_date = lru_cache(maxsize=1)(partial(formatdate, usegmt=True))
_WRONG_METHOD = 405


Observe = Callable[[CompletedRequest], object]


class Deadlines:
    """Cancels work that takes too long. All work has the same limit (in seconds), so one timer suffices.

    The timer keeps running after all work has ended, because new work often follows. ``rest`` stops the
    timer.
    """

    def __init__(self, clock: IReactorTime, limit: float) -> None:
        self.limit = limit
        self._clock = clock
        self._ends: dict[Deferred[Any], float] = {}
        self._late: set[Deferred[Any]] = set()
        self._timer: IDelayedCall | None = None

    def begin(self, work: Deferred[Any]) -> None:
        """Start the timeout of a ``Deferred``. Call ``end`` when its work has ended."""
        self._ends[work] = self._clock.seconds() + self.limit
        if self._timer is None:
            self._timer = self._clock.callLater(self.limit, self._expire)

    def end(self, work: Deferred[Any]) -> bool:
        """Record that the work has ended, and return whether the timeout had cancelled it."""
        if work in self._late:
            self._late.discard(work)
            return True
        self._ends.pop(work, None)
        return False

    def rest(self) -> None:
        if self._timer is not None and not self._ends:
            self._timer.cancel()
            self._timer = None

    async def with_timeouts(
        self, items: AsyncGenerator[T, None], late: Callable[[], Exception]
    ) -> AsyncGenerator[T, None]:
        """Yield the items, with a separate timeout for each item. ``late`` creates the exception to raise."""
        end_of_items = object()
        while True:
            step = Deferred.fromCoroutine(next_item(items, end_of_items))
            self.begin(step)
            try:
                item = await step
            except Exception:
                if self.end(step):
                    raise late() from None
                raise
            self.end(step)
            if item is end_of_items:
                return
            yield item  # type: ignore[misc]  # not the end

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        for work, end in list(self._ends.items()):
            if end > now:
                break
            del self._ends[work]
            self._late.add(work)
            work.cancel()
        if self._ends and self._timer is None:
            first = next(iter(self._ends.values()))
            self._timer = self._clock.callLater(max(0.0, first - now), self._expire)


class Pipeline:
    """Passes requests from the server to handlers, and responses back.

    :param seconds: clock for durations.
    :param now: returns Unix seconds, for the ``Date`` header.
    :param ids: request ids for requests without ``X-Request-Id``.
    """

    def __init__(
        self,
        routes: Routes,
        backends: Backends,
        observe: Observe,
        seconds: Callable[[], float],
        now: Callable[[], float],
        ids: Iterator[str] | None = None,
    ) -> None:
        self._routes = routes
        self._backends = backends
        self._observe = observe
        self._seconds = seconds
        self._now = now
        self._ids = ids or _counted_ids()
        self._deadlines: dict[float, Deadlines] = {}

    def configure(self, backends: Sequence[Backend], observe: Observe) -> None:
        self._backends = Backends(backends)
        self._observe = observe

    def expect(self, received: ServerRequest, length: int | None) -> None:
        """Check the head of a request before its body arrives. Reject the request or set the body limit."""
        routed, error = self._route(received, b"")
        received.limit = routed.max_body
        decision = routed.refuse(error) if error else _early_response(routed, length or 0)
        family = routed.route.family
        if decision is None and routed.backend is not None and family.of_project and family.keyed:
            try:
                routed.backend.authenticator.check_key(routed.request)
            except ApiError as refused:
                decision = routed.refuse(refused)
        if decision is None:
            received.routed = routed
        else:
            self._reject(received, routed, decision)

    def refuse(self, received: ServerRequest, error: ApiError) -> None:
        routed, _ = self._route(received, b"")
        self._reject(received, routed, routed.refuse(error))

    def handle(self, received: ServerRequest, body: bytes) -> None:
        routed, error = (
            self._route(received, body)
            if received.routed is None
            else (self._with_body(received.routed, body), None)
        )
        decision = routed.refuse(error) if error else _early_response(routed, len(body))
        if decision is not None:
            self._send(received, routed, decision)
            return
        received.site.in_flight += 1
        backend = routed.backend
        limit = _TIMEOUT_WITHOUT_PROJECT if backend is None else backend.project.request_timeout
        deadlines = self._deadlines.get(limit)
        if deadlines is None:
            deadlines = self._deadlines[limit] = Deadlines(received.site.reactor, limit)
        handling = Deferred.fromCoroutine(self._handle(received, routed, deadlines))
        if not handling.called:
            received.handling = handling
            if not received.response_started:
                deadlines.begin(handling)

    async def _handle(self, received: ServerRequest, routed: RoutedRequest, deadlines: Deadlines) -> None:
        site = received.site
        try:
            reply = await _reply(routed)
            late = received.handling is not None and deadlines.end(received.handling)
            if reply is None:
                reply = routed.refuse(_timed_out(deadlines.limit) if late else _cancelled())
            if reply.stream is not None:
                await self._stream(received, routed, reply, reply.stream, deadlines)
            elif reply.feed is not None:
                await self._feed(received, routed, reply, reply.feed)
            elif received.gone:
                self._report(routed, _CLIENT_CLOSED_REQUEST, 0, "")
            else:
                self._send(received, routed, reply)
        except Exception:
            _log.failure("the response could not be written", request_id=routed.request.id)
            received.connection.abort()
        finally:
            received.handling = None
            site.in_flight -= 1
            if not site.connections:
                site.settle()

    def pause(self) -> None:
        for deadlines in self._deadlines.values():
            deadlines.rest()

    async def _stream(
        self,
        received: ServerRequest,
        routed: RoutedRequest,
        reply: Reply,
        stream: Stream,
        deadlines: Deadlines,
    ) -> None:
        """Stream a response. On failure, close the connection so that the client sees an incomplete response.

        The request timeout applies to each piece.
        """
        status, size = reply.status, 0
        try:
            async with aclosing(stream):
                if received.gone:
                    raise CancelledError
                timely = deadlines.with_timeouts(stream, lambda: _timed_out(deadlines.limit))
                size = await received.send_stream(reply, timely, self._headers(routed, reply.code))
        except CancelledError:
            status = _CLIENT_CLOSED_REQUEST
        except Exception as error:
            expected = isinstance(error, ApiError)
            _log.failure("the response was cut off", level=LogLevel.info if expected else LogLevel.critical)
            received.connection.abort()
        else:
            received.finish()
        finally:
            self._report(routed, status, size, reply.code)

    async def _feed(self, received: ServerRequest, routed: RoutedRequest, reply: Reply, feed: Feed) -> None:
        """Write a feed until it ends. The request is logged when the feed starts.

        A feed does not count as a request in flight, so a drain does not wait for it.
        """
        begun = not received.gone and received.connection.begin_feed(feed)
        if not begun:
            feed.leave()
        if received.gone:
            self._report(routed, _CLIENT_CLOSED_REQUEST, 0, "")
            return
        if not begun:
            self._send(received, routed, routed.refuse(too_many_subscriptions()))
            return
        self._report(routed, reply.status, len(reply.body), "")
        received.site.in_flight -= 1
        try:
            await received.send_feed(reply, feed, self._headers(routed, ""))
        except CancelledError:
            return  # the client has disconnected
        finally:
            received.site.in_flight += 1
        received.finish()

    def _route(self, received: ServerRequest, body: bytes) -> tuple[RoutedRequest, ApiError | None]:
        started = self._seconds()
        method, target, minor, headers, _, _ = received.head
        error, host, query = None, None, ""
        path = target.partition(b"?")[0]
        try:
            host, path, query = parse_target(target, headers.get("host"), minor)
            route = self._routes.find(path)
        except ApiError as malformed:
            error, query, text = malformed, "", path.decode("latin-1")
            route = Route(text, family_of(text), None, {})
        requested_id = headers.get("x-request-id")
        identifier = requested_id if requested_id and _REQUEST_ID.fullmatch(requested_id) else next(self._ids)
        backend = self._backends.choose(host)
        connection = received.connection
        if connection.crowded:
            connection.persistent = False
            error = too_many_connections()
        facts: list[Fact] = []
        traceparent = parse_traceparent(headers["traceparent"]) if "traceparent" in headers else ""
        context = RequestContext(route.form, traceparent, facts.append)
        peer = client = connection.peer
        if "x-forwarded-for" in headers:
            client = received.site.proxies.client(peer, headers["x-forwarded-for"])
        request = Request(
            identifier, method, route.path, query, headers, body, peer, client, context, connection.secure
        )
        return RoutedRequest(route, request, backend, started, facts), error

    def _with_body(self, routed: RoutedRequest, body: bytes) -> RoutedRequest:
        return routed._replace(request=routed.request._replace(body=body), started=self._seconds())

    def _headers(self, routed: RoutedRequest, code: str) -> tuple[tuple[str, str], ...]:
        request = routed.request
        project = None if routed.backend is None else routed.backend.project
        headers: tuple[tuple[str, str], ...] = (
            ("Server", SERVER),
            ("Date", _http_date(int(self._now()))),
            ("X-Request-Id", request.id),
        )
        origins = project.server_cors_allowed_origins if project else ()
        is_cross_origin = "origin" in request.headers or origins or request.method == "OPTIONS"
        if is_cross_origin and routed.route.family.shared:
            headers += cors.readable(request, origins)
        if project and project.server_trace_header:
            headers += _traced(request, project.server_trace_header)
        if project and project.server_timing_enabled:
            timing = server_timing(routed.started, routed.facts, self._seconds(), failed=bool(code))
            headers += (("Server-Timing", timing),)
        if project and project.db_read_uri is not None:
            positions = [fact.position for fact in routed.facts if isinstance(fact, Commit)]
            if positions and positions[-1]:
                headers += (("Dataapi-LSN", positions[-1]),)
        return headers

    def _reject(self, received: ServerRequest, routed: RoutedRequest, reply: Reply) -> None:
        received.reject(reply, self._headers(routed, reply.code))
        self._report(routed, reply.status, len(reply.body), reply.code)

    def _send(self, received: ServerRequest, routed: RoutedRequest, reply: Reply) -> None:
        received.send(reply, self._headers(routed, reply.code))
        self._report(routed, reply.status, len(reply.body), reply.code)
        received.finish()

    def _report(self, routed: RoutedRequest, status: int, size: int, code: str) -> None:
        route, request, backend, began, facts = routed
        project = "" if backend is None else backend.project.ref
        seconds = self._seconds() - began
        observed = CompletedRequest(
            route.family.name, request, status, seconds, size, project, code, began, facts
        )
        try:
            self._observe(observed)
        except Exception:
            _log.failure("a completed request could not be recorded", request_id=routed.request.id)


async def _reply(routed: RoutedRequest) -> Reply | None:
    """Run the handler. Return None if it was cancelled.

    An ``ApiError`` is formatted for the protocol. Any other exception becomes an internal error and is
    logged.
    """
    route, request, backend = routed.route, routed.request, routed.backend
    request_id.set(request.id)
    if request.context.traceparent:
        trace_id.set(request.context.trace_id)
    try:
        assert route.handler is not None
        reply = await route.handler(backend, request, **route.arguments)
        if reply.stream is not None and request.method != "HEAD":
            # Create the first piece before the response begins, because afterwards an error response is
            # impossible.
            return reply._replace(body=reply.body + await next_item(reply.stream, b""))
        return reply
    except ApiError as error:
        if error.status == _WRONG_METHOD and not any(name == "Allow" for name, _ in error.headers):
            error = error.replaced(headers=(*error.headers, route.family.allow))
        return routed.refuse(error)
    except CancelledError:
        return None
    except Exception:
        _log.failure("{method} {path} failed", method=request.method, path=request.path)
        return routed.refuse(internal_error(request.id))


def _early_response(routed: RoutedRequest, length: int) -> Reply | None:
    """Return the response to a request that needs no handler, or None. ``length`` is the size of the body."""
    route, request, backend = routed.route, routed.request, routed.backend
    family = route.family
    if request.method == "OPTIONS" and family.shared:
        origins = backend.project.server_cors_allowed_origins if backend else ()
        reply = cors.preflight(request, family.methods, origins)
        if reply is not None:
            return reply
    if route.handler is None:
        return routed.refuse(no_route(route))
    if request.method not in family.methods and family.of_project:
        message = f"Unsupported HTTP method: {request.method}"
        return routed.refuse(ApiError(405, "PGRST117", message, headers=(family.allow,)))
    if request.method == "OPTIONS" and not family.own_options:
        return Reply(204, (family.allow,), b"")
    if length and length > routed.max_body:
        return routed.refuse(body_too_large(routed.max_body))
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        message = f"The Content-Encoding {encoding[:60]} is not supported; send the body uncompressed"
        return routed.refuse(ApiError(415, "UNSUPPORTED_MEDIA_TYPE", message))
    if backend is None and family.of_project:
        return routed.refuse(ApiError(404, "PGRST125", "No project is served at this host name"))
    return None


def _counted_ids() -> Iterator[str]:
    """Generate ids from a random prefix and a counter, to avoid a system call for each request."""
    return map(f"{os.urandom(6).hex()}-{{:x}}".format, count(1))


def _timed_out(limit: float) -> ApiError:
    return ApiError(
        504,
        "REQUEST_TIMEOUT",
        f"The request timed out after {limit:g} seconds",
        details="Changes by the request may or may not have taken effect.",
    )


def _cancelled() -> ApiError:
    return ApiError(503, "57P01", "The request was cancelled", headers=(("Retry-After", "1"),))


def _traced(request: Request, name: str) -> tuple[tuple[str, str], ...]:
    """Return the tracing header as sent. ``X-Request-Id`` is excluded, because all responses contain it."""
    value = request.headers.get(name.lower())
    return ((name, value),) if value is not None and name.lower() != "x-request-id" else ()
