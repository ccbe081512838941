"""A process that runs the embedded PostgreSQL server and stops it when the daemon exits.

It uses only the standard library. It creates the data directory if necessary, starts the server, reports the
result as one line of JSON on standard output, and stops the server when the supervisor's standard input is
closed, even if the daemon has crashed. PostgreSQL refuses to run as root, so if the daemon is root, the
server runs as the owner of the data directory.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT = 60.0
"""Seconds to wait for the server to accept connections."""

STOP_TIMEOUT = 30.0
"""Seconds to wait for a fast shutdown of PostgreSQL before an immediate shutdown."""

_UNPRIVILEGED = ("postgres", "nobody")
_MAX_SOCKET_PATH = 107 - len("/.s.PGSQL.5432.lock")


class SupervisorError(Exception):
    """Raised when the server cannot run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of an embedded server.

    :ivar directory: contains ``data``, ``run`` (socket and log) and ``programs``.
    :ivar temporary: whether to delete the directory at the end. Durability is then disabled.
    :ivar binaries: directory of ``initdb`` and ``postgres``.
    :ivar package: directories to copy along with the programs if the server's user cannot access them.
    """

    directory: Path
    temporary: bool
    binaries: Path
    package: tuple[Path, ...]

    @classmethod
    def read(cls, text: str) -> Plan:
        plan = json.loads(text)
        package = tuple(Path(folder) for folder in plan["package"])
        return cls(Path(plan["directory"]), plan["temporary"], Path(plan["binaries"]), package)


def main(plan: Plan) -> int:
    # Ctrl-C and stop signals are meant for the daemon. The daemon then closes our standard input.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    supervisor = Supervisor(plan)
    try:
        supervisor.start()
        _send(ready=str(supervisor.sockets))
        return supervisor.wait()
    except (SupervisorError, OSError) as error:
        _send(failed=str(error))
        return 1
    finally:
        supervisor.clean()


def _send(**message: str) -> None:
    with suppress(BrokenPipeError):
        print(json.dumps(message), flush=True)  # noqa: T201 - this is the protocol


class Supervisor:
    """Prepares, starts and stops one server."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._data = plan.directory / "data"
        self._run = plan.directory / "run"
        self._account: pwd.struct_passwd | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self.sockets = self._run

    def start(self) -> None:
        """Start the server and return when it accepts connections.

        :raises SupervisorError: if the server does not start.
        """
        self._account = _account(self._data) if os.geteuid() == 0 else None
        self._make_folders()
        binaries = self._reachable_binaries()
        if not (self._data / "PG_VERSION").exists():
            self._initialize(binaries)
        log = self._run / "server.log"
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "max_connections": "200",
        }
        if self._plan.temporary:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with log.open("wb") as output:
            command = [str(binaries / "postgres"), "-D", str(self._data), "-p", "5432", *arguments]
            self._server = subprocess.Popen(command, stdout=output, stderr=output, **self._context())
        self._await_ready(self._server, log)

    def wait(self) -> int:
        assert self._server is not None
        threading.Thread(target=self._stop_at_end_of_input, args=(self._server,), daemon=True).start()
        return self._server.wait()

    def clean(self) -> None:
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()
        if self.sockets != self._run:
            shutil.rmtree(self.sockets, ignore_errors=True)
        if self._plan.temporary:
            shutil.rmtree(self._plan.directory, ignore_errors=True)

    @staticmethod
    def _stop_at_end_of_input(server: subprocess.Popen[bytes]) -> None:
        sys.stdin.buffer.read()
        server.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            server.wait(STOP_TIMEOUT)
            return
        server.send_signal(signal.SIGQUIT)

    def _make_folders(self) -> None:
        self._plan.directory.mkdir(parents=True, exist_ok=True)
        if self._plan.temporary and self._account:
            # Other users may traverse the directory, but its subdirectories are private.
            self._plan.directory.chmod(0o711)
        if len(str(self.sockets)) > _MAX_SOCKET_PATH:
            self.sockets = Path(tempfile.mkdtemp(prefix="dataapi-"))
        for folder in (self._data, self._run, self.sockets):
            folder.mkdir(mode=0o700, exist_ok=True)
            if self._account:
                os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        with self._as_account():
            for folder in (self._data, self._run, self.sockets):
                if not os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
                    raise SupervisorError(
                        f"{self._account_name()}, who runs the server, cannot access {folder}: "
                        "choose another directory"
                    )

    def _reachable_binaries(self) -> Path:
        source = self._plan.binaries
        if self._runs(source):
            return source
        if not self._plan.package:
            raise SupervisorError(f"{self._account_name()} cannot run the programs in {source}")
        programs = self._plan.directory / "programs"
        shutil.rmtree(programs, ignore_errors=True)
        origin = Path(os.path.commonpath([folder.parent for folder in self._plan.package]))
        for folder in self._plan.package:
            ignored = shutil.ignore_patterns("include", "*.a", "pkgconfig")
            shutil.copytree(folder, programs / folder.relative_to(origin), symlinks=True, ignore=ignored)
        for path in (programs, *programs.rglob("*")):
            if not path.is_symlink():
                path.chmod(
                    path.stat().st_mode | (0o555 if path.is_dir() or path.stat().st_mode & 0o100 else 0o444)
                )
        copied = programs / source.relative_to(origin)
        if not self._runs(copied):
            raise SupervisorError(f"{self._account_name()} cannot run the programs in {copied}")
        return copied

    def _runs(self, binaries: Path) -> bool:
        with self._as_account():
            return os.access(binaries / "postgres", os.R_OK | os.X_OK, effective_ids=True)

    def _initialize(self, binaries: Path) -> None:
        options = ["-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8"]
        options += ["--auth-local=trust", "--auth-host=reject"]
        if self._plan.temporary:
            options.append("--no-sync")
        command = [str(binaries / "initdb"), "-D", str(self._data), *options]
        result = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **self._context()
        )
        if result.returncode:
            raise SupervisorError(f"initdb failed: {_last_lines(result.stdout)}")

    def _await_ready(self, server: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if server.poll() is not None:
                raise SupervisorError(f"PostgreSQL did not start: {_last_lines(log.read_bytes())}")
            with suppress(OSError, ValueError, IndexError):
                lines = (self._data / "postmaster.pid").read_text().splitlines()
                if int(lines[0]) == server.pid and lines[7].strip() == "ready":
                    return
            time.sleep(0.02)
        raise SupervisorError(
            f"PostgreSQL did not start in {START_TIMEOUT:.0f} seconds: {_last_lines(log.read_bytes())}"
        )

    def _context(self) -> dict[str, Any]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
        context: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "cwd": self._run,
            "env": {**environ, "LC_ALL": "C.UTF-8"},
        }
        if self._account:
            context |= {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        return context

    @contextmanager
    def _as_account(self) -> Iterator[None]:
        if self._account is None:
            yield
            return
        groups, group = os.getgroups(), os.getegid()
        os.setgroups([])
        os.setegid(self._account.pw_gid)
        os.seteuid(self._account.pw_uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(group)
            os.setgroups(groups)

    def _account_name(self) -> str:
        return f"the user {self._account.pw_name}" if self._account else "this user"


def _account(data: Path) -> pwd.struct_passwd:
    with suppress(FileNotFoundError, KeyError):
        owner = pwd.getpwuid(data.stat().st_uid)
        if owner.pw_uid != 0:
            return owner
    for name in _UNPRIVILEGED:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise SupervisorError(f"PostgreSQL cannot run as root, and there is no user {' or '.join(_UNPRIVILEGED)}")


def _last_lines(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return "; ".join(line.strip() for line in lines[-5:]) or "there was no output"


if __name__ == "__main__":
    sys.exit(main(Plan.read(sys.argv[1])))
