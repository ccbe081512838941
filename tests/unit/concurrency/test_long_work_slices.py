"""Long work in slices: short enough each, one after another, and nothing left behind."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from dataapi.concurrency import tasks
from dataapi.concurrency.pauses import pause, pausing
from dataapi.concurrency.tasks import SLICE, STEPS_AT_ONCE, Slices, in_slices, in_turn
from twisted.internet.defer import CancelledError, Deferred

if TYPE_CHECKING:
    from collections.abc import Callable


class Work:
    """Work of some steps, each of which takes some seconds of a clock.

    :ivar threads: in which thread each step was done.
    """

    def __init__(self, steps: int, seconds: float = 0.0) -> None:
        self.steps = steps
        self.seconds = seconds
        self.now = 0.0
        self.threads: list[threading.Thread] = []

    def __call__(self) -> int:
        """Do all steps."""
        for _ in range(self.steps):
            self.now += self.seconds
            self.threads.append(threading.current_thread())
            pause()
        return self.steps


async def test_what_is_over_soon_is_done_at_once() -> None:
    work = Work(STEPS_AT_ONCE)
    assert await in_turn(work) == STEPS_AT_ONCE
    assert set(work.threads) == {threading.current_thread()}


async def test_what_is_long_begins_anew_in_slices() -> None:
    work = Work(STEPS_AT_ONCE + 1)
    assert await in_turn(work) == STEPS_AT_ONCE + 1
    assert work.threads[:STEPS_AT_ONCE] == [threading.current_thread()] * STEPS_AT_ONCE
    [other] = set(work.threads[STEPS_AT_ONCE + 1 :])
    assert len(work.threads) == 2 * (STEPS_AT_ONCE + 1)
    assert other is not threading.current_thread()
    other.join(5)
    assert not other.is_alive()


def test_a_slice_ends_at_the_first_pause_after_its_time() -> None:
    work = Work(10, SLICE / 2)
    done = Slices(work, lambda: work.now)
    steps = []
    for _ in done:
        steps.append(len(work.threads))  # while the caller goes on, the work waits
    assert steps == [2, 4, 6, 8]
    assert done.result() == 10


async def test_works_take_turns() -> None:
    """Each gets a slice after the other; none waits for another one's end."""
    order: list[str] = []

    def named(name: str) -> Callable[[], str]:
        def work() -> str:
            for _ in range(3):
                order.append(name)
                # As long as a slice is, by any clock.
                begun = time.perf_counter()
                while time.perf_counter() - begun < SLICE:
                    pass
                pause()
            return name

        return work

    both = [Deferred.fromCoroutine(in_slices(named(name))) for name in "ab"]
    assert [await one for one in both] == ["a", "b"]
    assert order in (["a", "b"] * 3, ["b", "a"] * 3)


@pytest.mark.parametrize("steps", [0, STEPS_AT_ONCE + 1])
async def test_errors_are_the_callers(steps: int) -> None:
    def work() -> None:
        Work(steps)()
        raise ValueError(str(steps))

    with pytest.raises(ValueError, match=f"^{steps}$"):
        await in_turn(work)


async def test_who_goes_away_ends_the_work() -> None:
    """It ends at its next pause, with what it must clean up; others then have its place."""
    started: list[None] = []
    ended: list[threading.Thread] = []

    def forever() -> None:
        started.append(None)
        try:
            while True:
                pause()
        finally:
            ended.append(threading.current_thread())

    for _ in range(tasks.WORKS + 1):
        waiting = Deferred.fromCoroutine(in_slices(forever))
        waiting.cancel()
        with pytest.raises(CancelledError):
            await waiting
    assert await in_slices(Work(1)) == 1
    begun = Deferred.fromCoroutine(in_slices(forever))
    while not started:
        await in_slices(Work(1))
    begun.cancel()
    with pytest.raises(CancelledError):
        await begun
    [thread] = ended
    thread.join(5)
    assert not thread.is_alive()


def test_pauses_do_nothing_unless_somebody_wants_them() -> None:
    pause()
    seen = []
    with pausing(lambda: seen.append(1)):
        pause()
        with pausing(lambda: seen.append(2)):
            pause()
        pause()
    pause()
    assert seen == [1, 2, 1]
