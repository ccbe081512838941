"""Starts real daemons, ``twistd -n dataapi``, and sends requests to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataapi.testing import configuration, daemon_environment, free_port
from support import processes, zygote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Process = subprocess.Popen[bytes] | zygote.Fork
ROOT = Path(__file__).parents[2]
KEY = "sb_publishable_for_the_tests"
SECRET_KEY = "sb_secret_for_the_tests"
JWT_SECRET = "a secret for the tests, 32 characters or more"
TWISTD = str(Path(sys.executable).with_name("twistd"))
DATAAPI = (sys.executable, "-m", "dataapi.cli.main")
SCHEMA = """
create table note (id int primary key);
insert into note values (1);
grant select on note to anon;
create function _slow(note) returns int
    language plpgsql stable as 'begin perform pg_sleep(2); return 1; end';
"""
QUICK = "{ noteCollection { edges { node { id } } } }"
"""A fast query over ``SCHEMA``."""
SLOW = "{ noteCollection { edges { node { slow } } } }"
"""A query over ``SCHEMA`` that takes two seconds."""
PATIENCE = 120.0
"""Seconds to wait for an expected event, even on a slow machine."""


def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Return the first true value of a condition; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"timed out after {seconds:g} s waiting for {what}")


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a daemon: the current environment without daemon settings."""
    environ = daemon_environment()
    try:
        distribution("dataapi-daemon")
    except PackageNotFoundError:
        # Run from the source tree if the package is not installed.
        path = [str(ROOT), str(ROOT / "daemon"), environ.get("PYTHONPATH", "")]
        environ["PYTHONPATH"] = os.pathsep.join(part for part in path if part)
    return {**environ, **(extra or {})}


def patched(folder: Path, text: str) -> dict[str, str]:
    """Return an environment in which a daemon first runs some Python code."""
    (folder / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


def execute(
    words: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``TWISTD`` or ``DATAAPI`` in a fork, and wait for it to exit.

    :param environ: environment variables (default: ``environment()``).
    """
    environ = environ or environment()
    # Coverage is not measured in forks.
    if "PYTHONPATH" in environ or "coverage" in sys.modules:
        return subprocess.run(
            words, cwd=folder, env=environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        output, errors = Path(temporary, "output"), Path(temporary, "errors")
        status = zygote.fork(words, folder, environ, processes.VARIABLE, output, errors).wait(PATIENCE)
        return subprocess.CompletedProcess(words, status, output.read_text(), errors.read_text())


class Daemon:
    """A daemon with its own folder and ports; use it as a context manager.

    :param forks: whether to fork a process that has imported the daemon. A fork starts in a third of the time
        of ``twistd``. Benchmarks, and daemons with their own ``PYTHONPATH``, always run ``twistd``.
    :ivar output: the file with the daemon's standard output and error.
    """

    def __init__(
        self,
        folder: Path,
        uri: str,
        *words: str,
        settings: Mapping[str, str] | None = None,
        project: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        forks: bool = True,
    ) -> None:
        self._forks = forks
        self.folder = folder
        self.port = free_port()
        self.admin_port = free_port()
        self.output = folder / "output"
        self._words = words
        self._environ = environ
        self._process: Process | None = None
        served = {
            "organization": "acme",
            "jwt-secret": JWT_SECRET,
            "publishable-keys": KEY,
            "secret-keys": SECRET_KEY,
            **(project or {}),
        }
        sections = {"dataapi": settings or {}, "project": served}
        self.config = folder / "dataapi.ini"
        self.config.write_text(configuration(uri, self.port, self.admin_port, sections))

    def __enter__(self) -> Daemon:
        if self._process is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start the process without waiting for it to become ready."""
        command = [TWISTD, "-n", "--pidfile=", "dataapi", "--config", str(self.config), *self._words]
        environ = environment(self._environ)
        if self._forks and processes.VARIABLE in environ and "PYTHONPATH" not in environ:
            self._process = zygote.fork(command, self.folder, environ, processes.VARIABLE, self.output)
            return
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def adopt(self, process: subprocess.Popen[bytes]) -> None:
        """Use a process that other code has started."""
        self._process = process

    def wait_for_admin(self) -> None:
        wait_for(lambda: self._alive() and self.try_admin("GET", "/live"), "the admin listener")

    def _alive(self) -> bool:
        assert self.process.poll() is None, f"the daemon ended: {self.text}"
        return True

    def wait_ready(self) -> None:
        """Wait until ``/ready`` returns 200."""

        def ready() -> bool:
            self._alive()
            response = self.try_admin("GET", "/ready")
            return response is not None and response.status == 200

        wait_for(ready, "/ready")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def metric(self, sample: str) -> float:
        """Return a sample of ``/metrics`` by its name and labels, or 0 if there is none."""
        for line in self.admin("GET", "/metrics").body.decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name == sample:
                return float(value)
        return 0.0

    @property
    def children(self) -> list[int]:
        """The process IDs of the daemon's children."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in task.read_text().split()]

    @property
    def text(self) -> str:
        """The daemon's output so far."""
        return self.output.read_text("utf-8", "replace")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The daemon's log lines, parsed as JSON."""
        return [json.loads(line) for line in self.text.splitlines()]

    def graphql(self, query: str, key: str = KEY, **headers: str) -> Answer:
        body = json.dumps({"query": query})
        return self.request("POST", "/graphql/v1", body, {"apikey": key, **headers})

    def request(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return _send(self.port, method, path, body, {"Content-Type": "application/json", **(headers or {})})

    def admin(self, method: str, path: str) -> Answer:
        return _send(self.admin_port, method, path, None, {})

    def try_admin(self, method: str, path: str) -> Answer | None:
        """Send a request to the admin listener, or return None if it is not listening."""
        try:
            return self.admin(method, path)
        except OSError:
            return None


def _send(port: int, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
