"""The rights of live queries are those of the moment, and their bounds hold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.catalog import watcher
from support.live import LiveService, serving_live, signed
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create table item (id int primary key, name text not null);
insert into item select i, 'item ' || i from generate_series(1, 3) i;
grant select on item to anon, authenticated;
create function numbers() returns int language sql stable as 'select 1';
"""


@pytest.fixture
def live(server: Server, reactor: Any) -> Iterator[LiveService]:
    """Serve the schema above."""
    limits = {"max_subscriptions": 4, "max_connections": 3, "trusted_proxies": ()}
    database = server.create_database(SCHEMA)
    with serving_live(reactor, database, limits, live_subscriptions_per_caller=3) as service:
        yield service


async def test_a_token_that_expires_ends_its_subscription(live: LiveService, monkeypatch: Any) -> None:
    """By an event of its own, although nothing has changed."""
    now = time.time()
    stream = await live.rest("item?select=id", token=signed(exp=now + 100))
    other = await live.rest("item?select=id", token=signed(exp=now + 10_000))
    graphql = await live.graphql("subscription { itemByPk(id: 1) { name } }", token=signed(exp=now + 100))
    for each in (stream, other, graphql):
        await live.next(each)
    apis = live.part.apis
    assert apis is not None
    monkeypatch.setattr(apis.live, "_now", lambda: now + 200)
    monkeypatch.setattr(live.part._authenticator, "_now", lambda: now + 200)
    last = await live.next(stream)
    assert (last.name, last.json["code"], last.json["message"]) == ("expired", "PGRST303", "JWT expired")
    await stream.ended
    result = await live.next(graphql)
    assert result.json["errors"][0]["extensions"]["code"] == "PGRST303"
    assert (await live.next(graphql)).name == "complete"
    live.database.execute("insert into item values (4, 'more')")
    assert len((await live.next(other)).json) == 4


@pytest.mark.parametrize(
    "change",
    [
        "revoke select on item from anon",
        "revoke anon from authenticator",
        "revoke usage on schema public from anon, public",
    ],
)
async def test_a_right_that_is_withdrawn_ends_the_subscription(live: LiveService, change: str) -> None:
    """With the error that a request gets."""
    stream = await live.rest("item")
    await live.next(stream)
    live.database.execute(change)
    try:
        last = await live.next(stream)
        assert (last.name, last.json["code"]) == ("failed", "42501")
        await stream.ended
    finally:
        live.database.execute("grant anon to authenticator")


async def test_a_policy_holds_from_the_moment_that_it_is_made(live: LiveService) -> None:
    """The rows that it hides are gone with the next snapshot."""
    stream = await live.rest("item?select=id&order=id")
    assert len((await live.next(stream)).json) == 3
    live.database.execute("alter table item enable row level security")
    assert (await live.next(stream)).json == []
    live.database.execute("create policy two on item using (id = 2)")
    assert (await live.next(stream)).json == [{"id": 2}]


async def test_a_key_that_is_no_longer_one_ends_the_subscription(live: LiveService, monkeypatch: Any) -> None:
    """Keys are asked again now and then, although nothing has changed."""
    stream = await live.rest("item")
    await live.next(stream)
    monkeypatch.setattr("dataapi.live.queries._REAUTHENTICATE_AFTER", 0.0)
    monkeypatch.setattr(live.part._authenticator, "_opaque", [])
    assert (await live.next(stream)).name == "failed"
    await stream.ended


