"""Work under way: coroutines in the background or shared by those that wait, and long computations.

A long computation runs in slices on the reactor's own time, or in one thread next to it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredLock,
    DeferredSemaphore,
    FirstError,
    gatherResults,
)
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.concurrency.pauses import pausing

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")

Default = TypeVar("Default")

Work = Callable[[], Coroutine[Any, Any, V]]


async def next_item(items: AsyncIterator[V], default: Default) -> V | Default:
    """Return the next item, or the default at the end.

    CPython's ``anext(items, default)`` spreads a tuple for which the items wait over several arguments.
    """
    try:
        return await anext(items)
    except StopAsyncIteration:
        return default


async def wait_at_most(seconds: float, work: Deferred[Any], clock: IReactorTime) -> bool:
    """Wait for the work, at most so many seconds; it goes on.  Return whether it has ended.

    :param work: fires with a result, whatever becomes of it.
    """
    waiting: Deferred[bool] = Deferred()
    work.addBoth(lambda _: None if waiting.called else waiting.callback(True))
    expiry = clock.callLater(seconds, waiting.callback, False)
    try:
        return await waiting
    finally:
        if expiry.active():
            expiry.cancel()


async def concurrently(works: Iterable[Awaitable[V]]) -> list[V]:
    """Do several works at the same time, and return their results in order.

    :raises CancelledError: all of them were cancelled with the caller.
    :raises Exception: whatever the first of them raises that fails; the others go on.
    """
    running = [Deferred.fromCoroutine(_awaited(work)) for work in works]
    try:
        return await gatherResults(running, consumeErrors=True)
    except FirstError as first:
        first.subFailure.raiseException()
        raise


async def _awaited(work: Awaitable[V]) -> V:
    return await work


class Background:
    """Coroutines in the background; those that fail are logged."""

    _log = Logger()

    def __init__(self) -> None:
        self._tasks: set[Deferred[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin the work now."""
        task: Deferred[None] = Deferred.fromCoroutine(work)
        if not task.called:
            self._tasks.add(task)
        task.addErrback(lambda failure: failure.trap(CancelledError))
        task.addErrback(lambda failure: self._log.failure("work in the background failed", failure))
        task.addCallback(lambda _: self._tasks.discard(task))

    def cancel(self) -> None:
        """Cancel all work that is under way."""
        for task in list(self._tasks):
            task.cancel()


class SingleFlight(Generic[V]):
    """Runs one call at a time for all callers that wait for it; a caller that is cancelled only leaves.

    :param fresh: whether no caller shares a call that began before; theirs begins when that has ended.
    """

    def __init__(self, work: Work[V], *, fresh: bool = False) -> None:
        self._work = work
        self._fresh = fresh
        self._waiting: dict[Deferred[V], None] = {}
        self._next: dict[Deferred[V], None] = {}
        self._running: Deferred[Any] | None = None

    @property
    def under_way(self) -> bool:
        """Whether a call is running."""
        return self._running is not None

    @property
    def awaited(self) -> bool:
        """Whether a caller waits for the call that is running."""
        return bool(self._waiting)

    def run(self) -> Deferred[V]:
        """Return the outcome of the call that is under way, else of one that begins now."""
        waiting = self._next if self._fresh and self._running is not None else self._waiting
        waiter: Deferred[V] = Deferred(waiting.__delitem__)
        waiting[waiter] = None
        if self._running is None:
            self._begin()
        return waiter

    def cancel(self) -> None:
        """Cancel the call that is under way, and begin none for those that wait for the next."""
        for waiter in list(self._next):
            waiter.cancel()
        if self._running is not None:
            self._running.cancel()

    def _begin(self) -> None:
        self._running = running = Deferred.fromCoroutine(self._work())
        running.addBoth(self._end)

    def _end(self, outcome: V | Failure) -> None:
        self._running = None
        waiting, self._waiting, self._next = self._waiting, self._next, {}
        while waiting:  # one may cancel another
            waiter = next(iter(waiting))
            del waiting[waiter]
            waiter.callback(outcome)
        if self._waiting and self._running is None:
            self._begin()


class SingleFlights(Generic[K, V]):
    """A ``SingleFlight`` for each key."""

    def __init__(self) -> None:
        self._flights: dict[K, SingleFlight[V]] = {}

    def run(self, key: K, work: Work[V]) -> Deferred[V]:
        """Return the outcome of the key's call that is under way, else of the work, which begins now."""
        flight = self._flights.get(key)
        if flight is None:

            async def call() -> V:
                try:
                    return await work()
                finally:
                    del self._flights[key]

            flight = self._flights[key] = SingleFlight(call)
        return flight.run()

    def awaited(self, key: K) -> bool:
        """Whether a caller waits for the key's call; threads may ask."""
        flight = self._flights.get(key)
        return flight is not None and flight.awaited


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
