"""Migrations of the schema ``webhooks``, each in its own transaction.

An advisory lock serializes migrations. ``webhooks.migration`` stores their checksums.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from dataapi.database.sql_text import quote_literal
from dataapi.http.errors import DatabaseError
from dataapi.webhooks.store.statements import SqlRunner

LOCK = 7236148250117001

_SCHEMA_ACCESS = """
select n.oid is not null, pg_catalog.has_schema_privilege(n.oid, 'usage'),
    coalesce(
        pg_catalog.has_schema_privilege(n.oid, 'create'),
        pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create')
    ),
    pg_catalog.quote_ident(current_user), pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(n.nspowner))
from (select) as always left join pg_catalog.pg_namespace n on n.nspname = 'webhooks'
"""
_ALREADY_APPLIED = "WH900"
INSUFFICIENT_PRIVILEGE = "42501"
_NAME = re.compile(r"([0-9]{4})_([a-z_]+)\.sql")


class CannotMigrate(Exception):
    """Raised when the schema ``webhooks`` cannot be used or migrated. The message contains the remedy."""


@dataclass(frozen=True, slots=True)
class SchemaMigration:
    """A numbered migration. Numbers begin with 1 and have no gaps."""

    number: int
    name: str
    text: str = field(repr=False)

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def bundled_migrations() -> tuple[SchemaMigration, ...]:
    migrations = []
    for file in files("dataapi.webhooks.store.migrations").iterdir():
        if match := _NAME.fullmatch(file.name):
            migrations.append(SchemaMigration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return tuple(sorted(migrations, key=lambda migration: migration.number))


async def migrate(
    database: SqlRunner, migrations: Sequence[SchemaMigration] | None = None
) -> tuple[SchemaMigration, ...]:
    """Apply and return the missing migrations. Several daemons may run this concurrently.

    :raises CannotMigrate: the schema is newer or different, or the role lacks privileges.
    """
    migrations = bundled_migrations() if migrations is None else migrations
    access = await _schema_access(database)
    applied = []
    try:
        missing = await _pending(database, access, migrations)
        if missing and not access.may_create:
            raise access.error(f"{access.role} lacks the privilege to create it")
        for migration in missing:
            if await _apply(database, migration):
                applied.append(migration)
        if missing:
            # Another daemon of a different version may have applied the migrations.
            pending_migrations(await applied_migrations(database), migrations)
    except DatabaseError as error:
        if error.code != INSUFFICIENT_PRIVILEGE:
            raise
        raise access.error(error.message) from error
    return tuple(applied)


async def check_migrated(database: SqlRunner) -> tuple[SchemaMigration, ...]:
    """Check that another process has applied all migrations, and return an empty tuple.

    :raises CannotMigrate: migrations are missing, or the schema cannot be used.
    """
    if await _pending(database, await _schema_access(database), bundled_migrations()):
        raise CannotMigrate("another process has not created or upgraded the schema webhooks yet")
    return ()


@dataclass(frozen=True, slots=True)
class _SchemaAccess:
    """Privileges of the login role.

    They are checked before a migration, because PostgreSQL logs the whole text of a statement that fails.
    """

    exists: bool
    may_use: bool | None
    may_create: bool
    role: str
    owner: str | None

    def error(self, reason: str) -> CannotMigrate:
        if self.exists:
            statement = f"alter schema webhooks owner to {self.role}, and likewise for all objects in it"
            remedy = f"{statement}. Or run dataapi migrate as its owner, {self.owner}"
        else:
            remedy = f"create schema webhooks authorization {self.role}"
        return CannotMigrate(
            f"the schema webhooks cannot be created or upgraded: {reason}."
            f" Have a database administrator run: {remedy}"
        )


async def _schema_access(database: SqlRunner) -> _SchemaAccess:
    [row] = await database.fetch(_SCHEMA_ACCESS)
    return _SchemaAccess(*row)


async def _pending(
    database: SqlRunner, access: _SchemaAccess, migrations: Sequence[SchemaMigration]
) -> tuple[SchemaMigration, ...]:
    if access.exists and not access.may_use:
        raise access.error(f"{access.role} lacks the privilege to use it")
    return pending_migrations(await applied_migrations(database) if access.exists else {}, migrations)


async def applied_migrations(database: SqlRunner) -> dict[int, str]:
    [(exists,)] = await database.fetch("select to_regclass('webhooks.migration') is not null")
    if not exists:
        return {}
    return dict(await database.fetch("select number, checksum from webhooks.migration order by number"))


def pending_migrations(
    applied: dict[int, str], migrations: Sequence[SchemaMigration]
) -> tuple[SchemaMigration, ...]:
    """Return the missing migrations.

    :raises CannotMigrate: an applied migration is unknown, or its checksum differs.
    """
    bundled = {migration.number: migration for migration in migrations}
    for number, checksum in applied.items():
        if number in bundled and bundled[number].checksum != checksum:
            raise CannotMigrate(
                f"migration {number} ({bundled[number].name}) of the schema webhooks differs from this "
                "version's. Run the version that created the schema, or start with an empty one: "
                "have its owner run drop schema webhooks cascade, which deletes endpoints, tokens and history"
            )
    newer = sorted(applied.keys() - bundled.keys())
    if newer:
        raise CannotMigrate(
            f"the schema webhooks is newer than this version of dataapi: it has migration {newer[-1]}, "
            f"and this version has migrations up to {max(bundled)}. Run the newer version"
        )
    return tuple(migration for migration in migrations if migration.number not in applied)


async def _apply(database: SqlRunner, migration: SchemaMigration) -> bool:
    try:
        await database.fetch(
            f"{_guard(migration)};\n{migration.text};\n"
            "insert into webhooks.migration (number, name, checksum) values ($1, $2, $3)",
            (migration.number, migration.name, migration.checksum),
        )
    except DatabaseError as error:
        if error.code != _ALREADY_APPLIED:
            raise
        return False
    return True


def _guard(migration: SchemaMigration) -> str:
    body = f"""
begin
    perform pg_advisory_xact_lock({LOCK});
    if to_regnamespace('webhooks') is null then
        create schema webhooks;
    end if;
    if to_regclass('webhooks.migration') is null then
        create table webhooks.migration (
            number integer primary key,
            name text not null,
            checksum text not null,
            applied_at timestamptz not null default now()
        );
    end if;
    if exists (select from webhooks.migration where number = {migration.number}) then
        raise exception 'applied already' using errcode = '{_ALREADY_APPLIED}';
    end if;
end"""
    return f"do {quote_literal(body)}"
