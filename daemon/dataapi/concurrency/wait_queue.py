"""FIFO wait queues with a timeout, and slots that are shared fairly among callers."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Generic, TypeVar

from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

T = TypeVar("T")


class WaitQueue(Generic[T]):
    """FIFO queue of callers that wait for an item, all with the same timeout.

    :param expired: returns the error for a caller whose wait timed out.
    :ivar waiting: deadline, Deferred and caller of each wait.
    :ivar timeouts: number of waits that timed out.
    """

    def __init__(self, clock: IReactorTime, limit: float, expired: Callable[[], Exception]) -> None:
        self._clock = clock
        self._limit = limit
        self._expired = expired
        self.waiting: deque[tuple[float, defer.Deferred[T], str]] = deque()
        self._timer: IDelayedCall | None = None
        self.timeouts = 0

    def join(self, caller: str = "") -> defer.Deferred[T]:
        """Wait for an item. Cancelling the Deferred removes the caller from the queue."""
        entry = (
            self._clock.seconds() + self._limit,
            defer.Deferred[T](lambda _: self.waiting.remove(entry)),
            caller,
        )
        self.waiting.append(entry)
        if self._timer is None:
            self._timer = self._clock.callLater(self._limit, self._expire)
        return entry[1]

    def serve(self, item: T) -> None:
        self.waiting.popleft()[1].callback(item)

    def call(self, may: Callable[[str], bool]) -> tuple[defer.Deferred[T], str] | None:
        """Remove and return the first entry whose caller may be served, according to ``may``."""
        for entry in self.waiting:
            if may(entry[2]):
                self.waiting.remove(entry)
                return entry[1:]
        return None

    def fail_all(self, make: Callable[[], Exception]) -> None:
        waiting, self.waiting = self.waiting, deque()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, deferred, _ in waiting:
            deferred.errback(make())

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        while self.waiting and self.waiting[0][0] <= now:
            self.timeouts += 1
            self.waiting.popleft()[1].errback(self._expired())
        if self.waiting and self._timer is None:
            self._timer = self._clock.callLater(self.waiting[0][0] - now, self._expire)


class Slots:
    """Limits concurrent work. One caller may use at most half of the slots, rounded up."""

    def __init__(self, slots: int, queue: WaitQueue[None]) -> None:
        self._free = slots
        self._share = (slots + 1) // 2
        self._used: Counter[str] = Counter()
        self._queue = queue
        self._serving = False

    async def acquire(self, caller: str = "") -> None:
        """Wait for a slot. Raises the queue's error on timeout.

        :param caller: the caller that uses the slot; "" is not limited.
        """
        # If a slot is free, every queued caller already uses its maximum number of slots.
        if self._free and self._may_have(caller):
            self._assign(caller)
        else:
            await self._queue.join(caller)

    def release(self, caller: str = "") -> None:
        self._free += 1
        self._used[caller] -= 1
        if not self._used[caller]:
            del self._used[caller]
        if self._serving:  # a caller that is served may release its slot immediately
            return
        self._serving = True
        try:
            while self._free and (called := self._queue.call(self._may_have)):
                waiting, next_caller = called
                self._assign(next_caller)
                waiting.callback(None)
        finally:
            self._serving = False

    def _may_have(self, caller: str) -> bool:
        return not caller or self._used[caller] < self._share

    def _assign(self, caller: str) -> None:
        self._free -= 1
        self._used[caller] += 1

    def fail_all(self, make: Callable[[], Exception]) -> None:
        self._queue.fail_all(make)
