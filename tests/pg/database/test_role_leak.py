"""One caller's identity never reaches the next, however callers come and go."""

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
# Stands for every statement that has just ended when the request to cancel it arrives.
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


async def test_bare_txpostgres_leaks(database: Database, reactor: Any) -> None:
    """With txpostgres's own pool, whoever comes after a cancelled caller gets that caller's identity."""
    bare = txpostgres.ConnectionPool(None, database.uri, min=1)
    await bare.start()
    connection = next(iter(bare.connections))

    async def interaction(cursor: Any) -> None:
        await cursor.execute("select set_config('role', 'authenticated', true)")
        await cursor.execute("select set_config('request.jwt.claims', 'alice', true)")
        await cursor.execute(HARD_TO_CANCEL)

    alice = bare.runInteraction(lambda cursor: running(interaction(cursor)))
    await until(reactor, lambda: _sleeping(database))
    # Klein cancels the handler's Deferred when the client disconnects.
    alice.cancel()
    with pytest.raises(txpostgres.RollbackFailed):
        await alice
    await until(reactor, lambda: not connection.isexecuting())
    rows = await bare.runQuery(WHO_AM_I)
    bare.close()
    assert rows == [("authenticated", "alice")]


async def test_our_pool_does_not_leak(
    make_pool: Callable[..., Pool], database: Database, reactor: Any
) -> None:
    """The same course of events leaves nothing behind: the next caller is itself, the daemon too."""
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


async def test_a_cancel_request_of_unknown_fate_costs_the_connection(
    make_pool: Callable[..., Pool], database: Database, reactor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When nobody knows whether a request to cancel still comes, no later caller gets to meet it."""

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


@pytest.mark.parametrize("prepared", [True, False])
async def test_no_identity_leaks_in_a_storm_of_disconnects(
    make_pool: Callable[..., Pool], database: Database, reactor: Any, prepared: bool
) -> None:
    """Thousands of callers come and go at random, and each sees only its own role and claims."""
    database.execute(
        "create table seen (number int, role text, claims text); grant insert on seen to anon, authenticated"
    )
    pool = make_pool(size=4, prepared_statements=prepared)
    await pool.start()
    chance = random.Random(20240229)
    outcomes: Counter[str] = Counter()

    async def caller(number: int) -> None:
        role = chance.choice(["anon", "authenticated"])
        kind = chance.choice([*STATEMENTS])
        pause = str(chance.choice([0, 0, 0, 0.001, 0.003, 0.02]))
        sent = Message(
            role,
            claims(f"caller {number}"),
            (Bound(STATEMENTS[kind], (str(number), pause)),),
            read_only=False,
        )
        request = running(pool.run(sent))
        if chance.random() < 0.4:
            reactor.callLater(chance.random() * 0.006, request.cancel)
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
    # Nobody got the cancellation (57014) that was meant for another, and each thing happened often.
    assert set(outcomes) == {"answered", "cancelled", "fail: 22012"}
    assert min(outcomes.values()) > RUNS / 20
    assert pool.figures().cancels > RUNS / 100
    for number, role, claim in database.execute("select number, role, claims from seen"):
        assert (role, claim) == expected[number]
    # Every connection works still, and is nobody's.
    await until(reactor, lambda: pool.figures().in_use == 0)
    everyone = [running(pool.fetch(f"{WHO_AM_I}, pg_sleep(0.05)")) for _ in range(4)]
    assert {rows[0][:2] for rows in await defer.gatherResults(everyone)} <= {
        ("authenticator", ""), ("authenticator", None),
    }  # fmt: skip
    assert pool.figures().open == 4


def claims(text: str) -> tuple[tuple[str, str], ...]:
    """Return the settings that carry a caller's claims."""
    return (("request.jwt.claims", text),)


def _sleeping(database: Database) -> bool:
    rows = database.execute("select 1 from pg_stat_activity where wait_event = 'PgSleep'")
    return bool(rows)
