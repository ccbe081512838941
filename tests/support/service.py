"""The in-process service (pool, catalog, authenticator, engine, site), and a client."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import jwt
import pytest_twisted
from dataapi.auth.authenticator import Authenticator
from dataapi.catalog.names import CatalogNames
from dataapi.catalog.watcher import CatalogWatcher
from dataapi.database.pool import Pool
from dataapi.graphql.document_store import DocumentFolder
from dataapi.graphql.engine import Engine
from dataapi.graphql.schema.role_schema import RoleSchema, catalog_view
from dataapi.mcp.server import ToolServer
from dataapi.rest.handler import RestHandler
from dataapi.service.project import session_options
from dataapi.settings import Project, Settings
from dataapi.telemetry.readiness import ProjectState
from dataapi.telemetry.requests import RequestMetrics, request_observer
from dataapi.telemetry.vitals import Vitals
from dataapi.web.app import make_site
from dataapi.web.console.data import ProjectData
from dataapi.web.routing import Backend
from support.memory_http import KEY, SECRET
from support.oracle import check_answer
from treq.client import HTTPClient
from twisted.internet import defer, task
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.web.client import Agent, HTTPConnectionPool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from dataapi.catalog.model import Catalog
    from dataapi.database.message import Message
    from dataapi.database.open_transaction import OpenTransaction
    from dataapi.telemetry.log_record import LogRecord
    from graphql import GraphQLField
    from support.postgres import Database


_URL = "!#$%&'()*+,/:;=?@[]~"
"""Characters that are not escaped in URLs. ``%`` is one of them, because it begins existing escapes."""


@dataclass(frozen=True)
class Answer:
    """The response to a request.

    :ivar messages: messages sent to the database for the request.
    :ivar content: the bytes of the body.
    """

    status: int
    headers: Mapping[str, str]
    text: str
    messages: tuple[Message, ...]
    content: bytes = b""

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def data(self) -> Any:
        """The data of a response without errors."""
        assert "errors" not in self.body, self.body["errors"]
        return self.body["data"]

    @property
    def errors(self) -> list[Any]:
        """The errors of a response with errors."""
        found: list[Any] = self.body["errors"]
        return found

    @property
    def error(self) -> str:
        """The message of the only error."""
        assert len(self.errors) == 1, self.errors
        message: str = self.errors[0]["message"]
        return message

    @property
    def statements(self) -> list[str]:
        """The SQL of the executed statements."""
        return [bound.statement.text for message in self.messages for bound in message.statements]


class _Everything(Protocol):
    """Collects data until the connection ends."""

    def __init__(self) -> None:
        self.data = b""
        self.ended: defer.Deferred[None] = defer.Deferred()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        self.data += data

    def connectionLost(self, reason: Any = None) -> None:  # noqa: ARG002, N802 - twisted's name
        self.ended.callback(None)


class _Recorder:
    """Passes messages to a pool, and records them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.messages: list[Message] = []

    async def run(self, message: Message) -> list[tuple[Any, ...]]:
        self.messages.append(message)
        return await self._pool.run(message)

    def open_transaction(self, message: Message) -> AbstractAsyncContextManager[OpenTransaction]:
        self.messages.append(message)
        return self._pool.open_transaction(message)

    def stream(self, message: Message) -> AsyncGenerator[list[tuple[Any, ...]], None]:
        self.messages.append(message)
        return self._pool.stream(message)


