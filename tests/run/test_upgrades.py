"""A new version replaces a running daemon without losing requests (docs/guides/upgrades.md)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon import KEY, QUICK, TWISTD, Daemon, environment, patched, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.postgres import Database

INSTALLED = """
from importlib import metadata
found = metadata.version
metadata.version = lambda name: open({path!r}).read() if name == "dataapi-daemon" else found(name)
"""
ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="http")
os.execv(sys.argv[2], sys.argv[2:])
"""
CLIENTS = 4


class Load:
    """A context manager that runs clients in threads."""

    def __init__(self, daemon: Daemon) -> None:
        self.outcomes: list[object] = []
        self._daemon = daemon
        self._ended = threading.Event()
        self._clients = [threading.Thread(target=self._send, daemon=True) for _ in range(CLIENTS)]

    def __enter__(self) -> Load:
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop the clients after their last responses."""
        self._ended.set()
        for client in self._clients:
            client.join()

    def _send(self) -> None:
        while not self._ended.is_set():
            try:
                self.outcomes.append(self._daemon.graphql(QUICK, KEY).status)
            except OSError as error:
                self.outcomes.append(repr(error))

    def more(self) -> None:
        """Wait for several more responses."""
        count = len(self.outcomes)
        wait_for(lambda: len(self.outcomes) > count + 10 * CLIENTS, "answers")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Yield a listening socket, as systemd would pass it."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as bound:
        yield bound


def make(
    folder: Path, served: Database, listening: socket.socket, environ: Mapping[str, str] | None = None
) -> Daemon:
    """Start a daemon that shares the socket and has its own admin port."""
    folder.mkdir()
    daemon = Daemon(folder, served.uri, settings={"listen": "systemd:domain=INET:name=http"})
    daemon.port = listening.getsockname()[1]
    command = [TWISTD, "-n", "--pidfile=", "dataapi", "--config", str(daemon.config)]
    with daemon.output.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", ACTIVATE, str(listening.fileno()), *command],
            cwd=folder, env=environment(environ), stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, pass_fds=[listening.fileno()],
        )  # fmt: skip
    daemon.adopt(process)
    return daemon


def versions(daemon: Daemon, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the installed and the running version according to ``dataapi version``."""
    command = Path(sys.executable).with_name("dataapi")
    row = json.loads(
        subprocess.run(
            [command, "version", "--config", str(daemon.config)],
            env=environment(environ), capture_output=True, check=True,
        ).stdout
    )  # fmt: skip
    return row["default_version"], row["installed_version"]


def test_second_process_takes_over_without_losing_requests(
    served: Database, tmp_path: Path, listening: socket.socket
) -> None:
    installed = tmp_path / "installed"
    installed.write_text("1.0.0")
    environ = patched(tmp_path, INSTALLED.format(path=str(installed)))
    with make(tmp_path / "old", served, listening, environ) as old:
        old.wait_ready()
        assert versions(old, environ) == ("1.0.0", "1.0.0")
        installed.write_text("1.1.0")
        assert versions(old, environ) == ("1.1.0", "1.0.0")
        with Load(old) as load:
            load.more()
            with make(tmp_path / "new", served, listening, environ) as new:
                new.wait_ready()
                load.more()
                assert old.stop() == 0
                load.more()
                assert versions(new, environ) == ("1.1.0", "1.1.0")
                load.end()
    assert set(load.outcomes) == {200}


def test_requests_wait_during_a_restart(served: Database, tmp_path: Path, listening: socket.socket) -> None:
    with make(tmp_path / "old", served, listening) as old:
        old.wait_ready()
        with Load(old) as load:
            load.more()
            assert old.stop() == 0
            with make(tmp_path / "new", served, listening) as new:
                new.wait_ready()
                load.more()
                load.end()
    assert set(load.outcomes) == {200}
