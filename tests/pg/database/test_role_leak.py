"""A caller's role and claims never reach the next caller, even after disconnects."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.cancel import ControlConnection
from dataapi.database.connection import Connection, ConnectionFailed
from dataapi.database.message import Bound, Message, Statement
from dataapi.http.errors import DatabaseError
from support.messages import message, running, until
from twisted.internet import defer
from txpostgres import txpostgres

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database

WHO_AM_I = "select current_user::text, current_setting('request.jwt.claims', true)"
# Has the effect of a statement that ends just before the cancel request arrives.
BODY = "begin begin perform pg_sleep(10); exception when query_canceled then null; end"
HARD_TO_CANCEL = f"do $$ {BODY}; end $$"

RUNS = 3000
IDENTITY = "current_user::text, current_setting('request.jwt.claims')"
STATEMENTS = {
    "read": Statement(f"select {IDENTITY} from pg_sleep($2) where $1 >= 0", ("int", "float8")),
    "fail": Statement(f"select {IDENTITY}, 1 / ($1 - $1) from pg_sleep($2)", ("int", "float8")),
    "write": Statement(
        f"with i as (insert into seen select $1, {IDENTITY} from pg_sleep($2)) select {IDENTITY}",
        ("int", "float8"),
    ),
}


async def test_plain_txpostgres_leaks_the_role(database: Database, reactor: Any) -> None:
    plain = txpostgres.ConnectionPool(None, database.uri, min=1)
    await plain.start()
    connection = next(iter(plain.connections))

    async def interaction(cursor: Any) -> None:
        await cursor.execute("select set_config('role', 'authenticated', true)")
        await cursor.execute("select set_config('request.jwt.claims', 'alice', true)")
        await cursor.execute(HARD_TO_CANCEL)

    alice = plain.runInteraction(lambda cursor: running(interaction(cursor)))
    await until(reactor, lambda: _sleeping(database))
    # Klein cancels the handler's Deferred when the client disconnects.
    alice.cancel()
    with pytest.raises(txpostgres.RollbackFailed):
        await alice
    await until(reactor, lambda: not connection.isexecuting())
    rows = await plain.runQuery(WHO_AM_I)
    plain.close()
    assert rows == [("authenticated", "alice")]


async def test_our_pool_does_not_leak_the_role(
    make_pool: Callable[..., Pool], database: Database, reactor: Any
) -> None:
    pool = make_pool(size=1)
    await pool.start()
    database.execute(f"create function hard() returns int language plpgsql as $f$ {BODY}; return 1; end $f$")
    alice = running(pool.run(message("select hard()", role="authenticated", settings=claims("alice"))))
    await until(reactor, lambda: _sleeping(database))
    alice.cancel()
    with pytest.raises(defer.CancelledError):
        await alice
    assert await pool.run(message(WHO_AM_I, settings=claims("bob"))) == [("anon", "bob")]
    assert await pool.fetch(WHO_AM_I) == [("authenticator", "")]
    assert pool.figures().connects == 1


async def test_connection_is_closed_if_a_cancel_request_is_lost(
    make_pool: Callable[..., Pool], database: Database, reactor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(_canceller: ControlConnection, connection: Connection) -> None:
        await connection.when_idle()
        raise ConnectionFailed("no answer")

    monkeypatch.setattr(ControlConnection, "cancel", lost)
    pool = make_pool(size=1)
    await pool.start()
    slow = message("select pg_sleep(0.2)", role="authenticated")
    await pool.run(slow)
    alice = running(pool.run(slow))
    await until(reactor, lambda: _sleeping(database))
    alice.cancel()
    with pytest.raises(defer.CancelledError):
        await alice
    assert await pool.run(message(WHO_AM_I, settings=claims("bob"))) == [("anon", "bob")]
    assert pool.figures().connects == 2


@pytest.mark.parametrize(("prepared", "lane"), [(True, "off"), (False, "off"), (True, "always")])
async def test_no_identity_leaks_if_many_clients_disconnect(
    make_pool: Callable[..., Pool], database: Database, reactor: Any, prepared: bool, lane: str
) -> None:
    database.execute(
        "create table seen (number int, role text, claims text); grant insert on seen to anon, authenticated"
    )
    pool = make_pool(size=4, prepared_statements=prepared, lane=lane)
    await pool.start()
    rng = random.Random(20240229)
    outcomes: Counter[str] = Counter()

    async def caller(number: int) -> None:
        role = rng.choice(["anon", "authenticated"])
        kind = rng.choice([*STATEMENTS])
        pause = str(rng.choice([0, 0, 0, 0.001, 0.003, 0.02]))
        sent = Message(
            role,
            claims(f"caller {number}"),
            (Bound(STATEMENTS[kind], (str(number), pause)),),
            read_only=False,
            shareable=True,
        )
        request = running(pool.run(sent))
        if rng.random() < 0.4:
            reactor.callLater(rng.random() * 0.006, request.cancel)
        try:
            rows = await request
        except defer.CancelledError:
            outcomes["cancelled"] += 1
        except DatabaseError as error:
            outcomes[f"{kind}: {error.code}"] += 1
        else:
            assert rows == [(role, f"caller {number}")]
            outcomes["answered"] += 1
        expected[number] = (role, f"caller {number}")

    expected: dict[int, tuple[str, str]] = {}
    numbers = iter(range(RUNS))

    async def client() -> None:
        for number in numbers:
            await caller(number)
            if number % 50 == 0:
                assert await pool.fetch(WHO_AM_I) in ([("authenticator", "")], [("authenticator", None)])

    await defer.gatherResults([running(client()) for _ in range(12)], consumeErrors=True)
    assert sum(outcomes.values()) == RUNS
    # No caller's statement was cancelled for another caller (57014), and each outcome was frequent.
    assert set(outcomes) == {"answered", "cancelled", "fail: 22012"}
    assert min(outcomes.values()) > RUNS / 20
    # A shared statement is not cancelled.
    assert pool.figures().cancels > RUNS / 100 or lane == "always"
    assert (pool.figures().lane.shared > RUNS / 5) is (lane == "always")
    for number, role, claim in database.execute("select number, role, claims from seen"):
        assert (role, claim) == expected[number]
    # Every connection still works and has no caller's role.
    await until(reactor, lambda: pool.figures().in_use == 0)
    queries = [running(pool.fetch(f"{WHO_AM_I}, pg_sleep(0.05)")) for _ in range(4)]
    assert {rows[0][:2] for rows in await defer.gatherResults(queries)} <= {
        ("authenticator", ""), ("authenticator", None),
    }  # fmt: skip
    assert pool.figures().open == 4


def claims(text: str) -> tuple[tuple[str, str], ...]:
    return (("request.jwt.claims", text),)


def _sleeping(database: Database) -> bool:
    rows = database.execute("select 1 from pg_stat_activity where wait_event = 'PgSleep'")
    return bool(rows)
