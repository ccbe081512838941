"""The next item of an asynchronous iterator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataapi.concurrency.tasks import next_item
from twisted.internet.defer import Deferred

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
