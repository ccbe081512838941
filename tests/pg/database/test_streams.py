"""Results that are read piece by piece: in batches, under their role, and without a trace behind them."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.message import Bound, Message, Statement
from dataapi.database.open_transaction import FIRST_FETCH, next_fetch
from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from hypothesis import given
from hypothesis import strategies as st
from support.clocks import FOR_EVER
from support.messages import message, running, until
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database

    MakePool = Callable[..., Pool]

NUMBERS = "select g::text from generate_series(1, $1::int) g"
WHO_AM_I = "select current_user::text || ' ' || current_setting('request.jwt.claims')"
LOGIN_ROLE = "select current_user::text, nullif(current_setting('request.jwt.claims', true), '')"
BATCH = 10_000


def numbers(count: int, **named: Any) -> Message:
    """Ask for as many rows."""
    return message(NUMBERS, str(count), types=("int",), **named)


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("count", [0, 1, FIRST_FETCH, FIRST_FETCH + 1, 100_000])
async def test_all_rows_come_in_order_and_in_batches(make_pool: MakePool, prepared: bool, count: int) -> None:
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    seen: list[str] = []
    async for batch in pool.stream(numbers(count), BATCH):
        assert sum(len(value) for (value,) in batch) <= 2 * BATCH
        seen += [value for (value,) in batch]
    assert seen == [str(number) for number in range(1, count + 1)]
    assert pool.figures().connects == 1
    assert await pool.fetch(LOGIN_ROLE) == [("authenticator", None)]


async def test_nothing_is_fetched_before_it_is_asked_for(pool: Pool, database: Database) -> None:
    database.execute(
        "create sequence calls; grant all on calls to anon;"
        "create function number(g int) returns text volatile language plpgsql as $$ begin"
        " perform nextval('calls'); return g::text; end $$"
    )
    called = "select last_value from calls"
    # A sequence counts outside of transactions, so this message may write.
    asked = message(
        f"select number(g::int) from ({NUMBERS}) as n(g)", "100000", types=("int",), read_only=False
    )
    async with aclosing(pool.stream(asked, BATCH)) as batches:
        await anext(batches)
        [(first,)] = database.execute(called)
        assert first == FIRST_FETCH
        await anext(batches)
        [(second,)] = database.execute(called)
        assert FIRST_FETCH < second <= 5 * FIRST_FETCH


@pytest.mark.parametrize("prepared", [True, False])
async def test_every_batch_runs_under_the_role_of_its_caller(make_pool: MakePool, prepared: bool) -> None:
    pool = make_pool(size=4, prepared_statements=prepared)
    await pool.start()
    text = f"{WHO_AM_I} from generate_series(1, 1000)"
    names = [("anon", "ada"), ("authenticated", "bob")]
    streams = [
        pool.stream(message(text, role=role, settings=(("request.jwt.claims", name),)), 1000)
        for role, name in names
    ]
    seen: list[set[str]] = [set(), set()]
    for _ in range(5):
        for stream, values in zip(streams, seen, strict=True):
            values.update(value for (value,) in await anext(stream))
    for stream in streams:
        await stream.aclose()
    assert seen == [{"anon ada"}, {"authenticated bob"}]
    assert await pool.fetch(LOGIN_ROLE) == [("authenticator", None)]


async def test_a_stream_that_is_left_costs_its_connection_and_leaves_nothing(make_pool: MakePool) -> None:
    pool = make_pool(size=1)
    await pool.start()
    async with aclosing(pool.stream(numbers(100_000, role="authenticated"), BATCH)) as batches:
        await anext(batches)
        assert pool.figures().in_use == 1
    assert await pool.run(message("select current_user::text")) == [("anon",)]
    assert await pool.fetch(LOGIN_ROLE) == [("authenticator", None)]
    assert pool.figures().connects == 2


async def test_a_stream_cancelled_while_it_fetches_ends_its_statement(
    make_pool: MakePool, database: Database, reactor: Any
) -> None:
    pool = make_pool(size=1)
    await pool.start()
    slow = "select case when g > 100 then pg_sleep(10)::text end from generate_series(1, 200) g"
    batches = pool.stream(message(slow, role="authenticated"), BATCH)
    await anext(batches)
    fetching = running(anext(batches))
    await until(reactor, lambda: _sleeping(database))
    fetching.cancel()
    with pytest.raises(defer.CancelledError):
        await fetching
    await batches.aclose()
    assert await pool.run(message("select current_user::text")) == [("anon",)]
    assert not _sleeping(database)
    assert pool.figures().connects == 2


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("select * from nowhere", 404, "42P01"),
        ("select (1 / (g - 1))::text from generate_series(1, 10) g", 400, "22012"),
    ],
)
async def test_an_error_at_the_beginning_is_raised_before_the_first_batch(
    pool: Pool, text: str, status: int, code: str
) -> None:
    with pytest.raises(DatabaseError) as caught:
        await anext(pool.stream(message(text)))
    assert (caught.value.status, caught.value.code) == (status, code)
    assert await pool.fetch("select 1") == [(1,)]


async def test_an_error_in_the_middle_ends_the_stream_and_its_transaction(make_pool: MakePool) -> None:
    pool = make_pool(size=1)
    await pool.start()
    batches = pool.stream(message("select (1 / (500 - g))::text from generate_series(1, 1000) g"), 100)
    await anext(batches)
    with pytest.raises(DatabaseError) as caught:
        async for _ in batches:
            pass
    assert caught.value.code == "22012"
    assert await pool.fetch(LOGIN_ROLE) == [("authenticator", None)]
    assert pool.figures().connects == 1


async def test_a_connection_lost_in_the_middle_is_reported(pool: Pool, database: Database) -> None:
    batches = pool.stream(numbers(100_000), BATCH)
    await anext(batches)
    database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction'"
    )
    with pytest.raises(ApiError) as caught:
        async for _ in batches:
            pass
    assert caught.value.status == 503


async def test_a_stream_does_not_write(pool: Pool, database: Database) -> None:
    database.execute(
        "create table t (id int); grant all on t to anon;"
        "create function sneak() returns text language sql volatile"
        " as 'insert into t values (1) returning id::text'"
    )
    with pytest.raises(DatabaseError) as caught:
        await anext(pool.stream(message("select sneak()")))
    assert caught.value.code == "25006"


async def test_values_and_earlier_statements_travel_as_in_a_message(pool: Pool) -> None:
    earlier = Bound(Statement("select set_config('request.tag', $1, true)", ("text",)), ("50% 'off'",))
    last = Bound(Statement("select current_setting('request.tag') || $1", ("text",)), (' $1 %s \\ "',))
    rows = [row async for batch in pool.stream(Message("anon", (), (earlier, last))) for row in batch]
    assert rows == [("50% 'off' $1 %s \\ \"",)]


async def test_streams_leave_half_of_the_connections_to_others(make_pool: MakePool) -> None:
    pool = make_pool(size=4, acquisition_timeout=FOR_EVER)
    await pool.start()
    first, second = [pool.stream(numbers(1000), 100) for _ in range(2)]
    await anext(first)
    await anext(second)
    third = running(anext(pool.stream(numbers(1))))
    assert await pool.fetch("select 1") == [(1,)]
    assert pool.figures().waiting == 1
    await first.aclose()
    assert await third == [("1",)]
    await second.aclose()
    assert [row async for batch in pool.stream(numbers(1)) for row in batch] == [("1",)]


async def test_a_stream_that_waits_too_long_gets_504(make_pool: MakePool) -> None:
    pool = make_pool(size=2, acquisition_timeout=0.1)
    await pool.start()
    first = pool.stream(numbers(1000), 100)
    await anext(first)
    with pytest.raises(DatabaseUnavailable) as caught:
        await anext(pool.stream(numbers(1)))
    assert (caught.value.status, caught.value.code) == (504, "PGRST003")
    assert pool.figures().timeouts == 1
    await first.aclose()


@given(asked=st.integers(1, 10_000), size=st.integers(0, 10**9), wanted=st.integers(1, 10**7))
def test_the_next_batch_is_measured_by_the_last(asked: int, size: int, wanted: int) -> None:
    found = next_fetch(asked, size, wanted)
    assert 1 <= found <= max(4 * asked, 1)
    assert found == 1 or found * size <= wanted * asked


def _sleeping(database: Database) -> bool:
    return bool(database.execute("select 1 from pg_stat_activity where wait_event = 'PgSleep'"))


@pytest.mark.parametrize("prepared", [True, False])
async def test_no_identity_leaks_in_a_storm_of_readers_who_leave(
    make_pool: MakePool, reactor: Any, prepared: bool
) -> None:
    pool = make_pool(size=4, prepared_statements=prepared)
    await pool.start()
    chance = random.Random(20240229)
    outcomes: Counter[str] = Counter()
    text = f"{WHO_AM_I} from generate_series(1, 2000), pg_sleep($1::float8)"

    async def read(number: int, role: str) -> None:
        settings = (("request.jwt.claims", f"caller-{number}"),)
        sent = message(text, str(chance.choice([0, 0, 0.002])), role=role, settings=settings)
        wanted = chance.choice([1, 3, 1000])
        async with aclosing(pool.stream(sent, 2000)) as batches:
            async for batch in batches:
                assert {value for (value,) in batch} == {f"{role} caller-{number}"}
                wanted -= 1
                if not wanted:
                    outcomes["left"] += 1
                    return
        outcomes["read"] += 1

    async def caller(number: int) -> None:
        role = chance.choice(["anon", "authenticated"])
        if chance.random() < 0.3:
            settings = (("request.jwt.claims", f"caller-{number}"),)
            rows = await pool.run(message(WHO_AM_I, role=role, settings=settings))
            assert rows == [(f"{role} caller-{number}",)]
            outcomes["asked"] += 1
            return
        reading = running(read(number, role))
        if chance.random() < 0.3:
            reactor.callLater(chance.random() * 0.01, reading.cancel)
        try:
            await reading
        except defer.CancelledError:
            outcomes["cancelled"] += 1

    numbers = iter(range(300))

    async def client() -> None:
        for number in numbers:
            await caller(number)
            assert await pool.fetch(LOGIN_ROLE) == [("authenticator", None)]

    await defer.gatherResults([running(client()) for _ in range(6)], consumeErrors=True)
    assert sum(outcomes.values()) == 300
    assert set(outcomes) == {"left", "read", "asked", "cancelled"}
    assert min(outcomes.values()) > 10
    await until(reactor, lambda: pool.figures().in_use == 0)
