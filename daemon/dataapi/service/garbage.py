"""Garbage collections that are short, however much the process keeps.

A full collection looks at everything that has lived for a while: with full caches and a large schema for
a tenth of a second, during which nobody is answered.  So what one leaves is frozen, and the next one looks
only at what came since.  What is frozen is still freed when nothing refers to it any more, as happens to
requests and what is kept of them: they leave no cycles.  The schemas of a catalog that was replaced have
some: who drops them thaws everything, and the next full collection takes its time once.
"""

from __future__ import annotations

import gc
from typing import Any

OLDEST = 2
"""The generation of what lives on; its collections are full ones."""
MANY = 2
"""Collections of the generation before, each of which adds some thousand objects, until a full one."""


class Garbage:
    """Makes full collections before there is much for them to look at, and freezes what they leave."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._collections = 0

    def start(self) -> None:
        """Collect and freeze what there is, and from now on what comes."""
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._noted)

    def stop(self) -> None:
        """Leave everything to the collector again."""
        if self._noted in gc.callbacks:
            gc.callbacks.remove(self._noted)

    def _noted(self, phase: str, info: dict[str, int]) -> None:
        """Take note of a collection, which may happen anywhere and in any thread."""
        if phase == "stop" and info["generation"] == OLDEST - 1:
            self._collections += 1
            if self._collections == MANY:
                self._reactor.callFromThread(self._freeze)

    def _freeze(self) -> None:
        self._collections = 0
        if self._noted in gc.callbacks:
            gc.collect()
            gc.freeze()