async def test_a_new_schema_replans(live: LiveService) -> None:
    """A column that is added is in the answer, one that is renamed ends it."""
    every, one = await live.rest("item?id=eq.1"), await live.rest("item?id=eq.1&select=name")
    await live.next(every)
    await live.next(one)
    live.database.execute("alter table item add price int default 5")
    await live.part.reload()
    assert (await live.next(every)).json == [{"id": 1, "name": "item 1", "price": 5}]
    live.database.execute("alter table item rename name to label")
    await live.part.reload()
    assert (await live.next(every)).json == [{"id": 1, "label": "item 1", "price": 5}]
    assert (await live.next(one)).json["code"] == "42703"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the catalog compared twenty times a second while requests come."""
    monkeypatch.setattr(watcher, "COMPARE_INTERVAL", 0.05)


@pytest.mark.parametrize(
    ("target", "change", "after"),
    [
        ("item?id=eq.1", "alter table item add price int default 5",
         [{"id": 1, "name": "item 1", "price": 5}]),
        ("item?id=eq.1", "alter table item rename name to label", [{"id": 1, "label": "item 1"}]),
        ("item?id=eq.1", "alter table item alter name type int using 7", [{"id": 1, "name": 7}]),
        ("item?id=eq.1&select=id", "alter table item alter id type text", [{"id": "1"}]),
        ("rpc/numbers", "drop function numbers; create function numbers() returns setof int language sql"
         " stable as 'values (1), (2)'", [1, 2]),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("soon")
async def test_an_unannounced_change_of_the_schema_is_followed(
    live: LiveService, target: str, change: str, after: Any
) -> None:
    """Also where no request names something unknown: the catalog is compared while requests come."""
    stream = await live.rest(target)
    await live.next(stream)
    live.database.execute(change)
    event = await live.next(stream)
    while event.json != after:
        assert event.name == "snapshot"
        event = await live.next(stream)


async def test_one_caller_may_have_so_many(live: LiveService) -> None:
    """One more is refused until another one ends; other callers have their own."""
    mine = [await live.rest(f"item?id=eq.{number}") for number in range(3)]
    for stream in mine:
        await live.next(stream)
    refused = await live.rest("item", X_Forwarded_For="192.0.2.7")  # no trusted proxy's word
    await refused.ended
    assert (refused.status, refused.headers["retry-after"]) == (429, "10")
    assert '"TOO_MANY_SUBSCRIPTIONS"' in refused.text
    other = await live.rest("item", token=signed(sub="other"))
    await live.next(other)
    mine[0].close()
    await live.until(lambda: live.figures.subscribers == 3, "the end of one")
    again = await live.rest("item")
    assert (await live.next(again)).name == "snapshot"


async def test_a_process_keeps_so_many_open(live: LiveService) -> None:
    """And their sockets leave the room of requests as it is."""
    streams = []
    for number in range(4):
        stream = await live.rest("item", token=signed(sub=f"user {number}"))
        await live.next(stream)
        streams.append(stream)
    refused = await live.rest("item", token=signed(sub="one more"))
    await refused.ended
    assert (refused.status, '"TOO_MANY_SUBSCRIPTIONS"' in refused.text) == (503, True)
    assert live.figures.subscribers == 4
    for _ in range(3):  # as many as max-connections
        plain = await live.rest("item?id=eq.1&select=id", Accept="application/json")
        await plain.ended
        assert (plain.status, plain.text) == (200, '[{"id":1}]')


async def test_a_client_that_is_gone_leaves_nothing(live: LiveService) -> None:
    """Neither its place nor its cohort, and looks end with the last one."""
    streams = [await live.rest("item"), await live.rest("item?id=eq.1")]
    for stream in streams:
        await live.next(stream)
        stream.close()
    await live.until(lambda: (live.figures.subscribers, live.figures.cohorts) == (0, 0), "the end")
    await live.until(lambda: not live.part.apis.live._checking, "the end of looks")  # type: ignore[union-attr]
    assert live.part._pool.figures().size == live.project.db_pool


async def test_a_drain_has_clients_connect_again(live: LiveService) -> None:
    """Each after a time of its own; with GraphQL by the end of the stream alone."""
    rest = await live.rest("item?id=eq.1")
    graphql = await live.graphql("subscription { itemByPk(id: 1) { name } }")
    await live.next(rest)
    await live.next(graphql)
    await defer.Deferred.fromCoroutine(live.part.drain())
    assert (await live.next(rest)).name == "reconnect"
    await rest.ended
    await graphql.ended
    assert not graphql.events
    for stream in (rest, graphql):
        assert 500 <= (stream.retry or 0) <= 5000
    refused = await live.rest("item")
    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
