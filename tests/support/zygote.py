"""Starts daemons, their workers, and commands as forks of a process that has imported them.

Imports take most of the startup time.

Run as a program, this module is that process. For each line of standard input, it forks a process, and writes
the process ID of the fork. An intermediate fork exits immediately, so that the daemon becomes a child of the
tests' process and can be waited for. A daemon started as the program ``twistd`` is not
a fork, and neither are its workers.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import traceback
import warnings
from contextvars import Context
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MARK_LENGTH = 2000
_BECOME_SUBREAPER = 36
_COMMAND = ["-m", "dataapi.cli.main"]
"""Arguments that make Python run the command ``dataapi``."""
_WORKER = ["-m", "dataapi.service"]
"""Arguments that make Python run a worker process."""


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
        """Wait for the process to exit, and return its exit status (negative after a signal)."""
        if self.poll() is None:
            select.select([self._descriptor], [], [], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(
    command: Sequence[str],
    folder: Path,
    environ: Mapping[str, str],
    mark: str,
    output: Path,
    errors: Path | None = None,
) -> Fork:
    """Run ``twistd`` or ``python -m dataapi.cli.main`` in a fork that appends its output to files.

    :param mark: name of the environment variable that identifies the test. It is the only variable of a fork
        that ``/proc`` shows.
    :param errors: file for the fork's standard error (default: ``output``).
    """
    zygote = _zygote(mark)
    assert zygote.stdin is not None
    assert zygote.stdout is not None
    request = [command, str(folder), environ, str(output), str(errors or output)]
    zygote.stdin.write(json.dumps(request) + "\n")
    zygote.stdin.flush()
    return Fork(int(zygote.stdout.readline()))


@cache
def _zygote(mark: str) -> subprocess.Popen[str]:
    """Start the process that forks daemons. It ends when the tests' process exits and closes the pipe."""
    ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1)
    # The process outlives the first test that uses it, so it belongs to the run.
    run = os.environ[mark].partition(".")[0] + "."
    environ = {**os.environ, mark: run.ljust(_MARK_LENGTH)}
    command = [sys.executable, "-P", __file__, mark]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
    atexit.register(process.communicate)
    return process


def _start_each(mark: str) -> None:
    """Fork for each line of standard input. Return in each fork; exit at the end of the input."""
    shown = _shown(mark)
    for line in sys.stdin:
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            # The newline signals that the daemon is now a child of the tests' process.
            os.write(1, b"\n")
            continue
        if daemon := os.fork():
            os.write(1, str(daemon).encode())
            os._exit(0)
        sys.argv, folder, environ, output, errors = json.loads(line)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        shown.value = environ[mark].encode()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, file in ((1, output), (2, errors)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), descriptor)
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
    # Klein imports the reactor for ``Klein.run``, but the daemon does not call this method.
    sys.modules["twisted.internet.reactor"] = ModuleType("no reactor")
    import dataapi.graphql.engine  # noqa: PLC0415 - only in the program
    import dataapi.live.protocols  # noqa: PLC0415
    import dataapi.rest.handler  # noqa: PLC0415
    import dataapi.service.assembly  # noqa: PLC0415
    import dataapi.service.creation  # noqa: PLC0415
    import dataapi.tap  # noqa: PLC0415
    import dataapi.web.admin  # noqa: PLC0415
    import dataapi.web.app  # noqa: PLC0415
    import dataapi.web.routes  # noqa: PLC0415
    import dataapi.webhooks.management.api  # noqa: F401, PLC0415
    from twisted.application.service import IServiceMaker  # noqa: PLC0415
    from twisted.plugin import getPlugins  # noqa: PLC0415

    list(getPlugins(IServiceMaker))
    del sys.modules["twisted.internet.reactor"]
    # Exclude existing objects from garbage collection, so that forks share their memory.
    gc.collect()
    gc.freeze()


def _fork_workers() -> None:
    """Make a daemon fork its workers too, instead of importing everything again in each."""
    from twisted.internet.process import Process  # noqa: PLC0415 - only in the program

    kind: Any = Process
    spawn, execute = kind._trySpawnInsteadOfFork, kind._execChild

    def try_spawn(process: Any, path: Any, uid: Any, gid: Any, program: Any, words: Any, *more: Any) -> Any:
        return words[1:] != _WORKER and spawn(process, path, uid, gid, program, words, *more)

    def exec_child(process: Any, path: Any, uid: Any, gid: Any, program: Any, words: Any, env: Any) -> None:
        if words[1:] == _WORKER:
            _become_worker(env)
        execute(process, path, uid, gid, program, words, env)

    kind._trySpawnInsteadOfFork, kind._execChild = try_spawn, exec_child


def _become_worker(environ: Mapping[str, str]) -> NoReturn:
    """Run the worker in a fork of its daemon, without the daemon's reactor and log."""
    import twisted.internet  # noqa: PLC0415 - only in the program
    import twisted.internet.process as processes  # noqa: PLC0415
    import twisted.logger as logs  # noqa: PLC0415

    status: Any = 1
    try:
        os.environ.clear()
        os.environ.update(environ)
        processes.reapProcessHandlers.clear()
        del twisted.internet.reactor, sys.modules["twisted.internet.reactor"]
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        publisher, beginner = logs.globalLogPublisher, logs.globalLogBeginner
        publisher._observers = []
        type(beginner).__init__(beginner, publisher, sys.stderr, sys, warnings)  # type: ignore[arg-type]
        # Never free the daemon's objects: they refer to descriptors whose numbers the worker reuses.
        gc.freeze()
        gc.enable()
        Context().run(runpy.run_module, "dataapi.service", run_name="__main__")
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    from twisted.scripts.twistd import run

    _import_daemon()
    import dataapi.cli.main

    # Coverage is measured only in programs that Python starts.
    if "coverage" not in sys.modules:
        _fork_workers()
    _start_each(sys.argv[1])
    if sys.argv[1:3] == _COMMAND:
        del sys.argv[1:3]
        dataapi.cli.main.main()
    sys.exit(run())
