"""The parent of the workers: starts them, replaces those that die, asks all of them at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, FirstError, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.metrics import Snapshot, counted, merge
from dataapi.service.listening import Descriptor
from dataapi.service.pipe import ANSWERS, FIRST_SOCKET, Assignment, WorkerGone
from dataapi.service.serving import GRACE
from dataapi.service.state import Reloaded, State, together
from dataapi.service.worker_process import WorkerProcess
from dataapi.settings import Settings

_log = Logger(namespace="dataapi.workers")
_Reply = TypeVar("_Reply")
_HEALTHY_AFTER = 60.0
_LONGEST_WAIT = 30.0
_KILL_AFTER = GRACE + 5.0
_PARENT_ONLY = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
)


def restart_wait(deaths: int) -> float:
    """Return the seconds to wait before starting a worker again that died ``deaths`` times in a row."""
    return float(min(0.1 * 2 ** min(deaths - 1, 16), _LONGEST_WAIT))


class Workers:
    """All workers together, as the root service and the admin listener see them.

    :param write: takes the log lines that the workers wrote.
    :param environ: what the workers' environment is made from.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        sockets: Sequence[Descriptor],
        write: Callable[[str], object],
        environ: Mapping[str, str],
    ) -> None:
        self._reactor = reactor
        self._settings = settings
        self._sockets = sockets
        self._write = write
        self._environ = {name: value for name, value in environ.items() if name not in _PARENT_ONLY}
        self._running: dict[int, WorkerProcess] = {}
        self._keeping: dict[int, Deferred[None]] = {}
        self._starting = True
        self._stopping = False
        self._restarts = 0
        self._departed: Snapshot = {}

    async def start(self) -> None:
        """Start every worker and wait until all accept requests; raises ``StartFailed``."""
        first = [self._spawn(number) for number in range(1, self._settings.workers + 1)]
        self._keeping = {worker.number: Deferred.fromCoroutine(self._keep(worker)) for worker in first}
        try:
            await gatherResults([worker.started for worker in first], consumeErrors=True)
        except FirstError as error:
            error.subFailure.raiseException()
        self._starting = False

    async def stop(self) -> None:
        """Let every worker finish its requests; one that takes too long is killed."""
        self._stopping = True
        deadline = self._reactor.callLater(_KILL_AFTER, self._signal, "KILL")
        self._signal("TERM")
        for number, keeping in self._keeping.items():
            if number not in self._running:
                # It waits to be started again, and shall not be.
                keeping.addErrback(lambda failure: failure.trap(CancelledError) and None)
                keeping.cancel()
            await keeping
        if deadline.active():
            deadline.cancel()

    async def state(self) -> State:
        """Tell whether the workers can answer requests; one that does not reply counts as absent."""
        replies = await self._ask(WorkerProcess.state, [one for one in self._running.values() if one.serves])
        state = together(reply for reply in replies.values() if isinstance(reply, State))
        return replace(state, starting=self._starting, draining=self._stopping)

    async def snapshot(self) -> Snapshot:
        """Add up the workers' figures, with what workers that are gone had counted when last asked."""
        serving = [one for one in self._running.values() if one.serves]
        replies = await self._ask(WorkerProcess.snapshot, serving)
        own: Snapshot = {
            "dataapi_workers": {(): float(len(serving))},
            "dataapi_worker_restarts_total": {(): float(self._restarts)},
        }
        figures = [reply for reply in replies.values() if not isinstance(reply, WorkerGone)]
        return merge([own, self._departed, *figures])

    async def reload(self) -> Reloaded:
        """Make every worker read its catalogs again; a project's generation is its oldest one."""
        replies = await self._ask(WorkerProcess.reload, list(self._running.values()))
        generations: dict[str, int] = {}
        failures: dict[str, str] = {}
        for number, reply in replies.items():
            if isinstance(reply, WorkerGone):
                failures[f"worker {number}"] = str(reply)
                continue
            failures.update(reply.failures)
            for ref, generation in reply.generations.items():
                generations[ref] = min(generation, generations.get(ref, generation))
        return Reloaded(generations, failures)

    async def _ask(
        self, ask: Callable[[WorkerProcess], Coroutine[Any, Any, _Reply]], workers: Sequence[WorkerProcess]
    ) -> dict[int, _Reply | WorkerGone]:
        """Ask all at the same time."""
        asking = {worker.number: Deferred.fromCoroutine(ask(worker)) for worker in workers}
        replies: dict[int, _Reply | WorkerGone] = {}
        for number, reply in asking.items():
            try:
                replies[number] = await reply
            except WorkerGone as error:
                _log.warn("worker {worker} does not answer: {reason}", worker=number, reason=str(error))
                replies[number] = error
        return replies

    async def _keep(self, worker: WorkerProcess) -> None:
        """Replace a worker whenever it ends, until the daemon stops."""
        deaths = 0
        while True:
            began = self._reactor.seconds()
            how = await worker.ended
            del self._running[worker.number]
            self._departed = merge([self._departed, counted(worker.last)])
            if self._stopping:
                return
            deaths = 1 if self._reactor.seconds() - began > _HEALTHY_AFTER else deaths + 1
            wait = restart_wait(deaths)
            _log.error("worker {worker} ended: {how}", worker=worker.number, how=how, restart_in=wait)
            await deferLater(self._reactor, wait, lambda: None)
            self._restarts += 1
            worker = self._spawn(worker.number)
            worker.started.addErrback(_cannot_start, worker.number)

    def _spawn(self, number: int) -> WorkerProcess:
        assignment = Assignment(number, self._settings, tuple(one.description for one in self._sockets))
        worker = self._running[number] = WorkerProcess(self._reactor, assignment, self._write)
        inherited = {FIRST_SOCKET + index: one.descriptor for index, one in enumerate(self._sockets)}
        self._reactor.spawnProcess(
            worker,
            sys.executable,
            [sys.executable, "-m", "dataapi.service"],
            env=self._environ,
            childFDs={0: "w", 1: "r", 2: "r", ANSWERS: "r", **inherited},
        )
        return worker

    def _signal(self, name: str) -> None:
        for worker in list(self._running.values()):
            worker.signal(name)


def _cannot_start(failure: Failure, number: int) -> None:
    _log.error("worker {worker} cannot start: {reason}", worker=number, reason=failure.getErrorMessage())
