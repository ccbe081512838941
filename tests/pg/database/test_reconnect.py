"""Requests fail clearly while connections or the server are down, and the pool recovers."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.concurrency.timers import Backoff
from dataapi.database.address import parameters
from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from dataapi.testing import free_port
from support.clocks import FOR_EVER
from support.messages import message, open_all, running, until
from twisted.internet import defer, task, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

    MakePool = Callable[..., Pool]

pytestmark = pytest.mark.direct("a pooler holds its clients while the server is down")


def sleeping(database: Database) -> int:
    rows = database.execute(
        "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
    )
    return int(rows[0][0])


async def test_statement_on_a_terminated_connection_is_503(
    pool: Pool, server: Server, database: Database, reactor: Any
) -> None:
    slow = [running(pool.run(message("select pg_sleep(30)"))) for _ in range(3)]
    await until(reactor, lambda: sleeping(database) == 3)
    server.terminate_backends(database)
    for success, failure in await defer.DeferredList(slow, consumeErrors=True):
        assert not success
        assert isinstance(failure.value, DatabaseUnavailable)
        assert (failure.value.status, failure.value.code) == (503, "PGRST001")
        assert ("Retry-After", "1") in failure.value.headers
    assert await pool.run(message("select 1")) == [(1,)]


async def test_terminated_idle_connections_are_replaced(
    pool: Pool, server: Server, database: Database, reactor: Any
) -> None:
    await open_all(pool, 3)
    assert pool.figures().open == 3
    server.terminate_backends(database)
    await until(reactor, lambda: pool.figures().connects > 3 and pool.available)
    results = [running(pool.run(message("select 1"))) for _ in range(6)]
    assert await defer.gatherResults(results) == [[(1,)]] * 6


async def test_pool_recovers_while_backends_are_killed(
    make_pool: MakePool, server: Server, database: Database, reactor: Any
) -> None:
    """While backends are killed, every request gets its own result or 503."""
    expected = {"answered", 503}
    pool = make_pool(size=4, backoff=Backoff(random=lambda: 0.0))
    await pool.start()
    killing = True
    outcomes: set[object] = set()

    async def client(name: str) -> None:
        while killing:
            try:
                rows = await pool.run(message("select $1, pg_sleep(0.002)", name))
            except DatabaseUnavailable as error:
                outcomes.add(error.status)
            else:
                assert rows[0][0] == name
                outcomes.add("answered")
            await task.deferLater(reactor, 0)

    clients = [running(client(f"client {number}")) for number in range(8)]
    kills = 0
    while kills < 10 or not outcomes >= expected:
        kills += 1
        await threads.deferToThread(server.terminate_backends, database)
        # Wait a little longer after each kill, so that some requests succeed.
        await task.deferLater(reactor, kills / 500)
    killing = False
    await defer.gatherResults(clients)
    assert outcomes == expected
    await task.deferLater(reactor, 0)  # the reactor notices the last closed connections
    await until(reactor, lambda: pool.available)
    results = [running(pool.run(message("select 1"))) for _ in range(8)]
    assert await defer.gatherResults(results) == [[(1,)]] * 8


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_requests_get_503_during_a_server_restart(
    make_pool: MakePool, server: Server, reactor: Any, mode: str
) -> None:
    pool = make_pool(size=4, acquisition_timeout=FOR_EVER, backoff=Backoff(random=lambda: 0.0))
    await pool.start()
    outcomes: list[object] = []
    finished = False

    async def client() -> None:
        while not finished:
            try:
                await pool.run(message("select 1"))
                outcomes.append(200)
            except ApiError as error:
                retry = int(dict(error.headers)["Retry-After"])
                outcomes.append(error.status if retry >= 1 else "no time to retry")
            await task.deferLater(reactor, 0.001)

    clients = [running(client()) for _ in range(8)]
    await threads.deferToThread(server.stop, mode)
    await until(reactor, lambda: not pool.available)
    outcomes.clear()
    await until(reactor, lambda: len(outcomes) > 100)
    assert set(outcomes) == {503}
    await threads.deferToThread(server.start)
    await until(reactor, lambda: pool.available)
    outcomes.clear()
    await until(reactor, lambda: len(outcomes) > 100)
    assert set(outcomes[20:]) == {200}
    finished = True
    await defer.gatherResults(clients)


async def test_pool_recovers_if_the_server_starts_later(
    make_pool: MakePool, server: Server, reactor: Any
) -> None:
    pool = make_pool(acquisition_timeout=FOR_EVER, backoff=Backoff(random=lambda: 0.0))
    server.stop()
    try:
        await pool.start()
        assert not pool.available
        with pytest.raises(DatabaseUnavailable) as caught:
            await pool.run(message("select 1"))
        assert (caught.value.status, caught.value.code) == (503, "PGRST000")
        assert "127.0.0.1" not in f"{caught.value.message}{caught.value.details}"
    finally:
        server.start()
    await until(reactor, lambda: pool.available)
    assert await pool.run(message("select 1")) == [(1,)]


@pytest.fixture
def black_hole() -> Iterator[int]:
    """Return the port of a listener that never responds."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def test_connecting_does_not_block_and_obeys_connect_timeout(
    make_pool: MakePool, black_hole: int, reactor: Any
) -> None:
    """The pool implements ``connect_timeout``, because libpq ignores it in asynchronous connections."""
    pool = make_pool(uri=f"postgresql://nobody@127.0.0.1:{black_hole}/none?connect_timeout=1")
    starting = running(pool.start())
    ticks = 0
    while not starting.called:
        ticks += 1
        await task.deferLater(reactor, 0.02)
    assert ticks > 2
    with pytest.raises(DatabaseUnavailable):
        await pool.run(message("select 1"))


