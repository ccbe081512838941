"""Results are streamed in batches under the caller's role."""

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


def numbers(count: int, **options: Any) -> Message:
    return message(NUMBERS, str(count), types=("int",), **options)


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("count", [0, 1, FIRST_FETCH, FIRST_FETCH + 1, 100_000])
async def test_all_rows_arrive_in_order_and_in_batches(
    make_pool: MakePool, prepared: bool, count: int
) -> None:
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    received: list[str] = []
    async for batch in pool.stream(numbers(count), BATCH):
        assert sum(len(value) for (value,) in batch) <= 2 * BATCH
        received += [value for (value,) in batch]
    assert received == [str(number) for number in range(1, count + 1)]
    assert pool.figures().connects == 1
    assert await pool.fetch(LOGIN_ROLE) == [("authenticator", None)]


async def test_batches_are_fetched_on_demand(pool: Pool, database: Database) -> None:
    database.execute(
        "create sequence calls; grant all on calls to anon;"
        "create function number(g int) returns text volatile language plpgsql as $$ begin"
        " perform nextval('calls'); return g::text; end $$"
    )
    call_count = "select last_value from calls"
    # Sequences are not rolled back, but nextval() needs a transaction that may write.
    requested = message(
        f"select number(g::int) from ({NUMBERS}) as n(g)", "100000", types=("int",), read_only=False
    )
    async with aclosing(pool.stream(requested, BATCH)) as batches:
        await anext(batches)
        [(first,)] = database.execute(call_count)
        assert first == FIRST_FETCH
        await anext(batches)
        [(second,)] = database.execute(call_count)
        assert FIRST_FETCH < second <= 5 * FIRST_FETCH


@pytest.mark.parametrize("prepared", [True, False])
async def test_every_batch_runs_under_the_callers_role(make_pool: MakePool, prepared: bool) -> None:
    pool = make_pool(size=4, prepared_statements=prepared)
    await pool.start()
    text = f"{WHO_AM_I} from generate_series(1, 1000)"
    names = [("anon", "ada"), ("authenticated", "bob")]
    streams = [
        pool.stream(message(text, role=role, settings=(("request.jwt.claims", name),)), 1000)
        for role, name in names
    ]
    received: list[set[str]] = [set(), set()]
    for _ in range(5):
        for stream, values in zip(streams, received, strict=True):
            values.update(value for (value,) in await anext(stream))
    for stream in streams:
        await stream.aclose()
    assert received == [{"anon ada"}, {"authenticated bob"}]
    assert await pool.fetch(LOGIN_ROLE) == [("authenticator", None)]


async def test_abandoned_stream_closes_its_connection(make_pool: MakePool) -> None:
    pool = make_pool(size=1)
    await pool.start()
    async with aclosing(pool.stream(numbers(100_000, role="authenticated"), BATCH)) as batches:
        await anext(batches)
        assert pool.figures().in_use == 1
    assert await pool.run(message("select current_user::text")) == [("anon",)]
    assert await pool.fetch(LOGIN_ROLE) == [("authenticator", None)]
    assert pool.figures().connects == 2


async def test_cancelled_stream_cancels_its_statement(
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
async def test_early_error_is_raised_before_the_first_batch(
    pool: Pool, text: str, status: int, code: str
) -> None:
    with pytest.raises(DatabaseError) as caught:
        await anext(pool.stream(message(text)))
    assert (caught.value.status, caught.value.code) == (status, code)
    assert await pool.fetch("select 1") == [(1,)]


async def test_late_error_ends_the_stream_and_its_transaction(make_pool: MakePool) -> None:
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


async def test_lost_connection_during_a_stream_is_503(pool: Pool, database: Database) -> None:
    batches = pool.stream(numbers(100_000), BATCH)
    await anext(batches)
    database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction'"
    )
    with pytest.raises(ApiError) as caught:
        async for _ in batches:
            pass
    assert caught.value.status == 503


async def test_stream_is_read_only(pool: Pool, database: Database) -> None:
    database.execute(
        "create table t (id int); grant all on t to anon;"
        "create function sneak() returns text language sql volatile"
        " as 'insert into t values (1) returning id::text'"
    )
    with pytest.raises(DatabaseError) as caught:
        await anext(pool.stream(message("select sneak()")))
    assert caught.value.code == "25006"


async def test_stream_runs_earlier_statements_of_its_message(pool: Pool) -> None:
    earlier = Bound(Statement("select set_config('request.tag', $1, true)", ("text",)), ("50% 'off'",))
    last = Bound(Statement("select current_setting('request.tag') || $1", ("text",)), (' $1 %s \\ "',))
    rows = [row async for batch in pool.stream(Message("anon", (), (earlier, last))) for row in batch]
    assert rows == [("50% 'off' $1 %s \\ \"",)]


async def test_streams_use_at_most_half_of_the_connections(make_pool: MakePool) -> None:
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


async def test_acquisition_timeout_of_a_stream_is_504(make_pool: MakePool) -> None:
    pool = make_pool(size=2, acquisition_timeout=0.1)
    await pool.start()
    first = pool.stream(numbers(1000), 100)
    await anext(first)
    with pytest.raises(DatabaseUnavailable) as caught:
        await anext(pool.stream(numbers(1)))
    assert (caught.value.status, caught.value.code) == (504, "PGRST003")
    assert pool.figures().timeouts == 1
    await first.aclose()


@given(requested=st.integers(1, 10_000), size=st.integers(0, 10**9), wanted=st.integers(1, 10**7))
def test_batch_size_follows_the_size_of_the_last_batch(requested: int, size: int, wanted: int) -> None:
    next_size = next_fetch(requested, size, wanted)
    assert 1 <= next_size <= max(4 * requested, 1)
    assert next_size == 1 or next_size * size <= wanted * requested


def _sleeping(database: Database) -> bool:
    return bool(database.execute("select 1 from pg_stat_activity where wait_event = 'PgSleep'"))


@pytest.mark.parametrize("prepared", [True, False])
async def test_no_identity_leaks_if_many_readers_disconnect(
    make_pool: MakePool, reactor: Any, prepared: bool
) -> None:
    pool = make_pool(size=4, prepared_statements=prepared)
    await pool.start()
    rng = random.Random(20240229)
    outcomes: Counter[str] = Counter()
    text = f"{WHO_AM_I} from generate_series(1, 2000), pg_sleep($1::float8)"

    async def read(number: int, role: str) -> None:
        settings = (("request.jwt.claims", f"caller-{number}"),)
        sent = message(text, str(rng.choice([0, 0, 0.002])), role=role, settings=settings)
        wanted = rng.choice([1, 3, 1000])
        async with aclosing(pool.stream(sent, 2000)) as batches:
            async for batch in batches:
                assert {value for (value,) in batch} == {f"{role} caller-{number}"}
                wanted -= 1
                if not wanted:
                    outcomes["left"] += 1
                    return
        outcomes["read"] += 1

    async def caller(number: int) -> None:
        role = rng.choice(["anon", "authenticated"])
        if rng.random() < 0.3:
            settings = (("request.jwt.claims", f"caller-{number}"),)
            rows = await pool.run(message(WHO_AM_I, role=role, settings=settings))
            assert rows == [(f"{role} caller-{number}",)]
            outcomes["asked"] += 1
            return
        reading = running(read(number, role))
        if rng.random() < 0.3:
            reactor.callLater(rng.random() * 0.01, reading.cancel)
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