class Service:
    """A served project; use it through ``serving``.

    :param tools: whether agents' tools may write; None disables the endpoint for agents.
    """

    def __init__(
        self, reactor: Any, database: Database, *, tools: bool | None = None, **project: Any
    ) -> None:
        fields = {
            "jwt_secret": SECRET,
            "publishable_keys": (KEY,),
            "graphql_max_cost": 10_000_000,
            "db_lane": "always",
            **project,
        }
        self.database = database
        self.project = Project("abcdefghijklmnopqrst", "acme", database.uri, **fields)
        self._reactor = reactor
        self._pool = Pool(
            reactor,
            database.uri,
            size=project.get("db_pool", 1),
            acquisition_timeout=self.project.db_pool_acquisition_timeout,
            options=session_options(self.project),
            anonymous_role=self.project.db_anon_role,
        )
        self._recorder = _Recorder(self._pool)
        self._watcher = CatalogWatcher(
            reactor, self._pool.fetch, self.project.db_schemas, features=self.project.graphql_features
        )
        self._folder = folder = DocumentFolder(self.project.graphql_documents)
        current, refresh = self._current, self._watcher.refresh
        self.engine = Engine(self.project, self._recorder, current, lambda: folder.documents, refresh)
        regrant = self._watcher.regrant
        self.handler = rest = RestHandler(self.project, self._recorder, current, refresh, regrant)
        self.vitals = Vitals()
        data = ProjectData(
            self.project,
            self._recorder,
            current,
            lambda: folder.documents,
            self._state,
            self._pool.figures,
            self.vitals,
        )
        self.tools = None
        if tools is not None:
            self.tools = ToolServer(self.project, rest.handle, self._recorder, current, writes=tools)
        backend = Backend(
            self.project,
            Authenticator(self.project, time.time),
            self.engine,
            rest,
            lambda: data,
            tools=self.tools,
        )
        self.logged: list[LogRecord] = []
        level = "error" if tools is None else "info"
        observe = request_observer(RequestMetrics(), level, self.logged.append)
        self._site = make_site([backend], reactor, observe, settings=Settings((), mcp=tools is not None))
        self._client = HTTPClient(Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False)))
        self._port: Any = None
        self._schemas: dict[tuple[int, str], RoleSchema] = {}

    async def start(self) -> None:
        await self._folder.load()
        await self._pool.start()
        await self._watcher.start()
        self._port = self._reactor.listenTCP(0, self._site, interface="127.0.0.1")

    async def stop(self) -> None:
        await self._port.stopListening()
        await self._site.drain(5.0)
        await self._watcher.stop()
        await self._pool.stop()

    def _state(self) -> ProjectState:
        generation = None if self._watcher.current is None else self._watcher.current.generation
        return ProjectState(self.project.ref, self._pool.available, generation)

    def _current(self) -> Catalog | None:
        return self._watcher.current

    @property
    def pool(self) -> Pool:
        """The pool with one connection."""
        return self._pool

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.getHost().port}"

    @property
    def catalog(self) -> Catalog:
        assert self._watcher.current is not None, self._watcher.error
        return self._watcher.current

    async def reload(self) -> None:
        """Reload the persisted documents and the catalog."""
        await self._folder.load()
        await self._watcher.reload()

    async def execute(self, text: str) -> list[tuple[Any, ...]]:
        """Run SQL as the superuser and reload the catalog."""
        rows = self.database.execute(text)
        await self.reload()
        return rows

    def schema(self, role: str = "anon") -> RoleSchema:
        """Build the schema of a role, independently of the engine's schema."""
        key = self.catalog.generation, role
        if key not in self._schemas:
            names = CatalogNames(self.catalog)
            self._schemas[key] = RoleSchema(catalog_view(self.catalog, names, role, self.project))
        return self._schemas[key]

    def collections(self, role: str = "anon") -> set[str]:
        """Return the fields of ``Query`` that belong to tables and functions."""
        return set(self.entries(role)) - {"node", "heartbeat"}

    def fields(self, type_name: str, role: str = "anon") -> dict[str, str]:
        found = self.schema(role).object_type(type_name).fields
        return {name: str(field.type) for name, field in found.items()}

    def entries(self, role: str = "anon") -> Mapping[str, GraphQLField]:
        query = self.schema(role).schema.query_type
        assert query is not None
        fields: Mapping[str, GraphQLField] = query.fields
        return fields

    async def ask(
        self,
        query: str,
        variables: Mapping[str, Any] | None = None,
        *,
        operation: str | None = None,
        role: str = "anon",
        headers: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Answer:
        """Send a request by POST, and check that the response is complete."""
        body: dict[str, Any] = {"query": query}
        if variables is not None:
            body["variables"] = variables
        if operation is not None:
            body["operationName"] = operation
        response = await self.send(json.dumps(body).encode(), role=role, headers=headers)
        if check and response.status == 200 and "errors" not in response.body:
            check_answer(self.schema(role), query, variables or {}, operation, response.body["data"])
        return response

    async def data(self, query: str, variables: Mapping[str, Any] | None = None, **named: Any) -> Any:
        """Send a request and return its data; fail on errors and on more than one message."""
        response = await self.ask(query, variables, **named)
        assert len(response.messages) <= 1, "an operation must send at most one message to the database"
        return response.data

    async def rows(self, base: str, fields: str = "id", arguments: str = "", **named: Any) -> list[Any]:
        """Query the collection of a table by its GraphQL name, such as ``blog``, and return the nodes."""
        arguments = f"({arguments})" if arguments else ""
        query = f"{{ rows: {base}Collection{arguments} {{ edges {{ node {{ {fields} }} }} }} }}"
        return nodes((await self.data(query, **named))["rows"])

    async def ids(self, base: str, arguments: str = "", **named: Any) -> list[Any]:
        return [row["id"] for row in await self.rows(base, "id", arguments, **named)]

    async def send(
        self, body: bytes, *, role: str = "anon", headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = {"content-type": "application/json", **(headers or {})}
        return await self._exchange("POST", "/graphql/v1", body, role, sent)

    async def get(
        self, members: Mapping[str, str], *, role: str = "anon", headers: Mapping[str, str] | None = None
    ) -> Answer:
        return await self._exchange("GET", f"/graphql/v1?{urlencode(members)}", None, role, headers or {})

    async def rest(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        role: str = "anon",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a REST request and return the response.

        :param target: path and query under ``/rest/v1/``, unescaped.
        :param body: bytes and text are sent unchanged, other values as JSON.
        """
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes | str):
            body = json.dumps(body)
            sent.setdefault("content-type", "application/json")
        content = body.encode() if isinstance(body, str) else body
        path = f"/rest/v1/{quote(target, safe=_URL)}"
        return await self._exchange(method, path, content, role, sent)

    async def console(
        self, name: str, *, role: str = "anon", headers: Mapping[str, str] | None = None
    ) -> Answer:
        return await self._exchange("GET", f"/console/data/{name}", None, role, headers or {})

    async def post(
        self, path: str, body: bytes, *, role: str = "anon", headers: Mapping[str, str] | None = None
    ) -> Answer:
        return await self._exchange("POST", path, body, role, headers or {})

    async def read(self, target: str, **named: Any) -> Any:
        """Return the body of a successful REST read."""
        response = await self.rest("GET", target, **named)
        assert response.status == 200, response.text
        return response.body

    async def raw(self, *pieces: bytes, close: bool = True) -> Answer:
        """Send bytes on a new connection, and wait until the server closes it.

        :param pieces: sent one by one, with a reactor turn in between.
        :param close: whether to add ``Connection: close`` and the API key to the first piece.
        """
        self._recorder.messages.clear()
        endpoint = HostnameEndpoint(self._reactor, "127.0.0.1", self._port.getHost().port)
        client: Any = await connectProtocol(endpoint, _Everything())
        if close:
            line, separator, rest = pieces[0].partition(b"\r\n")
            own = f"Host: x\r\nConnection: close\r\napikey: {KEY}\r\n".encode()
            pieces = (line + separator + own + rest, *pieces[1:])
        for piece in pieces:
            client.transport.write(piece)
            await task.deferLater(self._reactor, 0)
        await client.ended
        await self._idle()
        head, _, content = client.data.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        code = int(status.split(" ")[1]) if status else 0
        return Answer(
            code, headers, content.decode(errors="replace"), tuple(self._recorder.messages), content
        )

    async def _idle(self) -> None:
        """Wait until the pool is idle."""
        # After an error, the pool checks the connection. The next request would have to wait for the check.
        while not self._pool.figures().idle:
            await task.deferLater(self._reactor, 0.001)

    async def _exchange(
        self, method: str, target: str, body: bytes | None, role: str, headers: Mapping[str, str]
    ) -> Answer:
        sent: Any = {"apikey": KEY, **headers}
        if role != "anon":
            sent["authorization"] = f"Bearer {token(role)}"
        self._recorder.messages.clear()
        response = await self._client.request(method, f"{self.url}{target}", data=body, headers=sent)
        content = await response.content()
        await self._idle()
        received = {
            name.decode().lower(): values[0].decode() for name, values in response.headers.getAllRawHeaders()
        }
        text = content.decode(errors="replace")
        return Answer(response.code, received, text, tuple(self._recorder.messages), content)


def token(role: str) -> str:
    """Return a signed token for a role."""
    return jwt.encode({"role": role, "sub": f"a user of {role}"}, SECRET, "HS256")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on the reactor and return its result."""
    return pytest_twisted.blockon(defer.Deferred.fromCoroutine(work))


@contextmanager
def serving(reactor: Any, database: Database, **project: Any) -> Iterator[Service]:
    """Serve a database. Keyword arguments are project settings.

    By default, the pool has one connection, opened before the first test, so no test opens a connection.
    """
    service = Service(reactor, database, **project)
    run(service.start())
    try:
        yield service
    finally:
        run(service.stop())


def nodes(connection: Any) -> list[Any]:
    return [edge["node"] for edge in connection["edges"]]
