"""A server stops responding without closing its connections."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.concurrency.timers import Backoff
from dataapi.database import cancel, failover, health
from dataapi.database.failover import FailoverWatch
from dataapi.database.listener import Listener
from dataapi.database.succession import Succession
from dataapi.http.errors import DatabaseUnavailable
from pytest_twisted import blockon
from support.freezing_proxy import FreezingProxy
from support.messages import message, open_all, running, until
from support.outages import frozen
from twisted.internet import defer, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

    MakePool = Callable[..., Pool]

pytestmark = pytest.mark.direct("a pooler holds its clients while the server is down")

EAGER = Backoff(longest=0.3, random=lambda: 0.0)


@pytest.fixture(autouse=True)
def _fast_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check often, but allow a live server the time that a busy machine may need."""
    monkeypatch.setattr(health, "CHECK_INTERVAL", 0.3)
    monkeypatch.setattr(health, "PROBE_TIMEOUT", 30.0)
    monkeypatch.setattr(health, "READY_TIMEOUT", 30.0)


@contextmanager
def frozen_server(server: Server) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(health, "PROBE_TIMEOUT", 0.3)
        patching.setattr(health, "READY_TIMEOUT", 0.3)
        patching.setattr(cancel, "RESPONSE_TIMEOUT", 2.0)
        unfreeze = frozen(server)
        try:
            yield
        finally:
            unfreeze()


async def started_pool(make_pool: MakePool, database: Database, size: int, **options: Any) -> Pool:
    uri = f"{database.uri}?connect_timeout=3"
    pool = make_pool(uri=uri, size=size, backoff=EAGER, **options)
    await pool.start()
    await open_all(pool, size)
    assert pool.figures().idle == size
    return pool


def sleeping(database: Database) -> int:
    [(count,)] = database.execute(
        "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
    )
    return int(count)


async def recovers(reactor: Any, pool: Pool) -> None:
    await until(reactor, lambda: pool.available)
    assert await pool.run(message("select 1")) == [(1,)]


async def test_idle_connections_that_do_not_respond_are_replaced(
    make_pool: MakePool, server: Server, database: Database, reactor: Any
) -> None:
    pool = await started_pool(make_pool, database, 3)
    watching = running(pool.watch())
    watching.addErrback(lambda failure: failure.trap(defer.CancelledError))
    with frozen_server(server):
        await until(reactor, lambda: pool.figures().open == 0)
        assert not pool.available
        await until(reactor, lambda: "timeout expired" in str(pool.trouble))
    await recovers(reactor, pool)
    watching.cancel()


async def test_statement_fails_with_503_if_the_server_does_not_respond(
    make_pool: MakePool, server: Server, database: Database, reactor: Any
) -> None:
    pool = await started_pool(make_pool, database, 1)
    with frozen_server(server):
        waiting = running(pool.fetch("select 1"))
        await pool._liveness.probe_quiet()
        assert not waiting.called
        await pool._liveness.probe_quiet()
        with pytest.raises(DatabaseUnavailable) as caught:
            await waiting
        assert (caught.value.status, caught.value.code) == (503, "PGRST001")
    await recovers(reactor, pool)


async def test_long_statement_on_a_live_server_continues(make_pool: MakePool, database: Database) -> None:
    pool = await started_pool(make_pool, database, 1)
    slow = running(pool.run(message("select 'done', pg_sleep(1.5)")))
    for _ in range(3):
        await pool._liveness.probe_quiet()
    assert pool.available
    assert (await slow)[0][0] == "done"
    assert pool.figures().connects == 1


@pytest.mark.parametrize("busy", [False, True])
async def test_readiness_check_detects_a_frozen_server(
    make_pool: MakePool, server: Server, database: Database, reactor: Any, busy: bool
) -> None:
    pool = await started_pool(make_pool, database, 2)
    statements = "select pg_sleep(0.5)" if busy else "select 1"
    pending = [running(pool.run(message(statements))) for _ in range(2)]
    await pool.check()
    assert pool.available
    await defer.gatherResults(pending)
    with frozen_server(server):
        waiting = [running(pool.run(message("select 1"))) for _ in range(2 if busy else 0)]
        await pool.check()
        assert not pool.available
        assert pool.trouble is not None
    for outcome in waiting:
        await outcome
    await until(reactor, lambda: not pool.figures().in_use)
    await pool.check()
    await recovers(reactor, pool)


