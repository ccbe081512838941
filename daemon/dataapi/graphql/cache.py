"""A cache that forgets what was not used for longest."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """At most ``size`` entries, the least recently used one leaving first.

    :ivar hits, misses: look-ups that found an entry, and that did not.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: dict[K, V] = {}
        self.hits = 0
        self.misses = 0

    def get(self, key: K) -> V | None:
        """Return the entry and mark it as used, or None."""
        entry = self._entries.pop(key, None)
        if entry is None:
            self.misses += 1
            return None
        self._entries[key] = entry
        self.hits += 1
        return entry

    def put(self, key: K, value: V) -> None:
        """Add an entry, dropping the least recently used one when there are too many."""
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self._size:
            del self._entries[next(iter(self._entries))]

    def __len__(self) -> int:
        return len(self._entries)
