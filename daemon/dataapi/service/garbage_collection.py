"""Keeps garbage collections from blocking requests."""

from __future__ import annotations

import gc
from typing import Any

OLDEST = 2
"""Number of the oldest garbage collection generation. Only a full collection includes it."""
FREEZE_AFTER = 2
"""Number of collections of the second-oldest generation after which all objects are frozen."""


class ShortCollections:
    """Keeps garbage collections short even if the process has many objects.

    With full caches and a large schema, a full collection blocks all requests for a tenth of a second. So the
    objects that survive a collection are frozen, and later collections skip them. Frozen objects are still
    freed by reference counting. This is enough for the objects of requests and caches, because they have no
    reference cycles.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._counted = 0

    def start(self) -> None:
        """Freeze all objects. From time to time, collect garbage and freeze the surviving objects.

        Nothing is collected at the start: that would delay the first request by a tenth of a second, and free
        only the half megabyte that imports leave behind.
        """
        gc.freeze()
        gc.callbacks.append(self._count)

    def stop(self) -> None:
        if self._count in gc.callbacks:
            gc.callbacks.remove(self._count)

    def _count(self, phase: str, info: dict[str, int]) -> None:
        """Count a garbage collection. Python may call this method in any thread."""
        if phase == "stop" and info["generation"] == OLDEST - 1:
            self._counted += 1
            if self._counted == FREEZE_AFTER:
                self._reactor.callFromThread(self._freeze)

    def _freeze(self) -> None:
        self._counted = 0
        if self._count in gc.callbacks:
            gc.collect()
            gc.freeze()
