"""The parent of the workers, with fake processes and a fake clock."""

from __future__ import annotations

import json
from typing import Any

from dataapi.service.process import GRACE
from dataapi.service.sockets import Descriptor, StartFailed
from dataapi.service.worker_pipe import FIRST_SOCKET, REPLIES, Assignment
from dataapi.service.worker_process import STUCK_AFTER_BEATS, WorkerProcess
from dataapi.service.workers import BEAT, KILL_AFTER_BEATS, KILL_STARTING_AFTER_BEATS, Workers, restart_wait
from dataapi.settings import Settings
from dataapi.telemetry.metrics import Histogram
from dataapi.telemetry.readiness import DaemonState, ProjectState
from hypothesis import given
from hypothesis import strategies as st
from support.deferreds import outcome
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.task import Clock
from twisted.python.failure import Failure

STATE = {"ready": True, "starting": False, "draining": False, "workers": 1, "projects": [], "webhooks": None}


class FakeChild:
    """A fake worker process."""

    def __init__(self, protocol: WorkerProcess, environ: dict[str, str], descriptors: dict[int, Any]) -> None:
        self.protocol = protocol
        self.environ = environ
        self.descriptors = descriptors
        self.received: list[bytes] = []
        self.signals: list[str] = []
        self.ended = False
        protocol.makeConnection(self)

    def writeToChild(self, descriptor: int, data: bytes) -> None:  # noqa: N802 - IProcessTransport
        assert descriptor == 0
        self.received.append(data)

    def signalProcess(self, name: str) -> None:  # noqa: N802 - IProcessTransport
        if self.ended:
            raise ProcessExitedAlready
        self.signals.append(name)

    def send(self, **document: Any) -> None:
        self.protocol.childDataReceived(REPLIES, json.dumps(document).encode() + b"\n")

    def respond(self, command: str, result: Any) -> None:
        """Respond to the last command with this name."""
        commands = [json.loads(line) for line in self.received[1:]]
        self.send(id=[each["id"] for each in commands if each["ask"] == command][-1], answer=result)

    def serve(self, **state: Any) -> None:
        """Report that the worker accepts requests."""
        self.send(event="started", state={**STATE, **state})

    def end(self) -> None:
        self.ended = True
        self.protocol.processEnded(Failure(ProcessDone(None)))


class FakeReactor(Clock):
    """A fake reactor that creates fake child processes."""

    def __init__(self) -> None:
        super().__init__()
        self.children: list[FakeChild] = []

    def spawnProcess(  # noqa: N802 - IReactorProcess
        self,
        protocol: Any,
        _program: str,
        _words: list[str],
        *,
        env: Any,
        childFDs: Any,  # noqa: N803
    ) -> None:
        self.children.append(FakeChild(protocol, env, childFDs))


class Parent:
    """A started parent of two workers."""

    def __init__(self) -> None:
        self.reactor = FakeReactor()
        self.lines: list[str] = []
        settings = Settings(projects=(), workers=2)
        environ = {"PATH": "/bin", "NOTIFY_SOCKET": "/run/x", "LISTEN_FDS": "1"}
        sockets = [Descriptor("tcp:1", 77)]
        self.workers = Workers(self.reactor, settings, sockets, self.lines.append, environ)
        self.started = Deferred.fromCoroutine(self.workers.start())

    @property
    def children(self) -> list[FakeChild]:
        return self.reactor.children


def serving() -> Parent:
    """Return a parent whose two workers have started."""
    parent = Parent()
    for child in parent.children:
        child.serve()
    assert outcome(parent.started) is None
    return parent


def state_of(parent: Parent) -> DaemonState:
    state = outcome(parent.workers.state())
    assert isinstance(state, DaemonState)
    return state