@pytest.mark.parametrize("pooled", [False, True])
async def test_cancelling_many_statements_uses_no_threads_and_one_request(
    make_pool: MakePool,
    server: Server,
    database: Database,
    reactor: Any,
    monkeypatch: pytest.MonkeyPatch,
    pooled: bool,
) -> None:
    pool = await started_pool(make_pool, database, 8)
    for session in pool._sessions:
        session.connection.pooled = pooled
    sent: list[int] = []
    send = cancel._Server._send

    async def count_and_send(self: Any, text: str, pid: int) -> None:
        sent.append(pid)
        await send(self, text, pid)

    monkeypatch.setattr(cancel._Server, "_send", count_and_send)
    threads = threading.active_count()
    with frozen_server(server):
        waiting = [running(pool.run(message("select 1"))) for _ in range(8)]
        for each in waiting:
            each.cancel()
        for success, _ in await defer.DeferredList(waiting, consumeErrors=True):
            assert not success
        while pool.figures().open:
            await task.deferLater(reactor, 0.01)
            assert threading.active_count() <= threads
        assert len(sent) == (0 if pooled else 1)
    await recovers(reactor, pool)
    await until(reactor, lambda: threading.active_count() <= threads)


async def test_pool_is_available_again_after_a_response(make_pool: MakePool, database: Database) -> None:
    pool = await started_pool(make_pool, database, 1)
    await pool._liveness.probe_quiet()
    pool._liveness.silent = True
    await pool.run(message("select 1"))
    await pool._liveness.probe_quiet()
    assert pool.available


async def test_silent_server_without_a_successor_stays_primary(
    server: Server, database: Database, reactor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed_over: list[dict[str, str]] = []
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    uri = f"host=127.0.0.1,127.0.0.1 port={server.port},{port} dbname={database.name} user=authenticator"
    watch = FailoverWatch(reactor, uri, Succession(), failed_over.append)
    await watch.check()
    primary = watch._connection
    assert primary is not None
    try:
        monkeypatch.setattr(failover, "PROBE_TIMEOUT", 0.3)
        with frozen_server(server):
            await watch.check()
            assert primary.busy
            await watch.check()
        await primary.when_idle()
        monkeypatch.setattr(failover, "PROBE_TIMEOUT", 30.0)
        await watch.check()
        assert watch._connection is primary
        assert not primary.lost
    finally:
        primary.close()
    assert failed_over == []


async def test_listener_reconnects(server: Server, database: Database, reactor: Any) -> None:
    received: list[str] = []
    listener = Listener(
        reactor,
        f"{database.uri}?connect_timeout=3",
        ["pgrst"],
        on_notification=lambda _, payload: received.append(payload),
        on_reconnect=lambda: received.append("again"),
        backoff=EAGER,
    )
    await listener.start()
    try:
        with frozen_server(server):
            await until(reactor, lambda: not listener.listening)
        await until(reactor, lambda: listener.listening)
        assert received == ["again"]
        database.execute("notify pgrst, 'news'")
        await until(reactor, lambda: received == ["again", "news"])
    finally:
        await listener.stop()


@pytest.fixture
def proxy(reactor: Any, database: Database) -> Iterator[FreezingProxy]:
    """Return a proxy for the database that can freeze connections."""
    new = FreezingProxy(reactor, database)
    yield new
    blockon(running(new.stop()))


async def test_timeout_of_a_statement_closes_frozen_connections(
    make_pool: MakePool, proxy: FreezingProxy, reactor: Any
) -> None:
    pool = make_pool(uri=proxy.uri, size=3, backoff=EAGER)
    await pool.start()
    await open_all(pool, 3)
    proxy.freeze()
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(health, "PROBE_TIMEOUT", 0.3)
        patching.setattr(health, "READY_TIMEOUT", 0.3)
        with pytest.raises(DatabaseUnavailable, match=r"did not respond within 0\.2 seconds") as caught:
            await pool.fetch("select 1", timeout=0.2)
        assert (caught.value.status, caught.value.code) == (503, "PGRST001")
        await until(reactor, lambda: pool.figures().connects > 3)
    assert await pool.with_timeout(60.0).fetch("select 2") == [(2,)]
    await until(reactor, lambda: all(not pipe.frozen for pipe in proxy.pipes))
