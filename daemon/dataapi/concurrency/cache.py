"""A thread-safe cache with limits."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _CacheEntry(Generic[V]):
    """A cached value, and whether it was used since it was added or last spared from eviction."""

    __slots__ = ("used", "value", "weight")

    def __init__(self, value: V, weight: int) -> None:
        self.value = value
        self.weight = weight
        self.used = False


class BoundedCache(Generic[K, V]):
    """Thread-safe cache that is bounded by its number of entries and their total weight.

    The oldest entry is evicted first, but a used entry gets a second chance. Unlike in an LRU cache, ``get``
    is then a single lookup that needs no lock.

    :param size: maximum number of entries. 0 disables the cache.
    :param max_weight: maximum total weight of the entries (default: unlimited).
    :ivar evictions: number of entries that were evicted to make room.
    """

    def __init__(self, size: int, max_weight: float = float("inf")) -> None:
        self._size = size
        self._max_weight = max_weight
        self._entries: dict[K, _CacheEntry[V]] = {}
        self._lock = Lock()
        self.weight = 0
        self.evictions = 0

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = True
        return entry.value

    def put(self, key: K, value: V, weight: int = 0) -> None:
        """Add an entry, unless it is too heavy for the cache, and evict others to stay within the limits."""
        with self._lock:
            self._remove(key)
            if weight > self._max_weight or not self._size:
                return
            while len(self._entries) >= self._size or self.weight + weight > self._max_weight:
                self._evict_oldest()
            self._entries[key] = _CacheEntry(value, weight)
            self.weight += weight

    def _evict_oldest(self) -> None:
        key, entry = next(iter(self._entries.items()))
        if entry.used:
            entry.used = False
            self._entries[key] = self._entries.pop(key)
            return
        self._remove(key)
        self.evictions += 1

    def drop(self, key: K) -> None:
        with self._lock:
            self._remove(key)

    def _remove(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.weight -= entry.weight

    def __len__(self) -> int:
        return len(self._entries)
