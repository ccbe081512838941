"""The parent of the workers, with processes that only exist on paper and a clock that we turn."""

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


class Child:
    """A worker process on paper."""

    def __init__(self, protocol: WorkerProcess, environ: dict[str, str], descriptors: dict[int, Any]) -> None:
        self.protocol = protocol
        self.environ = environ
        self.descriptors = descriptors
        self.received: list[bytes] = []
        self.signals: list[str] = []
        self.ended = False
        protocol.makeConnection(self)

    def writeToChild(self, descriptor: int, data: bytes) -> None:  # noqa: N802 - IProcessTransport
        """Take what the parent writes."""
        assert descriptor == 0
        self.received.append(data)

    def signalProcess(self, name: str) -> None:  # noqa: N802 - IProcessTransport
        """Take a signal."""
        if self.ended:
            raise ProcessExitedAlready
        self.signals.append(name)

    def say(self, **document: Any) -> None:
        """Write a message to the parent."""
        self.protocol.childDataReceived(REPLIES, json.dumps(document).encode() + b"\n")

    def answer(self, what: str, answer: Any) -> None:
        """Answer the last question of this kind."""
        asked = [json.loads(line) for line in self.received[1:]]
        self.say(id=[one["id"] for one in asked if one["ask"] == what][-1], answer=answer)

    def serve(self, **state: Any) -> None:
        """Accept requests, and say so when asked."""
        self.say(event="started", state={**STATE, **state})

    def end(self) -> None:
        """Die."""
        self.ended = True
        self.protocol.processEnded(Failure(ProcessDone(None)))


class Machine(Clock):
    """A reactor that spawns children on paper."""

    def __init__(self) -> None:
        super().__init__()
        self.children: list[Child] = []

    def spawnProcess(  # noqa: N802 - IReactorProcess
        self,
        protocol: Any,
        _program: str,
        _words: list[str],
        *,
        env: Any,
        childFDs: Any,  # noqa: N803
    ) -> None:
        """Make a child."""
        self.children.append(Child(protocol, env, childFDs))


class Parent:
    """Two workers' parent, started."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.lines: list[str] = []
        settings = Settings(projects=(), workers=2)
        environ = {"PATH": "/bin", "NOTIFY_SOCKET": "/run/x", "LISTEN_FDS": "1"}
        sockets = [Descriptor("tcp:1", 77)]
        self.workers = Workers(self.machine, settings, sockets, self.lines.append, environ)
        self.started = Deferred.fromCoroutine(self.workers.start())

    @property
    def children(self) -> list[Child]:
        """Every child so far."""
        return self.machine.children


def serving() -> Parent:
    """Return a parent whose workers both accept requests."""
    parent = Parent()
    for child in parent.children:
        child.serve()
    assert outcome(parent.started) is None
    return parent


def reported(parent: Parent) -> DaemonState:
    state = outcome(parent.workers.state())
    assert isinstance(state, DaemonState)
    return state


def test_each_worker_gets_its_assignment_and_the_sockets() -> None:
    parent = serving()
    first, second = (Assignment.decode(child.received[0]) for child in parent.children)
    assert (first.number, second.number) == (1, 2)
    assert first.listen == ("tcp:1",)
    assert parent.children[0].descriptors[FIRST_SOCKET] == 77
    assert parent.children[0].environ == {"PATH": "/bin"}


def test_the_start_is_over_when_all_workers_serve() -> None:
    parent = Parent()
    parent.children[0].serve()
    assert not parent.started.called
    parent.children[1].serve()
    assert parent.started.called


def test_a_worker_that_says_twice_why_it_cannot_start_fails_the_start() -> None:
    """A mistake in the configuration is told with the worker's reason, instead of being tried for ever."""
    parent = Parent()
    for child in (0, 2):
        assert not parent.started.called
        parent.children[child].say(event="failed", reason="jwt-secret cannot be read")
        parent.children[child].end()
        parent.machine.advance(0.1)
    error = outcome(parent.started)
    assert isinstance(error, StartFailed)
    assert str(error) == "jwt-secret cannot be read"


def test_a_worker_that_dies_while_starting_is_started_again() -> None:
    parent = Parent()
    parent.children[0].serve()
    parent.children[1].end()
    assert not parent.started.called
    parent.machine.advance(0.1)
    parent.children[2].end()
    parent.machine.advance(0.1)
    assert len(parent.children) == 3
    parent.machine.advance(0.1)
    parent.children[3].serve()
    assert outcome(parent.started) is None
    assert reported(parent).workers == 2


def test_a_worker_that_dies_again_and_again_while_starting_fails_the_start() -> None:
    """Nobody would else be told that the daemon cannot start."""
    parent = Parent()
    parent.children[0].serve()
    for _ in range(5):
        assert not parent.started.called
        parent.children[-1].end()
        parent.machine.advance(2)
    error = outcome(parent.started)
    assert isinstance(error, StartFailed)
    assert "worker 2 ended while starting" in str(error)