def test_each_worker_gets_its_assignment_and_sockets() -> None:
    parent = serving()
    first, second = (Assignment.decode(child.received[0]) for child in parent.children)
    assert (first.number, second.number) == (1, 2)
    assert first.listen == ("tcp:1",)
    assert parent.children[0].descriptors[FIRST_SOCKET] == 77
    assert parent.children[0].environ == {"PATH": "/bin"}


def test_start_waits_for_all_workers() -> None:
    parent = Parent()
    parent.children[0].serve()
    assert not parent.started.called
    parent.children[1].serve()
    assert parent.started.called


def test_second_failure_of_a_worker_fails_the_start() -> None:
    """A retry would not fix an invalid configuration."""
    parent = Parent()
    for child in (0, 2):
        assert not parent.started.called
        parent.children[child].send(event="failed", reason="jwt-secret cannot be read")
        parent.children[child].end()
        parent.reactor.advance(0.1)
    error = outcome(parent.started)
    assert isinstance(error, StartFailed)
    assert str(error) == "jwt-secret cannot be read"


def test_worker_that_dies_while_starting_is_restarted() -> None:
    parent = Parent()
    parent.children[0].serve()
    parent.children[1].end()
    assert not parent.started.called
    parent.reactor.advance(0.1)
    parent.children[2].end()
    parent.reactor.advance(0.1)
    assert len(parent.children) == 3
    parent.reactor.advance(0.1)
    parent.children[3].serve()
    assert outcome(parent.started) is None
    assert state_of(parent).workers == 2


def test_worker_that_keeps_dying_while_starting_fails_the_start() -> None:
    parent = Parent()
    parent.children[0].serve()
    for _ in range(5):
        assert not parent.started.called
        parent.children[-1].end()
        parent.reactor.advance(2)
    error = outcome(parent.started)
    assert isinstance(error, StartFailed)
    assert "worker 2 ended while starting" in str(error)


@given(st.integers(1, 10_000))
def test_restart_delay_grows_up_to_a_maximum(deaths: int) -> None:
    assert restart_wait(1) == 0.1
    assert restart_wait(deaths) <= restart_wait(deaths + 1) <= 30


def test_worker_that_keeps_dying_is_restarted_more_slowly() -> None:
    parent = serving()
    parent.children[0].end()
    parent.reactor.advance(0.09)
    assert len(parent.children) == 2
    parent.reactor.advance(0.02)
    assert len(parent.children) == 3
    assert Assignment.decode(parent.children[2].received[0]).number == 1
    parent.children[2].end()
    parent.reactor.advance(0.15)
    assert len(parent.children) == 3
    parent.reactor.advance(0.1)
    assert len(parent.children) == 4
    parent.reactor.advance(61)
    parent.children[3].end()
    parent.reactor.advance(0.15)
    assert len(parent.children) == 5


def test_readiness_depends_on_serving_workers() -> None:
    parent = serving()
    assert state_of(parent).workers == 2
    parent.children[0].end()
    assert state_of(parent).ready
    parent.children[1].end()
    assert not state_of(parent).ready


def test_draining_workers_are_not_replaced() -> None:
    parent = serving()
    draining = Deferred.fromCoroutine(parent.workers.drain())
    assert (state_of(parent).ready, state_of(parent).draining) == (False, True)
    for child in parent.children:
        child.respond("drain", None)
    assert draining.called
    parent.children[0].end()
    parent.reactor.advance(60)
    assert len(parent.children) == 2


def test_heartbeat_updates_the_state_of_workers() -> None:
    parent = serving()
    project = ProjectState("p", database_available=False, generation=1, reason="away")
    parent.reactor.advance(BEAT)
    parent.children[0].respond("known", DaemonState((project,)).as_json())
    assert state_of(parent).projects == (project,)
    assert not state_of(parent).ready


def test_start_clears_the_starting_state_of_heartbeats() -> None:
    parent = Parent()
    parent.reactor.advance(BEAT)
    for child in parent.children:
        child.respond("known", {**STATE, "starting": True})
        child.serve()
    assert outcome(parent.started) is None
    assert state_of(parent).ready


