"""Creating and upgrading the schema ``webhooks`` by numbered migrations, each in its own transaction.

An advisory lock lets one daemon at a time apply a migration; ``webhooks.migration`` records its checksum.
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
"""The advisory lock during a migration."""

_STANDING = """
select n.oid is not null, pg_catalog.has_schema_privilege(n.oid, 'usage'),
    coalesce(
        pg_catalog.has_schema_privilege(n.oid, 'create'),
        pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create')
    ),
    pg_catalog.quote_ident(current_user), pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(n.nspowner))
from (select) as always left join pg_catalog.pg_namespace n on n.nspname = 'webhooks'
"""
_ALREADY = "WH900"
INSUFFICIENT_PRIVILEGE = "42501"
_NAME = re.compile(r"([0-9]{4})_([a-z_]+)\.sql")


class CannotMigrate(Exception):
    """The schema ``webhooks`` does not fit this version; the text says what to do."""


@dataclass(frozen=True, slots=True)
class SchemaMigration:
    """One step of the schema's history; numbers begin with 1 and have no gaps."""

    number: int
    name: str
    text: str = field(repr=False)

    @property
    def checksum(self) -> str:
        """The SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def bundled_migrations() -> tuple[SchemaMigration, ...]:
    """Return the migrations of this version, in order."""
    found = []
    for file in files("dataapi.webhooks.store.migrations").iterdir():
        if match := _NAME.fullmatch(file.name):
            found.append(SchemaMigration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.number))


async def migrate(
    database: SqlRunner, migrations: Sequence[SchemaMigration] | None = None
) -> tuple[SchemaMigration, ...]:
    """Apply and return the missing migrations; several daemons may do so at once.

    :raises CannotMigrate: the database is newer than this version or was migrated by another one, or
        the role may neither use nor create the schema.
    """
    migrations = bundled_migrations() if migrations is None else migrations
    standing = await _standing(database)
    applied = []
    try:
        missing = await _pending(database, standing, migrations)
        if missing and not standing.may_create:
            raise standing.refusal(f"{standing.role} may not create it")
        for migration in missing:
            if await _apply(database, migration):
                applied.append(migration)
        if missing:
            # Another daemon that was faster may have another version.
            pending_migrations(await applied_migrations(database), migrations)
    except DatabaseError as error:
        if error.code != INSUFFICIENT_PRIVILEGE:
            raise
        raise standing.refusal(error.message) from error
    return tuple(applied)


async def check_migrated(database: SqlRunner) -> tuple[SchemaMigration, ...]:
    """Return no migration, as another process has applied them all.

    :raises CannotMigrate: it has not, or as for ``migrate``.
    """
    if await _pending(database, await _standing(database), bundled_migrations()):
        raise CannotMigrate("another process has not made or upgraded the schema webhooks yet")
    return ()


@dataclass(frozen=True, slots=True)
class _Standing:
    """What the login role may do.

    It is asked beforehand because PostgreSQL logs what it refuses, with the whole text of a migration.
    """

    exists: bool
    may_use: bool | None
    may_create: bool
    role: str
    owner: str | None

    def refusal(self, reason: str) -> CannotMigrate:
        """Return the error, which names what to grant."""
        if self.exists:
            statement = f"alter schema webhooks owner to {self.role}, and the same for what is in it"
            remedy = f"{statement}; or run dataapi migrate as its owner, {self.owner}"
        else:
            remedy = f"create schema webhooks authorization {self.role}"
        return CannotMigrate(
            f"the schema webhooks cannot be made or upgraded: {reason};"
            f" let an administrator of the database run: {remedy}"
        )


async def _standing(database: SqlRunner) -> _Standing:
    [row] = await database.fetch(_STANDING)
    return _Standing(*row)


async def _pending(
    database: SqlRunner, standing: _Standing, migrations: Sequence[SchemaMigration]
) -> tuple[SchemaMigration, ...]:
    if standing.exists and not standing.may_use:
        raise standing.refusal(f"{standing.role} may not use it")
    return pending_migrations(await applied_migrations(database) if standing.exists else {}, migrations)


async def applied_migrations(database: SqlRunner) -> dict[int, str]:
    """Return the checksums of the applied migrations by number."""
    [(there,)] = await database.fetch("select to_regclass('webhooks.migration') is not null")
    if not there:
        return {}
    return dict(await database.fetch("select number, checksum from webhooks.migration order by number"))


def pending_migrations(
    applied: dict[int, str], migrations: Sequence[SchemaMigration]
) -> tuple[SchemaMigration, ...]:
    """Return the migrations that are missing.

    :param applied: the checksums of the applied migrations by number.
    :raises CannotMigrate: one of them is unknown to this version, or differs from its own.
    """
    own = {migration.number: migration for migration in migrations}
    for number, checksum in applied.items():
        if number in own and own[number].checksum != checksum:
            raise CannotMigrate(
                f"migration {number} ({own[number].name}) of the schema webhooks is not the one that this "
                "version of dataapi has; run the version that made the schema, or start with an empty one: "
                "let its owner run drop schema webhooks cascade, which deletes endpoints, tokens and history"
            )
    newer = sorted(applied.keys() - own.keys())
    if newer:
        raise CannotMigrate(
            f"the schema webhooks is newer than this version of dataapi: it has had migration {newer[-1]}, "
            f"and this version has {max(own)}; run the newer version"
        )
    return tuple(migration for migration in migrations if migration.number not in applied)


async def _apply(database: SqlRunner, migration: SchemaMigration) -> bool:
    """Apply one migration in a transaction; False when another daemon has applied it."""
    try:
        await database.fetch(
            f"{_guard(migration)};\n{migration.text};\n"
            "insert into webhooks.migration (number, name, checksum) values ($1, $2, $3)",
            (migration.number, migration.name, migration.checksum),
        )
    except DatabaseError as error:
        if error.code != _ALREADY:
            raise
        return False
    return True


def _guard(migration: SchemaMigration) -> str:
    """Return SQL that locks, creates schema and table if needed, and fails if the migration is recorded."""
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
        raise exception 'applied already' using errcode = '{_ALREADY}';
    end if;
end"""
    return f"do {quote_literal(body)}"
