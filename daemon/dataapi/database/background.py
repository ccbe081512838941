"""Work that nobody waits for: kept track of, so that it can be ended, and its failures logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet import defer
from twisted.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Background:
    """A set of coroutines on their way."""

    _log = Logger()

    def __init__(self) -> None:
        self._tasks: set[defer.Deferred[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin the work now."""
        task: defer.Deferred[None] = defer.Deferred.fromCoroutine(work)
        if not task.called:
            self._tasks.add(task)
        task.addErrback(lambda failure: failure.trap(defer.CancelledError))
        task.addErrback(lambda failure: self._log.failure("work in the background failed", failure))
        task.addCallback(lambda _: self._tasks.discard(task))

    def cancel(self) -> None:
        """Cancel everything that is still on its way."""
        for task in list(self._tasks):
            task.cancel()
