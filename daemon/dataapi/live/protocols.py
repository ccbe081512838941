"""Live queries over REST, and over GraphQL with server-sent events and WebSockets.

See docs/reference/rest.md and docs/reference/graphql.md, Live queries, for the events and the end of streams.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from dataapi.auth.authenticator import Authenticator, without_api_key
from dataapi.auth.caller import REST_PREFIX, Caller
from dataapi.graphql import transport
from dataapi.graphql.engine import Engine
from dataapi.http.errors import ApiError, TokenError
from dataapi.http.messages import Reply, Request
from dataapi.live.cohort import Finished, LiveProtocol
from dataapi.live.events import EVENT_STREAM, event, retry
from dataapi.live.websocket_messages import RESTART, closing, failure, result
from dataapi.rest.negotiation import unavailable
from dataapi.rest.parse.request import FUNCTIONS

Handle = Callable[[Request, Caller], Awaitable[Reply]]
RenderError = Callable[[ApiError, Request], bytes]

_JSON = ("application/json", "application/vnd.pgrst.object+json", "application/vnd.pgrst.array+json")
_COMPLETE = event("complete")


def live_rest(authenticator: Authenticator, handle: Handle, render_error: RenderError) -> LiveProtocol:
    async def respond(request: Request) -> bytes:
        caller = await authenticator.authenticate(request)
        request = without_api_key(request)
        if request.path.startswith(f"{REST_PREFIX}/{FUNCTIONS}"):
            await _reject_volatile(handle, request, caller)
        reply = await handle(request, caller)
        kind = next((value for name, value in reply.headers if name == "Content-Type"), "")
        if reply.stream is not None or not kind.startswith(_JSON):
            raise unavailable([EVENT_STREAM]).replaced(details="Only JSON can be sent as events.")
        return reply.body

    def end(request: Request, error: ApiError | Finished) -> bytes:
        assert isinstance(error, ApiError), "REST requests never finish"
        name = "expired" if isinstance(error, TokenError) else "failed"
        return event(name, render_error(error, request))

    return LiveProtocol(
        respond, partial(event, "snapshot"), end, lambda seconds: retry(seconds) + event("reconnect")
    )


async def _reject_volatile(handle: Handle, request: Request, caller: Caller) -> None:
    """Reject VOLATILE functions, because their result may differ each time."""
    # The response to OPTIONS does not list GET if the function is VOLATILE.
    options = await handle(request._replace(method="OPTIONS"), caller)
    if not any(name == "Allow" and "GET" in value for name, value in options.headers):
        details = "A VOLATILE function may return a different result each time."
        raise unavailable([EVENT_STREAM]).replaced(details=details)


def live_graphql(authenticator: Authenticator, engine: Engine, render_error: RenderError) -> LiveProtocol:
    def end(request: Request, error: ApiError | Finished) -> bytes:
        body = error.body if isinstance(error, Finished) else render_error(error, request)
        return event("next", body) + _COMPLETE

    # GraphQL over server-sent events has no reconnect event. Clients reconnect if a stream ends without the
    # event "complete".
    return LiveProtocol(
        _graphql_results(authenticator, engine),
        partial(event, "next"),
        end,
        lambda seconds: retry(seconds) + b"\n",
    )


def live_websocket(authenticator: Authenticator, engine: Engine, render_error: RenderError) -> LiveProtocol:
    def end(request: Request, error: ApiError | Finished) -> bytes:
        if isinstance(error, ApiError):
            return failure(render_error(error, request), error.status)
        return failure(error.body) if error.rejected else result(error.body)

    # WebSocket clients choose the delay before they reconnect.
    return LiveProtocol(
        _graphql_results(authenticator, engine),
        lambda body, _identifier: result(body),
        end,
        lambda _seconds: closing(*RESTART),
    )


def _graphql_results(
    authenticator: Authenticator, engine: Engine
) -> Callable[[Request], Coroutine[Any, Any, bytes]]:
    async def respond(request: Request) -> bytes:
        caller = await authenticator.authenticate(request)
        operation = transport.read(request)._replace(by_events=True)
        response = await engine.execute(operation, caller, request)
        failed = bool(response.errors) and response.data in (None, "null")
        reply = transport.respond(response, request)
        if failed or not response.may_change:
            raise Finished(reply.body, reply.code, rejected=response.data is None)
        return reply.body

    return respond
