"""Work under way: coroutines in the background or shared by those that wait, and long computations.

A long computation runs in a thread next to the reactor.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar

from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredLock,
    FirstError,
    gatherResults,
)
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
P = ParamSpec("P")

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
    def running(self) -> bool:
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


PAUSE = 0.0002
"""Seconds that a thread lets others run between pieces of about a millisecond.

A thread gives up the interpreter only when another one has waited for it 5 ms, and the reactor
would wait that long after every event; asleep, the thread does not hold it.
"""

PAUSE_INTERVAL = 0.001
"""Seconds of work between naps."""


def pause() -> None:
    """Let other threads run."""
    time.sleep(PAUSE)


class PeriodicPause:
    """Called between pieces of work of any size, naps after each millisecond or so."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def __call__(self) -> None:
        if time.perf_counter() - self._last >= PAUSE_INTERVAL:
            pause()
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


class WorkerThread:
    """Runs long work in a thread, one piece after the other, so that the reactor serves others meanwhile."""

    def __init__(self) -> None:
        self._work: SharedWork[object, None] = SharedWork(lambda _key, _result: None)

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return the result of the work, or raise its error.

        A caller that is cancelled only leaves: the next piece begins when its piece has ended.
        """
        results, errors = list[T](), list[BaseException]()

        def run() -> None:
            try:
                results.append(work(*arguments, **named))
            except BaseException as error:  # raised below
                errors.append(error)

        await self._work.result(object(), run)
        if errors:
            # No frame may hold an error: its traceback holds the frame, and all that the work held.
            raise errors.pop()
        return results.pop()