@given(st.integers(1, 10_000))
def test_waits_before_a_restart_grow_and_stay_bounded(deaths: int) -> None:
    """The wait starts at a tenth of a second, never shrinks with further deaths, and ends at 30 s."""
    assert restart_wait(1) == 0.1
    assert restart_wait(deaths) <= restart_wait(deaths + 1) <= 30


def test_a_worker_that_keeps_dying_is_started_ever_more_slowly() -> None:
    parent = serving()
    parent.children[0].end()
    parent.machine.advance(0.09)
    assert len(parent.children) == 2
    parent.machine.advance(0.02)
    assert len(parent.children) == 3
    assert Assignment.decode(parent.children[2].received[0]).number == 1
    parent.children[2].end()
    parent.machine.advance(0.15)
    assert len(parent.children) == 3
    parent.machine.advance(0.1)
    assert len(parent.children) == 4
    parent.machine.advance(61)
    parent.children[3].end()
    parent.machine.advance(0.15)
    assert len(parent.children) == 5


def test_readiness_is_that_of_the_workers_that_serve() -> None:
    parent = serving()
    assert reported(parent).workers == 2
    parent.children[0].end()
    assert reported(parent).ready
    parent.children[1].end()
    assert not reported(parent).ready


def test_workers_that_are_to_stop_go_on_without_being_replaced() -> None:
    parent = serving()
    draining = Deferred.fromCoroutine(parent.workers.drain())
    assert (reported(parent).ready, reported(parent).draining) == (False, True)
    for child in parent.children:
        child.answer("drain", None)
    assert draining.called
    parent.children[0].end()
    parent.machine.advance(60)
    assert len(parent.children) == 2


def test_what_is_known_of_workers_is_asked_anew_with_each_beat() -> None:
    parent = serving()
    project = ProjectState("p", database_available=False, generation=1, reason="away")
    parent.machine.advance(BEAT)
    parent.children[0].answer("known", DaemonState((project,)).as_json())
    assert reported(parent).projects == (project,)
    assert not reported(parent).ready


def test_what_a_heartbeat_learned_of_a_start_ends_with_the_start() -> None:
    parent = Parent()
    parent.machine.advance(BEAT)
    for child in parent.children:
        child.answer("known", {**STATE, "starting": True})
        child.serve()
    assert outcome(parent.started) is None
    assert reported(parent).ready


def test_to_ask_whether_the_daemon_is_ready_has_the_databases_asked() -> None:
    parent = serving()
    beat(parent, 1, *parent.children)
    assert not any(b'"state"' in line for child in parent.children for line in child.received)
    assert reported(parent).ready
    beat(parent, KILL_AFTER_BEATS + 1, *parent.children)
    assert reported(parent).stuck == ()
    project = ProjectState("p", database_available=False, generation=1, reason="it does not answer")
    for child in parent.children:
        assert sum(b'"state"' in line for line in child.received) == 1
        child.answer("state", DaemonState((project,)).as_json())
    assert not reported(parent).ready


def beat(parent: Parent, times: int, *answering: Child) -> None:
    """Let beats pass which only these answer."""
    for _ in range(times):
        parent.machine.advance(BEAT)
        for child in answering:
            child.answer("known", STATE)


def test_a_worker_that_does_not_answer_is_named_and_not_counted() -> None:
    parent = serving()
    figures = [["dataapi_requests_total", ["rest", "2xx"], 5]]
    asked = Deferred.fromCoroutine(parent.workers.snapshot())
    for child in parent.children:
        child.answer("snapshot", figures)
    assert outcome(asked)["dataapi_requests_total"] == {("rest", "2xx"): 10}
    beat(parent, 3, parent.children[0])
    state = reported(parent)
    assert (state.ready, state.workers, state.stuck) == (True, 1, (2,))
    asked = Deferred.fromCoroutine(parent.workers.snapshot())
    parent.children[0].answer("snapshot", figures)
    snapshot = outcome(asked)
    assert snapshot["dataapi_requests_total"] == {("rest", "2xx"): 10}
    assert snapshot["dataapi_workers"] == {(): 1}
    assert snapshot["dataapi_workers_stuck"] == {(): 1}
    reloading = Deferred.fromCoroutine(parent.workers.reload())
    parent.children[0].answer("reload", {"generations": {"p": 4}, "failures": {}})
    assert outcome(reloading).failures == {"worker 2": "the worker does not respond"}


def test_a_worker_that_answers_late_serves_again() -> None:
    parent = serving()
    beat(parent, 10, parent.children[0])
    assert reported(parent).stuck == (2,)
    parent.children[1].answer("known", STATE)
    assert (reported(parent).stuck, reported(parent).workers) == ((), 2)
    beat(parent, 30, *parent.children)
    assert parent.children[1].signals == []


