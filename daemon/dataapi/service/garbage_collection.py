"""Garbage collections that stay short, however much the process holds."""

from __future__ import annotations

import gc
from typing import Any

OLDEST = 2
"""The generation of long-lived objects; its collections are full ones."""
MANY = 2
"""Collections of the generation before, each of which adds thousands of objects, until a full one."""


class ShortCollections:
    """Keeps garbage collections short, however much the process holds.

    A full collection looks at everything that has lived for a while: with full caches and a large schema for
    a tenth of a second, during which no request is answered.  So what one leaves is frozen, and the next one
    looks only at newer objects.  Frozen objects are still freed when their last reference goes, as those of
    requests and caches are, because they have no cycles.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._counted = 0

    def start(self) -> None:
        """Collect and freeze all objects, now and from now on."""
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._count)

    def stop(self) -> None:
        """Leave everything to Python's collector again."""
        if self._count in gc.callbacks:
            gc.callbacks.remove(self._count)

    def _count(self, phase: str, info: dict[str, int]) -> None:
        """Count a collection, which may happen anywhere and in any thread."""
        if phase == "stop" and info["generation"] == OLDEST - 1:
            self._counted += 1
            if self._counted == MANY:
                self._reactor.callFromThread(self._freeze)

    def _freeze(self) -> None:
        self._counted = 0
        if self._count in gc.callbacks:
            gc.collect()
            gc.freeze()
