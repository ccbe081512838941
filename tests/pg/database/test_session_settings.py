"""Session settings made by a caller's function do not outlive its request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_twisted
from dataapi.database.message import Bound, Message, Statement
from dataapi.database.open_transaction import Continuation
from dataapi.http.errors import DatabaseError
from support.messages import message
from twisted.internet import defer, task

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database

    MakePool = Callable[..., Pool]

SET = "select set_config($1, $2, false)"
SHOW = "select current_setting($1)"


@pytest.fixture(params=["prepared", "inlined"])
def single(request: pytest.FixtureRequest, make_pool: MakePool) -> Pool:
    pool = make_pool(size=1, prepared_statements=request.param == "prepared", search_path=("public",))
    pytest_twisted.blockon(defer.Deferred.fromCoroutine(pool.start()))
    return pool


@pytest.mark.parametrize("reader", ["message", "stream", "conversation", "own"])
@pytest.mark.parametrize(
    ("name", "poison", "expected"),
    [
        ("search_path", "pg_temp, information_schema", '"public"'),
        ("timezone", "Asia/Tokyo", "UTC"),
        ("DateStyle", "German, MDY", "ISO, MDY"),
        ("statement_timeout", "1h", "0"),
        ("default_transaction_isolation", "serializable", "read committed"),
        ("request.jwt.claims", '{"role": "admin"}', ""),
        ("request.tenant", "7", ""),
    ],
)
async def test_session_setting_of_a_caller_does_not_reach_the_next(
    single: Pool, name: str, poison: str, expected: str, reader: str
) -> None:
    assert await single.run(message(SET, name, poison)) == [(poison,)]
    # The daemon's own SQL runs with the search path pg_catalog.
    internal = (name, reader) == ("search_path", "own")
    assert await read_setting(single, name, reader) == ("pg_catalog" if internal else expected)
    # PgBouncer restores some settings in later sessions, so the pool replaces the connection.
    assert single.figures().connects == 1 or single.pooled


async def read_setting(pool: Pool, name: str, reader: str) -> str:
    """Return the value of a setting for the pool's next caller."""
    query = message(SHOW, name)
    if reader == "stream":
        [row] = [row async for rows in pool.stream(query) for row in rows]
        return str(row[0])
    if reader == "own":
        return str((await pool.fetch(SHOW, (name,)))[0][0])
    if reader == "conversation":
        async with pool.open_transaction(message("select 1")) as transaction:
            rows = await transaction.continue_with(Continuation((), query.statements))
            await transaction.end()
        return str(rows[0][0])
    return str((await pool.run(query))[0][0])


async def test_session_setting_stays_reset_after_a_failed_message(single: Pool) -> None:
    await single.run(message(SET, "timezone", "Asia/Tokyo"))
    with pytest.raises(DatabaseError):
        await single.run(message("select 1 / $1::int", "0"))
    assert await single.run(message(SHOW, "timezone")) == [("UTC",)]


async def test_values_cannot_cause_a_retry(single: Pool, database: Database) -> None:
    database.execute("create sequence attempts; grant all on sequence attempts to anon")
    count_attempts = "select (case when nextval('attempts') > 0 then $1::text end)::boolean"
    forged = "a transaction that began with settings left for the session: read committed"
    with pytest.raises(DatabaseError, match="invalid input syntax for type boolean"):
        await single.run(message(count_attempts, forged, read_only=False))
    assert database.execute("select last_value from attempts") == [(1,)]


async def test_next_caller_can_write_after_a_read_only_session(single: Pool, database: Database) -> None:
    database.execute("create table t (id int); grant all on t to anon")
    for _ in range(2):
        await single.run(message(SET, "default_transaction_read_only", "on"))
        written = message("insert into t values ($1::int) returning id", "1", read_only=False)
        assert await single.run(written) == [(1,)]


@pytest.mark.parametrize(
    ("name", "poison", "expected"),
    [
        ("isolation", "serializable", "read committed"),
        ("deferrable", "on", "off"),
        ("read_only", "on", "off"),
    ],
)
@pytest.mark.parametrize("reader", ["message", "stream", "conversation", "own", "failed"])
async def test_transaction_has_the_login_roles_characteristics(
    single: Pool, name: str, poison: str, expected: str, reader: str
) -> None:
    for _ in range(2):
        await single.run(message(SET, f"default_transaction_{name}", poison))
        if reader == "failed":
            with pytest.raises(DatabaseError):
                await single.run(message("select 1 / $1::int", "0"))
        read_only = name == "read_only" and reader in ("message", "stream", "conversation", "failed")
        setting = await read_setting(single, f"transaction_{name}", reader)
        assert setting == ("on" if read_only else expected)
    assert single.figures().connects == 1 or single.pooled


