"""Settings that are stored in the projects' databases. They take precedence over the configuration."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from dataapi.concurrency.tasks import SingleFlights, concurrently
from dataapi.database.script import ScriptError, connected
from dataapi.database.sql_text import RESTORE_SEARCH_PATH, quote_identifier
from dataapi.service.configuration import ConfigurationError
from dataapi.service.configuration.database import NAMES, PREFIX, DatabaseSetting, applied, warnings
from dataapi.service.configuration.mistakes import Mistake
from dataapi.service.settings_sources import SettingsSource
from dataapi.settings import Project, Settings

_log = Logger(namespace="dataapi.service")

READ_WITHIN = 15.0
"""Seconds to wait for the settings of a database."""

StoredSettings = tuple[DatabaseSetting, ...]
Fetch = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]

_ROLE_SETTINGS = """
select 'role ' || current_user || case when s.setdatabase = 0 then '' else ' in database ' || d.datname end,
    split_part(setting, '=', 1), substr(setting, strpos(setting, '=') + 1)
from pg_catalog.pg_db_role_setting s
    join pg_catalog.pg_roles r on r.oid = s.setrole and r.rolname = current_user
    join pg_catalog.pg_database d on d.datname = current_database() and s.setdatabase in (0, d.oid),
    unnest(s.setconfig) setting
where starts_with(setting, $1)
order by s.setdatabase
"""
"""Query for settings of the role, and then of the role in this database, in ascending precedence."""

_CLEAR = "select set_config(name, '', true) from unnest($1::text[]) name"
"""Clears the settings of the session, to find the settings that ``db-pre-config`` sets."""

_FUNCTION_SETTINGS = """
select name, current_setting(name, true) from unnest($1::text[]) name where current_setting(name, true) <> ''
"""


def read_stored(project: Project) -> StoredSettings:
    """Return the settings in the project's database, in ascending precedence. Blocks.

    :raises ScriptError: the database cannot be queried.
    """
    with connected(project.db_uri) as fetch:
        # Settings must end with the transaction: a pooler may give the connection to other clients next.
        fetch("begin read only", ())
        # The daemon stops waiting after this time, so a longer query would only occupy the thread.
        fetch("select set_config('statement_timeout', $1, true)", (f"{READ_WITHIN:.0f}s",))
        role_settings = tuple(DatabaseSetting(*row) for row in fetch(_ROLE_SETTINGS, (PREFIX,)))
        function = project.db_pre_config
        for setting in role_settings:
            if NAMES.get(setting.name) == "db-pre-config":
                function = setting.value.strip() or None
        function_settings = [] if function is None else _function_settings(fetch, function)
        fetch("rollback", ())
    return (*(DatabaseSetting(f"function {function}", *row) for row in function_settings), *role_settings)


def _function_settings(fetch: Fetch, function: str) -> list[tuple[Any, ...]]:
    fetch(_CLEAR, (list(NAMES),))
    fetch(f"{RESTORE_SEARCH_PATH}select {'.'.join(map(quote_identifier, function.split('.')))}()", ())
    return fetch(_FUNCTION_SETTINGS, (list(NAMES),))


def with_database_settings(settings: Settings) -> Settings:
    """Return the settings, including those in the databases. Blocks.

    :raises ConfigurationError: the settings in a database are invalid or cannot be read.
    """
    return replace(settings, projects=tuple(map(_with_stored_settings, settings.projects)))


def _with_stored_settings(project: Project) -> Project:
    if not project.db_config:
        return project
    try:
        return applied(project, read_stored(project))
    except ScriptError as error:
        reason = " ".join(str(error).split())
        location = f"database of project {project.ref}"
        raise ConfigurationError([Mistake(location, f"its settings cannot be read: {reason}")]) from error


class DatabaseSettings:
    """Adds the settings in the databases to another source of settings.

    If a database is unavailable or its settings are invalid, its project keeps the settings that were read
    last. If the settings have never been read, the project rejects all requests, because the settings may
    require a function such as ``db-pre-request``. Other projects are not affected.
    """

    def __init__(
        self, reactor: Any, source: SettingsSource, read: Callable[[Project], StoredSettings] = read_stored
    ) -> None:
        self._reactor = reactor
        self._source = source
        self._read = read
        self._last_read: dict[tuple[str, str], StoredSettings] = {}
        self._configured: Settings | None = None
        self._complete: Settings | None = None
        self._failures: dict[str, str] = {}
        # Concurrent reads are combined, because a thread that waits for an unresponsive server cannot be
        # stopped, and the pool has few threads.
        self._reading: SingleFlights[Hashable, StoredSettings] = SingleFlights()

    @property
    def settings(self) -> Settings:
        return self._source.settings

    @property
    def failures(self) -> Mapping[str, str]:
        return self._failures

    async def prepare(self) -> Settings:
        return await self._with_databases(await self._source.prepare())

    async def reread(self) -> Settings | None:
        settings = await self._source.reread()
        return None if settings is None else await self._with_databases(settings)

    async def reread_database(self, ref: str) -> Settings | None:
        if self._configured is None or self._complete is None:
            return None
        [configured] = [project for project in self._configured.projects if project.ref == ref]
        completed = await self._add_stored_settings(configured)
        projects = tuple(completed if project.ref == ref else project for project in self._complete.projects)
        self._complete = replace(self._complete, projects=projects)
        return self._complete

    def announce(self) -> None:
        self._source.announce()

    async def cleanup(self) -> None:
        await self._source.cleanup()

    async def _with_databases(self, settings: Settings) -> Settings:
        self._configured = settings
        self._failures.clear()
        projects = await concurrently(self._add_stored_settings(project) for project in settings.projects)
        self._complete = replace(settings, projects=tuple(projects))
        return self._complete

    async def _add_stored_settings(self, project: Project) -> Project:
        if not project.db_config:
            return project
        self._failures.pop(project.ref, None)
        key = project.ref, project.db_uri, project.db_pre_config
        reading = self._reading.run(key, partial(self._stored, project))
        try:
            stored = await reading.addTimeout(READ_WITHIN, self._reactor, _raise_timeout)
            completed = applied(project, stored)
        except ScriptError as error:
            reason = " ".join(str(error).split())
            return self._fall_back(project, f"the settings in the database cannot be read: {reason}")
        except ConfigurationError as error:
            return self._fall_back(project, f"the settings in the database are invalid: {error}")
        for warning in warnings(stored):
            _log.warn("{project}: {warning}", project=project.ref, warning=warning)
        self._last_read[project.ref, project.db_uri] = stored
        return completed

    async def _stored(self, project: Project) -> StoredSettings:
        return await deferToThread(partial(self._read, project))

    def _fall_back(self, project: Project, reason: str) -> Project:
        """Return the project with its previous settings, or a project that rejects all requests."""
        self._failures[project.ref] = reason
        last_read = self._last_read.get((project.ref, project.db_uri))
        previous = None
        if last_read is not None:
            with suppress(ConfigurationError):
                previous = applied(project, last_read)
        fate = (
            "the project rejects all requests" if previous is None else "the previous settings stay in effect"
        )
        _log.error("{project}: {reason}; {fate}", project=project.ref, reason=reason, fate=fate)
        return previous or replace(project, settings_error=reason)


def _raise_timeout(_outcome: object, seconds: float) -> NoReturn:
    raise ScriptError(f"no response within {seconds:g} s")
