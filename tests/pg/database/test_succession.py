"""Connections to a server are closed once another server has become primary."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.concurrency.timers import Backoff
from dataapi.database.listener import Listener
from dataapi.database.primary_servers import PrimaryServers
from dataapi.database.server_watch import ServerWatch
from dataapi.database.succession import Lineage, Succession
from dataapi.http.errors import DatabaseUnavailable
from support.messages import message, running, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

    MakePool = Callable[..., Pool]

EAGER = Backoff(longest=0.3, random=lambda: 0.0)


def next_lineage(database: Database) -> Lineage:
    """Return the lineage that a standby of this server would have after promotion."""
    [(system, timeline)] = database.execute(
        "select system_identifier, timeline_id from pg_control_system(), pg_control_checkpoint()"
    )
    return Lineage(system, timeline + 1)


def connections(database: Database) -> int:
    """Count the other connections to the database."""
    [(count,)] = database.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )
    return int(count)


async def test_pool_closes_connections_to_an_old_primary(
    make_pool: MakePool, database: Database, reactor: Any
) -> None:
    succession = Succession()
    pool = make_pool(size=2, backoff=EAGER)
    pool.follow(PrimaryServers(succession))
    await pool.start()
    waiting = [running(pool.run(message("select pg_sleep(60)"))) for _ in range(3)]
    await until(reactor, lambda: pool.figures().in_use == 2)
    succession.add_primary(next_lineage(database))
    for each in waiting:
        with pytest.raises(DatabaseUnavailable):
            await each
    await until(reactor, lambda: "old primary, on timeline" in str(pool.trouble))
    with pytest.raises(DatabaseUnavailable):
        await pool.run(message("select 1"))
    assert pool.figures().open == 0
    assert not pool.available


@pytest.mark.direct("a pooler forwards no notifications")
async def test_listener_disconnects_from_an_old_primary(database: Database, reactor: Any) -> None:
    succession = Succession()
    lost: list[bool] = []
    listener = Listener(
        reactor,
        database.uri,
        ["pgrst"],
        on_notification=lambda *_: None,
        on_reconnect=lambda: lost.append(False),
        on_lost=lambda: lost.append(True),
        backoff=EAGER,
    )
    listener.follow(PrimaryServers(succession))
    await listener.start()
    try:
        assert listener.listening
        succession.add_primary(next_lineage(database))
        assert not listener.listening
        await until(reactor, lambda: "old primary" in listener._logged_reason)
        assert lost == [True]
    finally:
        await listener.stop()


async def test_server_watch_skips_hosts_that_do_not_respond(
    server: Server, database: Database, reactor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataapi.database.server_watch.RESPONSE_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = f"{first.getsockname()[1]},{second.getsockname()[1]},{server.port}"
        hosts = "127.0.0.1,127.0.0.1,127.0.0.1"
        uri = f"host={hosts} port={ports} dbname={database.name} user=authenticator"
        watch = ServerWatch(reactor, uri, Succession())
        try:
            await watch.poll()
            assert (watch.state, watch.trouble) == (None, "it does not respond")
            while watch.state is None:
                await watch.poll()
            assert watch.state.lineage.timeline + 1 == next_lineage(database).timeline
            assert not watch.state.standby
        finally:
            watch.close()
