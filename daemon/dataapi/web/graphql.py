"""The GraphQL area: ``/graphql/v1``."""

from __future__ import annotations

from klein import Klein

from dataapi.graphql import transport
from dataapi.web import console
from dataapi.web.areas import GRAPHQL
from dataapi.web.backend import Backend
from dataapi.web.messages import Reply, Request
from dataapi.web.routing import route


def declare(app: Klein) -> None:
    """Declare the area's routes."""

    @route(app, "/graphql/v1", GRAPHQL)
    async def graphql(backend: Backend, request: Request) -> Reply:
        if transport.wants_page(request):
            return console.PAGE
        caller = await backend.gate.admitted(request)
        request.mark("jwt")
        answer = await backend.graphql.answer(transport.read(request), caller, request)
        return transport.reply(answer, request)
