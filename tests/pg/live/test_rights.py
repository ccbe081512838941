"""Live queries observe changed privileges, policies, keys and schemas. Their number is limited."""

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
    """Serve the schema with low limits."""
    limits = {"max_subscriptions": 4, "max_connections": 3, "trusted_proxies": ()}
    database = server.create_database(SCHEMA)
    with serving_live(reactor, database, limits, live_subscriptions_per_caller=3) as service:
        yield service


async def test_expired_token_ends_its_subscription(live: LiveService, monkeypatch: Any) -> None:
    """The stream ends with an ``expired`` event even if no data has changed."""
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
async def test_revoked_right_ends_the_subscription(live: LiveService, change: str) -> None:
    stream = await live.rest("item")
    await live.next(stream)
    live.database.execute(change)
    try:
        last = await live.next(stream)
        assert (last.name, last.json["code"]) == ("failed", "42501")
        await stream.ended
    finally:
        live.database.execute("grant anon to authenticator")


async def test_new_policy_takes_effect_immediately(live: LiveService) -> None:
    stream = await live.rest("item?select=id&order=id")
    assert len((await live.next(stream)).json) == 3
    live.database.execute("alter table item enable row level security")
    assert (await live.next(stream)).json == []
    live.database.execute("create policy two on item using (id = 2)")
    assert (await live.next(stream)).json == [{"id": 2}]


async def test_removed_api_key_ends_the_subscription(live: LiveService, monkeypatch: Any) -> None:
    """API keys are checked periodically, even if no data has changed."""
    stream = await live.rest("item")
    await live.next(stream)
    monkeypatch.setattr("dataapi.live.queries._REAUTHENTICATE_AFTER", 0.0)
    monkeypatch.setattr(live.part._authenticator, "_opaque", [])
    assert (await live.next(stream)).name == "failed"
    await stream.ended


async def test_schema_change_replans_the_subscription(live: LiveService) -> None:
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
def frequent_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the catalog twenty times a second while requests arrive."""
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
@pytest.mark.usefixtures("frequent_comparisons")
async def test_unannounced_schema_change_is_followed(
    live: LiveService, target: str, change: str, after: Any
) -> None:
    stream = await live.rest(target)
    await live.next(stream)
    live.database.execute(change)
    event = await live.next(stream)
    while event.json != after:
        assert event.name == "snapshot"
        event = await live.next(stream)


async def test_subscriptions_per_caller_are_limited(live: LiveService) -> None:
    """Each caller has a separate limit. A further subscription is accepted after another has ended."""
    mine = [await live.rest(f"item?id=eq.{number}") for number in range(3)]
    for stream in mine:
        await live.next(stream)
    refused = await live.rest("item", X_Forwarded_For="192.0.2.7")  # ignored, because no proxy is trusted
    await refused.ended
    assert (refused.status, refused.headers["retry-after"]) == (429, "10")
    assert '"TOO_MANY_SUBSCRIPTIONS"' in refused.text
    other = await live.rest("item", token=signed(sub="other"))
    await live.next(other)
    mine[0].close()
    await live.until(lambda: live.figures.subscribers == 3, "the end of one")
    again = await live.rest("item")
    assert (await live.next(again)).name == "snapshot"


async def test_subscriptions_per_process_are_limited(live: LiveService) -> None:
    streams = []
    for number in range(4):
        stream = await live.rest("item", token=signed(sub=f"user {number}"))
        await live.next(stream)
        streams.append(stream)
    refused = await live.rest("item", token=signed(sub="one more"))
    await refused.ended
    assert (refused.status, '"TOO_MANY_SUBSCRIPTIONS"' in refused.text) == (503, True)
    assert live.figures.subscribers == 4
    for _ in range(3):  # the maximum number of connections
        plain = await live.rest("item?id=eq.1&select=id", Accept="application/json")
        await plain.ended
        assert (plain.status, plain.text) == (200, '[{"id":1}]')


async def test_closed_streams_release_their_resources(live: LiveService) -> None:
    streams = [await live.rest("item"), await live.rest("item?id=eq.1")]
    for stream in streams:
        await live.next(stream)
        stream.close()
    await live.until(lambda: (live.figures.subscribers, live.figures.cohorts) == (0, 0), "the end")
    await live.until(lambda: not live.part.apis.live._checking, "the end of checks")  # type: ignore[union-attr]
    assert live.part._pool.figures().size == live.project.db_pool


async def test_drain_makes_clients_reconnect(live: LiveService) -> None:
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
