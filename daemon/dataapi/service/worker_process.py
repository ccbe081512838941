"""One worker process as its parent sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.metrics import Snapshot, from_json
from dataapi.service.listening import StartFailed
from dataapi.service.pipe import ANSWERS, Asker, Assignment, Lines, WorkerGone
from dataapi.service.state import Reloaded, State, state_from_json

_log = Logger(namespace="dataapi.workers")
_FIGURES_WITHIN = 1.0
_RELOAD_WITHIN = 120.0

SILENT = 2
"""Beats in a row that a worker leaves unanswered before it is taken to be stuck."""


class WorkerProcess(ProcessProtocol):
    """One worker as its parent sees it.

    :ivar started: fires when it accepts requests, or fails with ``StartFailed``.
    :ivar ended: fires with how it ended.
    :ivar refusal: why it cannot start, as it said itself.
    :ivar known: the state that it told last, None before the first time.
    :ivar unanswered: beats in a row that it did not answer.
    """

    def __init__(self, reactor: Any, assignment: Assignment, write: Callable[[str], object]) -> None:
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

    def beat(self) -> None:
        """Ask for a sign of life, or count that the last such ask is not answered yet."""
        if "known" in self._asking:
            self.unanswered += 1
        else:
            self._look("known")

    def check(self) -> None:
        """Have it ask its databases whether they answer, unless it does so already, for ``known`` to tell."""
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
        """Take its figures; raises ``WorkerGone``."""
        self.last = from_json(await self._asker.ask("snapshot", _FIGURES_WITHIN))
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
            self.refusal = document["reason"]
            self._not_started(self.refusal)
        elif not self.started.called:
            self.serves = True
            self._look("known")
            self.started.callback(None)

    def _not_started(self, reason: str) -> None:
        if not self.started.called:
            self.started.errback(StartFailed(reason))

    def _complained(self, line: bytes) -> None:
        _log.error("{text}", text=line.decode("utf-8", "replace"), worker=self.number)
