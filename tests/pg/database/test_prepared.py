"""Prepared statements per role: limits, reuse and recovery from errors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.citus import BlockStatement
from dataapi.database.errors import is_plan_invalid
from dataapi.database.message import Bound, Message, Statement, defaults_of
from dataapi.http.errors import DatabaseError
from psycopg.errors import lookup
from support.messages import message, running, until
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.message import Defaults
    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

    MakePool = Callable[..., Pool]

pytestmark = pytest.mark.direct("PREPARE needs dedicated connections")

NAMES = """
select count(*), count(*) filter (
    where (to_jsonb(p) ->> 'generic_plans')::int + (to_jsonb(p) ->> 'custom_plans')::int > 1
) from pg_prepared_statements as p where statement <> 'reset all' and position($$'none'$$ in statement) = 0
"""
"""Counts prepared statements, and prepared statements that were executed several times.

RESET ALL and the statement that precedes this query are excluded.
"""

OPENING = 1
"""One prepared statement sets the role and settings."""


async def single(make_pool: MakePool) -> Pool:
    pool = make_pool(size=1)
    await pool.start()
    return pool


def message_of(statement: Statement, *values: str | None, role: str = "anon") -> Message:
    return Message(role, (), (Bound(statement, values),))


def used_again(server: Server, statements: int) -> int:
    return statements if server.version >= 14 else 0


async def test_statement_is_prepared_once_and_reused(make_pool: MakePool, server: Server) -> None:
    pool = await single(make_pool)
    statement = Statement("select $1 + 1", ("int",))
    assert await pool.run(message_of(statement, "1")) == [(2,)]
    assert await pool.run(message_of(statement, "2")) == [(3,)]
    assert await pool.fetch(NAMES) == [(OPENING + 1, used_again(server, OPENING + 1))]


async def test_row_level_security_applies_to_shared_statements(
    make_pool: MakePool, database: Database
) -> None:
    database.execute(
        """
        create table note (id int, owner text, open bool);
        insert into note values (1, 'alice', true), (2, 'alice', false), (3, 'bob', false);
        alter table note enable row level security;
        create policy reader on note for select to anon using (open);
        create policy owner on note for select to authenticated
            using (owner = nullif(current_setting('request.jwt.claims', true), ''));
        grant select on note to anon, authenticated, service_role;
        """
    )
    pool = await single(make_pool)
    statement = Bound(Statement("select array_agg(id order by id) from note", ()))
    for _ in range(8):
        for role, owner, expected in (
            ("anon", "alice", [1]),
            ("authenticated", "alice", [1, 2]),
            ("authenticated", "bob", [3]),
            ("service_role", "", [1, 2, 3]),
            ("authenticated", "", None),
        ):
            rows = await pool.run(Message(role, (("request.jwt.claims", owner),), (statement,)))
            assert rows == [(expected,)]
    assert (await pool.fetch(NAMES))[0][0] == OPENING + 3


async def test_least_recently_used_statements_are_deallocated(
    make_pool: MakePool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataapi.database.steps.MAX_PREPARED", 5)
    pool = await single(make_pool)
    reused = Statement("select 'kept'", ())
    for number in range(30):
        assert await pool.run(message_of(Statement(f"select {number}", ()))) == [(number,)]
        await pool.run(message_of(reused))
    # One of the five prepared statements is RESET ALL, which NAMES excludes.
    assert await pool.fetch(NAMES) == [(5 - 1, used_again(server, OPENING + 1))]


async def test_message_may_have_more_statements_than_the_limit(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataapi.database.steps.MAX_PREPARED", 3)
    pool = await single(make_pool)
    many = tuple(Bound(Statement(f"select {number}", ())) for number in range(10))
    for _ in range(2):
        assert await pool.run(Message("anon", (), many)) == [(9,)]
    await pool.run(message_of(Statement("select 1", ())))
    assert (await pool.fetch(NAMES))[0][0] <= OPENING + 10


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("select * from nowhere", "42P01"),  # fails when it is prepared
        ("select 1 / ($1::int - 1)", "22012"),  # fails when it is executed
    ],
)
async def test_failed_first_use_does_not_break_later_messages(
    make_pool: MakePool, text: str, code: str
) -> None:
    pool = await single(make_pool)
    fine, failing = Statement("select 'fine'", ()), Statement(text, ("int",))
    for _ in range(3):
        with pytest.raises(DatabaseError) as caught:
            await pool.run(Message("anon", (), (Bound(fine), Bound(failing, ("1",)))))
        assert caught.value.code == code
        assert await pool.run(message_of(fine)) == [("fine",)]
    assert pool.figures().connects == 1


async def test_rejected_role_does_not_break_later_messages(make_pool: MakePool) -> None:
    pool = await single(make_pool)
    statement = Statement("select 1", ())
    with pytest.raises(DatabaseError):
        await pool.run(message_of(statement, role="missing"))
    assert await pool.run(message_of(statement)) == [(1,)]
    assert await pool.run(message_of(statement)) == [(1,)]


async def test_failed_messages_deallocate_the_right_statements(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataapi.database.steps.MAX_PREPARED", 3)
    pool = await single(make_pool)
    for number in range(2):
        await pool.run(message_of(Statement(f"select {number}", ())))
    for number in range(2, 6):
        with pytest.raises(DatabaseError):
            await pool.run(message_of(Statement(f"select {number}", ()), role="missing"))
    for number in range(6, 10):
        assert await pool.run(message_of(Statement(f"select {number}", ()))) == [(number,)]
    # The query itself deallocates another statement.
    assert (await pool.fetch(NAMES))[0][0] == OPENING + 1


async def test_statements_are_prepared_again_after_deallocate_all(make_pool: MakePool) -> None:
    pool = await single(make_pool)
    statements = [Statement(f"select {number} + $1", ("int",)) for number in range(3)]
    for _ in range(2):
        for number, statement in enumerate(statements):
            assert await pool.run(message_of(statement, "1")) == [(number + 1,)]
        await pool.fetch("deallocate all")
    assert pool.figures().connects == 1


@pytest.mark.parametrize("rollback", [False, True])
async def test_prepared_statement_survives_a_changed_table(
    make_pool: MakePool, database: Database, rollback: bool
) -> None:
    database.execute("create table t (a int); insert into t values (1); grant select on t to anon")
    pool = await single(make_pool)
    sent = message_of(Statement("select * from t", ()))._replace(read_only=False, rollback=rollback)
    assert await pool.run(sent) == [(1,)]
    database.execute("alter table t add b text default 'new'")
    assert await pool.run(sent) == [(1, "new")]
    assert await pool.run(sent) == [(1, "new")]
    assert pool.figures().connects == 1


async def test_cancelled_first_use_does_not_break_later_messages(make_pool: MakePool, reactor: Any) -> None:
    pool = await single(make_pool)
    statement = Statement("select $1, pg_sleep($2)", ("int", "float8"))
    first = running(pool.run(message_of(statement, "1", "30")))
    first.cancel()
    with pytest.raises(defer.CancelledError):
        await first
    rows = await pool.run(message_of(statement, "2", "0"))
    assert rows[0][0] == 2
    await until(reactor, lambda: pool.figures().idle == 1)
    assert (await pool.fetch(NAMES))[0][0] == OPENING + 1


async def test_odd_role_names_are_quoted(make_pool: MakePool, database: Database) -> None:
    first, second = '"; drop table t; --' + "é" * 15, "'%s" + "x" * 60
    for role in (first, second):
        quoted = '"' + role.replace('"', '""') + '"'
        database.execute(f"create role {quoted}; grant {quoted} to authenticator".replace("%", "%%"), ())
    pool = await single(make_pool)
    statement = Statement("select current_user::text", ())
    try:
        for _ in range(2):
            for role in (first, second):
                assert await pool.run(message_of(statement, role=role)) == [(role,)]
    finally:
        for role in (first, second):
            database.execute(('drop role "' + role.replace('"', '""') + '"').replace("%", "%%"), ())


async def test_percent_signs_in_statements_are_literal(make_pool: MakePool) -> None:
    text, expected = "select 7 % $1, 'a%sb%%' like '%' || $2", [(1, True)]
    for prepared in (True, False):
        pool = make_pool(size=1, prepared_statements=prepared)
        await pool.start()
        assert await pool.run(message(text, "3", "%", types=("int", "text"))) == expected


@pytest.mark.parametrize("prepared", [True, False])
async def test_do_block_runs_a_statement_and_reads_its_rows(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    def coordinator_defaults(*facts: Any, **more: Any) -> Defaults:
        return replace(defaults_of(*facts, **more), distributed=True)

    monkeypatch.setattr("dataapi.database.session.defaults_of", coordinator_defaults)
    pool = make_pool(size=1, prepared_statements=prepared)
    await pool.start()
    reused = BlockStatement(
        "select $2 || $1 as text",
        ("text", "text"),
        before="declare found record; begin for found in execute ",
        after=" loop perform set_config('app.found', found.text, true); end loop; end",
    )
    show = Bound(Statement("select current_setting('app.found')", ()))
    for value in ("it's", "\\", "$1 $$ %s"):
        sent = Message("anon", (), (Bound(reused, ("!", value)), show))
        assert await pool.run(sent) == [(f"{value}!",)]
    sent = Message("anon", (), (Bound(reused, ("!", None)), show))
    assert await pool.run(sent) == [("",)]
    if prepared:
        await pool.fetch("deallocate all")
        assert await pool.run(sent) == [("",)]


def test_only_missing_or_outdated_plans_are_retried() -> None:
    assert is_plan_invalid(lookup("26000")())
    assert is_plan_invalid(lookup("0A000")("cached plan must not change result type"))
    assert not is_plan_invalid(lookup("0A000")("something else"))
    assert not is_plan_invalid(lookup("40001")())
