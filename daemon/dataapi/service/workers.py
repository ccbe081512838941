"""The parent of the workers: starts them, replaces those that die or hang, and asks all of them at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, FirstError, gatherResults
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.concurrency.timers import Backoff
from dataapi.service.process import GRACE
from dataapi.service.sockets import ConnectionShare, Descriptor, StartFailed, make_counts
from dataapi.service.worker_pipe import (
    ANSWERS,
    COUNTS,
    FIRST_SOCKET,
    Asker,
    Assignment,
    Lines,
    WorkerGone,
    written,
)
from dataapi.settings import Settings
from dataapi.telemetry.metrics import Snapshot, counted, from_json, merge
from dataapi.telemetry.readiness import Reloaded, State, combined, state_from_json

_log = Logger(namespace="dataapi.workers")
_Reply = TypeVar("_Reply")
_HEALTHY_AFTER = 60.0
_BACKOFF = Backoff(first=0.1, longest=30.0, spread=0.0)
_KILL_AFTER = GRACE + 10.0
"""Seconds for a worker to stop: after its requests, closing what it has open, such as the export of spans."""

_METRICS_WITHIN = 1.0
_RELOAD_WITHIN = 120.0
_DRAIN_WITHIN = 1.0

SILENT = 2
"""Unanswered heartbeats in a row after which a worker counts as stuck."""

BEAT = 1.0
"""Seconds between two heartbeats.  Heartbeats are counted, not seconds, as the machine may sleep."""
STUCK_BEATS = 15
"""Unanswered heartbeats in a row after which a worker is killed."""
STARTING_BEATS = 60
"""The same for a worker that is still starting."""
_MOST_DEATHS = 5
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


class WorkerProcess(ProcessProtocol):
    """One worker process as its parent sees it.

    :ivar started: fires when it accepts requests, or fails with ``StartFailed``.
    :ivar ended: fires with how it ended.
    :ivar refusal: why it cannot start, as it reported.
    :ivar known: the state that it reported last, None before the first time.
    :ivar unanswered: heartbeats in a row that it did not answer.
    """

    def __init__(
        self,
        reactor: Any,
        assignment: Assignment,
        write: Callable[[str], object],
        reconfigure: Callable[[], None],
    ) -> None:
        self.number = assignment.number
        self.started: Deferred[None] = Deferred()
        self.ended: Deferred[str] = Deferred()
        self.serves = False
        self.last: Snapshot = {}
        self.refusal: str | None = None
        self.known: State | None = None
        self.unanswered = 0
        self._asking: set[str] = set()
        self._assignment = assignment
        self._reconfigure = reconfigure
        self._asker = Asker(reactor, self._send)
        self._streams = {
            1: Lines(lambda line: write(line.decode("utf-8", "replace") + "\n")),
            2: Lines(self._complained),
            ANSWERS: Lines(self._said),
        }

    def connectionMade(self) -> None:  # noqa: N802 - ProcessProtocol
        """Send the worker its assignment."""
        self._send(self._assignment.encode())

    def childDataReceived(self, childFD: int, data: bytes) -> None:  # noqa: N802, N803 - ProcessProtocol
        """Take log lines and answers."""
        self._streams[childFD].feed(data)

    def processEnded(self, reason: Failure) -> None:  # noqa: N802 - ProcessProtocol
        """Fail everything that still waits for it."""
        for stream in self._streams.values():
            stream.finish()
        self._asker.close()
        how = reason.getErrorMessage().rstrip(".")
        self._not_started(f"worker {self.number} ended while starting: {how}")
        self.serves = False
        self.ended.callback(how)

    def beat(self) -> None:
        """Send a heartbeat, or count that the last one is not answered yet."""
        if "known" in self._asking:
            self.unanswered += 1
        else:
            self._look("known")

    def check(self) -> None:
        """Have it ask its databases whether they answer, unless it does so already; see ``known``."""
        if "state" not in self._asking:
            self._look("state")

    def _look(self, what: str) -> None:
        self._asking.add(what)
        looking = Deferred.fromCoroutine(self._learn(what))
        looking.addErrback(lambda failure: _log.failure("a worker's state cannot be read", failure))

    async def _learn(self, what: str) -> None:
        try:
            with suppress(WorkerGone):
                self.known = state_from_json(await self._asker.ask(what))
        finally:
            self._asking.discard(what)
            self.unanswered = 0

    @property
    def answers(self) -> bool:
        """Whether it answers its parent."""
        return self.unanswered < SILENT

    async def snapshot(self) -> Snapshot:
        """Take its metrics; raises ``WorkerGone``."""
        self.last = from_json(await self._asker.ask("snapshot", _METRICS_WITHIN))
        return self.last

    async def catalogs(self) -> Mapping[str, Any]:
        """Return the catalogs that it has; raises ``WorkerGone``."""
        found: Mapping[str, Any] = await self._asker.ask("catalogs", _RELOAD_WITHIN)
        return found

    async def drain(self) -> None:
        """Have it answer the last request on each connection; raises ``WorkerGone``."""
        await self._asker.ask("drain", _DRAIN_WITHIN)

    async def reload(self, settings: Settings | None) -> Reloaded:
        """Make it go on with other settings and read its catalogs again; raises ``WorkerGone``."""
        pickled = settings and written(settings)
        document = await self._asker.ask("reload", _RELOAD_WITHIN, settings=pickled)
        return Reloaded(document["generations"], document["failures"])

    def signal(self, name: str) -> None:
        """Send it a signal, ``TERM`` or ``KILL``; one that has ended is left alone."""
        assert self.transport is not None
        try:
            self.transport.signalProcess(name)
        except ProcessExitedAlready:
            return

    def _send(self, line: bytes) -> None:
        assert self.transport is not None
        self.transport.writeToChild(0, line)

    def _said(self, line: bytes) -> None:
        document = json.loads(line)
        event = document.get("event")
        if event is None:
            self._asker.received(document)
        elif event == "reconfigure":
            self._reconfigure()
        elif event == "failed":
            self.refusal = document["reason"]
            self._not_started(self.refusal)
        elif not self.started.called:
            self.serves = True
            # What a heartbeat learned while it was starting says that it is not ready.
            self.known = state_from_json(document["state"])
            self.started.callback(None)

    def _not_started(self, reason: str) -> None:
        if not self.started.called:
            self.started.errback(StartFailed(reason))

    def _complained(self, line: bytes) -> None:
        _log.error("{text}", text=line.decode("utf-8", "replace"), worker=self.number)


class Workers:
    """All workers, as the root service and the admin listener see them.

    :param write: takes the log lines that the workers wrote.
    :param environ: what the workers' environment is made from.
    :param reconfigure: asks for the configuration to be read again.
    :param journal: whether systemd's journal reads the log.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        sockets: Sequence[Descriptor],
        write: Callable[[str], object],
        environ: Mapping[str, str],
        reconfigure: Callable[[], None] = lambda: None,
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
        waiting = gatherResults(list(self._first.values()), consumeErrors=True)
        self._keeping = {number: Deferred.fromCoroutine(self._keep(number)) for number in numbers}
        try:
            await waiting
        except FirstError as error:
            error.subFailure.raiseException()
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

    async def state(self) -> State:
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

    def _stuck(self) -> list[WorkerProcess]:
        return [worker for worker in self._running.values() if not worker.answers and worker.serves]

    def _beat(self) -> None:
        """Send every worker a heartbeat, and kill one that does not answer for long: it is replaced."""
        for worker in list(self._running.values()):
            worker.beat()
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
            if number in self._first and (deaths >= _MOST_DEATHS or refusal == worker.refusal is not None):
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
