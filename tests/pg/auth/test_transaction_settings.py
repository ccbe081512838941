"""What a transaction is told before its statements: isolation, role settings and those of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.auth.caller import Caller, hoisted_settings
from dataapi.auth.transaction import MultiMessageTransactions
from dataapi.database.message import Bound, Message, Statement
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Request
from dataapi.settings import Project, TransactionEnd
from support.catalog import load_catalog
from support.messages import message, running
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.catalog.model import Catalog
    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

    MakePool = Callable[..., Pool]

pytestmark = pytest.mark.own_sql

SCHEMA = """
create table counter (value int);
insert into counter values (1), (2);
grant all on counter to anon, authenticated;
alter role authenticated in database "{name}" set default_transaction_isolation = 'repeatable read';
alter role authenticated in database "{name}" set statement_timeout = '7s';
create function plain() returns text language sql stable as 'select 1::text';
create function careful() returns text language sql stable
    set default_transaction_isolation = 'SERIALIZABLE' set statement_timeout = '5s' set work_mem = '1MB'
    as 'select 1::text';
"""
SHOW = "select {} from (values (1)) as one(n)"
LEVEL = "current_setting('transaction_isolation')"
TIMEOUT = "current_setting('statement_timeout')"
PROJECT = Project("abcdefghijklmnopqrst", "acme", "postgresql://unused")


@pytest.fixture(scope="module")
def counters(server: Server) -> Database:
    """Give a database whose roles and functions bring settings."""
    created = server.create_database()
    created.execute(SCHEMA.format(name=created.name))
    return created


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("rollback", [True, False])
@pytest.mark.parametrize("level", ["SERIALIZABLE", "REPEATABLE READ", None])
async def test_a_message_runs_at_its_isolation_level(
    make_pool: MakePool, prepared: bool, rollback: bool, level: str | None
) -> None:
    """It holds within the message, however that ends, and not in the next one."""
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    for expected, asked in ((level, level), (None, None), (level, level)):
        sent = message(SHOW.format(LEVEL), isolation=asked, rollback=rollback, read_only=False)
        assert await pool.run(sent) == [((expected or "READ COMMITTED").lower(),)]


@pytest.mark.parametrize("prepared", [True, False])
async def test_a_message_makes_any_number_of_settings(make_pool: MakePool, prepared: bool) -> None:
    """All of them, in their order, although functions of PostgreSQL take a hundred arguments."""
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    settings = (*[(f"app.s{number}", f"'{number}") for number in range(250)], ("app.s3", "last"))
    shown = "select current_setting('app.s249') || current_setting('app.s3')"
    assert await pool.run(message(shown, settings=settings)) == [("'249last",)]


async def test_what_is_no_isolation_level_is_a_mistake(pool: Pool) -> None:
    """Nothing but the four levels becomes part of a statement."""
    with pytest.raises(ValueError, match="invalid isolation level"):
        await pool.run(message("select 1", isolation="SERIALIZABLE; drop table t"))


def transactions(pool: Pool, database: Database, **project: Any) -> tuple[MultiMessageTransactions, Catalog]:
    catalog = load_catalog(database.uri)
    return MultiMessageTransactions(
        Project("abcdefghijklmnopqrst", "acme", "unused", **project), pool
    ), catalog


async def shown(
    run: MultiMessageTransactions, catalog: Catalog, role: str, settings: Any = ()
) -> tuple[Any, ...]:
    """Return isolation level and statement timeout of a role's transaction, streamed or not."""
    bound = Bound(Statement(SHOW.format(f"{LEVEL} || ' ' || {TIMEOUT}"), ()))
    request, caller = Request("id", "GET", "/rest/v1/t", "", {}, b""), Caller(role, "{}")
    [row] = await run.run(catalog, request, caller, (bound,), read_only=True, settings=settings)
    streamed = [one async for rows in run.stream(catalog, request, caller, bound, settings) for one in rows]
    assert streamed == [row]
    return tuple(row[0].rsplit(" ", 1))


