"""A cache that forgets what was not used for longest."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """At most ``size`` entries, the least recently used one leaving first; threads may share it.

    :param heaviest: the maximum weight of all entries together, without a bound when left out.
    :ivar weight: what the entries weigh together.
    :ivar evictions: entries that were dropped to make room.
    """

    def __init__(self, size: int, heaviest: float = float("inf")) -> None:
        self._size = size
        self._heaviest = heaviest
        self._entries: dict[K, tuple[V, int]] = {}
        self._lock = Lock()
        self.weight = 0
        self.evictions = 0

    def get(self, key: K) -> V | None:
        """Return the entry and mark it as used, or None."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                return None
            self._entries[key] = entry
            return entry[0]

    def put(self, key: K, value: V, weight: int = 0) -> None:
        """Add an entry, dropping the least recently used ones when there are too many or too heavy ones.

        An entry that is heavier than the maximum for all together is not kept.
        """
        with self._lock:
            self._remove(key)
            if weight > self._heaviest:
                return
            self._entries[key] = value, weight
            self.weight += weight
            while len(self._entries) > self._size or self.weight > self._heaviest:
                self._remove(next(iter(self._entries)))
                self.evictions += 1

    def drop(self, key: K) -> None:
        """Take an entry out if it is there."""
        with self._lock:
            self._remove(key)

    def _remove(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.weight -= entry[1]

    def __len__(self) -> int:
        return len(self._entries)
