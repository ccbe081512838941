"""What a worker and its parent say to each other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dataapi.service.worker_pipe import Assignment, LineSplitter, WorkerClient, WorkerGone
from dataapi.settings import Project, Settings, TransactionEnd
from hypothesis import given
from hypothesis import strategies as st
from support.deferreds import outcome
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock


@given(st.lists(st.binary(max_size=8).map(lambda data: data.replace(b"\n", b""))), st.data())
def test_lines_come_out_whole_however_the_bytes_arrive(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    received: list[bytes] = []
    cutter = LineSplitter(received.append)
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        cutter.feed(stream[:size])
        stream = stream[size:]
    cutter.finish()
    assert received == lines


def test_a_line_without_an_end_comes_out_at_the_end() -> None:
    received: list[bytes] = []
    cutter = LineSplitter(received.append)
    cutter.feed(b"one\ntw")
    assert received == [b"one"]
    cutter.finish()
    cutter.finish()
    assert received == [b"one", b"tw"]


def test_an_assignment_arrives_as_it_was_sent() -> None:
    project = Project(
        "a" * 20, "acme", "postgresql://u:p@h/d", db_tx_end=TransactionEnd.ROLLBACK, jwt_secret="j\n"
    )
    assignment = Assignment(3, Settings(projects=(project,), workers=4), ("tcp:1", "unix:/x"))
    line = assignment.encode()
    assert line.count(b"\n") == 1
    assert Assignment.decode(line) == assignment


class Conversation:
    """An asker, its clock, and what it sent."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sent: list[dict[str, Any]] = []
        self.client = WorkerClient(self.clock, lambda line: self.sent.append(json.loads(line)))

    def ask(self, what: str) -> Deferred[Any]:
        """Ask with five seconds of patience."""
        return Deferred.fromCoroutine(self.client.send(what, 5))


def test_answers_reach_who_asked_in_whatever_order() -> None:
    talk = Conversation()
    state, figures = talk.ask("state"), talk.ask("snapshot")
    assert [document["ask"] for document in talk.sent] == ["state", "snapshot"]
    talk.client.received({"id": talk.sent[1]["id"], "answer": "figures"})
    talk.client.received({"id": talk.sent[0]["id"], "answer": "state"})
    assert (outcome(state), outcome(figures)) == ("state", "figures")
    assert talk.clock.getDelayedCalls() == []


def test_a_worker_that_does_not_answer_is_not_waited_for() -> None:
    talk = Conversation()
    asked = talk.ask("state")
    talk.clock.advance(5)
    assert isinstance(outcome(asked), WorkerGone)
    talk.client.received({"id": talk.sent[0]["id"], "answer": "late"})


@pytest.mark.parametrize("how", ["error", "end"])
def test_failures_of_the_worker_fail_the_question(how: str) -> None:
    talk = Conversation()
    asked = talk.ask("reload")
    if how == "error":
        talk.client.received({"id": talk.sent[0]["id"], "error": "no database"})
    else:
        talk.client.close()
    error = outcome(asked)
    assert isinstance(error, WorkerGone)
    assert str(error) == {"error": "no database", "end": "the worker ended"}[how]
    assert talk.clock.getDelayedCalls() == []
