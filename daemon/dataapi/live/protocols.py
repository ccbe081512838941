"""Live queries over REST, and over GraphQL with server-sent events.

See docs/reference/rest.md and docs/reference/graphql.md, Live queries, for the events and what ends a stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from dataapi.auth.authenticator import Authenticator, without_api_key
from dataapi.auth.caller import REST_PREFIX, Caller
from dataapi.graphql import transport
from dataapi.graphql.engine import Engine
from dataapi.http.errors import ApiError, TokenError
from dataapi.http.messages import Reply, Request
from dataapi.live.cohort import Finished, LiveProtocol
from dataapi.live.events import EVENT_STREAM, event, retry
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
    # OPTIONS does not allow GET for a VOLATILE function.
    options = await handle(request._replace(method="OPTIONS"), caller)
    if not any(name == "Allow" and "GET" in value for name, value in options.headers):
        details = "A VOLATILE function may return a different result each time."
        raise unavailable([EVENT_STREAM]).replaced(details=details)


def live_graphql(authenticator: Authenticator, engine: Engine, render_error: RenderError) -> LiveProtocol:
    async def respond(request: Request) -> bytes:
        caller = await authenticator.authenticate(request)
        operation = transport.read(request)._replace(by_events=True)
        response = await engine.answer(operation, caller, request)
        failed = bool(response.errors) and response.data in (None, "null")
        reply = transport.respond(response, request)
        if failed or not response.may_change:
            raise Finished(reply.body, reply.code)
        return reply.body

    def end(request: Request, error: ApiError | Finished) -> bytes:
        body = error.body if isinstance(error, Finished) else render_error(error, request)
        return event("next", body) + _COMPLETE

    # The protocol has no reconnect event. Clients reconnect if a stream ends without the event "complete".
    return LiveProtocol(respond, partial(event, "next"), end, lambda seconds: retry(seconds) + b"\n")
