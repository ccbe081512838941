"""Starts the embedded PostgreSQL, and adds its URI to the settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from twisted.internet.threads import deferToThread

from dataapi.database.embedded import LOGIN_ROLE, EmbeddedServer, EmbeddedServerError
from dataapi.database.script import run_script
from dataapi.database.sql_text import BEGIN_OWN_SQL, quote_literal
from dataapi.service.provisioning import Provision, setup_sql
from dataapi.service.settings_sources import Configured
from dataapi.service.sockets import StartFailed
from dataapi.settings import EMBEDDED_URI, Settings

_UNPREPARED = """
select nspname from pg_catalog.pg_namespace n
where nspname = any (array[{names}]::text[]) and not exists (
    select from pg_catalog.pg_default_acl where defaclnamespace = n.oid
)
"""


@dataclass(frozen=True, slots=True)
class Embedded(Configured):
    """A configuration whose project uses the embedded PostgreSQL."""

    server: EmbeddedServer

    async def prepare(self) -> Settings:
        try:
            uri = await self.server.start()
        except EmbeddedServerError as error:
            raise StartFailed(f"the embedded PostgreSQL cannot start: {error}") from error
        return _with_embedded_uri(self.settings, uri)

    async def reread(self) -> Settings | None:
        return _with_embedded_uri(await deferToThread(self.load), self.server.uri(LOGIN_ROLE))

    async def cleanup(self) -> None:
        await self.server.stop()


async def open_schemas(names: Iterable[str], administrator: str) -> None:
    """Grant privileges as ``init`` does, in schemas that exist and have no default privileges yet.

    :raises ScriptError: the database reports an error.
    """
    quoted = ", ".join(map(quote_literal, names))
    schemas = await run_script(administrator, BEGIN_OWN_SQL + _UNPREPARED.format(names=quoted))
    if schemas:
        provision = Provision(tuple(name for (name,) in schemas), {}, event_trigger=False)
        await run_script(administrator, setup_sql(provision))


def _with_embedded_uri(settings: Settings, uri: str) -> Settings:
    return replace(
        settings,
        projects=tuple(
            replace(project, db_uri=uri) if project.db_uri == EMBEDDED_URI else project
            for project in settings.projects
        ),
    )
