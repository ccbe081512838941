"""Streaming of rows from PostgreSQL to a client's socket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.http.messages import Reply, Request, Stream
from dataapi.rest.stream import stream_json_lines, stream_rows
from dataapi.web.app import make_site
from support.memory_http import Web, raw
from support.messages import message, until
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ClientCreator, Protocol, connectionDone

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database
    from twisted.python.failure import Failure

pytestmark = pytest.mark.own_sql

ROWS = 100_000
TEXT = "select json_build_object('id', g, 'pad', repeat('x', 200)) from generate_series(1, {}) g"


class Client(Protocol):
    """A client that sends one request and reads only after ``resumeProducing``."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended: Deferred[None] = Deferred()
        self.transport: Any

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        self.transport.pauseProducing()
        self.transport.write(raw("GET", "/rest/v1/rows", headers=[("Connection", "close")]))

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        self.received += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        self.ended.callback(None)


class Serving:
    """A site that streams the result of one statement."""

    def __init__(self, reactor: Any, pool: Pool, text: str) -> None:
        self.reactor = reactor
        self.pool = pool
        self.text = text
        self.sent = 0
        self.largest = 0
        web = Web(rest=self.respond)
        self.served = web.served
        self.site = make_site(web.backends, reactor, self.served.append)
        self.port = reactor.listenTCP(0, self.site, interface="127.0.0.1")

    async def respond(self, _request: Request, _caller: Any) -> Reply:
        """Stream the rows and record the sizes of the pieces."""
        batches = self.pool.stream(message(self.text, role="authenticated"))
        return Reply(200, (), b"", self._measured(stream_json_lines(batches)))

    async def _measured(self, stream: Stream) -> Stream:
        try:
            async for piece in stream:
                self.sent += len(piece)
                self.largest = max(self.largest, len(piece))
                yield piece
        finally:
            await stream.aclose()

    async def connect(self) -> Client:
        """Request the rows without reading the response."""
        creator = ClientCreator(self.reactor, Client)
        client: Client = await creator.connectTCP("127.0.0.1", self.port.getHost().port)
        return client

    async def stop(self) -> None:
        await self.port.stopListening()
        await self.site.drain(5)


def unchunked(data: bytes) -> tuple[bytes, bool]:
    """Return the body of a chunked response and whether it is complete."""
    rest = data.partition(b"\r\n\r\n")[2]
    pieces: list[bytes] = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return b"".join(pieces), True
        pieces.append(rest[:length])
        rest = rest[length + 2 :]
    return b"".join(pieces), False


async def test_rows_of_a_slow_client_are_not_buffered_in_memory(
    make_pool: Callable[..., Pool], reactor: Any
) -> None:
    pool = make_pool(size=2)
    await pool.start()
    serving = Serving(reactor, pool, TEXT.format(ROWS))
    client = await serving.connect()
    before = -1

    def has_stalled() -> bool:
        nonlocal before
        same, before = serving.sent == before > 0, serving.sent
        return same

    await until(reactor, has_stalled)
    # The kernel buffers a few megabytes for a socket. The whole response is larger than 20 MB.
    assert serving.sent < 10_000_000
    client.transport.resumeProducing()
    await client.ended
    await serving.stop()
    body, is_complete = unchunked(bytes(client.received))
    assert is_complete
    lines = body.decode().splitlines()
    assert [json.loads(line)["id"] for line in lines] == list(range(1, ROWS + 1))
    assert serving.largest < 2 * 65_536
    assert await pool.run(message("select current_user::text")) == [("anon",)]


async def test_disconnected_client_releases_the_database_connection(
    make_pool: Callable[..., Pool], database: Database, reactor: Any
) -> None:
    pool = make_pool(size=1)
    await pool.start()
    serving = Serving(reactor, pool, TEXT.format(10_000_000))
    client = await serving.connect()
    await until(reactor, lambda: serving.sent > 100_000)
    assert pool.figures().in_use == 1
    client.transport.abortConnection()
    await until(reactor, lambda: bool(serving.served))
    assert await pool.run(message("select current_user::text")) == [("anon",)]
    assert serving.served[0].status == 499
    await serving.stop()
    others = "select 1 from pg_stat_activity where usename = 'authenticator' and state <> 'idle'"
    await until(reactor, lambda: not database.execute(others))


async def test_error_after_the_first_rows_truncates_the_response(
    make_pool: Callable[..., Pool], reactor: Any
) -> None:
    pool = make_pool(size=1)
    await pool.start()
    serving = Serving(reactor, pool, f"{TEXT.format(5000)} where g < 4000 or 1 / (4500 - g) is not null")
    client = await serving.connect()
    client.transport.resumeProducing()
    await client.ended
    await serving.stop()
    body, is_complete = unchunked(bytes(client.received))
    assert body.startswith(b'{"id" : 1,')
    assert not is_complete
    assert await pool.run(message("select current_user::text")) == [("anon",)]


async def batches_of(*batches: list[tuple[Any, ...]]) -> AsyncGenerator[list[tuple[Any, ...]], None]:
    for batch in batches:
        yield batch


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([[("a",), ("b",)], [("c",)]], [b"head\na\nb", b"\nc"]),
        ([], [b"head\n"]),
        ([[(b"bytes",), (None,), ("é",)]], ["head\nbytes\n\né".encode()]),
    ],
)
async def test_rows_become_lines_after_the_prefix(
    batches: list[list[tuple[Any, ...]]], expected: list[bytes]
) -> None:
    assert [piece async for piece in stream_rows(batches_of(*batches), prefix=b"head\n")] == expected


async def test_json_value_stays_on_one_line(pool: Pool) -> None:
    """PostgreSQL preserves white space in ``json`` values, so the stream removes newlines."""
    text = """select json_build_object('a', E'{\n "b":\r\n 1}'::json, 'c', E'x\ny')"""
    [line] = [piece async for piece in stream_json_lines(pool.stream(message(text)))]
    assert line.count(b"\n") == 1
    assert b"\r" not in line
    assert json.loads(line) == {"a": {"b": 1}, "c": "x\ny"}
