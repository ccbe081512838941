"""The daemon's own statements leave no state in sessions that a pooler shares with other clients."""

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

pytestmark = pytest.mark.direct("these tests start their own poolers")

STATE = """
select name || ' = ' || setting from pg_settings where source = 'session'
    -- PgBouncer itself sets these for each of its clients.
    and name not in ('application_name', 'client_encoding', 'DateStyle', 'IntervalStyle', 'TimeZone')
    and name <> 'standard_conforming_strings'
union all select 'role ' || current_user where current_user <> session_user
union all select 'listens to ' || pg_listening_channels()
union all select 'prepared ' || name from pg_prepared_statements where from_sql
union all select 'locks ' || objid from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
"""


@contextmanager
def both_sessions(database: Database) -> Iterator[list[Any]]:
    """Yield connections that occupy both sessions of the pooler until the block ends."""
    with closing(psycopg2.connect(database.uri)) as first, closing(psycopg2.connect(database.uri)) as second:
        for connection in (first, second):
            with connection.cursor() as cursor:
                cursor.execute("select 1")
        yield [first, second]
        for connection in (first, second):
            connection.rollback()


@pytest.fixture
def through_pooler(server: Server, database: Database) -> Iterator[Database]:
    """Return this test's database behind a pooler that uses two sessions in turn."""
    lines = ("default_pool_size = 2", "server_round_robin = 1")
    with pooled(server, database, "transaction", *lines) as pooler:
        with both_sessions(pooler):
            pass
        yield pooler


def leftovers(database: Database) -> str:
    """Return the state that another client finds in the pooler's sessions."""
    state = []
    with both_sessions(database) as connections:
        for connection in connections:
            with connection.cursor() as cursor:
                cursor.execute(STATE)
                state += [text for (text,) in cursor.fetchall()]
    return ", ".join(state)


def test_check_config_leaves_no_session_state(through_pooler: Database) -> None:
    project = Project(
        REF, "acme", through_pooler.uri, jwt_secret="s" * 32, db_read_uri=through_pooler.uri, db_config=True
    )
    # docs/guides/scaling.md recommends this grant.
    through_pooler.execute("grant pg_read_all_stats to authenticator")
    try:
        assert not [finding.text for finding in inspect(project) if finding.wrong]
        assert leftovers(through_pooler) == ""
    finally:
        through_pooler.execute("revoke pg_read_all_stats from authenticator")


async def test_starting_a_project_and_webhooks_leaves_no_session_state(
    through_pooler: Database, reactor: Any
) -> None:
    allow_migrations(through_pooler)
    project = Project(REF, "acme", through_pooler.uri, jwt_secret="s" * 32)
    section = Webhooks(encryption_key=(KEY,))
    parts = ProjectPart(reactor, project), WebhooksPart(reactor, Settings((project,), webhooks=section))
    for part in parts:
        await part.start()
    try:
        assert parts[0].state().ready
        assert leftovers(through_pooler) == ""
    finally:
        await parts[1].drain(1)
        for part in parts:
            await part.stop()
