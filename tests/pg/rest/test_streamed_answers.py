"""Rows from PostgreSQL to a client's socket: in constant memory, and ended when the client goes away."""

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
    """Sends one request and reads when it is told to."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended: Deferred[None] = Deferred()
        self.transport: Any

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        """Read nothing yet."""
        self.transport.pauseProducing()
        self.transport.write(raw("GET", "/rest/v1/rows", headers=[("Connection", "close")]))

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Keep what came."""
        self.received += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        """Tell the end."""
        self.ended.callback(None)


class Serving:
    """A site that streams one statement to a client."""

    def __init__(self, reactor: Any, pool: Pool, text: str) -> None:
        self.reactor = reactor
        self.pool = pool
        self.text = text
        self.made = 0
        self.largest = 0
        web = Web(rest=self.answer)
        self.served = web.served
        self.site = make_site(web.backends, reactor, self.served.append)
        self.port = reactor.listenTCP(0, self.site, interface="127.0.0.1")

    async def answer(self, _request: Request, _caller: Any) -> Reply:
        """Answer with the rows, and measure the pieces."""
        batches = self.pool.stream(message(self.text, role="authenticated"))
        return Reply(200, (), b"", self._measured(stream_json_lines(batches)))

    async def _measured(self, stream: Stream) -> Stream:
        try:
            async for piece in stream:
                self.made += len(piece)
                self.largest = max(self.largest, len(piece))
                yield piece
        finally:
            await stream.aclose()

    async def connect(self) -> Client:
        """Ask for the rows, reading none of them."""
        creator = ClientCreator(self.reactor, Client)
        client: Client = await creator.connectTCP("127.0.0.1", self.port.getHost().port)
        return client

    async def stop(self) -> None:
        """Close everything."""
        await self.port.stopListening()
        await self.site.drain(5)


def unchunked(data: bytes) -> tuple[bytes, bool]:
    """Return the body of a chunked answer, and whether its end is there."""
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


async def test_a_hundred_thousand_rows_wait_in_the_database_and_not_in_memory(
    make_pool: Callable[..., Pool], reactor: Any
) -> None:
    pool = make_pool(size=2)
    await pool.start()
    serving = Serving(reactor, pool, TEXT.format(ROWS))
    client = await serving.connect()
    before = -1

    def stands_still() -> bool:
        nonlocal before
        same, before = serving.made == before > 0, serving.made
        return same

    await until(reactor, stands_still)
    # What the kernel's buffers for a socket take, not the more than twenty megabytes of all the rows.
    assert serving.made < 10_000_000
    client.transport.resumeProducing()
    await client.ended
    await serving.stop()
    body, whole = unchunked(bytes(client.received))
    assert whole
    lines = body.decode().splitlines()
    assert [json.loads(line)["id"] for line in lines] == list(range(1, ROWS + 1))
    assert serving.largest < 2 * 65_536
    assert await pool.run(message("select current_user::text")) == [("anon",)]


async def test_a_client_that_goes_away_frees_the_connection_and_its_role(
    make_pool: Callable[..., Pool], database: Database, reactor: Any
) -> None:
    pool = make_pool(size=1)
    await pool.start()
    serving = Serving(reactor, pool, TEXT.format(10_000_000))
    client = await serving.connect()
    await until(reactor, lambda: serving.made > 100_000)
    assert pool.figures().in_use == 1
    client.transport.abortConnection()
    await until(reactor, lambda: bool(serving.served))
    assert await pool.run(message("select current_user::text")) == [("anon",)]
    assert serving.served[0].status == 499
    await serving.stop()
    others = "select 1 from pg_stat_activity where usename = 'authenticator' and state <> 'idle'"
    await until(reactor, lambda: not database.execute(others))


async def test_an_error_in_the_middle_leaves_the_answer_without_its_end(
    make_pool: Callable[..., Pool], reactor: Any
) -> None:
    pool = make_pool(size=1)
    await pool.start()
    serving = Serving(reactor, pool, f"{TEXT.format(5000)} where g < 4000 or 1 / (4500 - g) is not null")
    client = await serving.connect()
    client.transport.resumeProducing()
    await client.ended
    await serving.stop()
    body, whole = unchunked(bytes(client.received))
    assert body.startswith(b'{"id" : 1,')
    assert not whole
    assert await pool.run(message("select current_user::text")) == [("anon",)]


async def batches_of(*batches: list[tuple[Any, ...]]) -> AsyncGenerator[list[tuple[Any, ...]], None]:
    """Give batches."""
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
async def test_rows_become_lines_behind_what_comes_before_them(
    batches: list[list[tuple[Any, ...]]], expected: list[bytes]
) -> None:
    assert [piece async for piece in stream_rows(batches_of(*batches), prefix=b"head\n")] == expected


async def test_a_json_value_stays_on_its_line(pool: Pool) -> None:
    """PostgreSQL keeps the white space of ``json`` columns; it is none of the value."""
    text = """select json_build_object('a', E'{\n "b":\r\n 1}'::json, 'c', E'x\ny')"""
    [line] = [piece async for piece in stream_json_lines(pool.stream(message(text)))]
    assert line.count(b"\n") == 1
    assert b"\r" not in line
    assert json.loads(line) == {"a": {"b": 1}, "c": "x\ny"}
