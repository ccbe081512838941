"""Background coroutines, shared calls, and long computations in worker threads."""

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
    """Return the next item, or the default if there are no more items.

    CPython's ``anext(items, default)`` unpacks a tuple if the iterator has to wait for it.
    """
    try:
        return await anext(items)
    except StopAsyncIteration:
        return default


async def wait_at_most(seconds: float, work: Deferred[Any], clock: IReactorTime) -> bool:
    """Wait for work without cancelling it on timeout, and return whether it has ended."""
    waiting: Deferred[bool] = Deferred()
    work.addBoth(lambda _: None if waiting.called else waiting.callback(True))
    expiry = clock.callLater(seconds, waiting.callback, False)
    try:
        return await waiting
    finally:
        if expiry.active():
            expiry.cancel()


async def concurrently(awaitables: Iterable[Awaitable[V]]) -> list[V]:
    """Await several awaitables concurrently and return their results in order.

    :raises Exception: the first error. The other awaitables keep running.
    """
    running = [Deferred.fromCoroutine(_awaited(work)) for work in awaitables]
    try:
        return await gatherResults(running, consumeErrors=True)
    except FirstError as first:
        first.subFailure.raiseException()
        raise


async def _awaited(work: Awaitable[V]) -> V:
    return await work


class Background:
    """Runs coroutines in the background and logs their errors."""

    _log = Logger()

    def __init__(self) -> None:
        self._tasks: set[Deferred[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task: Deferred[None] = Deferred.fromCoroutine(work)
        if not task.called:
            self._tasks.add(task)
        task.addErrback(lambda failure: failure.trap(CancelledError))
        task.addErrback(lambda failure: self._log.failure("a background task failed", failure))
        task.addCallback(lambda _: self._tasks.discard(task))

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()


class SingleFlight(Generic[V]):
    """Shares one running call among all callers. A cancelled caller does not cancel the call.

    :param fresh: whether a caller that arrives during a call waits for the next one, instead of sharing the
        running call.
    """

    def __init__(self, work: Work[V], *, fresh: bool = False) -> None:
        self._work = work
        self._fresh = fresh
        self._waiting: dict[Deferred[V], None] = {}
        self._next: dict[Deferred[V], None] = {}
        self._running: Deferred[Any] | None = None

    @property
    def running(self) -> bool:
        return self._running is not None

    @property
    def awaited(self) -> bool:
        return bool(self._waiting)

    def run(self) -> Deferred[V]:
        waiting = self._next if self._fresh and self._running is not None else self._waiting
        waiter: Deferred[V] = Deferred(waiting.__delitem__)
        waiting[waiter] = None
        if self._running is None:
            self._begin()
        return waiter

    def cancel(self) -> None:
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
        while waiting:  # a callback may cancel another waiter
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
        flight = self._flights.get(key)
        return flight is not None and flight.awaited


PAUSE = 0.0002
"""Seconds to sleep in a worker thread between pieces of work.

A running thread releases the GIL only after another thread has waited for it for 5 ms, so the reactor would
wait that long after every event.
"""

PAUSE_INTERVAL = 0.001
"""Seconds of work between two pauses."""


def pause() -> None:
    time.sleep(PAUSE)


class PeriodicPause:
    """Callable that lets other threads run, at most once per ``PAUSE_INTERVAL``."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def __call__(self) -> None:
        if time.perf_counter() - self._last >= PAUSE_INTERVAL:
            pause()
            self._last = time.perf_counter()


class SharedWork(Generic[K, V]):
    """Runs functions in a thread, one at a time, and shares each result with all callers of its key.

    Cancelling a caller does not stop the function, because a thread cannot be stopped.

    :param store: receives each key and result before the callers do, for example to cache the result.
    """

    def __init__(self, store: Callable[[K, V], None]) -> None:
        self._store = store
        self._lock = DeferredLock()
        self._flights: SingleFlights[K, V] = SingleFlights()

    def result(self, key: K, work: Callable[[], V]) -> Deferred[V]:
        return self._flights.run(key, lambda: self._run_exclusively(key, work))

    async def _run_exclusively(self, key: K, work: Callable[[], V]) -> V:
        await self._lock.acquire()
        try:
            if not self._flights.awaited(key):
                raise CancelledError
            result: V = await deferToThread(work)
        finally:
            self._lock.release()
        self._store(key, result)
        return result


class WorkerThread:
    """Runs functions in a thread, one at a time. Cancelling a caller does not stop its function."""

    def __init__(self) -> None:
        self._work: SharedWork[object, None] = SharedWork(lambda _key, _result: None)

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        results, errors = list[T](), list[BaseException]()

        def run() -> None:
            try:
                results.append(work(*arguments, **named))
            except BaseException as error:  # raised below
                errors.append(error)

        await self._work.result(object(), run)
        if errors:
            # Keep no reference to the error in this frame. The error's traceback refers to the frame, so a
            # reference would create a cycle.
            raise errors.pop()
        return results.pop()
