"""The listener hears what is notified, and survives the loss of its connection."""

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

pytestmark = pytest.mark.direct("a pooler passes no notifications on")


class Heard:
    """What a listener has called back."""

    def __init__(self) -> None:
        self.notifications: list[tuple[str, str]] = []
        self.reconnects = 0

    def notified(self, channel: str, payload: str) -> None:
        """Remember a notification; one payload makes trouble."""
        self.notifications.append((channel, payload))
        if payload == "trouble":
            raise ValueError(payload)

    def reconnected(self) -> None:
        """Count a reconnect."""
        self.reconnects += 1


@pytest.fixture
def heard() -> Heard:
    """Give an empty record."""
    return Heard()


@pytest.fixture
def make_listener(database: Database, heard: Heard, reactor: Any) -> Iterator[Callable[[], Listener]]:
    """Give a function that makes a listener on two channels; it is stopped at the end."""
    made: list[Listener] = []

    def make() -> Listener:
        listener = Listener(
            reactor,
            database.uri,
            ["pgrst", 'odd "channel"'],
            on_notification=heard.notified,
            on_reconnect=heard.reconnected,
            backoff=Backoff(random=lambda: 0.0),
        )
        made.append(listener)
        return listener

    yield make
    for listener in made:
        pytest_twisted.blockon(defer.Deferred.fromCoroutine(listener.stop()))


async def test_notifications_arrive_in_order(
    make_listener: Callable[[], Listener], heard: Heard, database: Database, reactor: Any
) -> None:
    listener = make_listener()
    await listener.start()
    assert listener.listening
    database.execute(
        "select pg_notify('pgrst', 'reload schema'), pg_notify('other', 'x');"
        "select pg_notify('odd \"channel\"', 'é')"
    )
    database.execute("notify pgrst")
    await until(reactor, lambda: len(heard.notifications) == 3)
    assert heard.notifications == [("pgrst", "reload schema"), ('odd "channel"', "é"), ("pgrst", "")]
    assert heard.reconnects == 0


async def test_listening_goes_on_after_the_connection_was_killed(
    make_listener: Callable[[], Listener], heard: Heard, server: Server, database: Database, reactor: Any
) -> None:
    await make_listener().start()
    server.terminate_backends(database)
    await until(reactor, lambda: heard.reconnects == 1)
    database.execute("notify pgrst, 'again'")
    await until(reactor, lambda: heard.notifications == [("pgrst", "again")])


async def test_listening_goes_on_after_a_restart_of_the_server(
    make_listener: Callable[[], Listener], heard: Heard, server: Server, database: Database, reactor: Any
) -> None:
    listener = make_listener()
    await listener.start()
    await threads.deferToThread(server.stop)
    await until(reactor, lambda: not listener.listening)
    await threads.deferToThread(server.start)
    await until(reactor, lambda: heard.reconnects == 1)
    assert listener.listening
    database.execute("notify pgrst, 'after'")
    await until(reactor, lambda: heard.notifications == [("pgrst", "after")])


async def test_starting_without_a_server_listens_when_it_comes(
    make_listener: Callable[[], Listener], heard: Heard, server: Server, reactor: Any
) -> None:
    server.stop()
    listener = make_listener()
    try:
        await listener.start()
        assert not listener.listening
    finally:
        server.start()
    await until(reactor, lambda: listener.listening)
    assert heard.reconnects == 1


async def test_a_callback_that_fails_does_not_end_the_listening(
    make_listener: Callable[[], Listener], heard: Heard, database: Database, reactor: Any
) -> None:
    await make_listener().start()
    database.execute("notify pgrst, 'trouble'")
    database.execute("notify pgrst, 'next'")
    await until(reactor, lambda: len(heard.notifications) == 2)
    assert heard.notifications[1] == ("pgrst", "next")


async def test_nothing_is_heard_after_stop(
    make_listener: Callable[[], Listener], server: Server, database: Database
) -> None:
    listener = make_listener()
    await listener.start()
    server.terminate_backends(database)
    await listener.stop()
    assert not listener.listening
    sessions = "select count(*) from pg_stat_activity where datname = current_database() and usename = %s"
    assert database.execute(sessions, ("authenticator",)) == [(0,)]
