"""A thread-safe LRU cache."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """LRU cache that is bounded by its number of entries and their total weight. Thread-safe.

    :param max_weight: maximum total weight of the entries (default: unlimited).
    :ivar weight: current total weight.
    :ivar evictions: number of entries that were evicted to make room.
    """

    def __init__(self, size: int, max_weight: float = float("inf")) -> None:
        self._size = size
        self._max_weight = max_weight
        self._entries: dict[K, tuple[V, int]] = {}
        self._lock = Lock()
        self.weight = 0
        self.evictions = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                return None
            self._entries[key] = entry
            return entry[0]

    def put(self, key: K, value: V, weight: int = 0) -> None:
        """Add an entry and evict the least recently used ones if a limit is exceeded.

        An entry that is heavier than ``max_weight`` is not stored.
        """
        with self._lock:
            self._remove(key)
            if weight > self._max_weight:
                return
            self._entries[key] = value, weight
            self.weight += weight
            while len(self._entries) > self._size or self.weight > self._max_weight:
                self._remove(next(iter(self._entries)))
                self.evictions += 1

    def drop(self, key: K) -> None:
        with self._lock:
            self._remove(key)

    def _remove(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.weight -= entry[1]

    def __len__(self) -> int:
        return len(self._entries)
