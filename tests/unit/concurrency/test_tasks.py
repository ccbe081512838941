"""Coroutines under way, and the next item of an asynchronous iterator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.concurrency.tasks import Background, concurrently, next_item
from twisted.internet.defer import CancelledError, Deferred

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def test_items_may_wait_for_a_tuple() -> None:
    """Rows and messages are tuples; ``anext`` with a default would take them for several arguments."""
    fetched: Deferred[tuple[int, int]] = Deferred()

    async def rows() -> AsyncGenerator[tuple[int, int], None]:
        yield await fetched

    items = rows()
    following: Deferred[Any] = Deferred.fromCoroutine(next_item(items, "the end"))
    fetched.callback((1, 2))
    assert following.result == (1, 2)
    assert Deferred.fromCoroutine(next_item(items, "the end")).result == "the end"


def test_works_are_done_at_the_same_time() -> None:
    works: list[Deferred[int]] = [Deferred(), Deferred()]
    results = Deferred.fromCoroutine(concurrently(works))
    works[1].callback(2)
    assert not results.called
    works[0].callback(1)
    assert results.result == [1, 2]


def test_the_first_of_several_works_that_fails_is_reported() -> None:
    works: list[Deferred[int]] = [Deferred(), Deferred()]
    results = Deferred.fromCoroutine(concurrently(works))
    works[1].errback(KeyError("second"))
    works[0].errback(ValueError("first"))
    with pytest.raises(KeyError, match="second"):
        results.result.raiseException()  # type: ignore[attr-defined]
    results.addErrback(lambda _: None)


def test_cancelling_several_works_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    works: list[Deferred[int]] = [Deferred(), Deferred()]
    ended: list[type[BaseException]] = []

    async def wait() -> None:
        try:
            await concurrently(works)
        except CancelledError as error:
            ended.append(type(error))
            raise

    background = Background()
    background.spawn(wait())
    background.cancel()
    assert ended == [CancelledError]
    assert not caplog.records
