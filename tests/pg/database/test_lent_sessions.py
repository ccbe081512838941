"""Nothing that the daemon does for itself stays in a session that a pooler lends to another program next."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from dataapi.service.inspection import inspect
from dataapi.service.project import ProjectPart
from dataapi.service.webhooks import WebhooksPart
from dataapi.settings import Project, Settings, Webhooks
from support.pooler import pooled
from support.webhooks import KEY, REF, allow_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server

pytestmark = pytest.mark.direct("these tests have poolers of their own")

STATE = """
select name || ' = ' || setting from pg_settings where source = 'session'
    -- PgBouncer itself makes these what each of its clients has.
    and name not in ('application_name', 'client_encoding', 'DateStyle', 'IntervalStyle', 'TimeZone')
    and name <> 'standard_conforming_strings'
union all select 'role ' || current_user where current_user <> session_user
union all select 'listens to ' || pg_listening_channels()
union all select 'prepared ' || name from pg_prepared_statements where from_sql
union all select 'locks ' || objid from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
"""


@contextmanager
def both_sessions(database: Database) -> Iterator[list[Any]]:
    """Give connections that have each of the pooler's sessions to themselves, until the block ends."""
    with closing(psycopg2.connect(database.uri)) as one, closing(psycopg2.connect(database.uri)) as other:
        for connection in (one, other):
            with connection.cursor() as cursor:
                cursor.execute("select 1")
        yield [one, other]
        for connection in (one, other):
            connection.rollback()


@pytest.fixture
def lent(server: Server, database: Database) -> Iterator[Database]:
    """Give this test's database, reached through a pooler that lends two sessions by turns."""
    lines = ("default_pool_size = 2", "server_round_robin = 1")
    with pooled(server, database, "transaction", *lines) as found:
        with both_sessions(found):
            pass
        yield found


def left(database: Database) -> str:
    """Return what another program finds in the sessions that it is lent."""
    told = []
    with both_sessions(database) as connections:
        for connection in connections:
            with connection.cursor() as cursor:
                cursor.execute(STATE)
                told += [text for (text,) in cursor.fetchall()]
    return ", ".join(told)


def test_a_configuration_is_checked(lent: Database) -> None:
    project = Project(REF, "acme", lent.uri, jwt_secret="s" * 32, db_read_uri=lent.uri, db_config=True)
    # As docs/guides/scaling.md has it.
    lent.execute("grant pg_read_all_stats to authenticator")
    try:
        assert not [finding.text for finding in inspect(project) if finding.wrong]
        assert left(lent) == ""
    finally:
        lent.execute("revoke pg_read_all_stats from authenticator")


async def test_a_project_and_webhooks_start(lent: Database, reactor: Any) -> None:
    allow_migrations(lent)
    project = Project(REF, "acme", lent.uri, jwt_secret="s" * 32)
    section = Webhooks(encryption_key=(KEY,))
    parts = ProjectPart(reactor, project), WebhooksPart(reactor, Settings((project,), webhooks=section))
    for part in parts:
        await part.start()
    try:
        assert parts[0].state().ready
        assert left(lent) == ""
    finally:
        await parts[1].drain(1)
        for part in parts:
            await part.stop()