def test_readiness_request_checks_the_databases() -> None:
    parent = serving()
    beat(parent, 1, *parent.children)
    assert not any(b'"state"' in line for child in parent.children for line in child.received)
    assert state_of(parent).ready
    beat(parent, KILL_AFTER_BEATS + 1, *parent.children)
    assert state_of(parent).stuck == ()
    project = ProjectState("p", database_available=False, generation=1, reason="it does not answer")
    for child in parent.children:
        assert sum(b'"state"' in line for line in child.received) == 1
        child.respond("state", DaemonState((project,)).as_json())
    assert not state_of(parent).ready


def beat(parent: Parent, times: int, *responding: FakeChild) -> None:
    """Advance the clock by some heartbeats. Only these workers respond to the heartbeats."""
    for _ in range(times):
        parent.reactor.advance(BEAT)
        for child in responding:
            child.respond("known", STATE)


def test_unresponsive_worker_is_reported_and_not_counted() -> None:
    parent = serving()
    metrics = [["dataapi_requests_total", ["rest", "2xx"], 5]]
    pending = Deferred.fromCoroutine(parent.workers.snapshot())
    for child in parent.children:
        child.respond("snapshot", metrics)
    assert outcome(pending)["dataapi_requests_total"] == {("rest", "2xx"): 10}
    beat(parent, 3, parent.children[0])
    state = state_of(parent)
    assert (state.ready, state.workers, state.stuck) == (True, 1, (2,))
    pending = Deferred.fromCoroutine(parent.workers.snapshot())
    parent.children[0].respond("snapshot", metrics)
    snapshot = outcome(pending)
    assert snapshot["dataapi_requests_total"] == {("rest", "2xx"): 10}
    assert snapshot["dataapi_workers"] == {(): 1}
    assert snapshot["dataapi_workers_stuck"] == {(): 1}
    reloading = Deferred.fromCoroutine(parent.workers.reload())
    parent.children[0].respond("reload", {"generations": {"p": 4}, "failures": {}})
    assert outcome(reloading).failures == {"worker 2": "the worker does not respond"}


def test_worker_that_responds_late_is_no_longer_stuck() -> None:
    parent = serving()
    beat(parent, 10, parent.children[0])
    assert state_of(parent).stuck == (2,)
    parent.children[1].respond("known", STATE)
    assert (state_of(parent).stuck, state_of(parent).workers) == ((), 2)
    beat(parent, 30, *parent.children)
    assert parent.children[1].signals == []


def test_unresponsive_worker_is_killed_and_replaced() -> None:
    """Otherwise, the connections that it has accepted would hang."""
    parent = serving()
    beat(parent, KILL_AFTER_BEATS, parent.children[0])
    assert parent.children[1].signals == []
    beat(parent, 1, parent.children[0])
    assert parent.children[1].signals == ["KILL"]
    assert parent.children[0].signals == []
    parent.children[1].end()
    beat(parent, 1, parent.children[0])
    parent.children[2].serve()
    assert (state_of(parent).stuck, state_of(parent).workers) == ((), 2)


def test_suspend_of_the_machine_makes_no_worker_stuck() -> None:
    parent = serving()
    parent.reactor.advance(BEAT)
    parent.reactor.advance(36_000)
    assert state_of(parent).stuck == ()
    assert [child.signals for child in parent.children] == [[], []]


def test_worker_that_hangs_while_starting_is_killed() -> None:
    parent = Parent()
    parent.children[0].serve()
    beat(parent, KILL_STARTING_AFTER_BEATS, parent.children[0])
    assert parent.children[1].signals == []
    beat(parent, 1, parent.children[0])
    assert parent.children[1].signals == ["KILL"]