@pytest.mark.parametrize("end", [TransactionEnd.COMMIT, TransactionEnd.ROLLBACK])
@pytest.mark.parametrize("prepared", [True, False])
async def test_a_roles_settings_hold_isolation_included(
    make_pool: MakePool, counters: Database, prepared: bool, end: TransactionEnd
) -> None:
    """``alter role … set default_transaction_isolation`` takes effect in the very transaction."""
    pool = make_pool(uri=counters.uri, size=2, prepared_statements=prepared)
    await pool.start()
    run, catalog = transactions(pool, counters, db_tx_end=end)
    assert await shown(run, catalog, "authenticated") == ("repeatable read", "7s")
    assert await shown(run, catalog, "anon") == ("read committed", "0")


async def test_a_called_functions_settings_win_over_roles(make_pool: MakePool, counters: Database) -> None:
    """Only the named ones are hoisted, and they hold for the whole transaction."""
    pool = make_pool(uri=counters.uri, size=2)
    await pool.start()
    run, catalog = transactions(pool, counters)
    [careful] = [one for one in catalog.functions if one.name == "careful"]
    [plain] = [one for one in catalog.functions if one.name == "plain"]
    brought = hoisted_settings(careful, PROJECT.db_hoisted_tx_settings)
    assert {name.lower() for name, _ in brought} == {"default_transaction_isolation", "statement_timeout"}
    assert hoisted_settings(plain, PROJECT.db_hoisted_tx_settings) == ()
    assert hoisted_settings(careful, ("work_mem",)) == (("work_mem", "1MB"),)
    for role in ("anon", "authenticated"):
        assert await shown(run, catalog, role, brought) == ("serializable", "5s")


async def test_a_statement_timeout_that_travels_ends_the_statement(pool: Pool) -> None:
    """It counts in the message that brings it."""
    with pytest.raises(DatabaseError) as caught:
        await pool.run(message("select pg_sleep(5)", settings=(("statement_timeout", "20ms"),)))
    assert caught.value.code == "57014"


async def test_serializable_transactions_that_collide_are_run_again(
    make_pool: MakePool, counters: Database
) -> None:
    """Two sums that each include the other's insert: one after the other, as serializable promises."""
    pool = make_pool(uri=counters.uri, size=2)
    await pool.start()
    run, catalog = transactions(pool, counters)
    text = "insert into counter select sum(value) from counter, pg_sleep(0.1) returning value"
    request, caller = Request("id", "POST", "/rest/v1/t", "", {}, b""), Caller("anon", "{}")
    settings = (("default_transaction_isolation", "serializable"),)

    async def add() -> int:
        bound = Bound(Statement(text, ()))
        [[value]] = await run.run(catalog, request, caller, (bound,), read_only=False, settings=settings)
        return int(value)

    both = await defer.gatherResults([running(add()), running(add())])
    assert sorted(both) == [3, 6]


async def test_what_sql_says_of_an_answer_ends_with_its_request(
    make_pool: MakePool, counters: Database
) -> None:
    """Even a function that sets it for the session does not choose the next caller's answer."""
    pool = make_pool(uri=counters.uri, size=1)
    await pool.start()
    run, catalog = transactions(pool, counters)
    request, caller = Request("id", "GET", "/rest/v1/t", "", {}, b""), Caller("anon", "{}")
    show = "select current_setting('response.status'), current_setting('response.headers')"
    setting = (
        "select set_config('response.status', '418', false), set_config('response.headers', '[]', false)"
    )
    for text, expected in ((show, ("", "")), (setting, ("418", "[]")), (show, ("", ""))):
        bound = Bound(Statement(text, ()))
        assert await run.run(catalog, request, caller, (bound,), read_only=True) == [expected]


async def test_a_time_zone_travels_as_a_setting(pool: Pool) -> None:
    """``Prefer: timezone`` is one for the transaction alone."""
    text = "select '2024-01-01T00:00:00Z'::timestamptz::text"
    sent = Message("anon", (("TimeZone", "Asia/Tokyo"),), (Bound(Statement(text, ())),))
    assert await pool.run(sent) == [("2024-01-01 09:00:00+09",)]
