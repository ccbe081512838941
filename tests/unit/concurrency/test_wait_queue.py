"""Wait queues and backoff, with a fake clock."""

from __future__ import annotations

import pytest
from dataapi.concurrency.timers import MAX_DELAY, Backoff, Retry
from dataapi.concurrency.wait_queue import Slots, WaitQueue
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import defer, task


class WaitExpired(Exception):
    """Raised when a wait expires."""


@pytest.fixture
def clock() -> task.Clock:
    return task.Clock()


@pytest.fixture
def queue(clock: task.Clock) -> WaitQueue[str]:
    return WaitQueue(clock, 10, WaitExpired)


def outcome(deferred: defer.Deferred[str]) -> object:
    """Return a Deferred's result, the type of its failure, or None if it is pending."""
    results: list[object] = []
    deferred.addCallbacks(results.append, lambda failure: results.append(failure.type))
    return results[0] if results else None


def test_waiters_are_served_in_order(queue: WaitQueue[str]) -> None:
    first, second = queue.join(), queue.join()
    queue.serve("a")
    assert outcome(first) == "a"
    assert len(queue.waiting) == 1
    queue.serve("b")
    assert outcome(second) == "b"


def test_every_wait_has_the_same_timeout(queue: WaitQueue[str], clock: task.Clock) -> None:
    first = queue.join()
    clock.advance(6)
    second = queue.join()
    clock.advance(3.9)
    assert len(queue.waiting) == 2
    clock.advance(0.1)
    assert outcome(first) is WaitExpired
    clock.advance(5.9)
    assert len(queue.waiting) == 1
    clock.advance(0.1)
    assert outcome(second) is WaitExpired
    assert queue.timeouts == 2
    assert clock.getDelayedCalls() == []


def test_served_waiter_does_not_shorten_the_next_wait(queue: WaitQueue[str], clock: task.Clock) -> None:
    first = queue.join()
    queue.serve("a")
    clock.advance(9)
    second = queue.join()
    clock.advance(9)
    assert outcome(first) == "a"
    assert len(queue.waiting) == 1
    clock.advance(1)
    assert outcome(second) is WaitExpired


def test_cancelled_waiter_leaves_the_queue(queue: WaitQueue[str]) -> None:
    first, second = queue.join(), queue.join()
    first.cancel()
    assert outcome(first) is defer.CancelledError
    queue.serve("a")
    assert outcome(second) == "a"
    assert queue.timeouts == 0


def test_all_waiters_can_be_failed(queue: WaitQueue[str], clock: task.Clock) -> None:
    waiters = [queue.join(), queue.join()]
    queue.fail_all(KeyError)
    assert [outcome(waiter) for waiter in waiters] == [KeyError, KeyError]
    assert clock.getDelayedCalls() == []
    again = queue.join()
    clock.advance(10)
    assert outcome(again) is WaitExpired


def test_thousands_of_turns_may_end_without_exhausting_the_stack(clock: task.Clock) -> None:
    turns = Slots(1, WaitQueue[None](clock, 10, WaitExpired))

    async def fail() -> None:
        await turns.acquire()
        try:
            raise KeyError
        finally:
            turns.release()

    assert defer.Deferred.fromCoroutine(turns.acquire()).called
    waiting = [defer.Deferred.fromCoroutine(fail()) for _ in range(3000)]
    turns.release()
    assert {outcome(one) for one in waiting} == {KeyError}  # type: ignore[arg-type]
    assert defer.Deferred.fromCoroutine(turns.acquire()).called
    last = defer.Deferred.fromCoroutine(turns.acquire())
    assert not last.called
    last.addErrback(lambda failure: failure.trap(KeyError))
    turns.fail_all(KeyError)


def acquire(turns: Slots, caller: str) -> defer.Deferred[None]:
    return defer.Deferred.fromCoroutine(turns.acquire(caller))


def test_one_caller_gets_at_most_half_of_the_slots(clock: task.Clock) -> None:
    turns = Slots(4, WaitQueue[None](clock, 10, WaitExpired))
    greedy = [acquire(turns, "greedy") for _ in range(5)]
    assert [one.called for one in greedy] == [True, True, False, False, False]
    others = [acquire(turns, caller) for caller in ("a", "b", "a")]
    assert [one.called for one in others] == [True, True, False]
    turns.release("b")
    assert others[2].called
    assert not greedy[2].called
    turns.release("greedy")
    assert [one.called for one in greedy] == [True, True, True, False, False]
    greedy[3].addErrback(lambda _: None)
    greedy[3].cancel()
    turns.release("greedy")
    assert greedy[4].called


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", ""]), st.booleans()), max_size=60), st.integers(1, 7)
)
def test_slots_are_neither_exceeded_nor_left_idle(steps: list[tuple[str, bool]], capacity: int) -> None:
    turns = Slots(capacity, WaitQueue[None](task.Clock(), 10, WaitExpired))
    acquired: list[tuple[str, defer.Deferred[None]]] = []
    for caller, arrives in steps:
        active = [one for one in acquired if one[0] == caller and one[1].called]
        if arrives:
            acquired.append((caller, acquire(turns, caller)))
        elif active:
            acquired.remove(active[0])
            turns.release(caller)
        served = [one for one, waiter in acquired if waiter.called]
        share = (capacity + 1) // 2
        assert len(served) <= capacity
        assert all(served.count(one) <= share for one in served if one)
        if len(served) < capacity:
            assert all(served.count(one) == share and one for one, waiter in acquired if not waiter.called)
    turns.fail_all(KeyError)
    for _, waiter in acquired:
        waiter.addErrback(lambda _: None)


WHOLE = Backoff(random=lambda: 1.0)
"""A backoff whose delays are not randomly reduced."""


def test_delay_doubles_up_to_a_limit() -> None:
    usual, quick = WHOLE, Backoff(longest=3.0, random=lambda: 1.0)
    assert [usual.after(failures) for failures in range(1, 5)] == [0.25, 0.5, 1.0, 2.0]
    assert usual.after(8) == usual.after(10**6) == MAX_DELAY == 32.0
    assert [quick.after(failures) for failures in (4, 5, 6, 10**6)] == [2.0, 3.0, 3.0, 3.0]


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_delay_is_randomized_within_bounds(failures: int, random: float) -> None:
    longest = WHOLE.after(failures)
    assert longest / 2 <= Backoff(random=lambda: random).after(failures) <= longest


def test_retry_delay_grows_until_an_attempt_succeeds(clock: task.Clock) -> None:
    attempts: list[float] = []
    retry = Retry(clock, WHOLE, lambda: attempts.append(clock.seconds()))
    assert retry.failed() == 0.25
    assert retry.pending
    assert retry.remaining == 0.25
    clock.advance(0.25)
    assert attempts == [0.25]
    assert not retry.pending
    assert retry.remaining == 0
    assert (retry.failed(), retry.failed()) == (0.5, 1.0)
    clock.advance(1.0)
    assert attempts == [0.25, 1.25]
    retry.succeeded()
    assert retry.failed() == 0.25
    retry.cancel()
    clock.advance(60)
    assert len(attempts) == 2
