"""Statements through a pooler with prepared statements in transaction mode, such as PgBouncer 1.21."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database import steps
from dataapi.database.message import Bound, Message, Statement
from dataapi.database.pooler import loses_statements
from dataapi.http.errors import DatabaseError
from dataapi.service.inspection import inspect
from dataapi.service.project import ProjectPart
from dataapi.settings import Project
from support.messages import message, running
from support.pooler import pooled
from support.webhooks import REF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

pytestmark = pytest.mark.direct("these tests start their own poolers")

SCHEMA = """
create table note (id int primary key, owner name not null default current_user);
alter table note enable row level security;
create policy own on note using (owner = current_user);
insert into note values (1, 'anon'), (2, 'authenticated'), (3, 'service_role');
grant all on note to anon, authenticated, service_role;
"""
ROLES = ("anon", "authenticated", "service_role")
OWN = Statement("select current_user::text, id, $1 from note order by id", ("text",))
PREPARED = Statement("select count(*)::int from pg_prepared_statements where not from_sql", ())


def read_message(statement: Statement, *values: str, role: str = "anon") -> Message:
    """Return a read-only message."""
    return Message(role, (), (Bound(statement, values),))


@pytest.fixture
def through_pooler(server: Server, database: Database) -> Iterator[Database]:
    database.execute(SCHEMA)
    with pooled(server, database, "transaction", "default_pool_size = 2", statements=3) as pooler:
        yield pooler


async def test_each_role_gets_its_own_rows(through_pooler: Database, make_pool: Callable[..., Pool]) -> None:
    pools = [make_pool(uri=through_pooler.uri, size=4) for _ in range(2)]
    for pool in pools:
        await pool.start()
    pending = [
        (role, str(number), running(pool.run(read_message(OWN, str(number), role=role))))
        for number in range(30)
        for role in (*ROLES, "anon")
        for pool in pools
    ]
    for role, number, result in pending:
        expected = {"anon": 1, "authenticated": 2, "service_role": 1}[role]
        rows = await result
        assert rows[0] == (role, expected, number)
        assert len(rows) == (3 if role == "service_role" else 1)
    assert all([(await pool.run(read_message(PREPARED)))[0][0] > 0 for pool in pools])


async def test_statement_is_prepared_after_it_failed_first(
    through_pooler: Database, database: Database, make_pool: Callable[..., Pool]
) -> None:
    pool = make_pool(uri=through_pooler.uri, size=1)
    await pool.start()
    late = Statement("select count(*)::int from late", ())
    for _ in range(2):
        with pytest.raises(DatabaseError) as caught:
            await pool.run(read_message(late))
        assert caught.value.code == "42P01"
    database.execute("create table late (); grant select on late to anon")
    for _ in range(2):
        assert await pool.run(read_message(late)) == [(0,)]
    assert pool.figures().connects == 1


async def test_statement_is_prepared_again_after_its_table_changed(
    through_pooler: Database, database: Database, make_pool: Callable[..., Pool]
) -> None:
    pool = make_pool(uri=through_pooler.uri, size=1)
    await pool.start()
    whole = Statement("select * from note", ())
    for columns in (2, 3, 4):
        [row] = await pool.run(read_message(whole))
        assert len(row) == columns
        database.execute(f"alter table note add column further{columns} int")


async def test_connection_with_many_prepared_statements_is_replaced(
    through_pooler: Database, make_pool: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "MAX_PREPARED_POOLED", 5)
    pool = make_pool(uri=through_pooler.uri, size=1)
    await pool.start()
    for number in range(12):
        assert await pool.run(read_message(Statement(f"select {number}", ()))) == [(number,)]
    assert 3 <= pool.figures().connects <= 4


async def test_statements_that_cannot_be_prepared_are_sent_as_text(
    through_pooler: Database, make_pool: Callable[..., Pool]
) -> None:
    pool = make_pool(uri=through_pooler.uri, size=1)
    await pool.start()
    explained = Statement("explain select 1", (), prepared=False)
    assert await pool.run(read_message(explained)) == [("Result  (cost=0.00..0.01 rows=1 width=4)",)]
    level = Bound(Statement("select current_setting('transaction_isolation')", ()))
    strict = Message("anon", (), (level,), isolation="SERIALIZABLE")
    assert await pool.run(strict) == [("serializable",)]
    insert = Bound(Statement("insert into note values (7) returning id", ()))
    undone = Message("anon", (), (insert,), read_only=False, rollback=True)
    assert await pool.run(undone) == await pool.run(undone) == [(7,)]


async def test_readiness_and_check_config_accept_prepared_statements(
    through_pooler: Database, reactor: Any
) -> None:
    assert not await loses_statements(reactor, through_pooler.uri)
    project = Project(REF, "acme", through_pooler.uri, jwt_secret="s" * 32, db_prepared_statements=True)
    part = ProjectPart(reactor, project)
    await part.start()
    try:
        assert part.state().ready
    finally:
        await part.stop()
    assert not any(finding.wrong for finding in inspect(project))


async def test_statements_with_comments_are_not_prepared(
    through_pooler: Database, make_pool: Callable[..., Pool]
) -> None:
    """Comments differ per request, so every statement would have a different text."""
    pool = make_pool(uri=through_pooler.uri, size=1, comments=True)
    await pool.start()
    opening = "select count(*)::int from pg_prepared_statements where statement like '%set_config(''role''%'"
    for _ in range(3):
        assert await pool.run(message(opening)) == [(0,)]
