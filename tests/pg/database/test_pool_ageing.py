"""``db-pool-max-idletime`` and ``db-pool-max-lifetime`` close connections without failing requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.message import Bound, Message, Statement
from support.messages import message, running, until
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database

    MakePool = Callable[..., Pool]

PROCESS = Bound(Statement("select pg_backend_pid()", ()))


async def occupy(pool: Pool, count: int, reactor: Any) -> None:
    pending = [running(pool.run(message("select pg_sleep(600)"))) for _ in range(count)]
    await until(reactor, lambda: pool.figures().in_use == count)
    for each in pending:
        each.cancel()
        with pytest.raises(defer.CancelledError):
            await each


@pytest.mark.direct("a pooler shares its server processes")
async def test_surplus_idle_connections_are_closed(
    make_pool: MakePool, database: Database, reactor: Any
) -> None:
    pool = make_pool(size=4, idle_time=0.3)
    await pool.start()
    watching = running(pool.watch())
    try:
        for _ in range(2):
            await occupy(pool, 4, reactor)
            await until(reactor, lambda: pool.figures().open == 1)
        connections = "select count(*) from pg_stat_activity where usename = 'authenticator' and datname = %s"
        # The remaining connection and the control connection for cancel requests.
        await until(reactor, lambda: database.execute(connections, (database.name,)) == [(2,)])
        assert await pool.run(message("select 1")) == [(1,)]
    finally:
        watching.cancel()
        with pytest.raises(defer.CancelledError):
            await watching


@pytest.mark.direct("a pooler shares its server processes")
@pytest.mark.parametrize("size", [1, 3])
async def test_old_connections_are_replaced_while_requests_run(
    make_pool: MakePool, reactor: Any, size: int
) -> None:
    pool = make_pool(size=size, lifetime=0.3)
    await pool.start()
    watching = running(pool.watch())
    processes: set[int] = set()

    async def client() -> None:
        while len(processes) < 3 * size:
            [(process,)] = await pool.run(Message("anon", (), (PROCESS,)))
            processes.add(process)

    try:
        await defer.gatherResults([running(client()) for _ in range(2 * size)])
        await until(reactor, lambda: pool.figures().connects > 3 * size)
        assert pool.figures().open <= max(2, size)
    finally:
        watching.cancel()
        with pytest.raises(defer.CancelledError):
            await watching


@pytest.mark.direct("a pooler shares its server processes")
async def test_old_connection_stays_if_no_new_one_can_be_opened(
    make_pool: MakePool, database: Database, reactor: Any
) -> None:
    database.execute("create role narrow login connection limit 1; grant anon to narrow")
    try:
        pool = make_pool(uri=database.uri.replace("authenticator", "narrow"), size=2, lifetime=0.1)
        await pool.start()
        watching = running(pool.watch())
        await until(reactor, lambda: pool.trouble is not None)
        assert await pool.run(message("select 1")) == [(1,)]
        assert pool.figures().connects == 1
        watching.cancel()
        with pytest.raises(defer.CancelledError):
            await watching
        await pool.stop()
    finally:
        await until(
            reactor, lambda: not database.execute("select 1 from pg_stat_activity where usename = 'narrow'")
        )
        database.execute("drop role narrow")
