"""Ends processes that outlive their test or the run.

An environment variable, the mark, identifies the test or run that started a process. Detached processes
inherit it too. Run as a program, this module waits for the tests' process to exit, and then ends the
remaining processes. It needs only the standard library.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "STARTED_BY_TEST"
RUN = uuid4().hex
"""Prefix of the variable's value in all processes of this run."""
SETTLE = 60.0
"""Seconds to wait for processes to end on their own."""

_KIND = 20
"""Number of times that PostgreSQL is asked to shut down before it is killed."""
_watchers: list[subprocess.Popen[str]] = []


def mark(owner: str = "") -> str:
    """Mark processes started from now on as belonging to a test or to the run. Return the mark."""
    os.environ[VARIABLE] = f"{RUN}.{owner}"
    return os.environ[VARIABLE]


def present() -> frozenset[int]:
    return frozenset(int(name) for name in os.listdir("/proc") if name.isdigit())


def marked(beginning: str, older: frozenset[int] = frozenset()) -> list[int]:
    """Return the processes in which the value of ``VARIABLE`` has this prefix.

    :param older: processes to skip, for speed.
    """
    sought = f"\0{VARIABLE}={beginning}".encode()
    return [pid for pid in present() - older if sought in b"\0" + _environ(pid)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def settle(beginning: str, seconds: float = SETTLE, older: frozenset[int] = frozenset()) -> list[str]:
    """Wait for the processes that ``marked`` returns. Kill the remaining ones, and return their commands.

    :param older: see ``marked``.
    """
    limit = time.monotonic() + seconds
    while left := marked(beginning, older):
        if time.monotonic() >= limit:
            commands = [_command(pid) for pid in left]
            end(beginning)
            return commands
        time.sleep(0.02)
    return []


def end(beginning: str) -> None:
    """Kill the processes that ``marked`` returns."""
    rounds = 0
    while found := marked(beginning):
        for pid in found:
            # PostgreSQL cleans up its shared memory only if it is not killed.
            is_graceful = rounds < _KIND and _command(pid).split(" ")[0].endswith("postgres")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT if is_graceful else signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)
        rounds += 1
        time.sleep(0.05)


@contextmanager
def watched() -> Iterator[None]:
    """Start a watcher process that ends this run's remaining processes when the tests' process exits."""
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    # -S prevents coverage from measuring the watcher. A separate session protects the watcher from Ctrl-C.
    command = [sys.executable, "-I", "-S", __file__, RUN]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, text=True, env=environ, start_new_session=True
    ) as watcher:
        _watchers.append(watcher)
        yield


def remove_at_end(folder: Path) -> None:
    """Remove a folder after all processes have ended."""
    for watcher in _watchers:
        assert watcher.stdin is not None
        watcher.stdin.write(f"{folder}\n")
        watcher.stdin.flush()


def _environ(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return ""


if __name__ == "__main__":
    folders = sys.stdin.read().splitlines()
    end(sys.argv[1])
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
