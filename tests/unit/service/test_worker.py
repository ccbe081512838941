"""The worker's end of the pipe, with a parent, a reactor and a server on paper."""

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


class Server:
    """What serves, on paper."""

    def __init__(self) -> None:
        self.started: Deferred[None] = Deferred()
        self.stops = 0

    async def start(self) -> None:
        """Start when told to."""
        await self.started

    async def stop(self) -> None:
        """Note it."""
        self.stops += 1

    async def state(self) -> DaemonState:
        """Serve one project."""
        return self.known()

    def known(self) -> DaemonState:
        """Serve one project."""
        return DaemonState((ProjectState("p", database_available=True, generation=2),))

    async def catalogs(self) -> dict[str, Any]:
        """Have no catalog."""
        return {}

    async def snapshot(self) -> Snapshot:
        """Have one figure."""
        return {"dataapi_pool_size": {("p",): 10.0}}

    async def reload(self, _settings: Settings | None = None) -> Reloaded:
        """Fail."""
        raise DatabaseUnavailable(503, "PGRST000", "no connection")


class Machine:
    """A reactor that only stops."""

    def __init__(self) -> None:
        self.stops = 0
        self.triggers: list[Callable[[], Deferred[None]]] = []

    def addSystemEventTrigger(  # noqa: N802 - IReactorCore
        self, phase: str, event: str, function: Callable[[], Deferred[None]]
    ) -> None:
        assert (phase, event) == ("before", "shutdown")
        self.triggers.append(function)

    def stop(self) -> None:
        """Note it."""
        self.stops += 1


class Process:
    """A worker process that got its assignment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.server = Server()
        self.sockets: Sequence[Descriptor] = ()
        self.vitals = Vitals()

        def assemble(
            _reactor: Any,
            _settings: Settings,
            sockets: Sequence[Descriptor],
            _observer: Any,
            _again: Any,
            vitals: Vitals,
            number: int,
        ) -> Server:
            if error is not None:
                raise error
            assert number == 1
            self.sockets, self.vitals = sockets, vitals
            return self.server

        monkeypatch.setattr(module, "assemble", assemble)
        monkeypatch.setattr(module, "ConnectionShare", lambda *_: None)
        monkeypatch.setattr(globalLogBeginner, "beginLoggingTo", lambda _observers: None)
        self.machine = Machine()
        self.worker = Worker(self.machine)
        self.pipe = StringTransport()
        self.worker.makeConnection(self.pipe)
        self.worker.dataReceived(Assignment(1, Settings(projects=()), ("tcp:1", "unix:/x")).encode())

    def ask(self, what: str, **told: Any) -> Any:
        """Ask and return the answer."""
        self.pipe.clear()
        self.worker.dataReceived(json.dumps({"id": 5, "ask": what, **told}).encode() + b"\n")
        return self.said

    @property
    def said(self) -> Any:
        """The one message that it wrote."""
        return json.loads(self.pipe.value())


def test_it_says_when_it_accepts_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    assert process.sockets == [
        Descriptor("tcp:1", FIRST_SOCKET),
        Descriptor("unix:/x", FIRST_SOCKET + 1),
    ]
    assert process.pipe.value() == b""
    process.server.started.callback(None)
    assert process.said == {"event": "started", "state": process.server.known().as_json()}


@pytest.mark.parametrize("error", [StartFailed("no key"), ValueError("no key")])
def test_a_failed_start_is_reported_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    process = Process(monkeypatch, error)
    assert process.said == {"event": "failed", "reason": "no key"}
    assert process.worker.status == 1
    assert process.machine.stops == 1


def test_asks_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    process.server.started.callback(None)
    state = process.ask("state")
    assert state["id"] == 5
    assert state["answer"]["projects"][0]["generation"] == 2
    assert process.ask("known") == state
    assert process.ask("snapshot") == {"id": 5, "answer": [["dataapi_pool_size", ["p"], 10.0]]}
    assert process.ask("reload") == {"id": 5, "error": "no connection"}


def test_a_worker_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    process.server.started.callback(None)
    process.worker.connectionLost(Failure(ConnectionError()))
    process.worker.stop()
    assert process.machine.stops == 1
    assert process.worker.status == 0
    for trigger in process.machine.triggers:
        trigger()
    assert process.server.stops == 1


def test_stopping_while_starting_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that ends because the worker was told to stop is not reported as failed."""
    process = Process(monkeypatch)
    process.worker.stop()
    process.server.started.errback(StartFailed("stopped"))
    assert process.pipe.value() == b""
    assert process.worker.status == 0


def test_it_knows_of_the_others_what_the_last_heartbeat_told(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    process.server.started.callback(None)
    for told in (WorkersState(1, 3, (1, 2, 3)), WorkersState(1, 3, (1, 3), (2,))):
        process.ask("known", workers=told.as_json())
        assert process.vitals.workers == told
    process.ask("known")
    assert process.vitals.workers == told