async def test_pool_can_be_stopped_while_connecting(
    make_pool: MakePool, black_hole: int, reactor: Any
) -> None:
    pool = make_pool(uri=f"postgresql://nobody@127.0.0.1:{black_hole}/none?connect_timeout={FOR_EVER:.0f}")
    starting = running(pool.start())
    waiting = running(pool.run(message("select 1")))
    await task.deferLater(reactor, 0.05)
    await pool.stop()
    await starting
    with pytest.raises(DatabaseUnavailable):
        await waiting


def with_hosts(database: Database, *others: str) -> str:
    own = database.uri.split("@")[1].split("/")[0]
    return database.uri.replace(own, ",".join([*others, own]))


async def test_next_host_is_tried_after_connection_refused(make_pool: MakePool, database: Database) -> None:
    refusing = f"127.0.0.1:{free_port()}"
    pool = make_pool(uri=with_hosts(database, refusing, f"localhost:{free_port()}"))
    await pool.start()
    assert await pool.run(message("select 1")) == [(1,)]
    assert pool.trouble is None


async def test_next_host_is_tried_after_connect_timeout(
    make_pool: MakePool, database: Database, black_hole: int
) -> None:
    pool = make_pool(uri=with_hosts(database, f"127.0.0.1:{black_hole}") + "?connect_timeout=1")
    await pool.start()
    assert await pool.run(message("select 1")) == [(1,)]


async def test_hosts_may_include_a_socket_directory(
    make_pool: MakePool, server: Server, database: Database
) -> None:
    for hosts in (f"/nowhere,{server.folder}", f"127.0.0.9,{server.folder}", f"{server.folder},127.0.0.9"):
        pool = make_pool(uri=f"host={hosts} port={server.port} user=authenticator dbname={database.name}")
        await pool.start()
        assert await pool.run(message("select inet_server_addr() is null")) == [(True,)]


async def test_connection_error_names_every_host(make_pool: MakePool) -> None:
    first, second = free_port(), free_port()
    pool = make_pool(uri=f"postgresql://u@127.0.0.1:{first},nowhere.invalid:1,127.0.0.1:{second}/x")
    await pool.start()
    assert pool.trouble is not None
    reasons = pool.trouble.split("; ")
    assert reasons[0].startswith(
        f'connection to server at "127.0.0.1", port {first} failed: Connection refused'
    )
    assert reasons[1].startswith('could not translate host name "nowhere.invalid" to address: ')
    assert reasons[2].startswith(
        f'connection to server at "127.0.0.1", port {second} failed: Connection refused'
    )


async def test_next_host_is_not_tried_after_a_failed_login(make_pool: MakePool, server: Server) -> None:
    address = f"127.0.0.1:{server.port}"
    pool = make_pool(uri=f"postgresql://nobody_here@{address},127.0.0.1:{free_port()}/postgres")
    await pool.start()
    assert pool.trouble == (
        f'connection to server at "127.0.0.1", port {server.port} failed: '
        'FATAL:  role "nobody_here" does not exist'
    )


