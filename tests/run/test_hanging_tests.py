"""Hanging tests are terminated, and so are the daemons and PostgreSQL servers that they have started."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.daemon import PATIENCE, ROOT, wait_for
from support.processes import is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEMO = """
import os, signal, subprocess, sys, time
from pathlib import Path

import pytest
from dataapi.testing import free_port
from support import processes
from support.daemon import TWISTD, environment, wait_for

FOLDER = Path({folder!r})

def start():
    listen = f"tcp:{{free_port()}}:interface=127.0.0.1"
    variables = {{"DATAAPI_DATAAPI_ADMIN_LISTEN": f"tcp:{{free_port()}}:interface=127.0.0.1"}}
    words = [TWISTD, "--pidfile=", f"--logfile={{FOLDER}}/log", "dataapi", "--demo", "--listen", listen]
    subprocess.run(words, cwd=FOLDER, env=environment(variables), check=True, stdout=subprocess.DEVNULL)
    found = wait_for(lambda: len(pids := processes.marked(processes.RUN)) >= 3 and pids, "all of the demo")
    FOLDER.joinpath("started.new").write_text(" ".join(map(str, found)))
    FOLDER.joinpath("started.new").rename(FOLDER / "started")
"""
TIMED_OUT = """
def test_hangs():
    start()
    # What the timer does when the time is over.
    signal.raise_signal(signal.SIGALRM)
"""
HANGING = """
def test_hangs():
    start()
    while True:
        time.sleep(1)
"""
UNSTOPPABLE = """
def test_starts_what_the_run_owns():
    processes.mark()
    start()

@pytest.mark.time_limit(0.3)
def test_hangs():
    while True:
        try:
            time.sleep(1)
        except TimeoutError:
            pass
"""


class InnerRun:
    """A separate pytest run of one file, with this suite's conftest."""

    def __init__(self, folder: Path, body: str) -> None:
        self._started = folder / "started"
        self._output = folder / "output"
        test = folder / "test_inner.py"
        test.write_text(DEMO.format(folder=str(folder)) + body)
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-c", str(ROOT / "setup.cfg"), "-p", "conftest",
                 "-p", "no:cacheprovider", "--rootdir", str(folder), str(test)],
                cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def text(self) -> str:
        """The output of pytest so far."""
        return self._output.read_text("utf-8", "replace")

    def wait_started(self) -> list[int]:
        """Wait until the daemon and its PostgreSQL have started and return their process IDs."""

        def started() -> bool:
            assert self.process.poll() is None, self.text
            return self._started.exists()

        wait_for(started, "the demo")
        return self.started

    @property
    def started(self) -> list[int]:
        """The process IDs of the daemon and its PostgreSQL."""
        return [int(pid) for pid in self._started.read_text().split()]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder. Print the output of the inner run, for pytest to show if the test fails."""
    yield tmp_path
    print((tmp_path / "output").read_text())  # noqa: T201 - shown for a failure


def gone(pids: list[int]) -> bool:
    """Return whether all of the processes have ended."""
    return not any(is_alive(pid) for pid in pids)


def test_timed_out_test_ends_its_processes(folder: Path) -> None:
    """The test must also end a daemon that has detached itself from the process that started it."""
    run = InnerRun(folder, TIMED_OUT)
    assert run.process.wait(PATIENCE) == 1
    assert "test_hangs blocks for too long" in run.text
    assert "the test left these processes running" in run.text
    wait_for(lambda: gone(run.started), "the end of the daemon and its PostgreSQL")


def test_killed_run_ends_its_processes(folder: Path) -> None:
    """The killed pytest process cannot clean up."""
    run = InnerRun(folder, HANGING)
    started = run.wait_started()
    run.process.kill()
    run.process.wait()
    wait_for(lambda: gone(started), "the end of the daemon and its PostgreSQL")


def test_uninterruptible_test_ends_the_run(folder: Path) -> None:
    run = InnerRun(folder, UNSTOPPABLE)
    assert run.process.wait(PATIENCE) == 1
    assert "Timeout (0:00:00.9" in run.text
    assert "in test_hangs" in run.text
    wait_for(lambda: gone(run.started), "the end of the daemon and its PostgreSQL")
