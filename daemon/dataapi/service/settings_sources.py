"""Sources of settings: a configuration, with databases that run elsewhere or with the embedded PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from twisted.internet.threads import deferToThread

from dataapi.database.embedded import LOGIN_ROLE, EmbeddedServer, EmbeddedServerError
from dataapi.database.script import run_script
from dataapi.database.sql_text import BEGIN_OWN_SQL, quote_literal
from dataapi.service.provisioning import Provision, setup_sql
from dataapi.service.sockets import StartFailed
from dataapi.settings import Settings

EMBEDDED_URI = "postgresql:///embedded"
"""Placeholder of ``db-uri`` until the embedded server runs."""


_UNPREPARED = """
select nspname from pg_catalog.pg_namespace n
where nspname = any (array[{names}]::text[]) and not exists (
    select from pg_catalog.pg_default_acl where defaclnamespace = n.oid
)
"""

Reconfigure: TypeAlias = Callable[[str | None], None]
"""Asks for the configuration to be read again, or, by a project's reference, for what is in its database."""


class SettingsSource(Protocol):
    """Provides the settings, having started what they need."""

    @property
    def settings(self) -> Settings:
        """What is known before the start."""

    async def prepare(self) -> Settings:
        """Start what the settings need and return them complete; raises ``StartFailed``."""

    async def reread(self) -> Settings | None:
        """Read the settings again; raises ``ConfigurationError``.  None when they come from nowhere else."""

    async def reread_database(self, ref: str) -> Settings | None:
        """Read the settings in one project's database again, and nothing else; None when there are none."""

    @property
    def failures(self) -> Mapping[str, str]:
        """Why settings that were read last are not used, by the references of their projects."""

    def announce(self) -> None:
        """Print what the operator should know once requests are answered."""

    async def cleanup(self) -> None:
        """Stop what ``prepare`` started."""


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration whose databases run elsewhere; ``load`` reads it again and blocks."""

    settings: Settings
    load: Callable[[], Settings]

    async def prepare(self) -> Settings:
        return self.settings

    async def reread(self) -> Settings | None:
        return await deferToThread(self.load)

    async def reread_database(self, _ref: str) -> Settings | None:
        """Read nothing."""
        return None

    @property
    def failures(self) -> Mapping[str, str]:
        """What was read is used, or refused as a whole."""
        return {}

    def announce(self) -> None:
        """Print nothing; the log suffices."""

    async def cleanup(self) -> None:
        """Stop nothing."""


@dataclass(frozen=True, slots=True)
class Embedded(Configured):
    """A configuration whose project lives in the embedded PostgreSQL."""

    server: EmbeddedServer

    async def prepare(self) -> Settings:
        """Start the server and point the project at it."""
        try:
            uri = await self.server.start()
        except EmbeddedServerError as error:
            raise StartFailed(f"the embedded PostgreSQL cannot start: {error}") from error
        return _in_server(self.settings, uri)

    async def reread(self) -> Settings | None:
        return _in_server(await deferToThread(self.load), self.server.uri(LOGIN_ROLE))

    async def cleanup(self) -> None:
        await self.server.stop()


async def open_schemas(schemas: Iterable[str], administrator: str) -> None:
    """Grant what ``init`` grants in those of the schemas that are there and that it was never done for.

    :raises ScriptError: the database refuses.
    """
    names = ", ".join(map(quote_literal, schemas))
    found = await run_script(administrator, BEGIN_OWN_SQL + _UNPREPARED.format(names=names))
    if found:
        provision = Provision(tuple(name for (name,) in found), {}, event_trigger=False)
        await run_script(administrator, setup_sql(provision))


def _in_server(settings: Settings, uri: str) -> Settings:
    """Point the project at the embedded server."""
    return replace(
        settings,
        projects=tuple(
            replace(project, db_uri=uri) if project.db_uri == EMBEDDED_URI else project
            for project in settings.projects
        ),
    )
