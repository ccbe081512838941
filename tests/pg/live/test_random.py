"""Live queries during random writes: every snapshot was correct when it was read, and the last is current."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from support.live import LiveService, Stream, serving_live, signed
from twisted.internet import task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

STEPS = int(os.environ.get("LIVE_STEPS", "60"))
SEEDS = [int(seed) for seed in os.environ.get("LIVE_SEEDS", "1").split()]

SCHEMA = """
create table room (id int primary key, name text not null);
create table note (
    id int primary key, room_id int references room, owner text not null, body text not null, secret boolean
);
create index on note (room_id);
create view open_notes with (security_barrier) as select id, body from note where not coalesce(secret, false);
create function mine() returns bigint language sql stable as 'select count(*) from note';
insert into room values (1, 'hall'), (2, 'cellar');
alter table note enable row level security;
create policy own on note for select to authenticated
    using (owner = current_setting('request.jwt.claims', true)::json->>'sub' or secret is false);
create policy public_ones on note for select to anon using (secret is false);
grant select on room, note to anon, authenticated;
grant select on open_notes to service_role;
grant execute on function mine to anon, authenticated;
grant all on all tables in schema public to service_role;
"""
OWNERS = ("ada", "bob", "eve")
REST = (
    "note?select=id,owner,body,secret&order=id",
    "room?select=name,note(id,owner,secret)&order=id&note.order=id",
    "note?select=id,owner,secret&secret=is.true&order=id&limit=2",
    "rpc/mine",
)
GRAPHQL = (
    "subscription { noteCollection(orderBy: [{id: AscNullsLast}], first: 3)"
    " { edges { node { id owner secret body } } pageInfo { hasNextPage } } }"
)


class Reader:
    """A subscriber and all results that were correct at some time since it subscribed."""

    def __init__(self, live: LiveService, target: str, owner: str | None) -> None:
        self.live = live
        self.target = target
        self.owner = owner
        self.token = None if owner is None else signed(sub=owner)
        self.correct: set[str] = set()
        self.last = ""
        self.stream: Stream | None = None
        self.seen = 0

    async def open(self) -> None:
        self.correct.clear()
        await self.record()
        if self.target.startswith("subscription"):
            self.stream = await self.live.graphql(self.target, token=self.token)
        else:
            self.stream = await self.live.rest(self.target, token=self.token)
        assert self.stream.status == 200

    async def fetch(self) -> str:
        """Return the query's current result without a subscription."""
        accept = {"token": self.token, "Accept": "application/json"}
        if self.target.startswith("subscription"):
            plain = await self.live.graphql(self.target.replace("subscription", "query", 1), **accept)
        else:
            plain = await self.live.rest(self.target, **accept)
        await plain.ended
        return canonical(plain.text)

    async def record(self) -> None:
        self.correct.add(await self.fetch())

    def check(self) -> None:
        assert self.stream is not None
        while self.stream.events:
            event = self.stream.events.popleft()
            assert event.name in ("snapshot", "next"), event
            self.last = canonical(event.data)
            self.seen += 1
            assert self.last in self.correct, f"{self.target} as {self.owner} was never {self.last}"
            for note in notes(event.json):
                assert note["owner"] == self.owner or note["secret"] is False, f"{self.owner} sees {note}"


def canonical(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


def notes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from notes(item)
    elif isinstance(value, dict):
        if "owner" in value:
            yield value
        for item in value.values():
            yield from notes(item)


class Writer:
    """Writes at random, including in transactions that stay open for a while."""

    def __init__(self, live: LiveService, chance: random.Random) -> None:
        self.database = live.database
        self.chance = chance
        self.number = 0
        self.open: list[Any] = []

    def statement(self) -> str:
        self.number += 1
        chance, identifier = self.chance, self.chance.randrange(1, 9)
        owner = chance.choice(OWNERS)
        return chance.choice((
            f"insert into note values ({identifier}, {chance.choice((1, 2))}, '{owner}', '{self.number}',"
            f" {chance.choice(('true', 'false', 'null'))}) on conflict do nothing",
            f"update note set owner = '{owner}' where id = {identifier}",
            f"update note set body = 'body {self.number}' where id = {identifier}",
            f"update note set secret = not secret where id = {identifier}",
            f"delete from note where id = {identifier}",
            f"update room set name = 'name {self.number}' where id = {chance.choice((1, 2))}",
        ))  # fmt: skip

    def begin(self) -> None:
        """Write in a transaction that ends later or never. No two such transactions change the same rows."""
        connection = psycopg2.connect(self.database.admin_uri)
        with connection.cursor() as cursor:
            cursor.execute(
                "insert into note values (%s, 1, %s, 'late', %s)",
                (100 + self.number, self.chance.choice(OWNERS), self.chance.choice((True, False))),
            )
        self.number += 1
        self.open.append(connection)

    def end(self) -> None:
        """Commit or roll back one of the open transactions, if any."""
        if self.open:
            connection = self.open.pop(self.chance.randrange(len(self.open)))
            (connection.commit if self.chance.random() < 0.7 else connection.rollback)()
            connection.close()


@pytest.fixture
def live(server: Server, reactor: Any) -> Iterator[LiveService]:
    with serving_live(reactor, server.create_database(SCHEMA), db_pool=3) as service:
        yield service


@pytest.mark.campaign
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_snapshot_is_correct(live: LiveService, reactor: Any, seed: int) -> None:
    chance = random.Random(seed)
    writer = Writer(live, chance)
    readers = [Reader(live, target, owner) for target in (*REST, GRAPHQL) for owner in (*OWNERS, None)]
    for reader in readers:
        await reader.open()

    async def record_all() -> None:
        for reader in readers:
            await reader.record()

    actions: Counter[str] = Counter()
    for _ in range(STEPS):
        action = chance.choices(
            ("write", "begin", "end", "reload", "kill", "leave", "pause", "policy", "rest"),
            (10, 3, 4, 1, 1, 2, 2, 1, 5),
        )[0]
        actions[action] += 1
        if action == "write":
            live.database.execute("; ".join(writer.statement() for _ in range(chance.randrange(1, 4))))
        elif action == "begin":
            writer.begin()
        elif action == "end":
            writer.end()
        elif action == "reload":
            await live.part.reload()
        elif action == "kill":
            live.database.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'authenticator'"
            )
        elif action == "policy":
            while writer.open:  # ALTER POLICY would wait for open transactions
                writer.end()
            live.database.execute(
                f"alter policy public_ones on note using (secret is false and id <> {chance.randrange(9)})"
            )
        elif action == "leave":
            reader = chance.choice(readers)
            assert reader.stream is not None
            reader.check()
            reader.stream.close()
            await reader.open()
        elif action == "pause":
            reader = chance.choice(readers)
            assert reader.stream is not None
            if not reader.stream.has_ended:
                chance.choice(
                    (reader.stream.transport.pauseProducing, reader.stream.transport.resumeProducing)
                )()
        if action != "rest":
            await record_all()
        await task.deferLater(reactor, chance.choice((0, 0.01, 0.1)))
        for reader in readers:
            reader.check()
    while writer.open:
        writer.end()
    await record_all()
    for reader in readers:
        assert reader.stream is not None
        reader.stream.transport.resumeProducing()
        now = await reader.fetch()

        def is_current(reader: Reader = reader, now: str = now) -> bool:
            reader.check()
            return reader.last == now

        await live.until(is_current, f"the last state of {reader.target} as {reader.owner}: {now}")
    assert actions["write"]
    assert sum(reader.seen for reader in readers) > len(readers)
