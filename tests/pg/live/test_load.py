"""Clients of live queries share memory, connections and time fairly."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.live import subscribers
from support.live import LiveService, Stream, serving_live, signed
from twisted.internet import task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create table item (id int primary key, name text not null);
insert into item select i, 'item ' || i from generate_series(1, 3) i;
create table other (id int primary key);
create table pause (seconds float8);
insert into pause values (0);
create view paused as select seconds, pg_sleep(seconds) is null as over from pause;
grant select on all tables in schema public to anon, authenticated;
"""
LARGE = 9_000_000
"""Size of a result in bytes, larger than the socket buffers."""


@pytest.fixture
def live(server: Server, reactor: Any) -> Iterator[LiveService]:
    with serving_live(reactor, server.create_database(SCHEMA), db_pool=1, live_connections=2) as service:
        service.site.timeout = 600.0
        yield service


async def stalled(live: LiveService, target: str = "item?order=id", **named: Any) -> Stream:
    """Subscribe to a large result and stop reading from the socket."""
    stream = await live.rest(target, **named)
    stream.transport.pauseProducing()
    return stream


def grow(live: LiveService, size: int = LARGE) -> None:
    """Make the first item large. Every result that contains the item becomes large."""
    live.database.execute("update item set name = repeat('x', %s) where id = 1", (size,))


async def test_slow_client_gets_the_newest_state(live: LiveService) -> None:
    grow(live, 3_000_000)
    stream = await live.rest("item?select=id,name&id=lte.2&order=id")
    await live.next(stream)
    stream.transport.pauseProducing()
    for number in range(8):
        changed = live.figures.changed
        live.database.execute(f"update item set name = 'state {number}' where id = 2")
        await live.until(lambda: live.figures.changed > changed, "the poll")  # noqa: B023
    assert 0 < live.figures.unsent_bytes < 8_000_000
    stream.transport.resumeProducing()
    seen: list[str] = []
    while not seen or seen[-1] != "state 7":
        seen.append((await live.next(stream)).json[1]["name"])
    assert len(seen) < 8
    await live.until(lambda: live.figures.unsent_bytes == 0, "the unsent bytes to be sent")


async def test_unsent_first_results_are_counted(live: LiveService) -> None:
    grow(live)
    streams = [await stalled(live) for _ in range(4)]
    assert LARGE < live.figures.unsent_bytes < 2 * LARGE
    for stream in streams:
        stream.transport.resumeProducing()
        await live.next(stream)
    await live.until(lambda: live.figures.unsent_bytes == 0, "the unsent bytes to be sent")


