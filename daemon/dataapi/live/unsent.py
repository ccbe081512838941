"""Counts the bytes of unsent events."""

from __future__ import annotations

from collections import Counter

from dataapi.http.messages import Chunk


class UnsentBytes:
    """Bytes of unsent events, in total and by caller. Each event counts once in total and once per caller."""

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[Chunk, Counter[str]] = {}
        self._by_caller: Counter[str] = Counter()

    def of(self, caller: str) -> int:
        return self._by_caller[caller]

    def add(self, event: Chunk, caller: str) -> None:
        counts = self._counts.get(event)
        if counts is None:
            counts = self._counts[event] = Counter()
            self.total += len(event)
        if not counts[caller]:
            self._by_caller[caller] += len(event)
        counts[caller] += 1

    def release(self, event: Chunk, caller: str) -> None:
        counts = self._counts[event]
        counts[caller] -= 1
        if counts[caller]:
            return
        del counts[caller]
        self._by_caller[caller] -= len(event)
        if not self._by_caller[caller]:
            del self._by_caller[caller]
        if not counts:
            del self._counts[event]
            self.total -= len(event)
