"""Long work beside the reactor: one thread at a time, shared by all who ask for the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NAP = 0.0002
"""Seconds that a thread lets others run between pieces of about a millisecond.

A thread gives up the interpreter only when another one has waited for it 5 ms, and the reactor
would wait that long after every event; asleep, the thread does not hold it.
"""

PIECE = 0.001
"""Seconds of work between naps."""


def nap() -> None:
    """Let other threads run."""
    time.sleep(NAP)


class Naps:
    """Called between pieces of work of any size, naps after each millisecond or so."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def __call__(self) -> None:
        """Nap when it is time to."""
        if time.perf_counter() - self._last >= PIECE:
            nap()
            self._last = time.perf_counter()


class SharedWork(Generic[K, V]):
    """Runs functions in a thread, one after the other.

    :param keep: takes each result with its key, to be found before anybody asks again.
    """

    def __init__(self, keep: Callable[[K, V], None]) -> None:
        self._keep = keep
        self._lock = DeferredLock()
        self._waiting: dict[K, list[Deferred[V]]] = {}

    def result(self, key: K, work: Callable[[], V]) -> Deferred[V]:
        """Wait for the work's result, together with all who ask for the same key meanwhile.

        Who goes away only waits no longer: a thread cannot be stopped, and the next must not begin
        while it runs.
        """
        begun = key in self._waiting
        waiting = self._waiting.setdefault(key, [])
        mine: Deferred[V] = Deferred(waiting.remove)
        waiting.append(mine)
        if not begun:
            done = self._lock.run(self._start, key, work)
            done.addBoth(lambda outcome: self._tell(key, outcome))
        return mine

    def _start(self, key: K, work: Callable[[], V]) -> Deferred[V | None]:
        return deferToThread(work) if self._waiting[key] else succeed(None)  # nobody waits any more

    def _tell(self, key: K, outcome: V | Failure | None) -> None:
        waiting = self._waiting.pop(key)
        if outcome is not None and not isinstance(outcome, Failure):
            self._keep(key, outcome)
        while waiting:  # one may lead another one to go away
            waiting.pop(0).callback(outcome)  # type: ignore[arg-type]  # a failure as an errback does