async def test_fast_clients_are_never_disconnected(
    live: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribers, "MAX_UNSENT", LARGE // 2)
    monkeypatch.setattr(subscribers, "SLOW_CLIENT_TIMEOUTS", (30.0, 60.0))
    streams = [await live.rest(f"item?order=id&limit={limit}") for limit in (1, 2) for _ in range(3)]
    for stream in streams:
        await live.next(stream)
    grow(live)
    for stream in streams:
        assert len((await live.next(stream)).data) > LARGE
    assert live.figures.subscribers == len(streams)


async def test_caller_with_most_unsent_bytes_is_disconnected(
    live: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribers, "SLOW_CLIENT_TIMEOUTS", (0.2, 0.4))
    grow(live)
    small = await stalled(live, "item?id=eq.1&select=name,id", token=signed(sub="small"))
    reader = await live.rest("other", token=signed(sub="reader"))
    await live.next(reader)
    for limit in (1, 2):
        await stalled(live, f"item?order=id&limit={limit}", token=signed(sub="large"))
    streams = live.part.apis.live._subscribers  # type: ignore[union-attr]
    await live.until(lambda: len(streams._slow()) == 3, "slow clients")
    monkeypatch.setattr(subscribers, "MAX_UNSENT", 5 * LARGE // 2)
    await live.until(lambda: live.figures.subscribers < 4, "the disconnection")
    live.database.execute("insert into other values (1)")
    assert (await live.next(reader)).json == [{"id": 1}]
    assert live.figures.unsent_bytes <= 5 * LARGE // 2
    small.transport.resumeProducing()
    assert len((await live.next(small)).data) > LARGE


async def test_subscriptions_are_rejected_while_too_much_is_unsent(
    live: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New subscriptions are rejected before their query runs, until the unsent bytes have been sent."""
    monkeypatch.setattr(subscribers, "MAX_UNSENT", LARGE // 2)
    grow(live)
    slow_client = await stalled(live)
    refused = await live.rest("other", token=signed(sub="other"))
    await refused.ended
    assert (refused.status, refused.headers["retry-after"]) == (503, "10")
    assert '"TOO_MANY_SUBSCRIPTIONS"' in refused.text
    slow_client.transport.resumeProducing()
    await live.next(slow_client)
    await live.until(lambda: live.figures.unsent_bytes == 0, "the unsent bytes to be sent")
    assert (await live.next(await live.rest("other", token=signed(sub="other")))).json == []


async def test_idle_stream_sends_heartbeats(live: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribers, "HEARTBEAT_INTERVAL", 0.0)
    stream = await live.rest("item")
    await live.next(stream)
    await live.until(lambda: stream.comments >= 2, "two heartbeats")


@pytest.mark.parametrize("ending", ["expired", "failed", "drained"])
async def test_ended_stream_counts_until_its_connection_is_closed(
    live: LiveService, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    grow(live)
    now = time.time()
    stream = await stalled(live, "item?select=*&order=id", token=signed(sub="one", exp=now + 100))
    assert live.part.apis is not None
    if ending == "expired":
        monkeypatch.setattr(live.part.apis.live, "_now", lambda: now + 200)
        monkeypatch.setattr(live.part._authenticator, "_now", lambda: now + 200)
    elif ending == "failed":
        live.database.execute("revoke select on item from authenticated")
    else:
        await live.part.drain()
    await live.until(lambda: live.figures.cohorts == 0, "the end of the subscription")
    assert live.figures.subscribers == 1
    assert live.figures.unsent_bytes > LARGE
    [connection] = live.site.connections
    assert connection._timer.active()
    live.reactor.callLater(0, connection._check_timeout)
    connection._deadline = connection.progressed = live.reactor.seconds()
    await live.until(lambda: live.figures.subscribers == 0, "the end of the stream")
    assert (live.figures.unsent_bytes, list(live.site.connections)) == (0, [])
    stream.transport.resumeProducing()
    await stream.ended


@contextmanager
def notifying(live: LiveService, table: str) -> Iterator[None]:
    """Repeatedly write to a table and send notifications about the changes."""
    ids = iter(range(10, 1_000_000))

    def write() -> None:
        live.database.execute(
            f"insert into {table} values ({next(ids)}, 'x'); notify \"dataapi-live\", '{table}'"
        )

    writing = task.LoopingCall(write)
    writing.start(0.02)
    try:
        yield
    finally:
        writing.stop()


@pytest.mark.direct("a pooler forwards no notifications")
async def test_notifications_of_one_table_do_not_delay_others(
    live: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    live.database.execute("update pause set seconds = 0.02")
    busy = [await live.rest(f"paused?limit={limit}") for limit in range(1, 21)]
    other = await live.rest("other", token=signed(sub="other"))
    expiring = await live.rest("other?select=id", token=signed(sub="other", exp=now + 100))
    for stream in (*busy, other, expiring):
        await live.next(stream)
    await live.until(
        lambda: live.figures.unchanged >= len(busy) + 2, "the first polls, to learn which tables are read"
    )
    with notifying(live, "item"):
        await live.until(lambda: live.figures.lag > 0, "a queue")
        live.database.execute("insert into other values (1)")
        assert (await live.next(other)).json == [{"id": 1}]
        monkeypatch.setattr(live.part.apis.live, "_now", lambda: now + 200)  # type: ignore[union-attr]
        monkeypatch.setattr(live.part._authenticator, "_now", lambda: now + 200)
        event = await live.next(expiring)
        assert (await live.next(expiring) if event.name == "snapshot" else event).name == "expired"


async def test_poll_capacity_is_shared_between_callers(live: LiveService) -> None:
    slow = [await live.rest(f"paused?limit={limit}") for limit in range(1, 13)]
    quick = await live.rest("other", token=signed(sub="quick"))
    for stream in (*slow, quick):
        await live.next(stream)
    await live.until(lambda: live.figures.unchanged >= len(slow), "the first polls")
    live.database.execute("update pause set seconds = 0.15")
    await live.until(lambda: live.figures.lag > 0, "a queue")
    before = live.figures.changed
    live.database.execute("insert into other values (1)")
    assert (await live.next(quick)).json == [{"id": 1}]
    assert live.figures.changed - before < 6


async def test_requests_do_not_wait_for_polls(live: LiveService) -> None:
    streams = [await live.rest(f"paused?limit={number}") for number in (1, 2, 3)]
    for stream in streams:
        await live.next(stream)
    await live.until(lambda: live.figures.unchanged >= 3, "the first polls")
    live.database.execute("update pause set seconds = 30")
    sleeping = "select count(*) from pg_stat_activity where state = 'active' and wait_event = 'PgSleep'"
    await live.until(lambda: live.database.execute(sleeping) == [(2,)], "the maximum number of polls")
    plain = await live.rest("item?select=id&id=eq.1", Accept="application/json")
    await plain.ended
    assert plain.text == '[{"id":1}]'
    assert live.figures.lag > 0
    for stream in streams:
        stream.close()
