"""One worker process as its parent sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.metrics import Snapshot, from_json
from dataapi.service.listening import StartFailed
from dataapi.service.pipe import ANSWERS, Asker, Assignment, Lines
from dataapi.service.state import Reloaded, State, state_from_json

_log = Logger(namespace="dataapi.workers")
_ANSWER_WITHIN = 5.0
_RELOAD_WITHIN = 120.0


class WorkerProcess(ProcessProtocol):
    """One worker as its parent sees it.

    :ivar started: fires when it accepts requests, or fails with ``StartFailed``.
    :ivar ended: fires with how it ended.
    """

    def __init__(self, reactor: Any, assignment: Assignment, write: Callable[[str], object]) -> None:
        self.number = assignment.number
        self.started: Deferred[None] = Deferred()
        self.ended: Deferred[str] = Deferred()
        self.serves = False
        self.last: Snapshot = {}
        self._assignment = assignment
        self._asker = Asker(reactor, self._send)
        self._streams = {
            1: Lines(lambda line: write(line.decode("utf-8", "replace") + "\n")),
            2: Lines(self._complained),
            ANSWERS: Lines(self._said),
        }

    def connectionMade(self) -> None:  # noqa: N802 - ProcessProtocol
        """Tell the worker what to do."""
        self._send(self._assignment.encode())

    def childDataReceived(self, childFD: int, data: bytes) -> None:  # noqa: N802, N803 - ProcessProtocol
        """Take log lines and answers."""
        self._streams[childFD].feed(data)

    def processEnded(self, reason: Failure) -> None:  # noqa: N802 - ProcessProtocol
        """Fail what is still waited for."""
        for stream in self._streams.values():
            stream.finish()
        self._asker.close()
        how = reason.getErrorMessage().rstrip(".")
        self._not_started(f"worker {self.number} ended while starting: {how}")
        self.serves = False
        self.ended.callback(how)

    async def state(self) -> State:
        """Ask whether it can answer requests; raises ``WorkerGone``."""
        return state_from_json(await self._asker.ask("state", _ANSWER_WITHIN))

    async def snapshot(self) -> Snapshot:
        """Ask for its figures; raises ``WorkerGone``."""
        self.last = from_json(await self._asker.ask("snapshot", _ANSWER_WITHIN))
        return self.last

    async def reload(self) -> Reloaded:
        """Make it read its catalogs again; raises ``WorkerGone``."""
        document = await self._asker.ask("reload", _RELOAD_WITHIN)
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
        elif event == "failed":
            self._not_started(document["reason"])
        elif not self.started.called:
            self.serves = True
            self.started.callback(None)

    def _not_started(self, reason: str) -> None:
        if not self.started.called:
            self.started.errback(StartFailed(reason))

    def _complained(self, line: bytes) -> None:
        _log.error("{text}", text=line.decode("utf-8", "replace"), worker=self.number)
