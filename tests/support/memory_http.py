"""An HTTP client and fake backends, for tests of the web layer without sockets."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from dataapi.auth.authenticator import Authenticator
from dataapi.auth.caller import Caller
from dataapi.graphql import transport
from dataapi.graphql.transport import GraphQLRequest, GraphQLResponse, Stage
from dataapi.http.messages import Reply, Request
from dataapi.settings import Project, Settings
from dataapi.telemetry.requests import CompletedRequest
from dataapi.web.app import make_site
from dataapi.web.routing import Backend
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

NOW = 1_800_000_000.0
SECRET = "a secret of at least thirty-two characters"
KEY = "sb_publishable_for_tests"
PROJECT = Project(
    ref="abcdefghijklmnopqrst",
    organization="acme",
    db_uri="postgresql://unused",
    jwt_secret=SECRET,
    publishable_keys=(KEY,),
    secret_keys=("sb_secret_for_tests",),
    max_body=10_000,
)

Engine = Callable[[GraphQLRequest, Caller, Request], Awaitable[GraphQLResponse]]
Rest = Callable[[Request, Caller], Awaitable[Reply]]


async def typename(_request: GraphQLRequest, _caller: Caller, _http: Request) -> GraphQLResponse:
    """Respond to every query with the name of the root type."""
    return GraphQLResponse(Stage.EXECUTION, '{"__typename":"Query"}')


async def empty_list(_request: Request, _caller: Caller) -> Reply:
    """Respond to every request with an empty list."""
    return Reply(200, (("Content-Type", "application/json; charset=utf-8"),), b"[]")


@dataclass
class Fake:
    """A fake handler that calls a function and records the requests."""

    function: Callable[..., Awaitable[Any]]
    received: list[tuple[Any, ...]] = field(default_factory=list)

    async def handle(self, http: Request, caller: Caller) -> Reply:
        self.received.append((http, caller))
        reply: Reply = await self.function(http, caller)
        return reply


class FakeEngine(Fake):
    """A fake GraphQL engine that records the parsed requests."""

    async def handle(self, http: Request, caller: Caller) -> Reply:
        request = transport.read(http)
        self.received.append((request, caller, http))
        return transport.respond(await self.function(request, caller, http), http)


@dataclass(frozen=True)
class Response:
    """An HTTP response."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """A client connection; ``transport`` contains the data written by the server."""

    def __init__(self, web: Web) -> None:
        self.transport = StringTransport()
        self.protocol = web.site.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1))
        self.protocol.makeConnection(self.transport)
        self.lost = False

    def send(self, data: bytes) -> None:
        """Send bytes, then close the connection if the server requested it."""
        self.protocol.dataReceived(data)
        self.notice()

    def notice(self) -> None:
        """Close the connection if the server requested it."""
        if self.transport.disconnecting and not self.lost:
            self.close()

    def close(self) -> None:
        """Disconnect like a client that gives up."""
        self.lost = True
        self.protocol.connectionLost(Failure(ConnectionDone()))

    def take(self) -> Response:
        """Remove a complete response from the written data, and return it."""
        data = self.transport.value()
        head, separator, rest = data.partition(b"\r\n\r\n")
        assert separator, f"no complete answer in {data!r}"
        status_line, *lines = head.decode().split("\r\n")
        _, status, reason = status_line.split(" ", 2)
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"{name} appears twice"
            headers[name.lower()] = value
        length = int(headers.get("content-length", "0")) if rest else 0
        self.transport.clear()
        self.transport.write(rest[length:])
        return Response(int(status), reason, headers, rest[:length])


class Web:
    """The complete web layer with fake backends."""

    def __init__(
        self,
        engine: Engine = typename,
        rest: Rest = empty_list,
        *projects: Project,
        seconds: float = NOW,
        clock: Clock | None = None,
        **limits: Any,
    ) -> None:
        self.clock = clock or Clock()
        self.served: list[CompletedRequest] = []
        self.engine = FakeEngine(engine)
        self.rest = Fake(rest)
        self.backends = [
            Backend(project, Authenticator(project, lambda: seconds), self.engine, self.rest)
            for project in projects or (PROJECT,)
        ]
        self.site: Any = make_site(
            self.backends,
            self.clock,
            self.served.append,
            now=lambda: seconds,
            ids=repeat("generated"),
            settings=Settings((), **limits),
        )

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
        *,
        key: str | None = KEY,
    ) -> Response:
        """Send a request on a new connection and return the response."""
        connection = Connection(self)
        connection.send(raw(method, target, body, headers, key=key))
        return connection.take()

    def graphql(
        self, document: Any, *headers: tuple[str, str], body: bytes | None = None, key: str | None = KEY
    ) -> Response:
        content = json.dumps(document).encode() if body is None else body
        sent = dict((("Content-Type", "application/json"), *headers))
        return self.request("POST", "/graphql/v1", content, tuple(sent.items()), key=key)


def raw(
    method: str,
    target: str,
    body: bytes = b"",
    headers: Sequence[tuple[str, str]] = (),
    *,
    key: str | None = KEY,
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: api.example.org"]
    lines += [f"{name}: {value}" for name, value in headers]
    if key is not None:
        lines.append(f"apikey: {key}")
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
