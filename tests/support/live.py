"""An in-process service with live queries, and clients that read its events."""

from __future__ import annotations

import json
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jwt
from dataapi.service.project import ProjectPart
from dataapi.settings import Project, Settings
from dataapi.telemetry.requests import RequestMetrics, request_observer
from dataapi.web.app import make_site
from support.memory_http import KEY, SECRET
from support.service import run
from twisted.internet import defer, task
from twisted.internet.protocol import Protocol, connectionDone
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from support.postgres import Database
    from twisted.python.failure import Failure

PATIENCE = 60.0
"""Seconds to wait for an expected event, even on a slow machine."""
INTERVAL = 0.05


@dataclass(frozen=True)
class Event:
    """An event of a stream."""

    name: str
    data: str
    identifier: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Stream(Protocol):
    """Reads a stream of server-sent events.

    :ivar events: received events that have not been read.
    :ivar retry: last value of the field ``retry``, in milliseconds.
    :ivar comments: number of received comments.
    :ivar ended: fires at the end of the stream.
    """

    transport: Any

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.events: deque[Event] = deque()
        self.retry: int | None = None
        self.comments = 0
        self.ended: defer.Deferred[None] = defer.Deferred()
        self.has_ended = False
        self._parts: list[bytes] = []
        self._whole: list[bytes] = []
        self._fields: dict[str, list[str]] = {}
        self._waiting: defer.Deferred[None] | None = None

    @property
    def text(self) -> str:
        """The received text of a response that is not a stream."""
        return b"".join(self._whole).decode()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            self._whole.append(data)
            return
        self._parts.append(data)
        if b"\n" not in data:
            return
        *lines, rest = b"".join(self._parts).split(b"\n")
        self._parts = [rest]
        for line in lines:
            self._parse(line.decode())
        if self.events and self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.callback(None)

    def _parse(self, line: str) -> None:
        if line:
            name, _, value = line.partition(":")
            if not name:
                self.comments += 1
            elif name == "retry":
                self.retry = int(value)
            else:
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
        elif self._fields:
            fields, self._fields = self._fields, {}
            event = Event(
                fields["event"][-1], "\n".join(fields.get("data", [])), "".join(fields.get("id", []))
            )
            self.events.append(event)

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        self.has_ended = True
        self.ended.callback(None)
        if self._waiting is not None:
            self._waiting.errback(AssertionError("the stream has ended"))

    async def event(self, reactor: Any) -> Event:
        if not self.events:
            self._waiting = defer.Deferred()
            await self._waiting.addTimeout(PATIENCE, reactor)
        return self.events.popleft()

    def close(self) -> None:
        if not self.has_ended:
            self.transport.loseConnection()


@implementer(IBodyProducer)
class _Body:
    def __init__(self, data: bytes) -> None:
        self.length = len(data)
        self._data = data

    def startProducing(self, consumer: Any) -> defer.Deferred[None]:  # noqa: N802 - twisted's name
        consumer.write(self._data)
        return defer.succeed(None)

    def pauseProducing(self) -> None:  # noqa: N802 - twisted's name
        """Do nothing: all data has been written."""

    def resumeProducing(self) -> None:  # noqa: N802 - twisted's name
        """Do nothing: all data has been written."""

    def stopProducing(self) -> None:  # noqa: N802 - twisted's name
        """Do nothing: all data has been written."""


class LiveService:
    """A project with live queries; use it through ``serving_live``."""

    def __init__(self, reactor: Any, database: Database, settings: Mapping[str, Any], **project: Any) -> None:
        fields = {
            "jwt_secret": SECRET,
            "publishable_keys": (KEY,),
            "live_interval": INTERVAL,
            "graphql_features": frozenset({"subscriptions"}),
            **project,
        }
        self.reactor = reactor
        self.database = database
        self.project = Project("abcdefghijklmnopqrst", "acme", database.uri, db_lane="always", **fields)
        self.settings = Settings((self.project,), **settings)
        self.part = ProjectPart(reactor, self.project)
        self.streams: list[Stream] = []
        self._agent = Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False))
        self.site: Any = None
        self._port: Any = None

    async def start(self) -> None:
        await self.part.start()
        assert self.part.apis is not None
        observe = request_observer(RequestMetrics(), "error", lambda _record: None)
        self.site = make_site([self.part.apis.backend], self.reactor, observe, settings=self.settings)
        self._port = self.reactor.listenTCP(0, self.site, interface="127.0.0.1")

    async def stop(self) -> None:
        await self._port.stopListening()
        await self.part.drain()
        await self.site.drain(5.0)
        for stream in self.streams:
            stream.close()
            await stream.ended
        await self.part.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.getHost().port}"

    @property
    def figures(self) -> Any:
        assert self.part.apis is not None
        assert self.part.apis.live is not None
        return self.part.apis.live.figures()

    async def open(
        self,
        target: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        **headers: str,
    ) -> Stream:
        """Request a stream; the response may be an error."""
        sent = Headers({"Accept": ["text/event-stream"], "apikey": [KEY]})
        if token is not None:
            sent.addRawHeader("Authorization", f"Bearer {token}")
        for name, value in headers.items():
            sent.setRawHeaders(name.replace("_", "-"), [value])
        producer = None
        if body is not None:
            sent.addRawHeader("Content-Type", "application/json")
            producer = _Body(json.dumps(body).encode())
        method = b"GET" if body is None else b"POST"
        response = await self._agent.request(method, f"{self.url}{target}".encode(), sent, producer)
        stream = Stream()
        stream.status = response.code
        stream.headers = {
            name.decode().lower(): values[0].decode() for name, values in response.headers.getAllRawHeaders()
        }
        self.streams.append(stream)
        response.deliverBody(stream)
        return stream

    async def rest(self, target: str, **named: Any) -> Stream:
        return await self.open(f"/rest/v1/{target}", **named)

    async def graphql(self, query: str, **named: Any) -> Stream:
        return await self.open("/graphql/v1", {"query": query}, **named)

    async def next(self, stream: Stream) -> Event:
        return await stream.event(self.reactor)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"timed out waiting for {what}"
            await task.deferLater(self.reactor, 0.01)


def signed(role: str = "authenticated", **claims: Any) -> str:
    """Return a signed token."""
    return jwt.encode({"role": role, **claims}, SECRET, "HS256")


@contextmanager
def serving_live(
    reactor: Any, database: Database, settings: Mapping[str, Any] | None = None, **project: Any
) -> Iterator[LiveService]:
    """Serve a database with live queries; keyword arguments are project settings."""
    service = LiveService(reactor, database, settings or {}, **project)
    run(service.start())
    try:
        yield service
    finally:
        run(service.stop())
