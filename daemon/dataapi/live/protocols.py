"""The protocols whose answers can be kept live: REST, and GraphQL over server-sent events.

docs/reference/rest.md and docs/reference/graphql.md, Live queries, list the events and what ends a stream.
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
    """Return the protocol of REST: ``snapshot`` events, then ``expired``, ``failed`` or ``reconnect``."""

    async def answer(request: Request) -> bytes:
        caller = await authenticator.authenticate(request)
        request = without_api_key(request)
        if request.path.startswith(f"{REST_PREFIX}/{FUNCTIONS}"):
            await _check_stable(handle, request, caller)
        reply = await handle(request, caller)
        kind = next((value for name, value in reply.headers if name == "Content-Type"), "")
        if reply.stream is not None or not kind.startswith(_JSON):
            raise unavailable([EVENT_STREAM]).replaced(details="Only JSON can be sent as events.")
        return reply.body

    def end(request: Request, error: ApiError | Finished) -> bytes:
        assert isinstance(error, ApiError), "reads can always be repeated"
        name = "expired" if isinstance(error, TokenError) else "failed"
        return event(name, render_error(error, request))

    return LiveProtocol(
        answer, partial(event, "snapshot"), end, lambda seconds: retry(seconds) + event("reconnect")
    )


async def _check_stable(handle: Handle, request: Request, caller: Caller) -> None:
    """Refuse a VOLATILE function, whose value may differ each time.

    The response to OPTIONS does not allow GET for such a function.
    """
    options = await handle(request._replace(method="OPTIONS"), caller)
    if not any(name == "Allow" and "GET" in value for name, value in options.headers):
        details = "A VOLATILE function may return another value each time."
        raise unavailable([EVENT_STREAM]).replaced(details=details)


def live_graphql(authenticator: Authenticator, engine: Engine, render_error: RenderError) -> LiveProtocol:
    """Return the protocol of GraphQL over server-sent events, distinct connections mode."""

    async def answer(request: Request) -> bytes:
        caller = await authenticator.authenticate(request)
        operation = transport.read(request)._replace(by_events=True)
        response = await engine.execute(operation, caller, request)
        failed = bool(response.errors) and response.data in (None, "null")
        reply = transport.respond(response, request)
        if failed or not response.may_change:
            raise Finished(reply.body, reply.code)
        return reply.body

    def end(request: Request, error: ApiError | Finished) -> bytes:
        body = error.body if isinstance(error, Finished) else render_error(error, request)
        return event("next", body) + _COMPLETE

    # A client reconnects if the stream ends without the event "complete". There is no event for that.
    return LiveProtocol(answer, partial(event, "next"), end, lambda seconds: retry(seconds) + b"\n")
