"""The parent of the workers: starts them, replaces those that die or hang, and asks all of them at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.concurrency.tasks import concurrently
from dataapi.concurrency.timers import Backoff
from dataapi.service.process import GRACE
from dataapi.service.settings_sources import Reconfigure
from dataapi.service.sockets import ConnectionShare, Descriptor, StartFailed, make_counts
from dataapi.service.worker_pipe import ANSWERS, COUNTS, FIRST_SOCKET, Assignment, WorkerGone
from dataapi.service.worker_process import WorkerProcess
from dataapi.settings import Settings
from dataapi.telemetry.metrics import Snapshot, counted, merge
from dataapi.telemetry.readiness import DaemonState, Reloaded, combined
from dataapi.telemetry.vitals import WorkersState

_log = Logger(namespace="dataapi.workers")
_Reply = TypeVar("_Reply")
_HEALTHY_AFTER = 60.0
_BACKOFF = Backoff(first=0.1, longest=30.0, spread=0.0)
_KILL_AFTER = GRACE + 10.0
"""Seconds for a worker to stop: after its requests, closing what it has open, such as the export of spans."""

BEAT = 1.0
"""Seconds between two heartbeats.  Heartbeats are counted, not seconds, as the machine may sleep."""
STUCK_BEATS = 15
"""Unanswered heartbeats in a row after which a worker is killed."""
STARTING_BEATS = 60
"""The same for a worker that is still starting."""
_MAX_DEATHS = 5
"""Deaths in a row of a worker that never served, after which the daemon gives up."""

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
    return _BACKOFF.after(deaths)


class Workers:
    """All workers, as the root service and the admin listener see them.

    :param write: takes the log lines that the workers wrote.
    :param environ: what the workers' environment is made from.
    :param reconfigure: asks for settings to be read again.
    :param journal: whether systemd's journal reads the log.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        sockets: Sequence[Descriptor],
        write: Callable[[str], object],
        environ: Mapping[str, str],
        reconfigure: Reconfigure = lambda _: None,
        *,
        journal: bool = False,
    ) -> None:
        self._reconfigure = reconfigure
        self._journal = journal
        self._reactor = reactor
        self._settings = settings
        self._sockets = sockets
        self._counts = make_counts(settings.workers)
        self._write = write
        self._environ = {name: value for name, value in environ.items() if name not in _PARENT_ONLY}
        self._running: dict[int, WorkerProcess] = {}
        self._keeping: dict[int, Deferred[None]] = {}
        self._first: dict[int, Deferred[None]] = {}
        self._beating = LoopingCall(self._beat)
        self._beating.clock = reactor
        self._starting = True
        self._stopping = False
        self._restarts = 0
        self._departed: Snapshot = {}

    async def start(self) -> None:
        """Start every worker and wait until all accept requests, or have done so.

        A worker that dies meanwhile is started again.  Raises ``StartFailed`` when one says the same reason
        twice, or dies again and again.
        """
        self._beating.start(BEAT, now=False)
        numbers = range(1, self._settings.workers + 1)
        self._first = {number: Deferred() for number in numbers}
        waiting = Deferred.fromCoroutine(concurrently(self._first.values()))
        self._keeping = {number: Deferred.fromCoroutine(self._keep(number)) for number in numbers}
        await waiting
        self._starting = False

    async def drain(self) -> None:
        """Have every worker answer the last request on each connection; none is started any more."""
        self._stopping = True
        await self._ask(WorkerProcess.drain, [worker for worker in self._running.values() if worker.answers])

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
        if self._beating.running:
            self._beating.stop()

    async def state(self) -> DaemonState:
        """Return whether the workers can answer requests, as far as is known, without waiting.

        It also makes them ask their databases, for the next call.
        """
        serving = [worker for worker in self._running.values() if worker.serves and worker.answers]
        for worker in serving:
            worker.check()
        state = combined(worker.known for worker in serving if worker.known is not None)
        stuck = tuple(sorted(worker.number for worker in self._stuck()))
        return replace(state, starting=self._starting, draining=self._stopping, stuck=stuck)

    async def snapshot(self) -> Snapshot:
        """Add up the workers' metrics, with the last counters of those that ended or do not answer."""
        stuck = self._stuck()
        serving = [worker for worker in self._running.values() if worker.serves]
        asked = [worker for worker in serving if worker not in stuck]
        replies = await self._ask(WorkerProcess.snapshot, asked)
        own: Snapshot = {
            "dataapi_workers": {(): float(len(asked))},
            "dataapi_workers_stuck": {(): float(len(stuck))},
            "dataapi_worker_restarts_total": {(): float(self._restarts)},
        }
        answered = {number: reply for number, reply in replies.items() if not isinstance(reply, WorkerGone)}
        counts = [counted(worker.last) for worker in serving if worker.number not in answered]
        return merge([own, self._departed, *counts, *answered.values()])

    async def catalogs(self) -> Mapping[str, Any]:
        """Return the catalogs of a worker; all of them have the same ones, or soon will."""
        stuck = self._stuck()
        for worker in self._running.values():
            if worker.serves and worker not in stuck:
                return await worker.catalogs()
        return {}

    async def reload(self, settings: Settings | None = None) -> Reloaded:
        """Make every worker read its catalogs again; a project's generation is its oldest one."""
        self._settings = settings or self._settings
        stuck = self._stuck()
        asked = [worker for worker in self._running.values() if worker not in stuck]
        replies = await self._ask(lambda worker: worker.reload(settings), asked)
        generations: dict[str, int] = {}
        failures = {f"worker {worker.number}": "the worker does not answer" for worker in stuck}
        for number, reply in replies.items():
            if isinstance(reply, WorkerGone):
                failures[f"worker {number}"] = str(reply)
                continue
            failures.update(reply.failures)
            for ref, generation in reply.generations.items():
                generations[ref] = min(generation, generations.get(ref, generation))
        for worker in asked:
            worker.check()
        return Reloaded(generations, failures)

    async def configure(self, settings: Settings) -> Mapping[str, str]:
        """Make every worker go on with other settings; return why projects keep their old ones."""
        self._settings = settings
        stuck = self._stuck()
        asked = [worker for worker in self._running.values() if worker not in stuck]
        replies = await self._ask(lambda worker: worker.configure(settings), asked)
        failures: dict[str, str] = {}
        for reply in replies.values():
            failures.update({} if isinstance(reply, WorkerGone) else reply)
        return failures

    def _stuck(self) -> list[WorkerProcess]:
        return [worker for worker in self._running.values() if not worker.answers and worker.serves]

    def _beat(self) -> None:
        """Send every worker a heartbeat, and kill one that does not answer for long: it is replaced."""
        stuck = tuple(sorted(worker.number for worker in self._stuck()))
        serving = sorted(n for n, worker in self._running.items() if worker.serves and worker.answers)
        state = WorkersState(0, self._settings.workers, tuple(serving), stuck)
        for worker in list(self._running.values()):
            worker.beat(state)
            if worker.unanswered >= (STUCK_BEATS if worker.serves else STARTING_BEATS):
                _log.error("worker {worker} does not answer and is killed", worker=worker.number)
                worker.signal("KILL")

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

    async def _keep(self, number: int) -> None:
        """Start a worker, and again whenever it ends, until the daemon stops."""
        deaths, refusal = 0, None
        while True:
            began = self._reactor.seconds()
            worker = self._spawn(number)
            worker.started.addCallbacks(partial(self._served, number), partial(_cannot_start, number))
            how = await worker.ended
            del self._running[number]
            ConnectionShare(self._counts, self._settings.workers, number - 1).leave()
            self._departed = merge([self._departed, counted(worker.last)])
            if self._stopping:
                return
            deaths = 1 if self._reactor.seconds() - began > _HEALTHY_AFTER else deaths + 1
            if number in self._first and (deaths >= _MAX_DEATHS or refusal == worker.refusal is not None):
                reason = worker.refusal or f"worker {number} ended while starting: {how}"
                self._first.pop(number).errback(StartFailed(reason))
                return
            refusal = worker.refusal
            wait = restart_wait(deaths)
            _log.error("worker {worker} ended: {how}", worker=number, how=how, restart_in=wait)
            await deferLater(self._reactor, wait, lambda: None)
            self._restarts += 1

    def _served(self, number: int, _result: None) -> None:
        first = self._first.pop(number, None)
        if first is not None:
            first.callback(None)

    def _spawn(self, number: int) -> WorkerProcess:
        listen = tuple(one.description for one in self._sockets)
        assignment = Assignment(number, self._settings, listen, self._journal)
        worker = self._running[number] = WorkerProcess(
            self._reactor, assignment, self._write, self._reconfigure
        )
        inherited = {FIRST_SOCKET + index: one.descriptor for index, one in enumerate(self._sockets)}
        self._reactor.spawnProcess(
            worker,
            sys.executable,
            [sys.executable, "-m", "dataapi.service"],
            env=self._environ,
            childFDs={0: "w", 1: "r", 2: "r", ANSWERS: "r", COUNTS: self._counts, **inherited},
        )
        return worker

    def _signal(self, name: str) -> None:
        for worker in list(self._running.values()):
            worker.signal(name)


def _cannot_start(number: int, failure: Failure) -> None:
    _log.error("worker {worker} cannot start: {reason}", worker=number, reason=failure.getErrorMessage())