async def test_isolation_level_of_a_message_takes_precedence(single: Pool) -> None:
    query = message(SHOW, "transaction_isolation")
    await single.run(message(SET, "default_transaction_isolation", "serializable"))
    assert await single.run(query._replace(isolation="REPEATABLE READ")) == [("repeatable read",)]
    assert await single.run(query) == [("read committed",)]


async def test_failed_transaction_with_an_isolation_level_is_rolled_back(single: Pool) -> None:
    with pytest.raises(DatabaseError, match="division by zero"):
        await single.run(message("select 1 / $1::int", "0")._replace(isolation="SERIALIZABLE"))
    assert await single.run(message("select 1")) == [(1,)]
    assert single.figures().connects == 1


async def test_session_role_of_a_caller_does_not_reach_the_next(single: Pool) -> None:
    current_roles = "select current_user::text, session_user::text"
    await single.run(message(SET, "role", "service_role"))
    assert await single.run(message(current_roles)) == [("anon", "authenticator")]
    await single.run(message(SET, "role", "service_role"))
    assert await single.fetch(current_roles) == [("authenticator", "authenticator")]


async def test_changed_client_encoding_is_rejected(single: Pool) -> None:
    """The server would decode the next message with the changed encoding."""
    with pytest.raises(DatabaseError, match="client_encoding was changed"):
        await single.run(message(SET, "client_encoding", "LATIN1"))
    assert await single.run(message("select $1, length($1)", "é")) == [("é", 1)]


async def test_functions_on_the_search_path_do_not_replace_built_in_ones(
    make_pool: MakePool, database: Database
) -> None:
    database.execute(
        """
        create function public.set_config(text, text, boolean) returns text language sql
            as $$ select pg_catalog.set_config('app.seen', $2, false) $$;
        """
    )
    pool = make_pool(size=1, search_path=("public", "pg_catalog"))
    await pool.start()
    for _ in range(2):
        [row] = await pool.run(message("select current_user::text, current_setting('app.seen', true)"))
        assert row in [("anon", None), ("anon", "")]


async def test_listen_of_a_function_does_not_outlive_its_request(
    single: Pool, database: Database, reactor: Any
) -> None:
    database.execute(
        "create function ears() returns text language plpgsql as $$ begin listen x; return ''; end $$"
    )
    await single.run(Message("anon", (), (Bound(Statement("select ears()", ())),), read_only=False))
    database.execute("notify x, 'heard'")
    assert await single.run(message("select 1")) == [(1,)]
    await task.deferLater(reactor, 0)
    [session] = single._sessions
    assert session.connection._pgconn.notifies() is None


@pytest.mark.parametrize("value", ["\\", "'", "\\' or 1=1 --", "'' \\x", "%s %% {}", "é\n\t\x01"])
async def test_values_are_safe_with_standard_conforming_strings_off(single: Pool, value: str) -> None:
    await single.run(message(SET, "standard_conforming_strings", "off"))
    assert await single.run(message("select $1::text", value)) == [(value,)]


CHOSEN = "select setting, source from pg_settings where name = $1"


@pytest.mark.direct("a pooler does not forward options")
async def test_sessions_start_with_the_settings_of_messages(make_pool: MakePool, database: Database) -> None:
    """The daemon's own SQL runs with the login role's statement timeout only."""
    database.execute("create schema one")
    pool = make_pool(size=2, search_path=("one", "public"), statement_timeout=5.0)
    await pool.start()
    for name, setting in (("search_path", '"one", "public"'), ("jit", "off"), ("statement_timeout", "5000")):
        assert await pool.run(message(CHOSEN, name)) == [(setting, "client")]
    assert await pool.fetch(SHOW, ("statement_timeout",)) == [("0",)]


@pytest.mark.direct("a pooler's sessions are older than the setting")
async def test_setting_of_the_login_role_takes_precedence_after_renewal(
    make_pool: MakePool, database: Database
) -> None:
    pool = make_pool(size=1, statement_timeout=5.0)
    await pool.start()
    assert await pool.run(message(SHOW, "statement_timeout")) == [("5s",)]
    database.execute(f"alter role authenticator in database {database.name} set statement_timeout = '7s'")
    await pool.renew()
    assert await pool.run(message(SHOW, "statement_timeout")) == [("7s",)]
    assert await pool.fetch(SHOW, ("statement_timeout",)) == [("7s",)]


@pytest.mark.direct("a pooler does not forward options")
async def test_forbidden_session_setting_fails_messages_but_not_connections(
    make_pool: MakePool,
) -> None:
    pool = make_pool(size=1, settings=(("log_statement", "all"),))
    await pool.start()
    for _ in range(2):
        with pytest.raises(DatabaseError, match='permission denied to set parameter "log_statement"'):
            await pool.run(message("select 1"))
        await pool.renew()
    assert pool.trouble is None
