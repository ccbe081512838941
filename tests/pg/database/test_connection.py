"""Several statements as one message, by libpq's pipeline mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
import pytest_twisted
from dataapi.database import address, errors
from dataapi.database.connection import Connection, ConnectionFailed
from dataapi.database.steps import Prepared, Step
from dataapi.http.errors import DatabaseError
from support.messages import until
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from support.postgres import Database, Server

pytestmark = pytest.mark.direct("a pooler may keep no statements")

ACTIVE = "select count(*) from pg_stat_activity where pid = %s and state = 'active'"
"""Whether a server process runs a statement; before it does, there is none to cancel."""
SLOW = [Step(b"select pg_sleep(600)")]


@pytest.fixture
def connection(database: Database, reactor: Any) -> Iterator[Connection]:
    """Give a connection."""
    made = Connection(reactor)
    parameters = address.parameters(database.uri)
    pytest_twisted.blockon(defer.Deferred.fromCoroutine(made.open(parameters, 10)))
    yield made
    made.close()


def prepared(text: bytes, *values: bytes, name: bytes = b"tested") -> Step:
    """Return a step that is prepared first."""
    return Step(text, list(values), None, Prepared(name, text))


BECOME = Step(b"select set_config('role', $1, true)", [b"anon"])


async def test_steps_are_one_transaction_with_its_role(connection: Connection, database: Database) -> None:
    """The role ends with it, and an error in a later step undoes the earlier ones."""
    database.execute("create table t (id int primary key); grant all on t to anon")
    who = Step(b"select current_user::text")
    assert await connection.send([BECOME, who]) == [("anon",)]
    assert await connection.send([who]) == [("authenticator",)]
    insert = prepared(b"insert into t values ($1::int)", b"1")
    with pytest.raises(psycopg.Error) as caught:
        await connection.send([BECOME, insert, insert])
    assert caught.value.sqlstate == "23505"
    assert caught.value.diag.message_detail == "Key (id)=(1) already exists."
    assert database.execute("select count(*) from t") == [(0,)]
    assert connection.clean
    assert await connection.send([BECOME, insert]) == []
    assert database.execute("select count(*) from t") == [(1,)]


async def test_a_constraint_that_is_checked_at_the_end_is_an_error(
    connection: Connection, database: Database
) -> None:
    """Every step has been answered by then."""
    database.execute(
        "create table t (id int primary key, t int references t deferrable initially deferred);"
        "grant all on t to authenticator"
    )
    with pytest.raises(psycopg.Error) as caught:
        await connection.send([Step(b"insert into t values (1, 2) returning id")])
    assert caught.value.sqlstate == "23503"
    assert connection.clean


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_it_is_known_what_was_prepared(connection: Connection, place: int) -> None:
    """Whichever step fails, as one statement cannot be prepared, or later."""
    first, second = prepared(b"select 1", name=b"first"), prepared(b"select 2", name=b"second")
    steps = [first, second]
    steps.insert(place, prepared(b"select 1 / $1::int", b"0", name=b"failing"))
    with pytest.raises(psycopg.errors.DivisionByZero):
        await connection.send(steps)
    named = "select name from pg_prepared_statements order by 1"
    kept = {name for (name,) in await connection.query(named)}
    ready = {step.prepared.name.decode() for step in steps if step.prepared and step.prepared.ready}
    assert kept == ready
    assert len(kept) == place + 1
    assert await connection.send([first, second]) == [(2,)]


async def test_long_values_are_sent_whole(connection: Connection) -> None:
    """Beyond what a socket takes at once, several times."""
    step = prepared(b"select length($1::text)", "é".encode() * 3_000_000)
    for _ in range(2):
        assert await connection.send([step]) == [(3_000_000,)]


async def test_a_message_that_cannot_be_sent_whole_is_no_part_of_the_next_one(connection: Connection) -> None:
    """A mistake of ours costs the connection."""
    wrong: Any = Step(b"select $1", [7])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        await connection.send([BECOME, wrong])
    assert connection.lost


async def test_values_come_back_by_their_types(connection: Connection) -> None:
    """JSON as bytes, identifiers as text."""
    uuid = "5dd0f2a5-9d6a-4a3c-8f0a-2a1d3f6c7e10"
    [row] = await connection.query(
        "select 1::bigint, 'é', null::int, true, '{\"a\": 1}'::json, '[1]'::jsonb, array[1, 2], 1.5::float8,"
        " $1::uuid, $2::bytea, '::1'::inet, row(1, 2), array[$1::uuid]",
        (uuid, b"\\\0'"),
    )
    assert row == (
        1, "é", None, True, b'{"a": 1}', b"[1]", [1, 2], 1.5, uuid, b"\\\0'", "::1", "(1,2)", [uuid],
    )  # fmt: skip


async def test_a_cancelled_message_leaves_the_connection_busy_until_it_ends(
    connection: Connection, database: Database, reactor: Any
) -> None:
    """Whoever gives up does not wait for the server."""
    slow = connection.send(SLOW)
    slow.cancel()
    with pytest.raises(defer.CancelledError):
        await slow
    assert connection.busy
    await until(reactor, lambda: database.execute(ACTIVE, (connection.backend_pid(),)) == [(1,)])
    assert await connection.cancel()
    await connection.when_idle()
    assert connection.clean
    assert await connection.query("select 1") == [(1,)]


async def test_a_connection_that_dies_is_noticed(
    connection: Connection, database: Database, reactor: Any
) -> None:
    """With the reason that the server gives."""
    slow = connection.send(SLOW)
    await until(reactor, lambda: database.execute(ACTIVE, (connection.backend_pid(),)) == [(1,)])
    database.execute("select pg_terminate_backend(%s)", (connection.backend_pid(),))
    with pytest.raises(ConnectionFailed, match="terminating connection"):
        await slow
    assert connection.lost


@pytest.mark.parametrize(
    ("text", "at_value"), [(b"select $1::int", True), (b"select ($1::text)::int", False)]
)
async def test_a_value_that_its_type_refuses_is_told_from_one_that_a_statement_refuses(
    connection: Connection, server: Server, text: bytes, at_value: bool
) -> None:
    """Only the first one is sure to be what the client sent."""
    if server.version < 14:
        pytest.skip("PostgreSQL 13 does not tell")
    with pytest.raises(psycopg.Error) as caught:
        await connection.send([prepared(text, b"x")])
    refused = errors.from_postgres(caught.value, anonymous=True)
    assert isinstance(refused, DatabaseError)
    assert refused.code == "22P02"
    assert refused.at_value is at_value
