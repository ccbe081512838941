"""Messages between workers and their parent."""

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
def test_lines_are_split_for_any_chunks_of_bytes(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    received: list[bytes] = []
    splitter = LineSplitter(received.append)
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        splitter.feed(stream[:size])
        stream = stream[size:]
    splitter.finish()
    assert received == lines


def test_last_line_may_lack_its_newline() -> None:
    received: list[bytes] = []
    splitter = LineSplitter(received.append)
    splitter.feed(b"one\ntw")
    assert received == [b"one"]
    splitter.finish()
    splitter.finish()
    assert received == [b"one", b"tw"]


def test_assignment_is_decoded_as_it_was_encoded() -> None:
    project = Project(
        "a" * 20, "acme", "postgresql://u:p@h/d", db_tx_end=TransactionEnd.ROLLBACK, jwt_secret="j\n"
    )
    assignment = Assignment(3, Settings(projects=(project,), workers=4), ("tcp:1", "unix:/x"))
    line = assignment.encode()
    assert line.count(b"\n") == 1
    assert Assignment.decode(line) == assignment


class Conversation:
    """A worker client with a fake clock and recorded messages."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sent: list[dict[str, Any]] = []
        self.client = WorkerClient(self.clock, lambda line: self.sent.append(json.loads(line)))

    def send(self, command: str) -> Deferred[Any]:
        """Send a command with a timeout of five seconds."""
        return Deferred.fromCoroutine(self.client.send(command, 5))


def test_responses_may_arrive_in_any_order() -> None:
    conversation = Conversation()
    state, snapshot = conversation.send("state"), conversation.send("snapshot")
    assert [document["ask"] for document in conversation.sent] == ["state", "snapshot"]
    conversation.client.received({"id": conversation.sent[1]["id"], "answer": "figures"})
    conversation.client.received({"id": conversation.sent[0]["id"], "answer": "state"})
    assert (outcome(state), outcome(snapshot)) == ("state", "figures")
    assert conversation.clock.getDelayedCalls() == []


def test_command_times_out_if_the_worker_does_not_respond() -> None:
    conversation = Conversation()
    pending = conversation.send("state")
    conversation.clock.advance(5)
    assert isinstance(outcome(pending), WorkerGone)
    conversation.client.received({"id": conversation.sent[0]["id"], "answer": "late"})


@pytest.mark.parametrize("failure", ["error", "end"])
def test_command_fails_if_the_worker_fails_or_ends(failure: str) -> None:
    conversation = Conversation()
    pending = conversation.send("reload")
    if failure == "error":
        conversation.client.received({"id": conversation.sent[0]["id"], "error": "no database"})
    else:
        conversation.client.close()
    error = outcome(pending)
    assert isinstance(error, WorkerGone)
    assert str(error) == {"error": "no database", "end": "the worker ended"}[failure]
    assert conversation.clock.getDelayedCalls() == []
