"""Reads the settings that stand in the projects' databases, and lets them win over the configuration's."""

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
from dataapi.service.configuration.database import NAMES, PREFIX, DatabaseSetting, applied, unknown_names
from dataapi.service.configuration.mistakes import Mistake
from dataapi.service.settings_sources import SettingsSource
from dataapi.settings import Project, Settings

_log = Logger(namespace="dataapi.service")

READ_WITHIN = 15.0
"""Seconds to wait for a database's settings."""

Stored = tuple[DatabaseSetting, ...]
Fetch = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]

_OF_ROLE = """
select 'role ' || current_user || case when s.setdatabase = 0 then '' else ' in database ' || d.datname end,
    split_part(setting, '=', 1), substr(setting, strpos(setting, '=') + 1)
from pg_catalog.pg_db_role_setting s
    join pg_catalog.pg_roles r on r.oid = s.setrole and r.rolname = current_user
    join pg_catalog.pg_database d on d.datname = current_database() and s.setdatabase in (0, d.oid),
    unnest(s.setconfig) setting
where starts_with(setting, $1)
order by s.setdatabase
"""
"""Settings of the role before those of the role in this database, which win."""

_CLEAR = "select set_config(name, '', true) from unnest($1::text[]) name"
"""Leaves what the function sets alone: the session began with the settings of role and database."""

_MADE = """
select name, current_setting(name, true) from unnest($1::text[]) name where current_setting(name, true) <> ''
"""


def read_stored(project: Project) -> Stored:
    """Return the settings in the project's database, those that win last; blocks.

    :raises ScriptError: when the database cannot be asked.
    """
    with connected(project.db_uri) as fetch:
        # All of it ends with the transaction: a pooler may have the server process answer others next.
        fetch("begin read only", ())
        # No start waits longer, and a thread that did would be missing elsewhere.
        fetch("select set_config('statement_timeout', $1, true)", (f"{READ_WITHIN:.0f}s",))
        of_role = tuple(DatabaseSetting(*row) for row in fetch(_OF_ROLE, (PREFIX,)))
        function = project.db_pre_config
        for setting in of_role:
            if NAMES.get(setting.name) == "db-pre-config":
                function = setting.value.strip() or None
        made = [] if function is None else _made_by(fetch, function)
        fetch("rollback", ())
    return (*(DatabaseSetting(f"function {function}", *row) for row in made), *of_role)


def _made_by(fetch: Fetch, function: str) -> list[tuple[Any, ...]]:
    """Return names and values of the settings that a function makes."""
    fetch(_CLEAR, (list(NAMES),))
    fetch(f"{RESTORE_SEARCH_PATH}select {'.'.join(map(quote_identifier, function.split('.')))}()", ())
    return fetch(_MADE, (list(NAMES),))


def with_database_settings(settings: Settings) -> Settings:
    """Return the settings with those of the databases; blocks.

    :raises ConfigurationError: when they cannot be used or read.
    """
    return replace(settings, projects=tuple(map(_completed, settings.projects)))


def _completed(project: Project) -> Project:
    if not project.db_config:
        return project
    try:
        return applied(project, read_stored(project))
    except ScriptError as error:
        reason = " ".join(str(error).split())
        place = f"database of project {project.ref}"
        raise ConfigurationError([Mistake(place, f"its settings cannot be read: {reason}")]) from error


class DatabaseSettings:
    """A source of settings over which those of the databases win.

    A database that is away, or in which one is wrong, keeps the settings that it had. Before they were read
    for the first time, its project answers nothing, as a function such as ``db-pre-request`` may be among
    them; other projects are not affected.
    """

    def __init__(
        self, reactor: Any, source: SettingsSource, read: Callable[[Project], Stored] = read_stored
    ) -> None:
        self._reactor = reactor
        self._source = source
        self._read = read
        self._known: dict[tuple[str, str], Stored] = {}
        self._configured: Settings | None = None
        self._complete: Settings | None = None
        self._failures: dict[str, str] = {}
        # A thread that waits for a silent server cannot be ended, and all of them are few.
        self._reading: SingleFlights[Hashable, Stored] = SingleFlights()

    @property
    def settings(self) -> Settings:
        """What is known before the start."""
        return self._source.settings

    @property
    def failures(self) -> Mapping[str, str]:
        """Why settings that were read last are not used, by the references of their projects."""
        return self._failures

    async def prepare(self) -> Settings:
        """Start what the settings need and read the databases'."""
        return await self._with_databases(await self._source.prepare())

    async def reread(self) -> Settings | None:
        """Read the settings again, of the configuration and of the databases."""
        settings = await self._source.reread()
        return None if settings is None else await self._with_databases(settings)

    async def reread_database(self, ref: str) -> Settings | None:
        """Read the settings in one project's database again, and nothing else."""
        if self._configured is None or self._complete is None:
            return None
        [project] = [one for one in self._configured.projects if one.ref == ref]
        made = await self._ask(project)
        projects = tuple(made if one.ref == ref else one for one in self._complete.projects)
        self._complete = replace(self._complete, projects=projects)
        return self._complete

    def announce(self) -> None:
        """Print what the operator should know once requests are answered."""
        self._source.announce()

    async def cleanup(self) -> None:
        """Stop what ``prepare`` started."""
        await self._source.cleanup()

    async def _with_databases(self, settings: Settings) -> Settings:
        self._configured = settings
        self._failures.clear()
        asked = await concurrently(self._ask(project) for project in settings.projects)
        self._complete = replace(settings, projects=tuple(asked))
        return self._complete

    async def _ask(self, project: Project) -> Project:
        """Return a project with the settings in its database."""
        if not project.db_config:
            return project
        self._failures.pop(project.ref, None)
        place = project.ref, project.db_uri, project.db_pre_config
        reading = self._reading.run(place, partial(self._stored, project))
        try:
            stored = await reading.addTimeout(READ_WITHIN, self._reactor, _no_answer)
            made = applied(project, stored)
        except ScriptError as error:
            reason = " ".join(str(error).split())
            return self._without(project, f"the settings in the database cannot be read: {reason}")
        except ConfigurationError as error:
            return self._without(project, f"the settings in the database cannot be used: {error}")
        for name in unknown_names(stored):
            _log.warn("{project}: {name} in the database is not used", project=project.ref, name=name)
        self._known[project.ref, project.db_uri] = stored
        return made

    async def _stored(self, project: Project) -> Stored:
        return await deferToThread(partial(self._read, project))

    def _without(self, project: Project, reason: str) -> Project:
        """Return a project with the settings that it had before, or as one that answers nothing."""
        self._failures[project.ref] = reason
        known = self._known.get((project.ref, project.db_uri))
        made = None
        if known is not None:
            with suppress(ConfigurationError):
                made = applied(project, known)
        fate = "its project answers nothing before" if made is None else "they stay as they were"
        _log.error("{project}: {reason}; {fate}", project=project.ref, reason=reason, fate=fate)
        return made or replace(project, settings_error=reason)


def _no_answer(_outcome: object, seconds: float) -> NoReturn:
    raise ScriptError(f"no answer within {seconds:g} s")
