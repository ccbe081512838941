"""The listener receives notifications and reconnects after a lost connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_twisted
from dataapi.concurrency.timers import Backoff
from dataapi.database.listener import Listener
from support.messages import until
from twisted.internet import defer, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.postgres import Database, Server

pytestmark = pytest.mark.direct("a pooler forwards no notifications")


class Received:
    """Records the calls of a listener."""

    def __init__(self) -> None:
        self.notifications: list[tuple[str, str]] = []
        self.reconnects = 0

    def notified(self, channel: str, payload: str) -> None:
        self.notifications.append((channel, payload))
        if payload == "trouble":
            raise ValueError(payload)

    def reconnected(self) -> None:
        self.reconnects += 1


@pytest.fixture
def received() -> Received:
    return Received()


@pytest.fixture
def make_listener(database: Database, received: Received, reactor: Any) -> Iterator[Callable[[], Listener]]:
    """Return a function that creates a listener on two channels. Listeners are stopped after the test."""
    listeners: list[Listener] = []

    def make() -> Listener:
        listener = Listener(
            reactor,
            database.uri,
            ["pgrst", 'odd "channel"'],
            on_notification=received.notified,
            on_reconnect=received.reconnected,
            backoff=Backoff(random=lambda: 0.0),
        )
        listeners.append(listener)
        return listener

    yield make
    for listener in listeners:
        pytest_twisted.blockon(defer.Deferred.fromCoroutine(listener.stop()))


async def test_notifications_arrive_in_order(
    make_listener: Callable[[], Listener], received: Received, database: Database, reactor: Any
) -> None:
    listener = make_listener()
    await listener.start()
    assert listener.listening
    database.execute(
        "select pg_notify('pgrst', 'reload schema'), pg_notify('other', 'x');"
        "select pg_notify('odd \"channel\"', 'é')"
    )
    database.execute("notify pgrst")
    await until(reactor, lambda: len(received.notifications) == 3)
    assert received.notifications == [("pgrst", "reload schema"), ('odd "channel"', "é"), ("pgrst", "")]
    assert received.reconnects == 0


async def test_listener_reconnects_after_its_connection_was_killed(
    make_listener: Callable[[], Listener],
    received: Received,
    server: Server,
    database: Database,
    reactor: Any,
) -> None:
    await make_listener().start()
    server.terminate_backends(database)
    await until(reactor, lambda: received.reconnects == 1)
    database.execute("notify pgrst, 'again'")
    await until(reactor, lambda: received.notifications == [("pgrst", "again")])


async def test_listener_reconnects_after_a_server_restart(
    make_listener: Callable[[], Listener],
    received: Received,
    server: Server,
    database: Database,
    reactor: Any,
) -> None:
    listener = make_listener()
    await listener.start()
    await threads.deferToThread(server.stop)
    await until(reactor, lambda: not listener.listening)
    await threads.deferToThread(server.start)
    await until(reactor, lambda: received.reconnects == 1)
    assert listener.listening
    database.execute("notify pgrst, 'after'")
    await until(reactor, lambda: received.notifications == [("pgrst", "after")])


async def test_listener_connects_once_the_server_starts(
    make_listener: Callable[[], Listener], received: Received, server: Server, reactor: Any
) -> None:
    server.stop()
    listener = make_listener()
    try:
        await listener.start()
        assert not listener.listening
    finally:
        server.start()
    await until(reactor, lambda: listener.listening)
    assert received.reconnects == 1


async def test_failing_callback_does_not_stop_the_listener(
    make_listener: Callable[[], Listener], received: Received, database: Database, reactor: Any
) -> None:
    await make_listener().start()
    database.execute("notify pgrst, 'trouble'")
    database.execute("notify pgrst, 'next'")
    await until(reactor, lambda: len(received.notifications) == 2)
    assert received.notifications[1] == ("pgrst", "next")


async def test_stopped_listener_closes_its_connection(
    make_listener: Callable[[], Listener], server: Server, database: Database
) -> None:
    listener = make_listener()
    await listener.start()
    server.terminate_backends(database)
    await listener.stop()
    assert not listener.listening
    sessions = "select count(*) from pg_stat_activity where datname = current_database() and usename = %s"
    assert database.execute(sessions, ("authenticator",)) == [(0,)]
