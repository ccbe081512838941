"""Quick reads travel together and stay apart: each has its own role, settings, answer and error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_twisted
from dataapi.database.message import Bound, Message, Pace, Statement
from dataapi.http.errors import DatabaseError
from support.messages import running, until
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database

MANY = 20


def quick(text: str, *types: str) -> Statement:
    """Return a statement that counts as quick from the start."""
    return Statement(text, types, pace=Pace(0.0))


def read(statement: Statement, *values: str | None, role: str = "anon", **settings: str) -> Message:
    """Return a message that reads."""
    named = tuple((f"app.{name}", value) for name, value in settings.items())
    return Message(role, named, (Bound(statement, values),))


@pytest.fixture(params=["prepared", "inlined"])
def ten(request: pytest.FixtureRequest, make_pool: Callable[..., Pool]) -> Pool:
    """Give a started pool of up to ten connections."""
    pool = make_pool(size=10, prepared_statements=request.param == "prepared", search_path=("public",))
    pytest_twisted.blockon(defer.Deferred.fromCoroutine(pool.start()))
    return pool


async def answers(pool: Pool, messages: list[Message]) -> list[Any]:
    """Run messages at once and return their rows, or their errors."""
    done = await defer.DeferredList([running(pool.run(one)) for one in messages], consumeErrors=True)
    return [outcome if success else outcome.value for success, outcome in done]


async def test_each_has_its_own_identity_and_answer(ten: Pool) -> None:
    """Whatever travels beside it, and all of them share one connection, the only one that was open."""
    who = quick("select $1::int, $2::text, current_user::text, current_setting('app.who')", "int", "text")
    roles = ("anon", "authenticated", "service_role")
    texts = ("it's", "100%", "back\\slash", "", None, "é")
    asked = [
        read(who, str(number), texts[number % len(texts)], role=roles[number % 3], who=f"caller {number}")
        for number in range(MANY)
    ]
    for _ in range(2):
        assert await answers(ten, asked) == [
            [(number, texts[number % len(texts)], roles[number % 3], f"caller {number}")]
            for number in range(MANY)
        ]
    assert ten.figures().connects == 1


async def test_rows_are_what_they_are_alone(ten: Pool) -> None:
    """Of every type, none or several."""
    values = quick(
        "select n, n::text, n > 1, null, 1.5, json_build_object('n', n) from generate_series(1, $1::int) n",
        "int",
    )
    alone = Statement(values.text, values.types)
    for count in ("0", "1", "3"):
        expected = await ten.run(read(alone, count))
        assert await answers(ten, [read(values, count)] * 5) == [expected] * 5
    nothing = Statement("do $$ begin end $$", (), prepared=False, pace=Pace(0.0))
    assert await answers(ten, [read(values, "0"), read(nothing), read(values, "0")]) == [[], [], []]


async def test_an_error_is_that_of_its_own_read(ten: Pool) -> None:
    """The others that it travelled with get their answers."""
    divide = quick("select 6 / $1::int", "int")
    for _ in range(2):
        found = await answers(ten, [read(divide, str(number % 4)) for number in range(MANY)])
        for number, outcome in enumerate(found):
            if number % 4:
                assert outcome == [(6 // (number % 4),)]
            else:
                assert isinstance(outcome, DatabaseError)
                assert outcome.code == "22012"


async def test_a_setting_for_the_session_ends_with_its_read(ten: Pool) -> None:
    """The next read in the same message does not have it, nor does the next use of the connection."""
    poison = quick(
        "select set_config('timezone', 'Asia/Tokyo', false), set_config('role', 'service_role', false)"
    )
    show = quick("select current_setting('timezone'), current_user::text")
    for _ in range(2):
        found = await answers(ten, [read(one) for one in [poison, show] * MANY])
        assert found[1::2] == [[("UTC", "anon")]] * MANY
    assert await ten.run(read(Statement(show.text, ()))) == [("UTC", "anon")]


async def test_a_read_may_not_write_beside_others(ten: Pool, database: Database) -> None:
    """Each transaction refuses to."""
    database.execute("create table t (n int); grant all on t to anon")
    write = quick("with w as (insert into t select 1 returning 1) select count(*) from w")
    found = await answers(ten, [read(write)] * 5)
    assert [error.code for error in found] == ["25006"] * 5
    assert database.execute("select * from t") == []


async def test_one_that_turns_out_slow_does_not_hold_up_the_others(
    ten: Pool, database: Database, reactor: Any
) -> None:
    """They are run again without it, and when its caller is gone it ends."""
    sleep = quick("select 'slept' from pg_sleep($1)", "float8")
    slow = running(ten.run(read(sleep, "3600")))
    others = [running(ten.run(read(sleep, "0"))) for _ in range(MANY)]
    assert await defer.gatherResults(others) == [[("slept",)]] * MANY
    slow.cancel()
    with pytest.raises(defer.CancelledError):
        await slow
    await until(reactor, lambda: not sleeping(database))


def sleeping(database: Database) -> bool:
    """Tell whether a statement sleeps in the server."""
    return bool(database.execute("select 1 from pg_stat_activity where wait_event = 'PgSleep'"))


async def test_those_who_leave_do_not_keep_others_from_their_answers(ten: Pool) -> None:
    """Neither before their read was sent nor after."""
    number = quick("select $1::int", "int")
    asked = [running(ten.run(read(number, str(one)))) for one in range(MANY)]
    for gone in asked[::3]:
        gone.addErrback(lambda failure: failure.trap(defer.CancelledError))
        gone.cancel()
    found = [await one for one in asked]
    assert all(rows == [(one,)] for one, rows in enumerate(found) if one % 3)
