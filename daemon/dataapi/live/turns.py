"""Fair turns: work is shared out between its owners by the time that it takes."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairTurns(Generic[T]):
    """Waiting items, each of which belongs to an owner.

    The next item is the oldest one of the owner that has used the least time. An owner that was idle
    starts with as much as the owner that was served last, so that nobody saves up time
    (start-time fair queueing).
    """

    def __init__(self) -> None:
        self._since: dict[T, float] = {}  # the oldest first
        self._queues: dict[str, deque[T]] = {}
        self._used: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._numbers = count()
        self._served = 0.0

    def __contains__(self, item: T) -> bool:
        return item in self._since

    @property
    def oldest(self) -> float | None:
        """When the item that has been waiting for longest was added, None if none is waiting."""
        return next(iter(self._since.values()), None)

    def used(self, owner: str) -> float:
        """Return the time that counts for an owner, in seconds."""
        return max(self._used.get(owner, 0.0), self._served)

    def add(self, item: T, owner: str, now: float) -> None:
        """Add an item, unless it is waiting already."""
        if item in self._since:
            return
        self._since[item] = now
        queue = self._queues.get(owner)
        if queue:
            queue.append(item)
            return
        self._used[owner] = self.used(owner)
        self._queues[owner] = deque([item])
        if queue is None:
            self._push(owner)

    def discard(self, item: T) -> None:
        """Remove an item if it is waiting."""
        self._since.pop(item, None)

    def take(self, allowed: Callable[[T, str], bool]) -> tuple[T, str] | None:
        """Remove the next item and return it with its owner, None if there is none.

        :param allowed: whether an item of this owner may be taken now; if not, the next owner is asked.
        """
        asked: list[str] = []
        taken: tuple[T, str] | None = None
        while self._heap and taken is None:
            used, _, owner = heapq.heappop(self._heap)
            queue = self._queues[owner]
            while queue and queue[0] not in self._since:
                queue.popleft()
            if not queue:
                del self._queues[owner]
                self._forget_if_idle(owner)
                continue
            if used < self._used[owner]:  # it was charged in the meantime
                self._push(owner)
                continue
            asked.append(owner)
            if allowed(queue[0], owner):
                taken = queue.popleft(), owner
                del self._since[taken[0]]
                self._served = max(self._served, used)
        for owner in asked:
            self._push(owner)
        return taken

    def charge(self, owner: str, seconds: float) -> None:
        """Count time that an owner has used; a negative one corrects an estimate."""
        self._used[owner] = self._used.get(owner, self._served) + seconds
        self._forget_if_idle(owner)

    def forget(self, owner: str) -> None:
        """Forget what an owner has used, because it will add nothing more."""
        if owner not in self._queues:
            self._used.pop(owner, None)

    def _forget_if_idle(self, owner: str) -> None:
        if owner not in self._queues and self._used.get(owner, 0.0) <= self._served:
            self._used.pop(owner, None)

    def _push(self, owner: str) -> None:
        heapq.heappush(self._heap, (self._used[owner], next(self._numbers), owner))
