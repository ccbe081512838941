"""Work in threads: equal work shares its result, and work runs in order and is never interrupted."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.concurrency.tasks import SharedWork, WorkerThread
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN = 10.0
"""Maximum seconds that work waits for the test."""


class Work:
    """Work that ends when the test sets ``may_end``."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self.may_end = Event()

    def __call__(self) -> str:
        """Log the start, wait for ``may_end``, and log the end."""
        self._log.append(f"{self._name} begins")
        self.may_end.wait(WITHIN)
        self._log.append(f"{self._name} ends")
        return self._name.upper()


@pytest.fixture
def log() -> list[str]:
    """Return the list to which work appends its start and end."""
    return []


@pytest.fixture
def first(log: list[str]) -> Iterator[Work]:
    """Yield work that ends after the test at the latest."""
    work = Work("first", log)
    yield work
    work.may_end.set()


async def test_equal_keys_share_one_piece_of_work(first: Work, log: list[str]) -> None:
    results: dict[str, str] = {}
    shared = SharedWork[str, str](results.__setitem__)
    deferreds = [shared.result("key", first) for _ in range(3)]
    first.may_end.set()
    assert [await one for one in deferreds] == ["FIRST"] * 3
    assert (log, results) == (["first begins", "first ends"], {"key": "FIRST"})


async def test_work_continues_in_order_after_its_callers_cancelled(first: Work, log: list[str]) -> None:
    results: dict[str, str] = {}
    shared = SharedWork[str, str](results.__setitem__)
    second, third = Work("second", log), Work("third", log)
    second.may_end.set()
    third.may_end.set()
    first_result, second_result, third_result = (
        shared.result("1", first),
        shared.result("2", second),
        shared.result("3", third),
    )
    for one in (first_result, second_result):
        one.addErrback(lambda failure: failure.trap(defer.CancelledError) and None)
        one.cancel()
    assert not third_result.called
    first.may_end.set()
    assert await third_result == "THIRD"
    assert log == ["first begins", "first ends", "third begins", "third ends"]
    assert results == {"1": "FIRST", "3": "THIRD"}


async def test_failure_reaches_all_callers_and_is_not_cached() -> None:
    results: dict[str, str] = {}
    shared = SharedWork[str, str](results.__setitem__)

    def fail() -> str:
        raise KeyError("missing")

    for one in [shared.result("key", fail) for _ in range(2)]:
        with pytest.raises(KeyError):
            await one
    assert await shared.result("key", lambda: "good") == "good"
    assert results == {"key": "good"}


async def test_callback_may_cancel_another_caller(first: Work) -> None:
    shared = SharedWork[str, str](lambda _key, _result: None)
    deferreds = [shared.result("key", first) for _ in range(4)]
    outcomes: list[Any] = []
    deferreds[0].addCallback(lambda _: deferreds[1].cancel())
    deferreds[1].addErrback(lambda failure: outcomes.append(failure.type))
    first.may_end.set()
    assert [await deferreds[2], await deferreds[3]] == ["FIRST", "FIRST"]
    assert outcomes == [defer.CancelledError]


async def test_worker_returns_results_and_raises_errors() -> None:
    worker = WorkerThread()

    def fail() -> str:
        raise KeyError("missing")

    assert await worker.run(lambda: "good") == "good"
    with pytest.raises(KeyError, match="missing"):
        await worker.run(fail)


async def test_worker_runs_one_piece_of_work_at_a_time(first: Work, log: list[str]) -> None:
    worker, second = WorkerThread(), Work("second", log)
    second.may_end.set()
    second_result = defer.Deferred.fromCoroutine(worker.run(first))
    waiting = defer.Deferred.fromCoroutine(worker.run(second))
    second_result.cancel()
    with pytest.raises(defer.CancelledError):
        await second_result
    first.may_end.set()
    assert await waiting == "SECOND"
    assert log == ["first begins", "first ends", "second begins", "second ends"]
