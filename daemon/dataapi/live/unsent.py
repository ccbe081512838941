"""The bytes of events that clients have not taken: each event counts once, and once for each caller."""

from __future__ import annotations

from collections import Counter

from dataapi.http.messages import Chunk


class UnsentBytes:
    """Who holds which events.

    :ivar total: bytes of all events that somebody holds, each of them once.
    """

    def __init__(self) -> None:
        self.total = 0
        self._holders: dict[Chunk, Counter[str]] = {}
        self._by_caller: Counter[str] = Counter()

    def of(self, caller: str) -> int:
        """Return the bytes of the events that the streams of a caller hold, each event once."""
        return self._by_caller[caller]

    def hold(self, event: Chunk, caller: str) -> None:
        """Count an event that a stream of this caller holds from now on."""
        holders = self._holders.get(event)
        if holders is None:
            holders = self._holders[event] = Counter()
            self.total += len(event)
        if not holders[caller]:
            self._by_caller[caller] += len(event)
        holders[caller] += 1

    def release(self, event: Chunk, caller: str) -> None:
        """Count an event no longer for one of the streams of this caller."""
        holders = self._holders[event]
        holders[caller] -= 1
        if holders[caller]:
            return
        del holders[caller]
        self._by_caller[caller] -= len(event)
        if not self._by_caller[caller]:
            del self._by_caller[caller]
        if not holders:
            del self._holders[event]
            self.total -= len(event)
