"""Who waits for a connection: first come, first served, each for a limited time."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Generic, TypeVar

from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

T = TypeVar("T")


class WaitingLine(Generic[T]):
    """A queue of Deferreds; one timer serves them all, as all wait equally long.

    :ivar timeouts: how many waited in vain.
    """

    def __init__(self, clock: IReactorTime, limit: float, expired: Callable[[], Exception]) -> None:
        self._clock = clock
        self._limit = limit
        self._expired = expired
        self._waiting: deque[tuple[float, defer.Deferred[T], str]] = deque()
        self._timer: IDelayedCall | None = None
        self.timeouts = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, caller: str = "") -> defer.Deferred[T]:
        """Wait; fails with the ``expired`` error after ``limit`` seconds, leaves when cancelled."""
        place = (
            self._clock.seconds() + self._limit,
            defer.Deferred[T](lambda _: self._waiting.remove(place)),
            caller,
        )
        self._waiting.append(place)
        if self._timer is None:
            self._timer = self._clock.callLater(self._limit, self._expire)
        return place[1]

    def serve(self, item: T) -> None:
        """Give the item to the one who has waited longest."""
        self._waiting.popleft()[1].callback(item)

    def call(self, may: Callable[[str], bool]) -> tuple[defer.Deferred[T], str] | None:
        """Take out of the line who has waited longest of those whose caller may have what there is."""
        for place in self._waiting:
            if may(place[2]):
                self._waiting.remove(place)
                return place[1:]
        return None

    def fail_all(self, make: Callable[[], Exception]) -> None:
        """Send everyone away, each with an error of their own."""
        waiting, self._waiting = self._waiting, deque()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, deferred, _ in waiting:
            deferred.errback(make())

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        while self._waiting and self._waiting[0][0] <= now:
            self.timeouts += 1
            self._waiting.popleft()[1].errback(self._expired())
        if self._waiting and self._timer is None:
            self._timer = self._clock.callLater(self._waiting[0][0] - now, self._expire)


class Turns:
    """So many places, for who takes long, and no more than half of them for one caller; the others wait.

    :param line: for those whose turn it is not yet.
    """

    def __init__(self, places: int, line: WaitingLine[None]) -> None:
        self._free = places
        self._share = (places + 1) // 2
        self._held: Counter[str] = Counter()
        self._line = line
        self._serving = False

    async def take(self, caller: str = "") -> None:
        """Wait for a place; raises what the line does for who waited in vain.

        :param caller: whose share it is of; "" is nobody's.
        """
        # Whoever is in the line while a place is free has a caller with its whole share.
        if self._free and self._may_have(caller):
            self._give(caller)
        else:
            await self._line.join(caller)

    def give_back(self, caller: str = "") -> None:
        """Leave the place to who waited longest; a loop, as that one may fail and give it back at once."""
        self._free += 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
        if self._serving:
            return
        self._serving = True
        try:
            while self._free and (called := self._line.call(self._may_have)):
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
        """Send everyone away who waits."""
        self._line.fail_all(make)
