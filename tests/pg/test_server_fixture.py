"""The test server fixture's own guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg2
import pytest

if TYPE_CHECKING:
    from support.postgres import Database, Server


def test_databases_are_separate(server: Server) -> None:
    first = server.create_database("create table only_here (id int)")
    second = server.create_database()
    assert first.execute("select to_regclass('only_here')::text") == [("only_here",)]
    assert second.execute("select to_regclass('only_here')::text") == [(None,)]


def test_authenticator_may_only_assume_the_api_roles(database: Database) -> None:
    database.execute("create table secret (id int); grant select on secret to authenticated")
    connection = psycopg2.connect(database.uri)
    cursor = connection.cursor()
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        cursor.execute("select * from secret")
    connection.rollback()
    cursor.execute("set role authenticated; select count(*) from secret")
    assert cursor.fetchone() == (0,)
    connection.close()


@pytest.mark.direct("a pooler holds its clients while the server restarts")
def test_restart_preserves_port_and_data(server: Server, database: Database) -> None:
    database.execute("create table kept (id int)")
    connection = psycopg2.connect(database.uri)
    server.restart()
    with pytest.raises(psycopg2.OperationalError):
        connection.cursor().execute("select 1")
    assert database.execute("select count(*) from kept") == [(0,)]


def test_chinook_is_readable_by_every_api_role(chinook: Database) -> None:
    connection = psycopg2.connect(chinook.uri)
    cursor = connection.cursor()
    cursor.execute("set role anon; select count(*) from track")
    assert cursor.fetchone() == (3503,)
    connection.close()
