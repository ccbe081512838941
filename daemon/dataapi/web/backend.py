"""What stands behind the web: each project's gate, engine and handler, chosen by host name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dataapi.access.caller import Caller
from dataapi.access.gate import Gate
from dataapi.graphql.answer import Answer, GraphQLRequest
from dataapi.settings import Project
from dataapi.web.messages import Reply, Request


class GraphQLEngine(Protocol):
    """Answers GraphQL requests of one project."""

    async def answer(self, request: GraphQLRequest, caller: Caller, http: Request) -> Answer:
        """Answer a request; raises ``ApiError`` when it cannot be answered at all."""


class RestHandler(Protocol):
    """Answers REST requests of one project."""

    async def answer(self, request: Request, caller: Caller) -> Reply:
        """Answer a request; raises ``ApiError`` for whatever a client may read of a failure."""


class Management(Protocol):
    """Answers requests of the webhooks' management API, which is every project's."""

    async def answer(self, request: Request, path: str, places: Mapping[str, str]) -> Reply:
        """Answer a request; raises ``ApiError`` for whatever a client may read of a failure.

        :param path: the path's form in the table of operations.
        :param places: the path's variable parts.
        """


@dataclass(frozen=True, slots=True)
class Backend:
    """One project, ready to answer."""

    project: Project
    gate: Gate
    graphql: GraphQLEngine
    rest: RestHandler


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
        return self._by_host.get(_name(host), self._fallback)


def _name(host: str) -> str:
    """Return a ``Host`` header's name in lower case, without port, brackets and final dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")
