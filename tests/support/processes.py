"""Processes that the tests start: none outlives its test, nor the run, however that ends.

Each bears a mark in its environment, which its children inherit.  So it is found whoever started it, also
when it has detached itself.  Run as a program, this module waits for the end of the tests' process and then
ends what that has left; it needs the standard library alone.
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
"""Marks all processes of this run; a test's mark begins with it."""
SETTLE = 60.0
"""Seconds that processes get to end by themselves."""

_KIND = 20
"""Times that a PostgreSQL is asked to end before it is killed."""
_watchers: list[subprocess.Popen[str]] = []


def mark(owner: str = "") -> str:
    """Let what is started from now on belong to a test, or to the run; return the mark."""
    os.environ[VARIABLE] = f"{RUN}.{owner}"
    return os.environ[VARIABLE]


def present() -> frozenset[int]:
    """Return all processes of the machine."""
    return frozenset(int(name) for name in os.listdir("/proc") if name.isdigit())


def marked(beginning: str, older: frozenset[int] = frozenset()) -> list[int]:
    """Return the processes whose mark begins so.

    :param older: those that were there before the mark, which are not asked: there are thousands of tests.
    """
    sought = f"\0{VARIABLE}={beginning}".encode()
    return [pid for pid in present() - older if sought in b"\0" + _environ(pid)]


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def settle(beginning: str, seconds: float = SETTLE, older: frozenset[int] = frozenset()) -> list[str]:
    """Wait until the marked processes have ended; end those that do not, and return their command lines.

    :param older: as ``marked`` takes it.
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
    """End the marked processes at once."""
    rounds = 0
    while found := marked(beginning):
        for pid in found:
            # A PostgreSQL that is asked clears away what a killed one leaves.
            asked = rounds < _KIND and _command(pid).split(" ")[0].endswith("postgres")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT if asked else signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)
        rounds += 1
        time.sleep(0.05)


@contextmanager
def watched() -> Iterator[None]:
    """Have this run's processes ended when we end, in whatever way."""
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    # Without site-packages nobody measures its coverage; apart from the terminal, Ctrl-C spares it.
    command = [sys.executable, "-I", "-S", __file__, RUN]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, text=True, env=environ, start_new_session=True
    ) as watcher:
        _watchers.append(watcher)
        yield


def remove_at_end(folder: Path) -> None:
    """Have a folder removed after the processes have ended, if it is still there then."""
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
