"""Settings that are applied at the start of a transaction: isolation level, role and function settings."""

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
    """Return a database whose roles and functions have settings."""
    created = server.create_database()
    created.execute(SCHEMA.format(name=created.name))
    return created


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("rollback", [True, False])
@pytest.mark.parametrize("level", ["SERIALIZABLE", "REPEATABLE READ", None])
async def test_message_runs_at_its_isolation_level(
    make_pool: MakePool, prepared: bool, rollback: bool, level: str | None
) -> None:
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    for expected, requested in ((level, level), (None, None), (level, level)):
        sent = message(SHOW.format(LEVEL), isolation=requested, rollback=rollback, read_only=False)
        assert await pool.run(sent) == [((expected or "READ COMMITTED").lower(),)]


@pytest.mark.parametrize("prepared", [True, False])
async def test_message_can_apply_any_number_of_settings(make_pool: MakePool, prepared: bool) -> None:
    """PostgreSQL limits a function call to 100 arguments, so one call could not apply all settings."""
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    settings = (*[(f"app.s{number}", f"'{number}") for number in range(250)], ("app.s3", "last"))
    show_settings = "select current_setting('app.s249') || current_setting('app.s3')"
    assert await pool.run(message(show_settings, settings=settings)) == [("'249last",)]


async def test_invalid_isolation_level_raises_value_error(pool: Pool) -> None:
    with pytest.raises(ValueError, match="invalid isolation level"):
        await pool.run(message("select 1", isolation="SERIALIZABLE; drop table t"))


def transactions(pool: Pool, database: Database, **project: Any) -> tuple[MultiMessageTransactions, Catalog]:
    catalog = load_catalog(database.uri)
    return MultiMessageTransactions(
        Project("abcdefghijklmnopqrst", "acme", "unused", **project), pool
    ), catalog


async def show_settings(
    run: MultiMessageTransactions, catalog: Catalog, role: str, settings: Any = ()
) -> tuple[Any, ...]:
    """Return the isolation level and statement timeout of a role's transaction, streamed or not."""
    bound = Bound(Statement(SHOW.format(f"{LEVEL} || ' ' || {TIMEOUT}"), ()))
    request, caller = Request("id", "GET", "/rest/v1/t", "", {}, b""), Caller(role, "{}")
    [row] = await run.run(catalog, request, caller, (bound,), read_only=True, settings=settings)
    streamed = [one async for rows in run.stream(catalog, request, caller, bound, settings) for one in rows]
    assert streamed == [row]
    return tuple(row[0].rsplit(" ", 1))


@pytest.mark.parametrize("end", [TransactionEnd.COMMIT, TransactionEnd.ROLLBACK])
@pytest.mark.parametrize("prepared", [True, False])
async def test_role_settings_apply_including_the_isolation_level(
    make_pool: MakePool, counters: Database, prepared: bool, end: TransactionEnd
) -> None:
    """``alter role … set default_transaction_isolation`` applies to the role's own transactions."""
    pool = make_pool(uri=counters.uri, size=2, prepared_statements=prepared)
    await pool.start()
    run, catalog = transactions(pool, counters, db_tx_end=end)
    assert await show_settings(run, catalog, "authenticated") == ("repeatable read", "7s")
    assert await show_settings(run, catalog, "anon") == ("read committed", "0")


async def test_settings_of_called_function_override_role_settings(
    make_pool: MakePool, counters: Database
) -> None:
    pool = make_pool(uri=counters.uri, size=2)
    await pool.start()
    run, catalog = transactions(pool, counters)
    [careful] = [one for one in catalog.functions if one.name == "careful"]
    [plain] = [one for one in catalog.functions if one.name == "plain"]
    hoisted = hoisted_settings(careful, PROJECT.db_hoisted_tx_settings)
    assert {name.lower() for name, _ in hoisted} == {"default_transaction_isolation", "statement_timeout"}
    assert hoisted_settings(plain, PROJECT.db_hoisted_tx_settings) == ()
    assert hoisted_settings(careful, ("work_mem",)) == (("work_mem", "1MB"),)
    for role in ("anon", "authenticated"):
        assert await show_settings(run, catalog, role, hoisted) == ("serializable", "5s")


async def test_statement_timeout_setting_cancels_the_statement(pool: Pool) -> None:
    with pytest.raises(DatabaseError) as caught:
        await pool.run(message("select pg_sleep(5)", settings=(("statement_timeout", "20ms"),)))
    assert caught.value.code == "57014"


async def test_conflicting_serializable_transactions_are_retried(
    make_pool: MakePool, counters: Database
) -> None:
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


async def test_response_settings_are_reset_after_the_request(make_pool: MakePool, counters: Database) -> None:
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


async def test_time_zone_setting_applies_to_the_transaction(pool: Pool) -> None:
    """``Prefer: timezone`` is implemented with this setting."""
    text = "select '2024-01-01T00:00:00Z'::timestamptz::text"
    sent = Message("anon", (("TimeZone", "Asia/Tokyo"),), (Bound(Statement(text, ())),))
    assert await pool.run(sent) == [("2024-01-01 09:00:00+09",)]
