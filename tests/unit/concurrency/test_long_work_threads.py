"""Long work in a thread: shared by those who ask for the same, one after the other, never stopped halfway."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.concurrency.tasks import SharedWork, WorkerThread
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN = 10.0
"""Seconds after which a thread ends though the test forgot it."""


class Work:
    """Work that begins by itself and ends when the test says so."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self.may_end = Event()

    def __call__(self) -> str:
        """Say that it begins, wait, and say that it ends."""
        self._log.append(f"{self._name} begins")
        self.may_end.wait(WITHIN)
        self._log.append(f"{self._name} ends")
        return self._name.upper()


@pytest.fixture
def log() -> list[str]:
    """Take what the works say."""
    return []


@pytest.fixture
def first(log: list[str]) -> Iterator[Work]:
    """Give a piece of work that is ended after the test."""
    work = Work("first", log)
    yield work
    work.may_end.set()


async def test_who_asks_for_the_same_shares_one_piece_of_work(first: Work, log: list[str]) -> None:
    kept: dict[str, str] = {}
    shared = SharedWork[str, str](kept.__setitem__)
    asked = [shared.result("key", first) for _ in range(3)]
    first.may_end.set()
    assert [await one for one in asked] == ["FIRST"] * 3
    assert (log, kept) == (["first begins", "first ends"], {"key": "FIRST"})


async def test_work_continues_in_order_even_if_nobody_waits_for_the_first(
    first: Work, log: list[str]
) -> None:
    kept: dict[str, str] = {}
    shared = SharedWork[str, str](kept.__setitem__)
    second, third = Work("second", log), Work("third", log)
    second.may_end.set()
    third.may_end.set()
    gone, left, last = shared.result("1", first), shared.result("2", second), shared.result("3", third)
    for one in (gone, left):
        one.addErrback(lambda failure: failure.trap(defer.CancelledError) and None)
        one.cancel()
    assert not last.called
    first.may_end.set()
    assert await last == "THIRD"
    assert log == ["first begins", "first ends", "third begins", "third ends"]
    assert kept == {"1": "FIRST", "3": "THIRD"}


async def test_a_failure_is_everybodys_and_not_kept() -> None:
    kept: dict[str, str] = {}
    shared = SharedWork[str, str](kept.__setitem__)

    def fail() -> str:
        raise KeyError("missing")

    for one in [shared.result("key", fail) for _ in range(2)]:
        with pytest.raises(KeyError):
            await one
    assert await shared.result("key", lambda: "good") == "good"
    assert kept == {"key": "good"}


async def test_one_who_gets_the_result_may_send_another_away(first: Work) -> None:
    shared = SharedWork[str, str](lambda _key, _result: None)
    asked = [shared.result("key", first) for _ in range(4)]
    outcomes: list[Any] = []
    asked[0].addCallback(lambda _: asked[1].cancel())
    asked[1].addErrback(lambda failure: outcomes.append(failure.type))
    first.may_end.set()
    assert [await asked[2], await asked[3]] == ["FIRST", "FIRST"]
    assert outcomes == [defer.CancelledError]


async def test_a_worker_returns_results_and_raises_errors() -> None:
    worker = WorkerThread()

    def fail() -> str:
        raise KeyError("missing")

    assert await worker.run(lambda: "good") == "good"
    with pytest.raises(KeyError, match="missing"):
        await worker.run(fail)


async def test_a_worker_runs_one_piece_after_the_other(first: Work, log: list[str]) -> None:
    worker, second = WorkerThread(), Work("second", log)
    second.may_end.set()
    left = defer.Deferred.fromCoroutine(worker.run(first))
    waiting = defer.Deferred.fromCoroutine(worker.run(second))
    left.cancel()
    with pytest.raises(defer.CancelledError):
        await left
    first.may_end.set()
    assert await waiting == "SECOND"
    assert log == ["first begins", "first ends", "second begins", "second ends"]
