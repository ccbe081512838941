"""Running coroutines, and fetching the next item of an asynchronous iterator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.concurrency.tasks import Background, concurrently, next_item
from twisted.internet.defer import CancelledError, Deferred

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def test_next_item_may_be_a_tuple() -> None:
    """``anext`` with a default would unpack a tuple as arguments."""
    fetched: Deferred[tuple[int, int]] = Deferred()

    async def rows() -> AsyncGenerator[tuple[int, int], None]:
        yield await fetched

    items = rows()
    following: Deferred[Any] = Deferred.fromCoroutine(next_item(items, "the end"))
    fetched.callback((1, 2))
    assert following.result == (1, 2)
    assert Deferred.fromCoroutine(next_item(items, "the end")).result == "the end"


def test_tasks_run_concurrently() -> None:
    tasks: list[Deferred[int]] = [Deferred(), Deferred()]
    results = Deferred.fromCoroutine(concurrently(tasks))
    tasks[1].callback(2)
    assert not results.called
    tasks[0].callback(1)
    assert results.result == [1, 2]


def test_first_failure_of_concurrent_tasks_is_raised() -> None:
    tasks: list[Deferred[int]] = [Deferred(), Deferred()]
    results = Deferred.fromCoroutine(concurrently(tasks))
    tasks[1].errback(KeyError("second"))
    tasks[0].errback(ValueError("first"))
    with pytest.raises(KeyError, match="second"):
        results.result.raiseException()  # type: ignore[attr-defined]
    results.addErrback(lambda _: None)


def test_cancelled_concurrent_tasks_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks: list[Deferred[int]] = [Deferred(), Deferred()]
    ended: list[type[BaseException]] = []

    async def wait() -> None:
        try:
            await concurrently(tasks)
        except CancelledError as error:
            ended.append(type(error))
            raise

    background = Background()
    background.spawn(wait())
    background.cancel()
    assert ended == [CancelledError]
    assert not caplog.records
