"""Work that may take so long and no longer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from dataapi.concurrency.tasks import next_item

T = TypeVar("T")


class Deadlines:
    """Cancels what takes too long; all have equally long, so that one timer serves them.

    The timer goes on when the last work has ended: the next one may begin at once.  ``rest`` ends it.

    :ivar limit: the seconds that each has.
    """

    def __init__(self, clock: IReactorTime, limit: float) -> None:
        self.limit = limit
        self._clock = clock
        self._ends: dict[Deferred[Any], float] = {}
        self._late: set[Deferred[Any]] = set()
        self._timer: IDelayedCall | None = None

    def begin(self, work: Deferred[Any]) -> None:
        """Give the work its time from now on; ``end`` is to be called when it has ended."""
        self._ends[work] = self._clock.seconds() + self.limit
        if self._timer is None:
            self._timer = self._clock.callLater(self.limit, self._expire)

    def end(self, work: Deferred[Any]) -> bool:
        """Record the end of the work, and return whether it was cancelled for taking too long."""
        if work in self._late:
            self._late.discard(work)
            return True
        self._ends.pop(work, None)
        return False

    def rest(self) -> None:
        """Stop the timer, as no work is expected soon."""
        if self._timer is not None and not self._ends:
            self._timer.cancel()
            self._timer = None

    async def each(
        self, items: AsyncGenerator[T, None], late: Callable[[], Exception]
    ) -> AsyncGenerator[T, None]:
        """Give the items, each of which has the time for itself.

        :param late: makes what is raised when one takes too long.
        """
        nothing = object()
        while True:
            step = Deferred.fromCoroutine(next_item(items, nothing))
            self.begin(step)
            try:
                item = await step
            except Exception:
                if self.end(step):
                    raise late() from None
                raise
            self.end(step)
            if item is nothing:
                return
            yield item  # type: ignore[misc]  # not the end

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        for work, end in list(self._ends.items()):
            if end > now:
                break
            del self._ends[work]
            self._late.add(work)
            work.cancel()
        if self._ends and self._timer is None:
            first = next(iter(self._ends.values()))
            self._timer = self._clock.callLater(max(0.0, first - now), self._expire)


async def wait_at_most(seconds: float, work: Deferred[Any], clock: IReactorTime) -> bool:
    """Wait until the work has ended, but not longer than so; it goes on.  Tell whether it has ended.

    :param work: fires with a result, whatever becomes of it.
    """
    waiting: Deferred[bool] = Deferred()
    work.addBoth(lambda _: None if waiting.called else waiting.callback(True))
    expiry = clock.callLater(seconds, waiting.callback, False)
    try:
        return await waiting
    finally:
        if expiry.active():
            expiry.cancel()
