"""Several statements in one message, using libpq's pipeline mode."""

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

pytestmark = pytest.mark.direct("a pooler may not support prepared statements")

ACTIVE = "select count(*) from pg_stat_activity where pid = %s and state = 'active'"
"""Counts 1 if the server process runs a statement. Otherwise, there is nothing to cancel."""
SLOW = [Step(b"select pg_sleep(600)")]


@pytest.fixture
def connection(database: Database, reactor: Any) -> Iterator[Connection]:
    new = Connection(reactor)
    parameters = address.parameters(database.uri)
    pytest_twisted.blockon(defer.Deferred.fromCoroutine(new.open(parameters, 10)))
    yield new
    new.close()


def prepared_step(text: bytes, *values: bytes, name: bytes = b"tested") -> Step:
    """Return a step with a prepared statement."""
    return Step(text, list(values), None, Prepared(name, text))


BECOME = Step(b"select set_config('role', $1, true)", [b"anon"])


async def test_steps_share_one_transaction_and_role(connection: Connection, database: Database) -> None:
    database.execute("create table t (id int primary key); grant all on t to anon")
    current_user = Step(b"select current_user::text")
    assert await connection.send([BECOME, current_user]) == [("anon",)]
    assert await connection.send([current_user]) == [("authenticator",)]
    insert = prepared_step(b"insert into t values ($1::int)", b"1")
    with pytest.raises(psycopg.Error) as caught:
        await connection.send([BECOME, insert, insert])
    assert caught.value.sqlstate == "23505"
    assert caught.value.diag.message_detail == "Key (id)=(1) already exists."
    assert database.execute("select count(*) from t") == [(0,)]
    assert connection.clean
    assert await connection.send([BECOME, insert]) == []
    assert database.execute("select count(*) from t") == [(1,)]


async def test_deferred_constraint_violation_is_an_error(connection: Connection, database: Database) -> None:
    database.execute(
        "create table t (id int primary key, t int references t deferrable initially deferred);"
        "grant all on t to authenticator"
    )
    with pytest.raises(psycopg.Error) as caught:
        await connection.send([Step(b"insert into t values (1, 2) returning id")])
    assert caught.value.sqlstate == "23503"
    assert connection.clean


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_prepared_state_survives_an_error(connection: Connection, position: int) -> None:
    first, second = prepared_step(b"select 1", name=b"first"), prepared_step(b"select 2", name=b"second")
    steps = [first, second]
    steps.insert(position, prepared_step(b"select 1 / $1::int", b"0", name=b"failing"))
    with pytest.raises(psycopg.errors.DivisionByZero):
        await connection.send(steps)
    named = "select name from pg_prepared_statements order by 1"
    on_server = {name for (name,) in await connection.query(named)}
    ready = {step.prepared.name.decode() for step in steps if step.prepared and step.prepared.ready}
    assert on_server == ready
    assert len(on_server) == position + 1
    assert await connection.send([first, second]) == [(2,)]


async def test_long_values_are_sent_whole(connection: Connection) -> None:
    step = prepared_step(b"select length($1::text)", "é".encode() * 3_000_000)
    for _ in range(2):
        assert await connection.send([step]) == [(3_000_000,)]


async def test_message_that_cannot_be_sent_closes_the_connection(connection: Connection) -> None:
    wrong: Any = Step(b"select $1", [7])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        await connection.send([BECOME, wrong])
    assert connection.lost


async def test_result_values_have_python_types(connection: Connection) -> None:
    uuid = "5dd0f2a5-9d6a-4a3c-8f0a-2a1d3f6c7e10"
    [row] = await connection.query(
        "select 1::bigint, 'é', null::int, true, '{\"a\": 1}'::json, '[1]'::jsonb, array[1, 2], 1.5::float8,"
        " $1::uuid, $2::bytea, '::1'::inet, row(1, 2), array[$1::uuid]",
        (uuid, b"\\\0'"),
    )
    assert row == (
        1, "é", None, True, b'{"a": 1}', b"[1]", [1, 2], 1.5, uuid, b"\\\0'", "::1", "(1,2)", [uuid],
    )  # fmt: skip


async def test_connection_is_busy_until_a_cancelled_message_ends(
    connection: Connection, database: Database, reactor: Any
) -> None:
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


async def test_terminated_connection_is_detected(
    connection: Connection, database: Database, reactor: Any
) -> None:
    slow = connection.send(SLOW)
    await until(reactor, lambda: database.execute(ACTIVE, (connection.backend_pid(),)) == [(1,)])
    database.execute("select pg_terminate_backend(%s)", (connection.backend_pid(),))
    with pytest.raises(ConnectionFailed, match="terminating connection"):
        await slow
    assert connection.lost


@pytest.mark.parametrize(
    ("text", "at_value"), [(b"select $1::int", True), (b"select ($1::text)::int", False)]
)
async def test_invalid_parameter_differs_from_a_cast_error(
    connection: Connection, server: Server, text: bytes, at_value: bool
) -> None:
    if server.version < 14:
        pytest.skip("PostgreSQL 13 reports the same error for both")
    with pytest.raises(psycopg.Error) as caught:
        await connection.send([prepared_step(text, b"x")])
    error = errors.from_postgres(caught.value, anonymous=True)
    assert isinstance(error, DatabaseError)
    assert error.code == "22P02"
    assert error.at_value is at_value
