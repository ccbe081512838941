"""The parent of the workers: starts, supervises and queries them, and replaces workers that die or hang."""

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
from dataapi.service.worker_pipe import COUNTS, FIRST_SOCKET, REPLIES, Assignment, WorkerGone
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
"""Seconds for a worker to stop: to finish its requests, and then to clean up, for example to export spans."""

BEAT = 1.0
"""Seconds between heartbeats. Timeouts count heartbeats, not seconds, because the machine may sleep."""
KILL_AFTER_BEATS = 15
"""Number of consecutive missed heartbeats before a worker is killed."""
KILL_STARTING_AFTER_BEATS = 60
"""Number of consecutive missed heartbeats before a starting worker is killed."""
_MAX_DEATHS = 5
"""Number of consecutive exits after which startup fails, if the worker has never accepted requests."""

_PARENT_ONLY = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
)


def restart_wait(deaths: int) -> float:
    return _BACKOFF.after(deaths)


class Workers:
    """Starts, supervises, queries and stops the worker processes."""

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
        self._supervised: dict[int, Deferred[None]] = {}
        self._first: dict[int, Deferred[None]] = {}
        self._beating = LoopingCall(self._beat)
        self._beating.clock = reactor
        self._starting = True
        self._stopping = False
        self._restarts = 0
        self._departed: Snapshot = {}

    async def start(self) -> None:
        """Start the workers, and return when each has accepted requests at least once.

        Workers that die are restarted.

        :raises StartFailed: a worker fails twice for the same reason, or dies repeatedly.
        """
        self._beating.start(BEAT, now=False)
        numbers = range(1, self._settings.workers + 1)
        self._first = {number: Deferred() for number in numbers}
        waiting = Deferred.fromCoroutine(concurrently(self._first.values()))
        self._supervised = {number: Deferred.fromCoroutine(self._supervise(number)) for number in numbers}
        await waiting
        self._starting = False

    async def drain(self) -> None:
        self._stopping = True
        await self._send_to(
            WorkerProcess.drain, [worker for worker in self._running.values() if worker.responds]
        )

    async def stop(self) -> None:
        self._stopping = True
        deadline = self._reactor.callLater(_KILL_AFTER, self._signal, "KILL")
        self._signal("TERM")
        for number, supervised in self._supervised.items():
            if number not in self._running:
                # The worker is waiting to be restarted.
                supervised.addErrback(lambda failure: failure.trap(CancelledError) and None)
                supervised.cancel()
            await supervised
        if deadline.active():
            deadline.cancel()
        if self._beating.running:
            self._beating.stop()

    async def state(self) -> DaemonState:
        """Return the last known state of the workers, and start to update it in the background."""
        serving = [worker for worker in self._running.values() if worker.serves and worker.responds]
        for worker in serving:
            worker.check()
        state = combined(worker.last_state for worker in serving if worker.last_state is not None)
        stuck = tuple(sorted(worker.number for worker in self._stuck()))
        return replace(state, starting=self._starting, draining=self._stopping, stuck=stuck)

    async def snapshot(self) -> Snapshot:
        """Return the sum of the workers' metrics.

        Workers that have ended or do not respond contribute their last counters.
        """
        stuck = self._stuck()
        serving = [worker for worker in self._running.values() if worker.serves]
        responsive = [worker for worker in serving if worker not in stuck]
        replies = await self._send_to(WorkerProcess.snapshot, responsive)
        own: Snapshot = {
            "dataapi_workers": {(): float(len(responsive))},
            "dataapi_workers_stuck": {(): float(len(stuck))},
            "dataapi_worker_restarts_total": {(): float(self._restarts)},
        }
        snapshots = {number: reply for number, reply in replies.items() if not isinstance(reply, WorkerGone)}
        counts = [counted(worker.last_snapshot) for worker in serving if worker.number not in snapshots]
        return merge([own, self._departed, *counts, *snapshots.values()])

    async def catalogs(self) -> Mapping[str, Any]:
        """Return the catalogs of one worker that responds. All workers converge on the same catalogs."""
        stuck = self._stuck()
        for worker in self._running.values():
            if worker.serves and worker not in stuck:
                return await worker.catalogs()
        return {}

    async def reload(self, settings: Settings | None = None) -> Reloaded:
        """Reload the catalogs in every worker. A project's generation is the lowest among the workers."""
        self._settings = settings or self._settings
        stuck = self._stuck()
        responsive = [worker for worker in self._running.values() if worker not in stuck]
        replies = await self._send_to(lambda worker: worker.reload(settings), responsive)
        generations: dict[str, int] = {}
        failures = {f"worker {worker.number}": "the worker does not respond" for worker in stuck}
        for number, reply in replies.items():
            if isinstance(reply, WorkerGone):
                failures[f"worker {number}"] = str(reply)
                continue
            failures.update(reply.failures)
            for ref, generation in reply.generations.items():
                generations[ref] = min(generation, generations.get(ref, generation))
        for worker in responsive:
            worker.check()
        return Reloaded(generations, failures)

    async def configure(self, settings: Settings) -> Mapping[str, str]:
        self._settings = settings
        stuck = self._stuck()
        responsive = [worker for worker in self._running.values() if worker not in stuck]
        replies = await self._send_to(lambda worker: worker.configure(settings), responsive)
        failures: dict[str, str] = {}
        for reply in replies.values():
            failures.update({} if isinstance(reply, WorkerGone) else reply)
        return failures

    def _stuck(self) -> list[WorkerProcess]:
        return [worker for worker in self._running.values() if not worker.responds and worker.serves]

    def _beat(self) -> None:
        stuck = tuple(sorted(worker.number for worker in self._stuck()))
        serving = sorted(n for n, worker in self._running.items() if worker.serves and worker.responds)
        state = WorkersState(0, self._settings.workers, tuple(serving), stuck)
        for worker in list(self._running.values()):
            worker.beat(state)
            if worker.missed_beats >= (KILL_AFTER_BEATS if worker.serves else KILL_STARTING_AFTER_BEATS):
                _log.error("worker {worker} does not respond and is killed", worker=worker.number)
                worker.signal("KILL")

    async def _send_to(
        self,
        command: Callable[[WorkerProcess], Coroutine[Any, Any, _Reply]],
        workers: Sequence[WorkerProcess],
    ) -> dict[int, _Reply | WorkerGone]:
        pending = {worker.number: Deferred.fromCoroutine(command(worker)) for worker in workers}
        replies: dict[int, _Reply | WorkerGone] = {}
        for number, reply in pending.items():
            try:
                replies[number] = await reply
            except WorkerGone as error:
                _log.warn("worker {worker} does not respond: {reason}", worker=number, reason=str(error))
                replies[number] = error
        return replies

    async def _supervise(self, number: int) -> None:
        deaths, refusal = 0, None
        while True:
            began = self._reactor.seconds()
            worker = self._spawn(number)
            worker.started.addCallbacks(partial(self._served, number), partial(_cannot_start, number))
            how = await worker.ended
            del self._running[number]
            ConnectionShare(self._counts, self._settings.workers, number - 1).leave()
            self._departed = merge([self._departed, counted(worker.last_snapshot)])
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
        listen = tuple(listener.description for listener in self._sockets)
        assignment = Assignment(number, self._settings, listen, self._journal)
        worker = self._running[number] = WorkerProcess(
            self._reactor, assignment, self._write, self._reconfigure
        )
        descriptors = {
            FIRST_SOCKET + index: listener.descriptor for index, listener in enumerate(self._sockets)
        }
        self._reactor.spawnProcess(
            worker,
            sys.executable,
            [sys.executable, "-m", "dataapi.service"],
            env=self._environ,
            childFDs={0: "w", 1: "r", 2: "r", REPLIES: "r", COUNTS: self._counts, **descriptors},
        )
        return worker

    def _signal(self, name: str) -> None:
        for worker in list(self._running.values()):
            worker.signal(name)


def _cannot_start(number: int, failure: Failure) -> None:
    _log.error("worker {worker} cannot start: {reason}", worker=number, reason=failure.getErrorMessage())
