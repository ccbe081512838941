"""A worker process as seen by its parent: commands, state and metrics."""

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
from dataapi.service.worker_pipe import (
    REPLIES,
    Assignment,
    LineSplitter,
    WorkerClient,
    WorkerGone,
    dump_settings,
)
from dataapi.settings import Settings
from dataapi.telemetry.metrics import Snapshot, from_json
from dataapi.telemetry.readiness import DaemonState, Reloaded, state_from_json
from dataapi.telemetry.vitals import WorkersState

_log = Logger(namespace="dataapi.workers")

_METRICS_WITHIN = 1.0
_RELOAD_WITHIN = 120.0
_DRAIN_WITHIN = 1.0

STUCK_AFTER_BEATS = 2
"""Number of consecutive missed heartbeats after which a worker is considered stuck."""


class WorkerProcess(ProcessProtocol):
    """A worker process as seen by its parent.

    :ivar started: fires when the worker accepts requests, or fails with ``StartFailed``.
    :ivar ended: fires with the reason why the process ended.
    :ivar refusal: why the worker could not start, or None.
    :ivar last_state: the last state that the worker reported, or None.
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
        self.last_snapshot: Snapshot = {}
        self.refusal: str | None = None
        self.last_state: DaemonState | None = None
        self.missed_beats = 0
        self._pending: set[str] = set()
        self._assignment = assignment
        self._reconfigure = reconfigure
        self._client = WorkerClient(reactor, self._send)
        self._streams = {
            1: LineSplitter(lambda line: write(line.decode("utf-8", "replace") + "\n")),
            2: LineSplitter(self._log_stderr),
            REPLIES: LineSplitter(self._handle_message),
        }

    def connectionMade(self) -> None:  # noqa: N802 - ProcessProtocol
        self._send(self._assignment.encode())

    def childDataReceived(self, childFD: int, data: bytes) -> None:  # noqa: N802, N803 - ProcessProtocol
        self._streams[childFD].feed(data)

    def processEnded(self, reason: Failure) -> None:  # noqa: N802 - ProcessProtocol
        for stream in self._streams.values():
            stream.finish()
        self._client.close()
        how = reason.getErrorMessage().rstrip(".")
        self._not_started(f"worker {self.number} ended while starting: {how}")
        self.serves = False
        self.ended.callback(how)

    def beat(self, workers: WorkersState) -> None:
        """Send a heartbeat, or count a missed one if the last has no reply yet."""
        if "known" in self._pending:
            self.missed_beats += 1
        else:
            self._query("known", workers=replace(workers, own=self.number).as_json())

    def check(self) -> None:
        """Make the worker check its databases, unless a check is pending. ``last_state`` is updated later."""
        if "state" not in self._pending:
            self._query("state")

    def _query(self, command: str, **arguments: Mapping[str, Any]) -> None:
        self._pending.add(command)
        querying = Deferred.fromCoroutine(self._update_state(command, **arguments))
        querying.addErrback(lambda failure: _log.failure("a worker's state cannot be read", failure))

    async def _update_state(self, command: str, **arguments: Mapping[str, Any]) -> None:
        try:
            with suppress(WorkerGone):
                self.last_state = state_from_json(await self._client.send(command, None, **arguments))
        finally:
            self._pending.discard(command)
            self.missed_beats = 0

    @property
    def responds(self) -> bool:
        return self.missed_beats < STUCK_AFTER_BEATS

    async def snapshot(self) -> Snapshot:
        self.last_snapshot = from_json(await self._client.send("snapshot", _METRICS_WITHIN))
        return self.last_snapshot

    async def catalogs(self) -> Mapping[str, Any]:
        catalogs: Mapping[str, Any] = await self._client.send("catalogs", _RELOAD_WITHIN)
        return catalogs

    async def drain(self) -> None:
        await self._client.send("drain", _DRAIN_WITHIN)

    async def reload(self, settings: Settings | None) -> Reloaded:
        pickled = settings and dump_settings(settings)
        document = await self._client.send("reload", _RELOAD_WITHIN, settings=pickled)
        return Reloaded(document["generations"], document["failures"])

    async def configure(self, settings: Settings) -> Mapping[str, str]:
        failures: Mapping[str, str] = await self._client.send(
            "configure", _RELOAD_WITHIN, settings=dump_settings(settings)
        )
        return failures

    def signal(self, name: str) -> None:
        assert self.transport is not None
        try:
            self.transport.signalProcess(name)
        except ProcessExitedAlready:
            return

    def _send(self, line: bytes) -> None:
        assert self.transport is not None
        self.transport.writeToChild(0, line)

    def _handle_message(self, line: bytes) -> None:
        document = json.loads(line)
        event = document.get("event")
        if event is None:
            self._client.received(document)
        elif event == "reconfigure":
            self._reconfigure(document["project"])
        elif event == "failed":
            self.refusal = document["reason"]
            self._not_started(self.refusal)
        elif not self.started.called:
            self.serves = True
            # The reply to the last heartbeat contained the state from before the worker was ready.
            self.last_state = state_from_json(document["state"])
            self.started.callback(None)

    def _not_started(self, reason: str) -> None:
        if not self.started.called:
            self.started.errback(StartFailed(reason))

    def _log_stderr(self, line: bytes) -> None:
        _log.error("{text}", text=line.decode("utf-8", "replace"), worker=self.number)
