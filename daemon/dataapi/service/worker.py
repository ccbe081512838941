"""A worker process: serves the sockets bound by its parent, and executes the parent's commands.

Only ``workers.py`` runs it, as ``python -m dataapi.service``. It ends on SIGTERM and when its parent is gone.
"""

from __future__ import annotations

import gc
import json
import signal
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorCore
from twisted.internet.stdio import StandardIO
from twisted.logger import Logger, globalLogBeginner
from twisted.protocols.basic import LineOnlyReceiver
from twisted.python.failure import Failure

from dataapi.service.assembly import assemble
from dataapi.service.process import Process
from dataapi.service.root_service import use_monotonic_clock
from dataapi.service.sockets import ConnectionShare, Descriptor, StartFailed
from dataapi.service.worker_pipe import COUNTS, FIRST_SOCKET, REPLIES, Assignment, encode, load_settings
from dataapi.telemetry.logs import line_observer, to_descriptor
from dataapi.telemetry.metrics import to_json
from dataapi.telemetry.vitals import Vitals, workers_from_json

_log = Logger(namespace="dataapi.worker")


class Worker(LineOnlyReceiver):
    """The worker's end of the pipe. ``status`` is the exit status of the process."""

    delimiter = b"\n"
    MAX_LENGTH = 1 << 26

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._process: Process | None = None
        self._stopping = False
        self._vitals = Vitals()
        self.status = 0

    def lineReceived(self, line: bytes) -> None:  # noqa: N802 - LineOnlyReceiver
        if self._stopping and self._process is None:
            return  # the start failed
        if self._process is None:
            starting = Deferred.fromCoroutine(self._start(Assignment.decode(line)))
            starting.addErrback(self._failed)
        else:
            document = json.loads(line)
            if "workers" in document:
                self._vitals.workers = workers_from_json(document["workers"])
            executing = Deferred.fromCoroutine(
                self._execute(self._process, document["ask"], document.get("settings"))
            )
            executing.addErrback(self._error)
            executing.addCallback(lambda reply: self._send({"id": document["id"], **reply}))

    def connectionLost(self, reason: Failure | None = None) -> None:  # noqa: ARG002, N802 - Protocol
        self.stop()

    def stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._reactor.stop()

    async def _start(self, assignment: Assignment) -> None:
        settings = assignment.settings
        observer = line_observer(
            settings, to_descriptor(1), journal=assignment.journal, worker=assignment.number
        )
        globalLogBeginner.beginLoggingTo([observer])
        share = ConnectionShare(COUNTS, settings.workers, assignment.number - 1)
        sockets = [
            Descriptor(text, FIRST_SOCKET + index, share) for index, text in enumerate(assignment.listen)
        ]
        self._process = process = assemble(
            self._reactor,
            settings,
            sockets,
            observer,
            lambda ref: self._send({"event": "reconfigure", "project": ref}),
            self._vitals,
            assignment.number,
        )
        self._reactor.addSystemEventTrigger(
            "before", "shutdown", lambda: Deferred.fromCoroutine(process.stop())
        )
        await process.start()
        # The entry point disabled the collector, because most objects of the startup are long-lived.
        gc.enable()
        self._send({"event": "started", "state": process.known().as_json()})

    def _failed(self, failure: Failure) -> None:
        if self._stopping:
            return
        if failure.check(StartFailed) is None:
            _log.failure("the worker cannot start", failure)
        self.status = 1
        self._send({"event": "failed", "reason": failure.getErrorMessage()})
        self.stop()

    @staticmethod
    async def _execute(process: Process, command: str, settings: str | None) -> Mapping[str, Any]:
        if command == "known":
            return {"answer": process.known().as_json()}
        if command == "state":
            return {"answer": (await process.state()).as_json()}
        if command == "drain":
            await process.drain()
            return {"answer": None}
        if command == "snapshot":
            return {"answer": to_json(await process.snapshot())}
        if command == "catalogs":
            return {"answer": await process.catalogs()}
        if command == "configure":
            assert settings is not None
            return {"answer": await process.configure(load_settings(settings))}
        return {"answer": (await process.reload(load_settings(settings) if settings else None)).as_json()}

    @staticmethod
    def _error(failure: Failure) -> Mapping[str, Any]:
        _log.failure("a request from the parent process failed", failure)
        return {"error": failure.getErrorMessage()}

    def _send(self, document: Mapping[str, Any]) -> None:
        if self.transport is not None:
            self.transport.write(encode(document))


def main() -> int:
    from twisted.internet import reactor as installed  # noqa: PLC0415 - the process's entry point

    reactor: Any = IReactorCore(installed)
    use_monotonic_clock(reactor)
    worker = Worker(reactor)
    # mypy sees the signature for Windows, without the arguments for descriptors.
    attach: Any = StandardIO
    attach(worker, stdin=0, stdout=REPLIES, reactor=reactor)
    reactor.callWhenRunning(
        signal.signal, signal.SIGTERM, lambda _number, _frame: reactor.callFromThread(worker.stop)
    )
    reactor.run()
    return worker.status
