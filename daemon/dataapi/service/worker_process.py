"""One worker process as its parent sees it: what it is asked, what it reports, and whether it answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.service.settings_sources import Reconfigure
from dataapi.service.sockets import StartFailed
from dataapi.service.worker_pipe import ANSWERS, Asker, Assignment, Lines, WorkerGone, written
from dataapi.settings import Settings
from dataapi.telemetry.metrics import Snapshot, from_json
from dataapi.telemetry.readiness import DaemonState, Reloaded, state_from_json
from dataapi.telemetry.vitals import WorkersState

_log = Logger(namespace="dataapi.workers")

_METRICS_WITHIN = 1.0
_RELOAD_WITHIN = 120.0
_DRAIN_WITHIN = 1.0

SILENT = 2
"""Unanswered heartbeats in a row after which a worker counts as stuck."""


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
        reconfigure: Reconfigure,
    ) -> None:
        self.number = assignment.number
        self.started: Deferred[None] = Deferred()
        self.ended: Deferred[str] = Deferred()
        self.serves = False
        self.last: Snapshot = {}
        self.refusal: str | None = None
        self.known: DaemonState | None = None
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

    def beat(self, workers: WorkersState) -> None:
        """Send a heartbeat, or count that the last one is not answered yet."""
        if "known" in self._asking:
            self.unanswered += 1
        else:
            self._look("known", workers=replace(workers, own=self.number).as_json())

    def check(self) -> None:
        """Have it ask its databases whether they answer, unless it does so already; see ``known``."""
        if "state" not in self._asking:
            self._look("state")

    def _look(self, what: str, **arguments: Mapping[str, Any]) -> None:
        self._asking.add(what)
        looking = Deferred.fromCoroutine(self._learn(what, **arguments))
        looking.addErrback(lambda failure: _log.failure("a worker's state cannot be read", failure))

    async def _learn(self, what: str, **arguments: Mapping[str, Any]) -> None:
        try:
            with suppress(WorkerGone):
                self.known = state_from_json(await self._asker.ask(what, None, **arguments))
        finally:
            self._asking.discard(what)
            self.unanswered = 0

    @property
    def answers(self) -> bool:
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

    async def configure(self, settings: Settings) -> Mapping[str, str]:
        """Make it go on with other settings; return why projects keep theirs.  Raises ``WorkerGone``."""
        failures: Mapping[str, str] = await self._asker.ask(
            "configure", _RELOAD_WITHIN, settings=written(settings)
        )
        return failures

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
            self._reconfigure(document["project"])
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
