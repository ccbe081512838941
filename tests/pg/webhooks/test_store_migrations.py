"""Migrations of the schema ``webhooks``: applied in order and once, never backwards."""

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

pytestmark = pytest.mark.empty_database

ONE = SchemaMigration(1, "one", "create table webhooks.one (id int); select '100%', '$1'")
TWO = SchemaMigration(2, "two", "create table webhooks.two (id int)")
BROKEN = SchemaMigration(3, "broken", "create table webhooks.three (id int); select 1 / 0")


def tables(database: Database) -> set[str]:
    rows = database.execute("select tablename from pg_tables where schemaname = 'webhooks'")
    return {name for (name,) in rows}


def test_shipped_migrations_are_numbered_without_gaps() -> None:
    assert [migration.number for migration in bundled_migrations()] == list(
        range(1, len(bundled_migrations()) + 1)
    )


async def test_missing_migrations_are_applied_in_order_and_recorded(database: Database, pool: Pool) -> None:
    allow_migrations(database)
    assert await migrate(pool, [ONE]) == (ONE,)
    assert await migrate(pool, [ONE]) == ()
    assert await migrate(pool, [ONE, TWO]) == (TWO,)
    assert tables(database) == {"migration", "one", "two"}
    assert await applied_migrations(pool) == {1: ONE.checksum, 2: TWO.checksum}


async def test_bundled_migrations_can_be_applied_by_an_ordinary_role(database: Database, pool: Pool) -> None:
    database.execute(f"grant create on database {database.name} to authenticator")
    assert await migrate(pool) == bundled_migrations()
    assert await migrate(pool) == ()
    [(public,)] = database.execute("select has_schema_privilege('anon', 'webhooks', 'usage')")
    assert not public


async def test_concurrent_daemons_apply_each_migration_once(
    database: Database, make_pool: Callable[..., Pool]
) -> None:
    allow_migrations(database)
    pools = [make_pool(size=1) for _ in range(4)]
    for pool in pools:
        await pool.start()
    done = await gatherResults([Deferred.fromCoroutine(migrate(pool, [ONE, TWO])) for pool in pools])
    # The daemon that acquires the lock applies the next migration.
    assert sorted(one.number for applied in done for one in applied) == [1, 2]
    assert await applied_migrations(pools[0]) == {1: ONE.checksum, 2: TWO.checksum}


async def test_failed_migration_is_rolled_back(database: Database, pool: Pool) -> None:
    allow_migrations(database)
    with pytest.raises(DatabaseError, match="division by zero"):
        await migrate(pool, [ONE, TWO, BROKEN])
    assert tables(database) == {"migration", "one", "two"}
    repaired = dataclasses.replace(BROKEN, text="create table webhooks.three (id int)")
    assert await migrate(pool, [ONE, TWO, repaired]) == (repaired,)


async def test_newer_database_is_rejected(database: Database, pool: Pool) -> None:
    allow_migrations(database)
    await migrate(pool, [ONE, TWO])
    with pytest.raises(CannotMigrate, match=r"newer than this version of dataapi: it has migration 2\b"):
        await migrate(pool, [ONE])


async def test_changed_migration_is_rejected(database: Database, pool: Pool) -> None:
    allow_migrations(database)
    await migrate(pool, [ONE])
    with pytest.raises(CannotMigrate, match=r"migration 1 \(one\) .* differs from this version's"):
        await migrate(pool, [dataclasses.replace(ONE, text="select 1"), TWO])
    assert tables(database) == {"migration", "one"}


async def test_schema_of_a_development_version_is_rejected(database: Database, pool: Pool) -> None:
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


async def test_error_shows_the_statement_that_grants_missing_privileges(
    database: Database, pool: Pool
) -> None:
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


def test_pending_migrations_are_the_missing_ones() -> None:
    assert pending_migrations({}, [ONE, TWO]) == (ONE, TWO)
    assert pending_migrations({2: TWO.checksum}, [ONE, TWO]) == (ONE,)
    assert pending_migrations({1: ONE.checksum, 2: TWO.checksum}, [ONE, TWO]) == ()
