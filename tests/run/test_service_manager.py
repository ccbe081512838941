"""Notifications for systemd, and the validity of our unit files."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dataapi.telemetry.journal import IDENTIFIER
from support import documents
from support.daemon import PATIENCE, ROOT, Daemon, wait_for
from support.outages import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Yield the notification socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE)
        yield listening


def wait_for_message(manager: socket.socket, beginning: str) -> str:
    """Return the next message with this prefix, ignoring other messages."""
    return str(wait_for(lambda: _next(manager, beginning), beginning))


def _next(manager: socket.socket, beginning: str) -> str | None:
    message = manager.recv(4096).decode()
    return message if message.startswith(beginning) else None


def test_systemd_is_notified_of_start_reload_and_stop(
    served: Database, tmp_path: Path, manager: socket.socket
) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    with Daemon(tmp_path, served.uri, "--workers", "2", environ=environ) as daemon:
        assert "STATUS=serving" in wait_for_message(manager, "READY=1")
        assert daemon.admin("GET", "/ready").status == 200
        daemon.process.send_signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in wait_for_message(manager, "RELOADING=1")
        assert wait_for_message(manager, "READY=1").endswith("STATUS=serving")
        daemon.config.write_text(f"{daemon.config.read_text()}[nonsense]\n")
        daemon.process.send_signal(signal.SIGHUP)
        assert wait_for_message(manager, "READY=1").endswith("STATUS=serving; the last reload failed")
        assert daemon.stop() == 0
        wait_for_message(manager, "STOPPING=1")


def test_watchdog_notifications_are_repeated(
    served: Database, tmp_path: Path, manager: socket.socket
) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    with Daemon(tmp_path, served.uri, environ=environ):
        for _ in range(3):
            wait_for_message(manager, "WATCHDOG=1")


def test_startup_is_complete_while_the_database_is_down(tmp_path: Path, manager: socket.socket) -> None:
    """The daemon does not wait for its database. Requests get status 503 until the database is available."""
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    with Daemon(tmp_path, "postgresql://nobody@127.0.0.1:1/none", environ=environ) as daemon:
        wait_for_message(manager, "READY=1")
        assert daemon.admin("GET", "/ready").status == 503
        assert "the database cannot be reached" in wait_for_message(manager, "STATUS=not ready")


def test_status_follows_the_database(own_server: Server, tmp_path: Path, manager: socket.socket) -> None:
    database = own_server.create_database("create table note (id int primary key)")
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    uri = f"{database.uri}?connect_timeout=2"
    with Daemon(tmp_path, uri, environ=environ) as daemon:
        daemon.wait_ready()
        resume = frozen(own_server)
        try:
            assert "the database cannot be reached" in wait_for_message(manager, "STATUS=not ready")
        finally:
            resume()
        wait_for_message(manager, "STATUS=serving")


def test_guide_and_unit_use_the_same_paths() -> None:
    guide = documents.read("docs/guides/debian.md")
    unit = documents.read("etc/dataapi.service")
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    program, *_, configuration = command.split()
    assert f"python3 -m venv {Path(program).parents[1]}\n" in guide
    assert f" --config {configuration} " in guide
    [reload] = re.findall(r"^ExecReload=(.*)$", unit, re.MULTILINE)
    assert reload == f"{Path(program).with_name('dataapi')} reload --config {configuration}"
    [user] = re.findall(r"^User=(.*)$", unit, re.MULTILINE)
    assert re.search(rf"^adduser --system .* {user}$", guide, re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units() -> None:
    units = [str(ROOT / "etc" / f"dataapi.{kind}") for kind in ("service", "socket")]
    finished = subprocess.run(
        ["systemd-analyze", "verify", *units],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    complaints = [
        line for line in finished.stderr.splitlines()
        # The unit's ExecStart may not be installed on this machine.
        if "dataapi." in line and "is not executable" not in line
    ]  # fmt: skip
    assert complaints == []


def test_journal_identifier_is_the_service_name() -> None:
    assert f"SyslogIdentifier={IDENTIFIER}\n" in documents.read("etc/dataapi.service")
