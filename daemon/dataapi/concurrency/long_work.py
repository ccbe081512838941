"""Long computations: in slices on the reactor's own time, or in one thread beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredLock, DeferredSemaphore
from twisted.internet.task import Cooperator
from twisted.internet.threads import deferToThread

from dataapi.concurrency.pauses import pausing
from dataapi.concurrency.tasks import SingleFlights

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")

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
        if time.perf_counter() - self._last >= PIECE:
            nap()
            self._last = time.perf_counter()


class SharedWork(Generic[K, V]):
    """Runs functions in a thread, one after the other.

    :param keep: takes each result with its key, to be found before the next caller asks.
    """

    def __init__(self, keep: Callable[[K, V], None]) -> None:
        self._keep = keep
        self._lock = DeferredLock()
        self._flights: SingleFlights[K, V] = SingleFlights()

    def result(self, key: K, work: Callable[[], V]) -> Deferred[V]:
        """Wait for the work's result, together with all callers that ask for the same key until then.

        A caller that is cancelled only leaves: a thread cannot be stopped, and the next must not begin
        while it runs.
        """
        return self._flights.run(key, lambda: self._in_turn(key, work))

    async def _in_turn(self, key: K, work: Callable[[], V]) -> V:
        await self._lock.acquire()
        try:
            if not self._flights.awaited(key):
                raise CancelledError
            result: V = await deferToThread(work)
        finally:
            self._lock.release()
        self._keep(key, result)
        return result


SLICE = 0.005
"""Seconds that a slice of work takes before the reactor goes on."""
STEPS_AT_ONCE = 500
"""Steps of work that is done at once, some milliseconds; the rest is done in slices."""
WORKS = 8
"""How many long works are under way at the same time, each of them in a thread that mostly waits."""


class _Overrun(BaseException):
    """Ends work that is not over soon; a ``BaseException``, so that no handler of errors takes it."""


class _Abandoned(BaseException):
    """Ends work whose result no caller waits for any more."""


async def in_turn(work: Callable[[], T]) -> T:
    """Do the work and return its result, at once or in slices.

    :param work: pauses between its steps; may be called twice, so that it must leave nothing half done.
    """
    left = STEPS_AT_ONCE

    def step() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _Overrun

    try:
        with pausing(step):
            return work()
    except _Overrun:
        pass  # what it holds goes before the work begins again
    return await in_slices(work)


async def in_slices(work: Callable[[], T]) -> T:
    """Do the work in slices and return its result; cancelling abandons it."""
    await _works.acquire()
    slices = Slices(work)
    try:
        await _turns.cooperate(slices).whenDone()
        return slices.result()
    finally:
        slices.abandon()
        _works.release()


class Slices(Iterator[None], Generic[T]):
    """Work, a slice of which is done by each ``next``.

    :param clock: gives the seconds that a slice is measured by.
    """

    def __init__(self, work: Callable[[], T], clock: Callable[[], float] = time.perf_counter) -> None:
        self._work = work
        self._clock = clock
        self._until = 0.0
        self._abandoned = self._ended = False
        self._outcome: list[T] = []
        self._error: BaseException | None = None
        self._thread: Thread | None = None
        # Taken while it is the other one's turn.
        self._mine, self._callers = Lock(), Lock()
        self._mine.acquire()
        self._callers.acquire()

    def __next__(self) -> None:
        if self._over:
            raise StopIteration
        if self._thread is None:
            self._thread = Thread(target=self._run, name="slices", daemon=True)
            self._thread.start()
        self._until = self._clock() + SLICE
        self._mine.release()
        self._callers.acquire()
        if self._over:
            raise StopIteration

    @property
    def _over(self) -> bool:
        return self._ended or (self._abandoned and self._thread is None)

    def result(self) -> T:
        """Return what the work returned, or raise what it raised."""
        if self._outcome:
            return self._outcome[0]
        error, self._error = self._error, None
        assert error is not None, "the work is over"
        try:
            raise error
        finally:
            del error  # which would hold itself, by its traceback, and all that the work held

    def abandon(self) -> None:
        """End the work where it pauses, unless it is over."""
        self._abandoned = True
        for _ in self:
            pass

    def _run(self) -> None:
        self._mine.acquire()
        try:
            with pausing(self._pause):
                self._outcome.append(self._work())
        except BaseException as error:  # ``result`` raises it
            self._error = error
        self._ended = True
        self._callers.release()

    def _pause(self) -> None:
        if self._clock() >= self._until:
            self._callers.release()
            self._mine.acquire()
        if self._abandoned:
            raise _Abandoned


_works = DeferredSemaphore(WORKS)
# One slice each time that the reactor has done what was waiting, in turn for all works.
_turns: Any = Cooperator(lambda: lambda: True)
