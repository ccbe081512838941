"""The worker's end of the pipe to its parent, with a fake parent, reactor and server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from dataapi.http.errors import DatabaseUnavailable
from dataapi.service import worker as module
from dataapi.service.sockets import Descriptor, StartFailed
from dataapi.service.worker import Worker
from dataapi.service.worker_pipe import FIRST_SOCKET, Assignment
from dataapi.settings import Settings
from dataapi.telemetry.metrics import Snapshot
from dataapi.telemetry.readiness import DaemonState, ProjectState, Reloaded
from dataapi.telemetry.vitals import Vitals, WorkersState
from twisted.internet.defer import Deferred
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogBeginner
from twisted.python.failure import Failure


class FakeServer:
    """A fake server."""

    def __init__(self) -> None:
        self.started: Deferred[None] = Deferred()
        self.stops = 0

    async def start(self) -> None:
        await self.started

    async def stop(self) -> None:
        self.stops += 1

    async def state(self) -> DaemonState:
        return self.known()

    def known(self) -> DaemonState:
        return DaemonState((ProjectState("p", database_available=True, generation=2),))

    async def catalogs(self) -> dict[str, Any]:
        return {}

    async def snapshot(self) -> Snapshot:
        return {"dataapi_pool_size": {("p",): 10.0}}

    async def reload(self, _settings: Settings | None = None) -> Reloaded:
        raise DatabaseUnavailable(503, "PGRST000", "no connection")


class FakeReactor:
    """A fake reactor that only stops."""

    def __init__(self) -> None:
        self.stops = 0
        self.triggers: list[Callable[[], Deferred[None]]] = []

    def addSystemEventTrigger(  # noqa: N802 - IReactorCore
        self, phase: str, event: str, function: Callable[[], Deferred[None]]
    ) -> None:
        assert (phase, event) == ("before", "shutdown")
        self.triggers.append(function)

    def stop(self) -> None:
        self.stops += 1


class Process:
    """A worker process that has received its assignment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.server = FakeServer()
        self.sockets: Sequence[Descriptor] = ()
        self.vitals = Vitals()

        def assemble(
            _reactor: Any,
            _settings: Settings,
            sockets: Sequence[Descriptor],
            _observer: Any,
            _reconfigure: Any,
            vitals: Vitals,
            number: int,
        ) -> FakeServer:
            if error is not None:
                raise error
            assert number == 1
            self.sockets, self.vitals = sockets, vitals
            return self.server

        monkeypatch.setattr(module, "assemble", assemble)
        monkeypatch.setattr(module, "ConnectionShare", lambda *_: None)
        monkeypatch.setattr(globalLogBeginner, "beginLoggingTo", lambda _observers: None)
        self.reactor = FakeReactor()
        self.worker = Worker(self.reactor)
        self.pipe = StringTransport()
        self.worker.makeConnection(self.pipe)
        self.worker.dataReceived(Assignment(1, Settings(projects=()), ("tcp:1", "unix:/x")).encode())

    def send(self, command: str, **arguments: Any) -> Any:
        self.pipe.clear()
        self.worker.dataReceived(json.dumps({"id": 5, "ask": command, **arguments}).encode() + b"\n")
        return self.last_message

    @property
    def last_message(self) -> Any:
        """The only message that the worker has written."""
        return json.loads(self.pipe.value())


def test_worker_reports_that_it_accepts_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    assert process.sockets == [
        Descriptor("tcp:1", FIRST_SOCKET),
        Descriptor("unix:/x", FIRST_SOCKET + 1),
    ]
    assert process.pipe.value() == b""
    process.server.started.callback(None)
    assert process.last_message == {"event": "started", "state": process.server.known().as_json()}


@pytest.mark.parametrize("error", [StartFailed("no key"), ValueError("no key")])
def test_failed_start_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    process = Process(monkeypatch, error)
    assert process.last_message == {"event": "failed", "reason": "no key"}
    assert process.worker.status == 1
    assert process.reactor.stops == 1


def test_commands_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    process.server.started.callback(None)
    state = process.send("state")
    assert state["id"] == 5
    assert state["answer"]["projects"][0]["generation"] == 2
    assert process.send("known") == state
    assert process.send("snapshot") == {"id": 5, "answer": [["dataapi_pool_size", ["p"], 10.0]]}
    assert process.send("reload") == {"id": 5, "error": "no connection"}


def test_worker_stops_when_its_parent_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    process.server.started.callback(None)
    process.worker.connectionLost(Failure(ConnectionError()))
    process.worker.stop()
    assert process.reactor.stops == 1
    assert process.worker.status == 0
    for trigger in process.reactor.triggers:
        trigger()
    assert process.server.stops == 1


def test_stop_during_the_start_is_not_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    process.worker.stop()
    process.server.started.errback(StartFailed("stopped"))
    assert process.pipe.value() == b""
    assert process.worker.status == 0


def test_worker_knows_the_others_from_the_last_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    process.server.started.callback(None)
    for workers in (WorkersState(1, 3, (1, 2, 3)), WorkersState(1, 3, (1, 3), (2,))):
        process.send("known", workers=workers.as_json())
        assert process.vitals.workers == workers
    process.send("known")
    assert process.vitals.workers == workers
