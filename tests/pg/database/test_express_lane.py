"""The express lane: short statements share connections."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
import pytest_twisted
from dataapi.database.message import Bound, Message, Statement
from dataapi.http.errors import ApiError, DatabaseError
from support.messages import message, running, until
from support.service import Service
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

    MakePool = Callable[..., Pool]

ROWS = "create table t (id int primary key, note text); grant all on t to anon, authenticated;"
SCHEMA = f"""
{ROWS}
create function note() returns trigger language plpgsql as $$ begin
    new.note := current_setting('statement_timeout');
    perform pg_sleep(0.05);
    return new;
exception when query_canceled then
    new.note := 'cancelled';
    return new;
end $$;
create trigger note before insert on t for each row execute function note();
"""
PROJECT = {"db_statement_timeout": 7.0}
LOSS = """
create function lose_connection() returns bool language sql security definer
    as 'select pg_terminate_backend(pg_backend_pid())';
"""
LOSE = Statement("select lose_connection()", ())
INSERT = Statement("insert into t values ($1)", ("int",))
SELECT = Statement("select count(*) from t where id = $1", ("int",))


@pytest.fixture
def lane(make_pool: MakePool) -> Pool:
    """Return a started pool. All shareable messages run on two of its four connections."""
    pool = make_pool(size=4, lane="always")
    pytest_twisted.blockon(running(pool.start()))
    return pool


def _run(pool: Pool, statement: Statement, *values: str, **named: Any) -> defer.Deferred[Any]:
    read_only = named.pop("read_only", statement is not INSERT)
    bound = Bound(statement, values)
    return running(
        pool.run(Message(named.pop("role", "anon"), (), (bound,), read_only, shareable=True, **named))
    )


async def until_shared(pool: Pool, statement: Statement) -> None:
    """Run pairs of a statement until the pool runs it in the express lane."""
    while not pool.figures().lane.shared:
        await defer.gatherResults([_run(pool, statement) for _ in range(2)])


async def _outcomes(deferreds: list[defer.Deferred[Any]]) -> list[Any]:
    """Return the result or error of each Deferred."""
    return [
        result if done else result.value
        for done, result in await defer.DeferredList(deferreds, consumeErrors=True)
    ]


async def test_messages_of_many_callers_share_two_connections(lane: Pool) -> None:
    echo = Statement("select $1::text || current_setting('request.sub') || current_user", ("text",))
    messages = [
        Message(role, (("request.sub", f" {number} "),), (Bound(echo, (role,)),), shareable=True)
        for number, role in enumerate(["anon", "authenticated", "service_role"] * 40)
    ]
    results = await defer.gatherResults([running(lane.run(one)) for one in messages])
    assert results == [[(f"{one.role} {number} {one.role}",)] for number, one in enumerate(messages)]
    # On a slow machine, some messages run or wait too long for the express lane.
    assert lane.figures().lane.shared > len(messages) / 2


async def test_error_does_not_affect_other_messages(lane: Pool, database: Database) -> None:
    database.execute(ROWS)
    sent = [_run(lane, INSERT, str(number // 2)) for number in range(20)]
    outcomes = await _outcomes(sent)
    assert [isinstance(one, DatabaseError) and one.code == "23505" for one in outcomes] == [False, True] * 10
    assert database.execute("select count(*) from t") == [(10,)]


async def test_statement_that_exceeds_the_limit_runs_on_its_own_connection(
    lane: Pool, database: Database
) -> None:
    database.execute(ROWS + "create sequence attempts; grant all on sequence attempts to anon")
    slow = Statement("insert into t select nextval('attempts') from pg_sleep(0.1) returning id", ())
    rows = await lane.run(Message("anon", (), (Bound(slow),), read_only=False, shareable=True))
    assert rows == database.execute("select id from t")
    assert lane.figures().lane.returned == 1


async def test_write_that_waits_for_a_lock_takes_effect_once(lane: Pool, database: Database) -> None:
    database.execute(ROWS)
    with closing(psycopg2.connect(database.admin_uri)) as holder, holder.cursor() as cursor:
        cursor.execute("lock table t in access exclusive mode")
        writes = [_run(lane, INSERT, str(number)) for number in range(6)]
        other = await lane.run(message("select 1", shareable=True))
        await until(lane._reactor, lambda: lane.figures().lane.returned == len(writes))
        holder.rollback()
    await defer.gatherResults(writes)
    assert other == [(1,)]
    assert database.execute("select id from t order by id") == [(number,) for number in range(6)]


ALTERATIONS = {
    "encoding": "set_config('client_encoding', 'LATIN1', false)",
    "isolation": "set_config('default_transaction_isolation', 'serializable', false)",
    "read-only": "set_config('default_transaction_read_only', 'on', false)",
    "search path": "set_config('search_path', 'pg_temp', false)",
    "time limit": "set_config('statement_timeout', '1', false)",
}


@pytest.mark.parametrize("alteration", list(ALTERATIONS))
async def test_session_settings_of_a_function_do_not_reach_later_messages(
    lane: Pool, database: Database, alteration: str
) -> None:
    database.execute(ROWS)
    altering = Statement(f"select {ALTERATIONS[alteration]}", ())
    text = Statement("select 'ä' || $1::text", ("text",))
    altered = [_run(lane, altering) for _ in range(2)]
    reads = [_run(lane, text, "ö") for _ in range(4)]
    writes = [_run(lane, INSERT, str(number)) for number in range(4)]
    await _outcomes(altered)
    assert await defer.gatherResults(reads) == [[("äö",)]] * 4
    written = await _outcomes(writes)
    stored = {number for (number,) in database.execute("select id from t")}
    for number, outcome in enumerate(written):
        assert isinstance(outcome, ApiError) or number in stored, outcome
        assert not isinstance(outcome, ApiError) or outcome.status == 503


async def test_deallocated_statements_are_prepared_again(lane: Pool) -> None:
    number = Statement("select $1::int", ("int",))
    gone = Statement("select count(*) from (select pg_sleep(0)) s", ())
    deallocating = message("do 'begin execute ''deallocate all''; end'", read_only=False, shareable=True)
    for _ in range(3):
        sent = [_run(lane, number, "1"), running(lane.run(deallocating)), _run(lane, number, "2")]
        sent += [_run(lane, gone), _run(lane, number, "3")]
        first, _, second, third, last = await defer.gatherResults(sent)
        assert (first, second, third, last) == ([(1,)], [(2,)], [(1,)], [(3,)])


async def test_changed_table_is_planned_again(lane: Pool, database: Database) -> None:
    database.execute(ROWS + "insert into t values (1, 'a')")
    everything = Statement("select * from t", ())
    assert await _run(lane, everything) == [(1, "a")]
    database.execute("alter table t add more int default 7")
    results = await defer.gatherResults([_run(lane, everything) for _ in range(6)])
    assert results == [[(1, "a", 7)]] * 6


async def test_cancelled_message_does_not_affect_other_messages(lane: Pool) -> None:
    number = Statement("select $1::int from pg_sleep(0.005)", ("int",))
    sent = [_run(lane, number, str(each)) for each in range(10)]
    for gone in sent[::2]:
        gone.cancel()
    outcomes = await _outcomes(sent)
    assert outcomes[1::2] == [[(each,)] for each in range(1, 10, 2)]
    assert all(isinstance(one, defer.CancelledError) for one in outcomes[::2])
    await until(lane._reactor, lambda: lane.figures().in_use == 0)


async def test_lost_connection_fails_only_messages_in_progress(lane: Pool, database: Database) -> None:
    database.execute(ROWS + LOSS)
    sent = [_run(lane, INSERT, str(each)) for each in range(5)]
    sent += [_run(lane, LOSE), *[_run(lane, INSERT, str(each)) for each in range(5, 20)]]
    outcomes = await _outcomes(sent)
    stored = {number for (number,) in database.execute("select id from t")}
    numbers = [*range(5), -1, *range(5, 20)]
    acknowledged = {
        number for number, one in zip(numbers, outcomes, strict=True) if not isinstance(one, Exception)
    }
    assert acknowledged <= stored
    assert {one.status for one in outcomes if isinstance(one, ApiError)} == {503}
    assert await _run(lane, SELECT, "0") == [(1,)]


async def test_messages_wait_while_the_lane_is_full(lane: Pool) -> None:
    number = Statement("select $1::int", ("int",))
    results = await defer.gatherResults([_run(lane, number, str(each)) for each in range(300)])
    assert results == [[(each,)] for each in range(300)]
    await until(lane._reactor, lambda: lane.figures().in_use == 0)


async def test_unstorable_value_does_not_occupy_the_lane(lane: Pool) -> None:
    text = Statement("select $1::text", ("text",))
    for _ in range(3):
        with pytest.raises(ApiError):
            await _run(lane, text, "\0")
    await until(lane._reactor, lambda: lane.figures().in_use == 0)
    assert await _run(lane, text, "a") == [("a",)]


@pytest.mark.parametrize(
    "named", [{"isolation": "SERIALIZABLE"}, {"rollback": True, "read_only": False}], ids=str
)
async def test_transaction_with_its_own_isolation_or_end_uses_its_own_connection(
    lane: Pool, named: dict[str, Any]
) -> None:
    await lane.run(message("select 1", shareable=True, **named))
    assert lane.figures().lane.shared == 0


async def test_volatile_function_uses_its_own_connection(lane: Pool) -> None:
    statement = Statement("select random()", (), shareable=False)
    await lane.run(Message("anon", (), (Bound(statement),), shareable=True))
    assert lane.figures().lane.shared == 0


@pytest.mark.parametrize(("limit", "shared"), [("10ms", 0), ("29", 0), ("3s", 1), ("0", 1), ("1min", 1)])
async def test_shorter_timeout_of_the_role_applies(lane: Pool, limit: str, shared: int) -> None:
    await lane.run(message("select 1", settings=(("statement_timeout", limit),), shareable=True))
    figures = lane.figures().lane
    assert figures.shared + figures.returned == shared


async def test_statement_shares_connections_after_short_runs(make_pool: MakePool) -> None:
    pool = make_pool(size=3, lane="auto")
    await pool.start()
    short, long = Statement("select 1", ()), Statement("select 1 from pg_sleep(0.05)", ())
    await until_shared(pool, short)
    shared = pool.figures().lane.shared
    for _ in range(4):
        await defer.gatherResults([_run(pool, long) for _ in range(2)])
    assert pool.figures().lane.shared == shared


async def test_message_that_is_alone_uses_its_own_connection(make_pool: MakePool) -> None:
    pool = make_pool(size=3, lane="auto")
    await pool.start()
    short = Statement("select 1", ())
    await until_shared(pool, short)
    await until(pool._reactor, lambda: pool.figures().in_use == 0)
    shared = pool.figures().lane.shared
    for _ in range(3):
        await _run(pool, short)
    assert pool.figures().lane.shared == shared


async def test_functions_that_depend_on_the_timeout_see_the_configured_one(service: Service) -> None:
    for number in range(3):
        assert (await service.rest("POST", "t", {"id": number})).status == 201
    assert (await service.rest("GET", "t?select=note")).body == [{"note": "7s"}] * 3


@pytest.mark.parametrize(
    "options",
    [
        {"lane": "off"},
        {"size": 1, "lane": "auto"},
        {"lane": "always", "comments": True},
        {"lane": "always", "prepared_statements": False},
    ],
    ids=str,
)
async def test_pool_without_a_lane_shares_no_connections(
    make_pool: MakePool, options: dict[str, Any]
) -> None:
    pool = make_pool(**{"size": 3, **options})
    await pool.start()
    number = Statement("select $1::int", ("int",))
    await defer.gatherResults([_run(pool, number, "1") for _ in range(20)])
    assert pool.figures().lane.shared == 0


async def test_each_acknowledged_write_takes_effect_once(lane: Pool, database: Database) -> None:
    """Statements fail, are slow, leave settings behind, are cancelled or lose their connection at random."""
    database.execute(ROWS + LOSS)
    disturbances = [Statement(f"select {text}", ()) for text in ALTERATIONS.values()]
    disturbances += [
        Statement("select 1 / 0", ()),
        Statement("select pg_sleep(0.04)", ()),
        Statement("select pg_advisory_xact_lock(1)", ()),
    ]
    choice = random.Random(20261128)
    writes: dict[int, defer.Deferred[Any]] = {}
    others: list[defer.Deferred[Any]] = []
    for number in range(400):
        writes[number] = _run(lane, INSERT, str(number))
        if choice.random() < 0.15:
            others.append(_run(lane, choice.choice(disturbances)))
        if choice.random() < 0.01:
            others.append(_run(lane, LOSE))
        if choice.random() < 0.1:
            writes[choice.randrange(number + 1)].cancel()
        if number % 20 == 19:
            await _outcomes(others)
            await until(lane._reactor, lambda: lane.available)
            others = []
    outcomes = dict(zip(writes, await _outcomes(list(writes.values())), strict=True))
    stored = {number for (number,) in database.execute("select id from t")}
    acknowledged = {number for number, outcome in outcomes.items() if not isinstance(outcome, Exception)}
    assert acknowledged <= stored
    refused = {
        number for number, one in outcomes.items() if isinstance(one, DatabaseError) and one.status < 500
    }
    assert not refused, {number: outcomes[number] for number in refused}
    assert len(acknowledged) > 100


HANDLER = "create function f() returns void language {} as $$ {} $$"


@pytest.mark.parametrize(
    ("definition", "reads", "writes"),
    [
        ("", True, True),
        ("create table p (id int primary key); create table c (p_id int references p)", True, True),
        (
            "create table p (id int primary key); "
            "create table c (p_id int references p deferrable initially deferred)",
            True,
            False,
        ),
        (HANDLER.format("plpgsql", "begin exception when unique_violation then null; end"), True, True),
        (
            HANDLER.format("plpgsql", "begin exception when operator_intervention then null; end"),
            False,
            False,
        ),
        (HANDLER.format("plpgsql", "begin exception when sqlstate '57000' then null; end"), False, False),
    ],
    ids=[
        "nothing",
        "immediate constraint",
        "deferred constraint",
        "other handler",
        "handler of the class",
        "code",
    ],
)
async def test_schema_determines_which_messages_share_connections(
    server: Server, reactor: Any, definition: str, reads: bool, writes: bool
) -> None:
    """A commit is not limited by the timeout, and a handler could catch it."""
    database = server.create_database(f"{ROWS} {definition}")
    service = Service(reactor, database)
    await service.start()
    try:
        for method, body, shared in (("GET", None, reads), ("POST", {"id": 1}, writes)):
            before = service.pool.figures().lane.shared
            await service.rest(method, "t", body)
            assert (service.pool.figures().lane.shared > before) is shared, method
    finally:
        await service.stop()