@pytest.mark.parametrize("state", ["08001", "08006", "57P01"])
async def test_connection_error_raised_by_a_statement_is_503(
    make_pool: MakePool, database: Database, state: str
) -> None:
    """A foreign server may be unreachable while our own connection still works."""
    database.execute(
        "create function away(code text) returns int language plpgsql as"
        " $$ begin raise 'could not connect to server \"far\"' using errcode = code; end $$"
    )
    pool = make_pool(size=1)
    await pool.start()
    for _ in range(2):
        with pytest.raises(DatabaseError) as caught:
            await pool.run(message("select away($1)", state))
        assert (caught.value.status, caught.value.code) == (503, state)
        assert caught.value.message == 'could not connect to server "far"'
    assert await pool.run(message("select 1")) == [(1,)]
    assert pool.figures().connects == 1


async def test_host_name_is_resolved(make_pool: MakePool, database: Database) -> None:
    pool = make_pool(uri=database.uri.replace("127.0.0.1", "localhost"))
    await pool.start()
    assert await pool.run(message("select 1")) == [(1,)]


async def test_unknown_host_name_is_unavailable(make_pool: MakePool) -> None:
    pool = make_pool(uri="postgresql://nobody@nowhere.invalid/none")
    await pool.start()
    with pytest.raises(DatabaseUnavailable):
        await pool.run(message("select 1"))


async def test_requests_share_the_connections_that_the_server_allows(
    make_pool: MakePool, server: Server, database: Database
) -> None:
    database.execute("create role narrow login connection limit 2; grant anon to narrow")
    try:
        pool = make_pool(
            uri=database.uri.replace("authenticator", "narrow"), size=5, prepared_statements=False
        )
        await pool.start()
        results = [running(pool.run(message("select 1, pg_sleep(0.02)"))) for _ in range(10)]
        assert [rows[0][0] for rows in await defer.gatherResults(results)] == [1] * 10
        assert pool.figures().open <= 2
        await pool.stop()
    finally:
        server.terminate_backends(database, "narrow")
        database.execute("drop role narrow")


@pytest.mark.parametrize("prepared", [True, False])
async def test_cancelled_request_cancels_its_statement(
    make_pool: MakePool, database: Database, reactor: Any, prepared: bool
) -> None:
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    slow = running(pool.run(message("select pg_sleep(30)")))
    await until(reactor, lambda: sleeping(database) == 1)
    slow.cancel()
    with pytest.raises(defer.CancelledError):
        await slow
    assert await pool.run(message("select 1")) == [(1,)]
    assert sleeping(database) == 0
    figures = pool.figures()
    assert (figures.connects, figures.cancels) == (1, 1)


async def test_request_cancelled_while_waiting_sends_nothing(make_pool: MakePool) -> None:
    pool = make_pool(size=1)
    await pool.start()
    first = running(pool.run(message("select 'first', pg_sleep(0.1)")))
    second = running(pool.run(message("select 'second'")))
    third = running(pool.run(message("select 'third'")))
    second.cancel()
    with pytest.raises(defer.CancelledError):
        await second
    assert (await first)[0][0] == "first"
    assert await third == [("third",)]
    assert pool.figures().cancels == 0


async def test_statement_that_cannot_be_cancelled_loses_its_connection(
    make_pool: MakePool, database: Database, reactor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataapi.database.cancel.CANCEL_WAITS", (0.05, 0.05))
    database.execute(
        "create function stubborn() returns int language plpgsql as $$ begin loop "
        "begin perform pg_sleep(30); exception when query_canceled then null; end; end loop; end $$"
    )
    pool = make_pool(size=1)
    await pool.start()
    slow = running(pool.run(message("select stubborn()")))
    await until(reactor, lambda: sleeping(database) == 1)
    slow.cancel()
    with pytest.raises(defer.CancelledError):
        await slow
    assert await pool.run(message("select 1")) == [(1,)]
    await until(reactor, lambda: sleeping(database) == 0)
    assert pool.figures().connects == 2


async def test_dead_control_connection_is_replaced(
    make_pool: MakePool, database: Database, reactor: Any
) -> None:
    pool = make_pool(size=1)
    await pool.start()
    kill = "select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_cancel%'"
    for _ in range(3):
        slow = running(pool.run(message("select pg_sleep(30)")))
        await until(reactor, lambda: sleeping(database) == 1)
        database.execute(kill)
        slow.cancel()
        with pytest.raises(defer.CancelledError):
            await slow
        await until(reactor, lambda: pool.figures().idle == 1)
        assert sleeping(database) == 0
    assert pool.figures().connects == 1


def test_parameters_of_the_uri_take_precedence() -> None:
    merged = parameters("postgresql://host/name?keepalives_idle=5&application_name=mine")
    assert (merged["keepalives_idle"], merged["application_name"]) == ("5", "mine")
    assert merged["client_encoding"] == "UTF8"
