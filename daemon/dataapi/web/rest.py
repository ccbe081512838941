"""The REST area: ``/rest/v1``."""

from __future__ import annotations

from dataclasses import replace

from klein import Klein

from dataapi.access.gate import split_query
from dataapi.errors import ApiError
from dataapi.web.areas import REST
from dataapi.web.backend import Backend
from dataapi.web.messages import Reply, Request
from dataapi.web.routing import route


def declare(app: Klein) -> None:
    """Declare the area's routes."""

    @route(app, "/rest/v1", REST)
    async def root(backend: Backend, request: Request) -> Reply:
        return await _answer(backend, request)

    @route(app, "/rest/v1/<path:_resource>", REST)
    async def resource(backend: Backend, request: Request, _resource: str) -> Reply:
        return await _answer(backend, request)


async def _answer(backend: Backend, request: Request) -> Reply:
    try:
        caller = await backend.gate.admitted(request)
        request.mark("jwt")
        return await backend.rest.answer(_without_key(request), caller)
    except ApiError:
        if request.timing is not None:
            request.timing.fail()
        raise


def _without_key(request: Request) -> Request:
    """Take the API key out of the query string: to a handler it would be a filter."""
    if "apikey=" not in request.query:
        return request
    return replace(request, query=split_query(request.query)[1])
