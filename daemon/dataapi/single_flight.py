"""Work that is done once for all who ask for it at the same time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred


class SingleFlight:
    """Runs a coroutine function, one call at a time, for all who wait for it together.

    Who goes away only waits no longer.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._waiting: list[Deferred[None]] = []
        self._running: Deferred[None] | None = None

    async def run(self) -> None:
        """Wait for the call that is under way, else for one that begins now; raises what it raises."""
        waiter: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiter)
        if self._running is None:
            self._running = running = Deferred.fromCoroutine(self._work())
            running.addBoth(self._done)
        await waiter

    def cancel(self) -> None:
        """Cancel the call that is under way."""
        if self._running is not None:
            self._running.cancel()

    def _done(self, outcome: Any) -> None:
        self._running = None
        waiting, self._waiting = self._waiting[:], []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(outcome)
