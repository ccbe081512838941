"""A fair queue: owners get equal shares of time."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Queue of items with owners, scheduled by start-time fair queueing.

    The next item is the oldest item of the owner that has used the least time. An idle owner does not save up
    time: it resumes with the used time of the owner that was served last.
    """

    def __init__(self) -> None:
        self._since: dict[T, float] = {}  # oldest first
        self._queues: dict[str, deque[T]] = {}
        self._used: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._numbers = count()
        self._served = 0.0

    def __contains__(self, item: T) -> bool:
        return item in self._since

    @property
    def oldest(self) -> float | None:
        return next(iter(self._since.values()), None)

    def used(self, owner: str) -> float:
        return max(self._used.get(owner, 0.0), self._served)

    def add(self, item: T, owner: str, now: float) -> None:
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
        self._since.pop(item, None)

    def pop(self, allowed: Callable[[T, str], bool]) -> tuple[T, str] | None:
        """Remove and return the next item and its owner, or None.

        If ``allowed`` rejects the first item of an owner, the next owner is tried.
        """
        visited: list[str] = []
        entry: tuple[T, str] | None = None
        while self._heap and entry is None:
            used, _, owner = heapq.heappop(self._heap)
            queue = self._queues[owner]
            while queue and queue[0] not in self._since:
                queue.popleft()
            if not queue:
                del self._queues[owner]
                self._forget_if_idle(owner)
                continue
            if used < self._used[owner]:  # ``charge`` has changed the owner's time
                self._push(owner)
                continue
            visited.append(owner)
            if allowed(queue[0], owner):
                entry = queue.popleft(), owner
                del self._since[entry[0]]
                self._served = max(self._served, used)
        for owner in visited:
            self._push(owner)
        return entry

    def charge(self, owner: str, seconds: float) -> None:
        """Add to the time that an owner has used. A negative value corrects an estimate."""
        self._used[owner] = self._used.get(owner, self._served) + seconds
        self._forget_if_idle(owner)

    def forget(self, owner: str) -> None:
        if owner not in self._queues:
            self._used.pop(owner, None)

    def _forget_if_idle(self, owner: str) -> None:
        if owner not in self._queues and self._used.get(owner, 0.0) <= self._served:
            self._used.pop(owner, None)

    def _push(self, owner: str) -> None:
        heapq.heappush(self._heap, (self._used[owner], next(self._numbers), owner))
