"""Processor time of a round trip with psycopg2, and with the pools of txpostgres, psycopg and the daemon.

Run as ``PYTHONPATH=daemon:tests python tests/bench/pool.py [RUNS]`` with ``psycopg-pool`` installed. The
columns are microseconds of processor time per round trip: of this process for sequential round trips, and of
this process and PostgreSQL for 16 concurrent round trips. The last column is round trips per second.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg2
from bench.load import processor_time
from dataapi.database.message import Bound, Message, Statement
from dataapi.database.pool import Pool
from psycopg_pool import AsyncConnectionPool
from support.postgres import Database, Server
from twisted.internet import defer, task, threads
from txpostgres import txpostgres

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Once = Callable[[], Awaitable[Any]]
    Repeat = Callable[[int], Awaitable[None]]

CLAIMS = '{"role":"authenticated","sub":"3f0c9a52-6a34-4f8e-9a8e-0d6c0b2c9a10","email":"user@example.com"}'
SETTINGS = (
    ("request.jwt.claims", CLAIMS),
    ("request.method", "POST"),
    ("request.path", "/graphql/v1"),
    ("request.headers", '{"user-agent":"bench","accept":"application/json","host":"localhost"}'),
)
SIMPLE = (
    "select set_config('role',%s,true),set_config('request.jwt.claims',%s,true),"
    "set_config('request.method',%s,true),set_config('request.path',%s,true),"
    "set_config('request.headers',%s,true),set_config('transaction_read_only','on',true);"
    "execute lookup(%s);"
)
VALUES = ("authenticated", *(value for _, value in SETTINGS), "17")
PREPARE = "prepare lookup(int) as select $1 + 1"


def synchronous(database: Database, runs: int) -> float:
    """Return the microseconds of a round trip with a blocking psycopg2 connection."""
    connection = psycopg2.connect(database.uri)
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute(PREPARE)
    start = time.process_time()
    for _ in range(runs):
        cursor.execute(SIMPLE, VALUES)
        cursor.fetchall()
    used = time.process_time() - start
    connection.close()
    return used / runs * 1e6


class Times(NamedTuple):
    """Times of round trips.

    :ivar sequential: microseconds of this process's processor time.
    :ivar concurrent: microseconds of this process's processor time with 16 concurrent round trips.
    :ivar postgres: microseconds of PostgreSQL's processor time with 16 concurrent round trips.
    :ivar rate: round trips per second with 16 concurrent round trips.
    """

    sequential: float
    concurrent: float
    postgres: float
    rate: float

    def __str__(self) -> str:
        return f"{self.sequential:10.1f}{self.concurrent:12.1f}{self.postgres:10.1f}{self.rate:12.0f}"


async def timed(several: Repeat, together: Repeat, runs: int, server: Server) -> Times:
    """Measure round trips.

    :param several: makes this number of round trips, one at a time.
    :param together: makes this number of round trips, 16 at a time.
    """
    await together(1600)
    start = time.process_time()
    await several(runs)
    sequential = time.process_time() - start
    start, start_of_server, began = time.process_time(), processor_time(server.pid), time.perf_counter()
    await together(runs)
    concurrent, postgres = time.process_time() - start, processor_time(server.pid) - start_of_server
    rate = runs // 16 * 16 / (time.perf_counter() - began)
    each = 1e6 / runs
    return Times(sequential * each, concurrent * each, postgres * each, rate)


async def by_psycopg_pool(database: Database, runs: int, server: Server) -> Times:
    """Measure psycopg's asyncio pool, with settings and statement in one pipeline."""
    settings, statement = SIMPLE.split(";", maxsplit=1)[0], "select %s::int + 1"

    async def several(count: int) -> None:
        for _ in range(count):
            async with pool.connection() as connection, connection.pipeline(), connection.transaction():
                await connection.execute(settings, VALUES[:-1], prepare=True)
                cursor = await connection.execute(statement, VALUES[-1:], prepare=True)
                await cursor.fetchall()

    async def together(count: int) -> None:
        await asyncio.gather(*(several(count // 16) for _ in range(16)))

    async with AsyncConnectionPool(database.uri, min_size=10, max_size=10) as pool:
        return await timed(several, together, runs, server)


async def measure(once: Once, runs: int, server: Server) -> Times:
    """Measure a pool for Twisted. ``once`` makes a round trip."""

    async def several(count: int) -> None:
        for _ in range(count):
            await once()

    async def together(count: int) -> None:
        await defer.gatherResults([defer.Deferred.fromCoroutine(several(count // 16)) for _ in range(16)])

    return await timed(several, together, runs, server)


async def main(reactor: Any, runs: int) -> None:
    server = Server()
    try:
        server.create()
        database = server.create_database()
        print(f"{'':34}{'us':>10}{'us of 16':>12}{'server':>10}{'per second':>12}")  # noqa: T201
        print(f"{'psycopg2, blocking':34}{synchronous(database, runs):10.1f}")  # noqa: T201
        times = await threads.deferToThread(asyncio.run, by_psycopg_pool(database, runs, server))
        print(f"{'psycopg pool, pipeline':34}{times}")  # noqa: T201
        for name, make in (
            ("txpostgres pool, runQuery", _bare),
            ("dataapi pool, own connections", partial(_ours, shareable=False)),
            ("dataapi pool, shared connections", partial(_ours, shareable=True)),
        ):
            once, close = await make(reactor, database)
            print(f"{name:34}{await measure(once, runs, server)}")  # noqa: T201
            await close()
    finally:
        server.remove()


async def _bare(reactor: Any, database: Database) -> tuple[Once, Once]:
    pool = txpostgres.ConnectionPool(None, database.uri, min=10)
    pool.reactor = reactor
    await pool.start()
    for connection in pool.connections:
        await connection.runOperation(PREPARE)

    async def close() -> None:
        pool.close()

    return lambda: pool.runQuery(SIMPLE, VALUES), close


async def _ours(reactor: Any, database: Database, *, shareable: bool) -> tuple[Once, Once]:
    pool = Pool(reactor, database.uri, size=10)
    await pool.start()
    bound = Bound(Statement("select $1 + 1", ("int",)), ("17",))
    message = Message("authenticated", SETTINGS, (bound,), shareable=shareable)
    return lambda: pool.run(message), pool.stop


if __name__ == "__main__":
    task.react(
        lambda reactor: defer.Deferred.fromCoroutine(main(reactor, int((sys.argv[1:] or ["4000"])[0])))
    )
