"""Several prepared statements as one message, which a pooler that keeps them passes on to PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
import pytest_twisted
from dataapi.database import address, errors, pipeline
from dataapi.database.connection import Connection, ConnectionDied
from dataapi.database.named import Step
from dataapi.http.errors import ApiError, DatabaseError
from support.messages import until
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server

pytestmark = [
    pytest.mark.direct("a pooler may keep no statements"),
    pytest.mark.skipif(not pipeline.AVAILABLE, reason="needs libpq 14"),
]

ACTIVE = "select count(*) from pg_stat_activity where pid = %s and state = 'active'"
"""Whether a server process runs a statement; before it does, there is none to cancel."""


@pytest.fixture
def connection(database: Database, reactor: Any) -> Iterator[Connection]:
    """Give a connection."""
    made = Connection(reactor)
    parameters = address.parameters(database.uri)
    pytest_twisted.blockon(defer.Deferred.fromCoroutine(made.open(parameters, 10)))
    yield made
    made.close()


def become(role: str) -> Step:
    """Return the step that takes on a role for the message."""
    return Step(f"become_{role}", "select set_config('role', $1, true)", [role])


async def test_steps_are_one_transaction_with_its_role(connection: Connection, database: Database) -> None:
    """The role ends with it, and an error in a later step undoes the earlier ones."""
    database.execute("create table t (id int primary key); grant all on t to anon")
    who = Step("who", "select current_user::text", [])
    assert await connection.send_steps([become("anon"), who]) == [("anon",)]
    assert await connection.send("select current_user::text", ()) == [("authenticator",)]
    insert = Step("insert", "insert into t values ($1::int)", ["1"])
    failing = [become("anon")._replace(text=None), insert, insert._replace(text=None)]
    with pytest.raises(psycopg2.Error) as caught:
        await connection.send_steps(failing)
    assert caught.value.pgcode == "23505"
    assert caught.value.diag.message_detail == "Key (id)=(1) already exists."
    assert database.execute("select count(*) from t") == [(0,)]
    assert connection.clean
    assert await connection.send_steps([become("anon")._replace(text=None), insert._replace(text=None)]) == []
    assert database.execute("select count(*) from t") == [(1,)]


async def test_values_come_back_as_they_do_from_text(connection: Connection) -> None:
    """Whatever their type; a long answer comes whole."""
    text = """
        select 1::bigint, 'é', null::int, true, '{"a": 1}'::json, '[1]'::jsonb, array[1, 2], 1.50::numeric, ''
        union all select 2, repeat('x', 300000), 3, false, '2', '3', null, 4, null
    """
    assert await connection.send_steps([Step("all", text, [])]) == await connection.send(text, ())


async def test_long_values_are_sent_whole(connection: Connection) -> None:
    """Beyond what a socket takes at once, several times."""
    value = "é" * 3_000_000
    for text in ("select length($1::text)", None):
        assert await connection.send_steps([Step("length", text, [value])]) == [(3_000_000,)]


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
async def test_values_that_cannot_be_sent_are_refused(connection: Connection, value: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ApiError) as caught:
        await connection.send_steps([Step("echo", "select $1::text", [value])])
    assert caught.value.code == "22021"
    assert await connection.send_steps([Step("echo", "select $1::text", ["a"])]) == [("a",)]


async def test_a_cancelled_step_leaves_the_connection_busy_until_it_ends(
    connection: Connection, database: Database, reactor: Any
) -> None:
    """As it is with a message of text."""
    slow = connection.send_steps([Step("slow", "select pg_sleep(600)", [])])
    slow.cancel()
    with pytest.raises(defer.CancelledError):
        await slow
    assert connection.busy
    await until(reactor, lambda: database.execute(ACTIVE, (connection.process(),)) == [(1,)])
    database.execute("select pg_cancel_backend(%s)", (connection.process(),))
    await connection.ended()
    assert connection.clean
    assert await connection.send_steps([Step("quick", "select 1", [])]) == [(1,)]


async def test_a_connection_that_dies_is_noticed(
    connection: Connection, database: Database, reactor: Any
) -> None:
    """With the reason that the server gives."""
    slow = connection.send_steps([Step("slow", "select pg_sleep(600)", [])])
    await until(reactor, lambda: database.execute(ACTIVE, (connection.process(),)) == [(1,)])
    database.execute("select pg_terminate_backend(%s)", (connection.process(),))
    with pytest.raises(ConnectionDied, match="terminating connection"):
        await slow
    assert connection.lost


async def test_notices_are_not_kept(connection: Connection) -> None:
    """Nobody reads them."""
    connection.raw.notices.clear()
    await connection.send("create or replace function pg_temp.say() returns int language plpgsql as "
                          "$$begin raise warning 'x'; return 1; end$$", ())  # fmt: skip
    assert await connection.send_steps([Step("say", "select pg_temp.say()", [])]) == [(1,)]
    await connection.send("select 1", ())
    assert connection.raw.notices == []


@pytest.mark.parametrize(("text", "at_value"), [("select $1::int", True), ("select ($1::text)::int", False)])
async def test_a_value_that_its_type_refuses_is_told_from_one_that_a_statement_refuses(
    connection: Connection, server: Server, text: str, at_value: bool
) -> None:
    """Only the first one is sure to be what the client sent."""
    if server.version < 14:
        pytest.skip("PostgreSQL 13 does not tell")
    with pytest.raises(psycopg2.Error) as caught:
        await connection.send_steps([Step("read", text, ["x"])])
    refused = errors.refused(caught.value, anonymous=True)
    assert isinstance(refused, DatabaseError)
    assert refused.code == "22P02"
    assert refused.at_value is at_value