def test_a_worker_that_does_not_answer_for_long_is_killed_and_replaced() -> None:
    """Connections that it had accepted would else hang for as long as their clients wait."""
    parent = serving()
    beat(parent, KILL_AFTER_BEATS, parent.children[0])
    assert parent.children[1].signals == []
    beat(parent, 1, parent.children[0])
    assert parent.children[1].signals == ["KILL"]
    assert parent.children[0].signals == []
    parent.children[1].end()
    beat(parent, 1, parent.children[0])
    parent.children[2].serve()
    assert (reported(parent).stuck, reported(parent).workers) == ((), 2)


def test_nobody_is_stuck_because_the_machine_slept() -> None:
    parent = serving()
    parent.machine.advance(BEAT)
    parent.machine.advance(36_000)
    assert reported(parent).stuck == ()
    assert [child.signals for child in parent.children] == [[], []]


def test_a_worker_that_hangs_while_starting_is_killed_too() -> None:
    parent = Parent()
    parent.children[0].serve()
    beat(parent, KILL_STARTING_AFTER_BEATS, parent.children[0])
    assert parent.children[1].signals == []
    beat(parent, 1, parent.children[0])
    assert parent.children[1].signals == ["KILL"]


def test_counts_of_a_dead_worker_stay_in_the_sum() -> None:
    """A counter never goes back because a worker died; its gauges go with it."""
    parent = serving()
    figures = [
        ["dataapi_requests_total", ["rest", "2xx"], 5],
        ["dataapi_request_duration_seconds", ["rest"], [[5] + [0] * 13, 0.1]],
        ["dataapi_pool_size", ["p"], 10],
    ]
    asked = Deferred.fromCoroutine(parent.workers.snapshot())
    for child in parent.children:
        child.answer("snapshot", figures)
    assert outcome(asked)["dataapi_requests_total"] == {("rest", "2xx"): 10}
    parent.children[0].end()
    asked = Deferred.fromCoroutine(parent.workers.snapshot())
    parent.children[1].answer("snapshot", figures)
    snapshot = outcome(asked)
    assert snapshot["dataapi_requests_total"] == {("rest", "2xx"): 10}
    assert snapshot["dataapi_request_duration_seconds"] == {("rest",): Histogram((10, *[0] * 13), 0.2)}
    assert snapshot["dataapi_pool_size"] == {("p",): 10}
    assert snapshot["dataapi_workers"] == {(): 1}


def test_a_reload_speaks_for_the_slowest_worker() -> None:
    parent = serving()
    asked = Deferred.fromCoroutine(parent.workers.reload())
    parent.children[0].answer("reload", {"generations": {"p": 4}, "failures": {}})
    assert not asked.called
    parent.children[1].answer("reload", {"generations": {"p": 3}, "failures": {"q": "away"}})
    reloaded = outcome(asked)
    assert (reloaded.generations, reloaded.failures) == ({"p": 3}, {"q": "away"})


def test_a_worker_that_dies_during_a_reload_is_a_failure() -> None:
    parent = serving()
    asked = Deferred.fromCoroutine(parent.workers.reload())
    parent.children[0].answer("reload", {"generations": {"p": 4}, "failures": {}})
    parent.children[1].end()
    assert outcome(asked).failures == {"worker 2": "the worker ended"}


def test_stopping_waits_for_the_workers() -> None:
    parent = serving()
    stopping = Deferred.fromCoroutine(parent.workers.stop())
    assert [child.signals for child in parent.children] == [["TERM"], ["TERM"]]
    parent.children[0].end()
    assert not stopping.called
    parent.children[1].end()
    assert stopping.called
    assert parent.machine.getDelayedCalls() == []
    assert len(parent.children) == 2


def test_a_worker_that_does_not_end_is_killed() -> None:
    parent = serving()
    stopping = Deferred.fromCoroutine(parent.workers.stop())
    parent.children[0].end()
    parent.machine.advance(GRACE)
    assert parent.children[1].signals == ["TERM"]
    parent.machine.advance(10)
    assert parent.children[1].signals == ["TERM", "KILL"]
    parent.children[1].end()
    assert stopping.called


def test_a_worker_that_waits_for_its_restart_does_not_hold_up_the_end() -> None:
    parent = serving()
    parent.children[0].end()
    stopping = Deferred.fromCoroutine(parent.workers.stop())
    parent.children[1].end()
    assert stopping.called
    assert parent.machine.getDelayedCalls() == []


def test_lines_of_a_worker_pass_and_its_complaints_become_lines() -> None:
    parent = serving()
    child = parent.children[0]
    child.protocol.childDataReceived(1, b'{"message":"one"}\n{"mess')
    child.protocol.childDataReceived(1, b'age":"two"}\n')
    assert parent.lines == ['{"message":"one"}\n', '{"message":"two"}\n']


def test_a_heartbeat_tells_each_worker_of_all() -> None:
    parent = serving()
    beat(parent, STUCK_AFTER_BEATS + 2, parent.children[0])
    told = [json.loads(child.received[-1])["workers"] for child in parent.children]
    assert told[0] == {"own": 1, "configured": 2, "serving": [1], "stuck": [2]}
    assert told[1] == {"own": 2, "configured": 2, "serving": [1, 2], "stuck": []}