def test_counters_of_a_dead_worker_stay_in_the_total() -> None:
    parent = serving()
    metrics = [
        ["dataapi_requests_total", ["rest", "2xx"], 5],
        ["dataapi_request_duration_seconds", ["rest"], [[5] + [0] * 13, 0.1]],
        ["dataapi_pool_size", ["p"], 10],
    ]
    pending = Deferred.fromCoroutine(parent.workers.snapshot())
    for child in parent.children:
        child.respond("snapshot", metrics)
    assert outcome(pending)["dataapi_requests_total"] == {("rest", "2xx"): 10}
    parent.children[0].end()
    pending = Deferred.fromCoroutine(parent.workers.snapshot())
    parent.children[1].respond("snapshot", metrics)
    snapshot = outcome(pending)
    assert snapshot["dataapi_requests_total"] == {("rest", "2xx"): 10}
    assert snapshot["dataapi_request_duration_seconds"] == {("rest",): Histogram((10, *[0] * 13), 0.2)}
    assert snapshot["dataapi_pool_size"] == {("p",): 10}
    assert snapshot["dataapi_workers"] == {(): 1}


def test_reload_returns_the_oldest_generation_of_all_workers() -> None:
    parent = serving()
    pending = Deferred.fromCoroutine(parent.workers.reload())
    parent.children[0].respond("reload", {"generations": {"p": 4}, "failures": {}})
    assert not pending.called
    parent.children[1].respond("reload", {"generations": {"p": 3}, "failures": {"q": "away"}})
    reloaded = outcome(pending)
    assert (reloaded.generations, reloaded.failures) == ({"p": 3}, {"q": "away"})


def test_worker_that_dies_during_a_reload_is_a_failure() -> None:
    parent = serving()
    pending = Deferred.fromCoroutine(parent.workers.reload())
    parent.children[0].respond("reload", {"generations": {"p": 4}, "failures": {}})
    parent.children[1].end()
    assert outcome(pending).failures == {"worker 2": "the worker ended"}


def test_stop_waits_for_the_workers() -> None:
    parent = serving()
    stopping = Deferred.fromCoroutine(parent.workers.stop())
    assert [child.signals for child in parent.children] == [["TERM"], ["TERM"]]
    parent.children[0].end()
    assert not stopping.called
    parent.children[1].end()
    assert stopping.called
    assert parent.reactor.getDelayedCalls() == []
    assert len(parent.children) == 2


def test_worker_that_does_not_stop_is_killed() -> None:
    parent = serving()
    stopping = Deferred.fromCoroutine(parent.workers.stop())
    parent.children[0].end()
    parent.reactor.advance(GRACE)
    assert parent.children[1].signals == ["TERM"]
    parent.reactor.advance(10)
    assert parent.children[1].signals == ["TERM", "KILL"]
    parent.children[1].end()
    assert stopping.called


def test_stop_does_not_wait_for_a_scheduled_restart() -> None:
    parent = serving()
    parent.children[0].end()
    stopping = Deferred.fromCoroutine(parent.workers.stop())
    parent.children[1].end()
    assert stopping.called
    assert parent.reactor.getDelayedCalls() == []


def test_log_lines_of_a_worker_are_forwarded_whole() -> None:
    parent = serving()
    child = parent.children[0]
    child.protocol.childDataReceived(1, b'{"message":"one"}\n{"mess')
    child.protocol.childDataReceived(1, b'age":"two"}\n')
    assert parent.lines == ['{"message":"one"}\n', '{"message":"two"}\n']


def test_heartbeat_sends_the_state_of_all_workers_to_each() -> None:
    parent = serving()
    beat(parent, STUCK_AFTER_BEATS + 2, parent.children[0])
    states = [json.loads(child.received[-1])["workers"] for child in parent.children]
    assert states[0] == {"own": 1, "configured": 2, "serving": [1], "stuck": [2]}
    assert states[1] == {"own": 2, "configured": 2, "serving": [1, 2], "stuck": []}
