"""Statements, transactions and limits of a connection pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.message import Bound, Message, Statement
from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from hypothesis import given
from hypothesis import strategies as st
from support.clocks import FOR_EVER
from support.latch import LATCHED, held_up, latched
from support.messages import message, running, until
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database

    MakePool = Callable[..., Pool]

STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


async def test_message_runs_under_its_role_and_settings(pool: Pool) -> None:
    rows = await pool.run(
        message(
            "select current_user::text, current_setting('request.jwt.claims')",
            role="authenticated",
            settings=(("request.jwt.claims", '{"sub": "it\'s me"}'),),
        )
    )
    assert rows == [("authenticated", '{"sub": "it\'s me"}')]


async def test_role_and_settings_end_with_the_message(make_pool: MakePool) -> None:
    pool = make_pool(size=1)
    await pool.start()
    await pool.run(message("select 1", settings=(("request.jwt.claims", "{}"),)))
    rows = await pool.fetch("select current_user::text, current_setting('request.jwt.claims', true)")
    assert rows == [("authenticator", "")]


async def test_result_is_that_of_the_last_statement(pool: Pool, database: Database) -> None:
    database.execute("create table t (id int); grant all on t to anon")
    insert = Bound(Statement("insert into t values ($1)", ("int",)), ("1",))
    count = Bound(Statement("select count(*) from t", ()))
    assert await pool.run(Message("anon", (), (insert, insert, count), read_only=False)) == [(2,)]


async def test_error_rolls_back_earlier_statements(pool: Pool, database: Database) -> None:
    database.execute("create table t (id int primary key); grant all on t to anon")
    insert = Bound(Statement("insert into t values ($1)", ("int",)), ("1",))
    with pytest.raises(DatabaseError) as caught:
        await pool.run(Message("anon", (), (insert, insert), read_only=False))
    assert (caught.value.status, caught.value.code) == (409, "23505")
    assert database.execute("select count(*) from t") == [(0,)]
    assert await pool.run(Message("anon", (), (insert,), read_only=False)) == []


async def test_read_only_message_cannot_write(pool: Pool, database: Database) -> None:
    database.execute(
        "create table t (id int); grant all on t to anon;"
        "create function sneak() returns int language sql volatile as 'insert into t values (1) returning id'"
    )
    with pytest.raises(DatabaseError) as caught:
        await pool.run(message("select sneak()"))
    assert (caught.value.status, caught.value.code) == (405, "25006")
    assert await pool.run(message("select sneak()", read_only=False)) == [(1,)]


@pytest.mark.parametrize("role", ["", "none", "nobody_here"])
async def test_unknown_role_is_401(pool: Pool, role: str) -> None:
    """PostgreSQL treats ``none`` as the login role; we reject it like an unknown role."""
    with pytest.raises(DatabaseError) as caught:
        await pool.run(message("select 1", role=role))
    assert (caught.value.status, caught.value.code) == (401, "22023")
    assert caught.value.message == f'role "{role}" does not exist'


async def test_role_that_may_not_be_assumed_is_403(pool: Pool) -> None:
    with pytest.raises(DatabaseError) as caught:
        await pool.run(message("select 1", role="postgres"))
    assert (caught.value.status, caught.value.code) == (403, "42501")


async def test_missing_privilege_is_401_for_anon_and_403_for_others(pool: Pool, database: Database) -> None:
    database.execute("create table secret (id int)")
    errors_seen = []
    for role in ("anon", "authenticated"):
        with pytest.raises(DatabaseError) as caught:
            await pool.run(message("select * from secret", role=role))
        errors_seen.append((caught.value.status, caught.value.code))
    assert errors_seen == [(401, "42501"), (403, "42501")]


async def test_error_contains_message_details_and_hint(pool: Pool) -> None:
    text = (
        "do $$ begin raise 'no %', 'way' using detail = 'because', hint = 'do not', errcode = 'PT418'; end $$"
    )
    with pytest.raises(DatabaseError) as caught:
        await pool.fetch(text)
    error = caught.value
    assert (error.status, error.code, error.message, error.details, error.hint) == (
        418, "PT418", "no way", "because", "do not",
    )  # fmt: skip


async def test_error_messages_contain_no_aliases_of_statements(pool: Pool) -> None:
    gone = Statement('select "t~12".titel from (select 1 as title) as "t~12"', ())
    with pytest.raises(DatabaseError) as caught:
        await pool.run(Message("anon", (), (Bound(gone),)))
    assert caught.value.message == "column titel does not exist"
    assert caught.value.hint == 'Perhaps you meant to reference the column "title".'


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("value", ["a\0b", "a\ud800b"])
async def test_text_that_postgresql_cannot_store_is_400(
    make_pool: MakePool, prepared: bool, value: str
) -> None:
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    statement = Statement("select $1", ("text",))
    with pytest.raises(ApiError) as caught:
        await pool.run(Message("anon", (), (Bound(statement, (value,)),)))
    assert (caught.value.status, caught.value.code) == (400, "22021")
    assert await pool.run(Message("anon", (), (Bound(statement, ("fine",)),))) == [("fine",)]


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize(
    "value", ["'; drop table t; --", "\\'; x", "$1 %s %% $$", "\\", "E'\\x41'", "😀é\u2028", ""]
)
async def test_value_is_never_sql(make_pool: MakePool, prepared: bool, value: str) -> None:
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    sent = message("select $1, current_setting('request.x'), '100%'", value, settings=(("request.x", value),))
    assert await pool.run(sent) == [(value, value, "100%")]


@given(value=STORABLE, claim=STORABLE)
async def test_any_storable_text_is_returned_unchanged(pool: Pool, value: str, claim: str) -> None:
    statement = Bound(Statement("select $1, current_setting('request.x')", ("text",)), (value,))
    assert await pool.run(Message("anon", (("request.x", claim),), (statement,))) == [(value, claim)]


@pytest.mark.parametrize("prepared", [True, False])
async def test_values_are_cast_to_their_parameter_types(make_pool: MakePool, prepared: bool) -> None:
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    sent = message(
        "select $1 + 1, $2 = any($3), $4::text, 5 + $5",
        "41", "b", "{a,b}", None, "1",
        types=("int", "text", "text[]", "text", "unknown"),
    )  # fmt: skip
    assert await pool.run(sent) == [(42, True, None, 6)]


async def test_json_is_returned_as_bytes(pool: Pool) -> None:
    rows = await pool.run(message("""select '{"a": "é"}'::json, '[1]'::jsonb, null::json"""))
    assert rows == [('{"a": "é"}'.encode(), b"[1]", None)]


@pytest.mark.parametrize("prepared", [True, False])
async def test_search_path_applies(make_pool: MakePool, database: Database, prepared: bool) -> None:
    database.execute('create schema "o\'dd "" one"; create schema two; grant usage on schema two to anon')
    pool = make_pool(size=1, search_path=("o'dd \" one", "two"), prepared_statements=prepared)
    await pool.start()
    rows = await pool.run(message("select current_setting('search_path')"))
    assert rows == [('"o\'dd "" one", "two"',)]


async def test_fetch_accepts_values_and_several_statements(pool: Pool, database: Database) -> None:
    database.execute("create table t (id int); grant all on t to authenticator")
    rows = await pool.fetch(
        "insert into public.t values ($1), ($1); select count(*), '$1 %' from public.t where id = $1", (7,)
    )
    assert rows == [(2, "$1 %")]


async def test_messages_wait_while_all_connections_are_in_use(make_pool: MakePool) -> None:
    pool = make_pool(size=2)
    await pool.start()
    results = await defer.gatherResults(
        [running(pool.run(message("select $1::int, pg_sleep(0.01)", str(n)))) for n in range(20)]
    )
    assert [rows[0][0] for rows in results] == list(range(20))
    figures = pool.figures()
    assert (figures.open, figures.idle, figures.waiting, figures.connects) == (2, 2, 0, 2)


async def test_acquisition_timeout_is_504(make_pool: MakePool, database: Database) -> None:
    pool = make_pool(size=1, acquisition_timeout=0.1)
    await pool.start()
    with latched(database):
        slow = running(pool.run(message(f"select 'slow', {LATCHED}")))
        with pytest.raises(DatabaseUnavailable) as caught:
            await pool.run(message("select 1"))
        assert (caught.value.status, caught.value.code) == (504, "PGRST003")
        assert caught.value.message == "Timed out acquiring connection from connection pool."
        assert not slow.called
        assert pool.figures().timeouts == 1
    assert (await slow)[0][0] == "slow"
    assert await pool.run(message("select 1")) == [(1,)]


async def test_callback_of_a_result_can_run_a_message_with_one_connection(make_pool: MakePool) -> None:
    pool = make_pool(size=1)
    await pool.start()
    first = running(pool.run(message("select 1")))
    first.addCallback(lambda rows: running(pool.run(message("select $1", str(rows[0][0])))))
    assert await first == [("1",)]


async def test_many_failing_messages_do_not_exhaust_the_stack(make_pool: MakePool) -> None:
    pool = make_pool(size=1, acquisition_timeout=FOR_EVER)
    await pool.start()
    slow = running(pool.run(message("select pg_sleep(0.1)")))
    invalid = [running(pool.run(message("select $1", "\0"))) for _ in range(3000)]
    results = await defer.DeferredList(invalid, consumeErrors=True)
    assert all(not success and failure.value.status == 400 for success, failure in results)
    await slow
    assert await pool.run(message("select 1")) == [(1,)]


async def test_connection_survives_statement_and_lock_timeouts(
    make_pool: MakePool, database: Database, reactor: Any
) -> None:
    database.execute("create table t (id int); insert into t values (1); grant all on t to anon")
    pool = make_pool(size=2)
    await pool.start()
    with pytest.raises(DatabaseError) as caught:
        await pool.run(message("select pg_sleep(10)", settings=(("statement_timeout", "50"),)))
    assert (caught.value.code, caught.value.status) == ("57014", 500)
    with latched(database):
        holder = running(pool.run(message(f"update t set id = 2 returning {LATCHED}", read_only=False)))
        await until(reactor, lambda: held_up(database) == 1)
        impatient = (("lock_timeout", "50"),)
        with pytest.raises(DatabaseError) as caught:
            await pool.run(message("update t set id = 3 returning id", settings=impatient, read_only=False))
        assert caught.value.code == "55P03"
    await holder
    assert pool.figures().connects == 2


async def test_large_messages_and_results_are_not_truncated(pool: Pool) -> None:
    value = "x'\\é" * 2_000_000
    assert await pool.run(message("select $1", value)) == [(value,)]


@pytest.mark.direct("a pooler shares its server processes")
async def test_renew_replaces_connections_in_use_once_they_are_idle(make_pool: MakePool) -> None:
    pool = make_pool(size=2)
    await pool.start()
    pid = "select pg_backend_pid()"
    [(idle,)] = await pool.fetch(pid)
    await pool.renew()
    [(renewed,)] = await pool.fetch(pid)
    assert renewed != idle
    running = defer.ensureDeferred(pool.fetch(f"{pid} from pg_sleep(0.2)"))
    await pool.renew()
    assert await pool.fetch(pid) != [(renewed,)]
    assert await running == [(renewed,)]
    await pool.renew()
    assert (renewed,) not in [row for _ in range(3) for row in await pool.fetch(pid)]
    assert pool.figures().open <= 2


async def test_pool_stays_available_while_connections_are_renewed(make_pool: MakePool) -> None:
    pool = make_pool(size=1)
    await pool.start()
    pid = "select pg_backend_pid()"
    old = await pool.fetch(pid)
    renewed = pool.renew()
    assert not renewed.called
    assert pool.available
    assert await pool.fetch(pid) == old
    await renewed
    assert pool.available
    assert await pool.fetch(pid) != old
    assert pool.figures().open == 1


async def test_stop_waits_for_running_statements(make_pool: MakePool, database: Database) -> None:
    pool = make_pool(size=2)
    await pool.start()
    with latched(database):
        slow = running(pool.run(message(f"select 'done', {LATCHED}")))
        stopping = running(pool.stop(grace=FOR_EVER))
        with pytest.raises(DatabaseUnavailable) as caught:
            await pool.run(message("select 1"))
        assert caught.value.status == 503
    assert (await slow)[0][0] == "done"
    await stopping
    assert pool.figures().open == 0


async def test_stop_cancels_statements_after_the_grace_time(
    make_pool: MakePool, database: Database, reactor: Any
) -> None:
    pool = make_pool(size=1)
    await pool.start()
    slow = running(pool.run(message("select 'outlives', pg_sleep(60)")))
    await pool.stop(grace=0.1)
    with pytest.raises((DatabaseUnavailable, DatabaseError)):
        await slow
    active = "select count(*) from pg_stat_activity where query like '%%outlives%%' and usename = %s"
    await until(reactor, lambda: database.execute(active, ("authenticator",)) == [(0,)])
