"""Shortcuts for creating messages in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataapi.database.message import Bound, Message, Statement
from twisted.internet import defer, task

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dataapi.database.pool import Pool


def message(text: str, *values: str | None, types: tuple[str, ...] | None = None, **named: Any) -> Message:
    """Return a message with one statement. By default, the role is ``anon`` and all values have type text."""
    bound = Bound(Statement(text, types or ("text",) * len(values)), values)
    fields: dict[str, Any] = {"role": "anon", "settings": (), "statements": (bound,), **named}
    return Message(**fields)


def running(awaitable: Coroutine[Any, Any, Any]) -> defer.Deferred[Any]:
    """Start a coroutine and return its Deferred."""
    return defer.Deferred.fromCoroutine(awaitable)


async def until(reactor: Any, condition: Callable[[], bool]) -> None:
    """Wait for a condition, at most until the test's time limit."""
    while not condition():
        await task.deferLater(reactor, 0.01)


async def open_all(pool: Pool, size: int) -> None:
    """Open all connections of a pool by using them concurrently."""
    while pool.figures().idle < size:
        await defer.gatherResults([running(pool.run(message("select pg_sleep(0.05)"))) for _ in range(size)])
