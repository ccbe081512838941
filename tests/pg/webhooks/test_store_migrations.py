"""Migrations of the schema ``webhooks``: in order, once, each a transaction, and never backwards."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from dataapi.http.errors import DatabaseError
from dataapi.webhooks.store.migrations import (
    CannotMigrate,
    SchemaMigration,
    applied_migrations,
    bundled_migrations,
    migrate,
    pending_migrations,
)
from support.webhooks import allow_migrations
from twisted.internet.defer import Deferred, gatherResults

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database

ONE = SchemaMigration(1, "one", "create table webhooks.one (id int); select '100%', '$1'")
TWO = SchemaMigration(2, "two", "create table webhooks.two (id int)")
BROKEN = SchemaMigration(3, "broken", "create table webhooks.three (id int); select 1 / 0")


def tables(database: Database) -> set[str]:
    """Return the names of the schema's tables."""
    rows = database.execute("select tablename from pg_tables where schemaname = 'webhooks'")
    return {name for (name,) in rows}


def test_shipped_migrations_are_numbered_without_gaps() -> None:
    """The files' numbers are their order, from 1."""
    assert [migration.number for migration in bundled_migrations()] == list(
        range(1, len(bundled_migrations()) + 1)
    )


async def test_missing_migrations_are_applied_in_order_and_recorded(database: Database, pool: Pool) -> None:
    """Applied again nothing happens; a later one is added to what is there."""
    allow_migrations(database)
    assert await migrate(pool, [ONE]) == (ONE,)
    assert await migrate(pool, [ONE]) == ()
    assert await migrate(pool, [ONE, TWO]) == (TWO,)
    assert tables(database) == {"migration", "one", "two"}
    assert await applied_migrations(pool) == {1: ONE.checksum, 2: TWO.checksum}


async def test_what_is_shipped_can_be_applied(database: Database, pool: Pool) -> None:
    """By a role that may create schemas; it owns all of it, and nobody else may use it."""
    database.execute(f"grant create on database {database.name} to authenticator")
    assert await migrate(pool) == bundled_migrations()
    assert await migrate(pool) == ()
    [(public,)] = database.execute("select has_schema_privilege('anon', 'webhooks', 'usage')")
    assert not public


async def test_daemons_that_start_at_once_apply_each_migration_once(
    database: Database, make_pool: Callable[..., Pool]
) -> None:
    """An advisory lock makes them wait for each other; all of them find the schema ready."""
    allow_migrations(database)
    pools = [make_pool(size=1) for _ in range(4)]
    for pool in pools:
        await pool.start()
    done = await gatherResults([Deferred.fromCoroutine(migrate(pool, [ONE, TWO])) for pool in pools])
    # Whoever has the lock applies the next one, which need not be the same one each time.
    assert sorted(one.number for applied in done for one in applied) == [1, 2]
    assert await applied_migrations(pools[0]) == {1: ONE.checksum, 2: TWO.checksum}


async def test_failing_migration_leaves_nothing_of_itself(database: Database, pool: Pool) -> None:
    """Each one is a transaction: those before it stay, and it can be applied once it is put right."""
    allow_migrations(database)
    with pytest.raises(DatabaseError, match="division by zero"):
        await migrate(pool, [ONE, TWO, BROKEN])
    assert tables(database) == {"migration", "one", "two"}
    repaired = dataclasses.replace(BROKEN, text="create table webhooks.three (id int)")
    assert await migrate(pool, [ONE, TWO, repaired]) == (repaired,)


async def test_newer_database_is_refused(database: Database, pool: Pool) -> None:
    """A daemon of an older version does not touch what it does not know, and says so."""
    allow_migrations(database)
    await migrate(pool, [ONE, TWO])
    with pytest.raises(CannotMigrate, match=r"newer than this version of dataapi: it has migration 2\b"):
        await migrate(pool, [ONE])


async def test_migration_that_was_another_is_refused(database: Database, pool: Pool) -> None:
    """The checksum tells a schema that was made by other means."""
    allow_migrations(database)
    await migrate(pool, [ONE])
    with pytest.raises(CannotMigrate, match=r"migration 1 \(one\) .* differs from this version's"):
        await migrate(pool, [dataclasses.replace(ONE, text="select 1"), TWO])
    assert tables(database) == {"migration", "one"}


async def test_schema_of_a_development_version_is_refused(database: Database, pool: Pool) -> None:
    """It has had nine migrations: the error says what to do, not that the schema is newer."""
    allow_migrations(database)
    await migrate(pool, [SchemaMigration(number, "webhooks", f"select {number}") for number in range(1, 10)])
    advice = r"Run the version that created the schema, or .* drop schema webhooks cascade"
    with pytest.raises(
        CannotMigrate, match=rf"migration 1 \(webhooks\) .* differs from this version's. .*{advice}"
    ):
        await migrate(pool)
    assert tables(database) == {"migration"}
    database.execute("drop schema webhooks cascade")
    allow_migrations(database)
    assert await migrate(pool) == bundled_migrations()


async def test_a_role_that_may_not_is_shown_what_to_do(database: Database, pool: Pool) -> None:
    """Neither making the schema nor using one of somebody else's: the error has the statement that helps."""
    for statement, grant in (
        ("create schema webhooks authorization authenticator", ""),
        ("alter schema webhooks owner to authenticator", "create schema webhooks"),
        ("alter schema webhooks owner to authenticator", "grant usage on schema webhooks to authenticator"),
        (
            "alter schema webhooks owner to authenticator",
            "create table webhooks.migration (number int, checksum text)",
        ),
    ):
        if grant:
            database.execute(grant)
        with pytest.raises(CannotMigrate, match=statement):
            await migrate(pool, [ONE])
    database.execute("alter schema webhooks owner to authenticator; drop table webhooks.migration")
    assert await migrate(pool, [ONE]) == (ONE,)


def test_pending_are_those_that_the_database_has_not_had() -> None:
    """Also where one between was left out."""
    assert pending_migrations({}, [ONE, TWO]) == (ONE, TWO)
    assert pending_migrations({2: TWO.checksum}, [ONE, TWO]) == (ONE,)
    assert pending_migrations({1: ONE.checksum, 2: TWO.checksum}, [ONE, TWO]) == ()
