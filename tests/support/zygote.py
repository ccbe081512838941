"""Starts daemons as forks of a process that has imported them, because imports take most of the startup time.

Run as a program, this module is that process. It reads one start per line of standard input, and writes the
process ID of the fork. An intermediate fork exits immediately, so that the daemon becomes a child of the
tests' process and can be waited for.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import subprocess
import sys
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MARK_LENGTH = 2000
_BECOME_SUBREAPER = 36


class Fork:
    """A forked daemon with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
                os.close(self._descriptor)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status; it is negative after a signal."""
        if self.poll() is None:
            select.select([self._descriptor], [], [], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process unless it has ended."""
        self.send_signal(signal.SIGKILL)


def fork(command: Sequence[str], folder: Path, environ: Mapping[str, str], output: Path, mark: str) -> Fork:
    """Run ``twistd`` in a fork that appends its output to a file.

    :param mark: the variable that names the test. ``/proc`` shows no other variable of a fork.
    """
    zygote = _zygote(mark)
    assert zygote.stdin is not None
    assert zygote.stdout is not None
    zygote.stdin.write(json.dumps([command, str(folder), environ, str(output)]) + "\n")
    zygote.stdin.flush()
    return Fork(int(zygote.stdout.readline()))


@cache
def _zygote(mark: str) -> subprocess.Popen[str]:
    """Start the process that forks. It ends when the tests' process closes its standard input."""
    ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1)
    # The process outlives the first test that uses it, so it belongs to the run.
    run = os.environ[mark].partition(".")[0] + "."
    environ = {**os.environ, mark: run.ljust(_MARK_LENGTH)}
    command = [sys.executable, "-P", __file__, mark]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)


def _start_each(mark: str) -> None:
    """Fork for each line of standard input. Return in each fork; exit at the end of the input."""
    shown = _shown(mark)
    for line in sys.stdin:
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            # The line is complete when the daemon is a child of the tests' process.
            os.write(1, b"\n")
            continue
        if daemon := os.fork():
            os.write(1, str(daemon).encode())
            os._exit(0)
        sys.argv, folder, environ, output = json.loads(line)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        shown.value = environ[mark].encode()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), 1)
        os.dup2(1, 2)
        os.closerange(3, 10)
        return
    sys.exit()


def _shown(mark: str) -> ctypes.Array[ctypes.c_char]:
    """Return the memory that ``/proc/PID/environ`` shows for a variable."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    return (ctypes.c_char * _MARK_LENGTH).from_address(getenv(mark.encode()))


def _import_daemon() -> None:
    """Import what a daemon imports, apart from the reactor: processes cannot share its descriptors."""
    # Klein imports the reactor for its own server, but the daemon does not use it.
    sys.modules["twisted.internet.reactor"] = ModuleType("no reactor")
    import dataapi.service.project  # noqa: PLC0415 - only in the program
    import dataapi.tap  # noqa: PLC0415
    import dataapi.web.app  # noqa: PLC0415
    import dataapi.webhooks.management.api  # noqa: F401, PLC0415
    from twisted.application.service import IServiceMaker  # noqa: PLC0415
    from twisted.plugin import getPlugins  # noqa: PLC0415

    list(getPlugins(IServiceMaker))
    del sys.modules["twisted.internet.reactor"]
    # Exclude existing objects from garbage collection, so that forks share their memory.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from twisted.scripts.twistd import run

    _import_daemon()
    _start_each(sys.argv[1])
    sys.exit(run())
