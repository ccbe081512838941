"""Limits of request bodies and connections, and their release on disconnect, over real sockets."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from dataapi.http.messages import Reply
from dataapi.web.server.request import Budget
from hypothesis import given
from hypothesis import strategies as st
from support.memory_http import KEY, NOW, PROJECT, SECRET, Web, raw, typename
from support.sockets import Client, Served, served, statuses, talk
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from zope.interface import implementer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGE = replace(PROJECT, max_body=20_000_000)
MEBIBYTE = 1_048_576


async def until(reactor: Any, condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    while not condition():
        await deferLater(reactor, 0.005)


def upload(size: int, *headers: tuple[str, str], key: str | None = KEY, path: str = "/rest/v1/blog") -> bytes:
    return raw("POST", path, headers=[("Content-Length", str(size)), *headers], key=key)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Disable garbage collection and trace memory allocation."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("framing", [("Content-Length", "15000000"), ("Transfer-Encoding", "chunked")])
async def test_body_of_an_aborted_upload_is_released(reactor: Any, framing: tuple[str, str]) -> None:
    piece = b"x" * MEBIBYTE
    if framing[1] == "chunked":
        piece = b"100000\r\n" + piece + b"\r\n"
    async with served(reactor, Web(typename, reply, LARGE)) as running:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2):
            client = await running.connect(raw("POST", "/rest/v1/blog", headers=[framing]))
            for _ in range(8):
                client.send(piece)
            [connection] = running.site.connections
            await until(reactor, partial(has_received, connection, 8 * MEBIBYTE))
            assert tracemalloc.get_traced_memory()[0] - before > 8 * MEBIBYTE
            client.abort()
            del connection
            await until(reactor, lambda: not running.site.connections)
            del client
        assert tracemalloc.get_traced_memory()[0] - before < MEBIBYTE


def has_received(connection: Any, size: int) -> bool:
    """Return whether this many bytes of the current body have been received."""
    return connection.request is not None and connection.request.received >= size


@pytest.mark.usefixtures("uncollected")
async def test_body_is_released_after_the_response(reactor: Any) -> None:
    web = Web(typename, reply, LARGE)
    async with served(reactor, web) as running:
        client = await running.connect()
        before = tracemalloc.get_traced_memory()[0]
        client.send(upload(8 * MEBIBYTE) + b"x" * 8 * MEBIBYTE)
        await client.wait_for(b"HTTP/1.1 200 OK")
        web.rest.received.clear()
        web.served.clear()
        assert tracemalloc.get_traced_memory()[0] - before < MEBIBYTE
        assert len(running.site.connections) == 1
        client.transport.loseConnection()


async def reply(request: Any, _caller: Any) -> Reply:
    """Respond with the length of the body."""
    return Reply(200, (), str(len(request.body)).encode())


async def test_large_bodies_share_a_memory_budget(reactor: Any) -> None:
    web = Web(typename, reply, LARGE)
    async with served(reactor, web, max_bodies=3 * MEBIBYTE) as running:
        first = await running.connect(upload(4 * MEBIBYTE) + b"x" * 2 * MEBIBYTE)
        await until(reactor, lambda: running.site.bodies.free < 2 * MEBIBYTE)
        second = await running.connect(upload(2 * MEBIBYTE) + b"x" * 2 * MEBIBYTE)
        refused = await second.ended
        assert statuses(refused) == [503]
        assert b"\r\nRetry-After: 1\r\n" in refused
        assert b'"code":"TOO_MANY_BODIES"' in refused
        small = await running.connect(upload(10_000, ("Connection", "close")) + b"x" * 10_000)
        assert statuses(await small.ended) == [200]
        first.abort()
        await until(reactor, lambda: running.site.bodies.free == 3 * MEBIBYTE)
        third = await running.connect(upload(2 * MEBIBYTE, ("Connection", "close")) + b"x" * 2 * MEBIBYTE)
        response = await third.ended
        assert statuses(response) == [200]
        assert response.endswith(b"\r\n\r\n2097152")
        assert running.site.bodies.free == 3 * MEBIBYTE


async def test_body_uses_the_budget_until_its_response(reactor: Any) -> None:
    ready: Deferred[None] = Deferred()

    async def wait(request: Any, _caller: Any) -> Reply:
        if request.query != "quick":
            await ready
        return Reply(200, (), b"")

    async with served(reactor, Web(typename, wait, LARGE), max_bodies=MEBIBYTE) as running:
        first = await running.connect(upload(MEBIBYTE, ("Connection", "close")) + b"x" * MEBIBYTE)
        await until(reactor, lambda: running.site.in_flight == 1)
        head = upload(100_000, path="/rest/v1/blog?quick")
        second = await running.connect(head + b"x" * 100_000)
        assert statuses(await second.ended) == [503]
        ready.callback(None)
        assert statuses(await first.ended) == [200]
        assert running.site.bodies.free == MEBIBYTE


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 200))
def test_budget_is_never_exceeded(counts: list[int], size: int) -> None:
    budget = Budget(size)
    reserved = [count for count in counts if budget.reserve(count)]
    assert sum(reserved) + budget.free == size
    assert all(count > budget.free for count in counts if count not in reserved)
    for count in reserved:
        budget.release(count)
    assert budget.free == size


WRONG = jwt.encode({"role": "anon"}, SECRET + "x", "HS256")


@pytest.mark.parametrize("path", ["/rest/v1/blog", "/graphql/v1"])
@pytest.mark.parametrize("key", [None, "nonsense", "a.b.c", WRONG])
@pytest.mark.parametrize("expectation", [(), (("Expect", "100-continue"),)])
async def test_invalid_key_is_rejected_before_the_body_is_read(
    reactor: Any, path: str, key: str | None, expectation: tuple[tuple[str, str], ...]
) -> None:
    web = Web(seconds=NOW)
    async with served(reactor, web) as running:
        client = await running.connect(upload(5000, *expectation, key=key, path=path))
        await client.wait_for(b"API key")
        assert statuses(client.received) == [401]
        assert b"\r\nConnection: close\r\n" in client.received
        await client.ended
    assert [one.status for one in web.served] == [401]
    assert web.rest.received == web.engine.received == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/nowhere", 404), ("TRACE", "/rest/v1/blog", 405), ("POST", "/rest/v1/a%zz", 400)],
)
async def test_errors_in_the_head_are_reported_before_the_body_is_read(
    reactor: Any, method: str, path: str, status: int
) -> None:
    async with served(reactor, Web()) as running:
        head = raw(method, path, headers=[("Content-Length", "5000")])
        client = await running.connect(head)
        await client.wait_for(b"\r\n\r\n")
        assert statuses(await client.ended) == [status]


async def test_valid_key_gets_100_continue(reactor: Any) -> None:
    key = jwt.encode({"role": "anon"}, SECRET, "HS256")
    async with served(reactor, Web(rest=reply)) as running:
        client = await running.connect(upload(4, ("Expect", "100-continue"), key=key))
        await client.wait_for(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.send(b"body")
        await client.wait_for(b"\r\n\r\n4")
        client.transport.loseConnection()


async def test_graphql_body_is_limited_to_one_mebibyte(reactor: Any) -> None:
    """While a document is parsed, other requests wait."""
    web = Web(typename, reply, LARGE)
    over = upload(MEBIBYTE + 1, ("Content-Type", "application/json"), path="/graphql/v1")
    assert statuses(await talk(reactor, web, over + b" " * (MEBIBYTE + 1))) == [413]


class Full:
    """A site with a limit of two connections. Both connections are busy."""

    def __init__(self) -> None:
        self.ready: Deferred[None] = Deferred()
        self.web = Web(rest=self.wait)

    async def wait(self, request: Any, _caller: Any) -> Reply:
        """Wait if the query string is ``wait``."""
        if request.query == "wait":
            await self.ready
        return Reply(200, (), b"done")

    async def fill(self, reactor: Any, running: Served) -> list[Client]:
        """Open connections up to the limit."""
        clients = [await running.connect(raw("GET", "/rest/v1/blog?wait")) for _ in range(2)]
        await until(reactor, lambda: running.site.in_flight == 2)
        return clients


@pytest.fixture
def warnings() -> Iterator[list[LogEvent]]:
    """Collect warnings of the web layer."""
    found: list[LogEvent] = []

    @implementer(ILogObserver)
    def observer(event: LogEvent) -> None:
        if event.get("log_namespace") == "dataapi.web" and event["log_level"].name == "warn":
            found.append(event)

    globalLogPublisher.addObserver(observer)
    yield found
    globalLogPublisher.removeObserver(observer)


@pytest.mark.parametrize(("path", "form"), [("/rest/v1/blog", b'{"code":'), ("/graphql/v1", b'{"errors":')])
async def test_connection_over_the_limit_gets_503(
    reactor: Any, warnings: list[LogEvent], path: str, form: bytes
) -> None:
    """The response has the format of the requested API. The log contains one warning per minute."""
    full = Full()
    async with served(reactor, full.web, max_connections=2) as running:
        clients = await full.fill(reactor, running)
        for _ in range(3):
            refused = await (await running.connect(upload(9000, path=path))).ended
            assert statuses(refused) == [503]
            assert refused.rpartition(b"\r\n\r\n")[2].startswith(form)
            assert b"\r\nRetry-After: 1\r\n" in refused
            assert b"\r\nConnection: close\r\n" in refused
        full.ready.callback(None)
        for client in clients:
            await client.wait_for(b"done")
            client.transport.loseConnection()
        await until(reactor, lambda: not running.site.connections)
        next_request = raw("GET", "/rest/v1/blog", headers=[("Connection", "close")])
        assert statuses(await (await running.connect(next_request)).ended) == [200]
    assert len(warnings) == 1


async def test_excess_rejected_connections_are_closed_immediately(reactor: Any) -> None:
    full = Full()
    async with served(reactor, full.web, max_connections=2) as running:
        clients = await full.fill(reactor, running)
        silent = [await running.connect() for _ in range(70)]
        await until(reactor, lambda: any(client.ended.called for client in silent))
        assert len(running.site.connections) <= 66
        for client in silent:
            client.abort()
        full.ready.callback(None)
        for client in clients:
            await client.wait_for(b"done")
            client.transport.loseConnection()
