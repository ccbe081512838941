"""A PostgreSQL server of the daemon's own, reached over a Unix socket that nobody else can open."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from twisted.internet.threads import deferToThread

from dataapi.database import keeper
from dataapi.database.binaries import NoPostgreSQL, find_binaries
from dataapi.database.script import ScriptError, run_script

if TYPE_CHECKING:
    from collections.abc import Mapping

SUPERUSER = "postgres"
LOGIN_ROLE = "authenticator"

_ROLES = Path(__file__).with_name("roles.sql")
_EVENT_TRIGGER = Path(__file__).parents[1] / "catalog" / "event_trigger.sql"
_NAME = re.compile("[a-z_][a-z0-9_]{0,62}")


class EmbeddedServerError(Exception):
    """The server does not start; the text says why."""


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return where data is kept when no directory is named: the user's state, root's under ``/var/lib``."""
    if os.geteuid() == 0:
        return Path("/var/lib/dataapi/embedded")
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "dataapi" / "embedded"


class EmbeddedServer:
    """Starts and stops a server with one database and the API's roles.

    It ends with the process that started it, however that ends.

    :param directory: where data is kept; None uses a temporary directory that is removed at the end.
    :param database: the database's name: lower-case letters, digits and ``_``.
    """

    def __init__(self, directory: Path | None, database: str = "app") -> None:
        assert _NAME.fullmatch(database), database
        self._directory = directory
        self._database = database
        self._keeper: subprocess.Popen[str] | None = None
        self._sockets = ""

    async def start(self) -> str:
        """Start the server, making what is missing in it, and return the URI for the daemon's login role.

        :raises EmbeddedServerError: when there is none to start, or it does not start.
        """
        self._sockets = await deferToThread(self._start)
        try:
            await self._furnish()
        except ScriptError as error:
            await self.stop()
            raise EmbeddedServerError(str(error)) from error
        return self.uri(LOGIN_ROLE)

    async def stop(self) -> None:
        """End all connections and stop the server; harmless when it does not run."""
        running, self._keeper = self._keeper, None
        if running is not None:
            await deferToThread(_end, running)

    def uri(self, user: str = SUPERUSER, database: str | None = None) -> str:
        """Return the running server's URI for a user and a database; None is the one made at the start."""
        path = f"{quote(user, safe='')}@/{quote(database or self._database, safe='')}"
        return f"postgresql://{path}?host={quote(self._sockets, safe='')}&port=5432"

    async def _furnish(self) -> None:
        """Make the roles, the database, and the trigger that tells the daemon of changed tables."""
        administrator = self.uri(database="postgres")
        await run_script(administrator, _ROLES.read_text("utf-8"))
        name = self._database
        if not await run_script(administrator, f"select 1 from pg_database where datname = '{name}'"):
            await run_script(administrator, f"create database {name}")
            await run_script(administrator, f"grant create on database {name} to {LOGIN_ROLE}")
        await run_script(self.uri(), _EVENT_TRIGGER.read_text("utf-8"))

    def _start(self) -> str:
        temporary = self._directory is None
        directory = Path(tempfile.mkdtemp(prefix="dataapi-")) if self._directory is None else self._directory
        directory = directory.absolute()
        try:
            binaries = find_binaries(_version(directory / "data"))
        except NoPostgreSQL as error:
            raise EmbeddedServerError(str(error)) from error
        plan = {
            "directory": str(directory),
            "temporary": temporary,
            "binaries": str(binaries.folder),
            "package": [str(folder) for folder in binaries.package],
        }
        # A session of its own keeps the terminal's signals away: the daemon decides when the server stops.
        running = subprocess.Popen(
            [sys.executable, "-P", "-m", keeper.__name__, json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert running.stdout is not None
        answer = json.loads(running.stdout.readline() or '{"failed": "its keeper died"}')
        if "failed" in answer:
            _end(running)
            raise EmbeddedServerError(answer["failed"])
        self._keeper = running
        sockets: str = answer["ready"]
        return sockets


def _version(data: Path) -> int | None:
    """Return the major version of a data directory, None when there is none yet."""
    try:
        return int((data / "PG_VERSION").read_text())
    except (OSError, ValueError):
        return None


def _end(running: subprocess.Popen[str]) -> None:
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.close()
    running.wait()
    running.stdout.close()
