"""Wait queues with a time limit, and slots that are shared fairly among callers."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Generic, TypeVar

from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

T = TypeVar("T")


class WaitQueue(Generic[T]):
    """First come, first served; one timer serves all, as all wait equally long.

    :ivar waiting: the end of each wait by the clock, its Deferred, and its caller.
    :ivar timeouts: how many waited until the time was over.
    """

    def __init__(self, clock: IReactorTime, limit: float, expired: Callable[[], Exception]) -> None:
        self._clock = clock
        self._limit = limit
        self._expired = expired
        self.waiting: deque[tuple[float, defer.Deferred[T], str]] = deque()
        self._timer: IDelayedCall | None = None
        self.timeouts = 0

    def join(self, caller: str = "") -> defer.Deferred[T]:
        """Wait; fails with the ``expired`` error after ``limit`` seconds, leaves when cancelled."""
        place = (
            self._clock.seconds() + self._limit,
            defer.Deferred[T](lambda _: self.waiting.remove(place)),
            caller,
        )
        self.waiting.append(place)
        if self._timer is None:
            self._timer = self._clock.callLater(self._limit, self._expire)
        return place[1]

    def serve(self, item: T) -> None:
        self.waiting.popleft()[1].callback(item)

    def call(self, may: Callable[[str], bool]) -> tuple[defer.Deferred[T], str] | None:
        """Take out the one that waited longest of those whose caller ``may`` be served."""
        for place in self.waiting:
            if may(place[2]):
                self.waiting.remove(place)
                return place[1:]
        return None

    def fail_all(self, make: Callable[[], Exception]) -> None:
        """Fail all that wait, each with an error of its own."""
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
    """A limited number of slots for long work, no more than half of them for one caller; others wait.

    :param slots: how many there are.
    :param queue: for those who wait for one.
    """

    def __init__(self, slots: int, queue: WaitQueue[None]) -> None:
        self._free = slots
        self._share = (slots + 1) // 2
        self._held: Counter[str] = Counter()
        self._queue = queue
        self._serving = False

    async def acquire(self, caller: str = "") -> None:
        """Wait for a slot; raises what the queue raises when the time is over.

        :param caller: whose share it counts for; "" has no share to exceed.
        """
        # Those in the queue while a slot is free have callers with their whole share.
        if self._free and self._may_have(caller):
            self._give(caller)
        else:
            await self._queue.join(caller)

    def release(self, caller: str = "") -> None:
        """Pass the slot to the one that waited longest; a loop, as that one may give it back at once."""
        self._free += 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
        if self._serving:
            return
        self._serving = True
        try:
            while self._free and (called := self._queue.call(self._may_have)):
                waiting, next_caller = called
                self._give(next_caller)
                waiting.callback(None)
        finally:
            self._serving = False

    def _may_have(self, caller: str) -> bool:
        return not caller or self._held[caller] < self._share

    def _give(self, caller: str) -> None:
        self._free -= 1
        self._held[caller] += 1

    def fail_all(self, make: Callable[[], Exception]) -> None:
        self._queue.fail_all(make)
