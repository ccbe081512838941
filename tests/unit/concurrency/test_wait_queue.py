"""The waiting line and the waits between attempts, on a clock that the test moves."""

from __future__ import annotations

import pytest
from dataapi.concurrency.timers import MAX_DELAY, Backoff, Retry
from dataapi.concurrency.wait_queue import Slots, WaitQueue
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import defer, task


class InVain(Exception):
    """What an expired wait fails with."""


@pytest.fixture
def clock() -> task.Clock:
    """Give a clock that stands still."""
    return task.Clock()


@pytest.fixture
def line(clock: task.Clock) -> WaitQueue[str]:
    """Give a line in which everyone waits ten seconds at most."""
    return WaitQueue(clock, 10, InVain)


def outcome(deferred: defer.Deferred[str]) -> object:
    """Return a Deferred's result, the type of its failure, or None when it still waits."""
    results: list[object] = []
    deferred.addCallbacks(results.append, lambda failure: results.append(failure.type))
    return results[0] if results else None


def test_first_come_first_served(line: WaitQueue[str]) -> None:
    """Items go out in the order of arrival."""
    first, second = line.join(), line.join()
    line.serve("a")
    assert outcome(first) == "a"
    assert len(line.waiting) == 1
    line.serve("b")
    assert outcome(second) == "b"


def test_everyone_waits_equally_long(line: WaitQueue[str], clock: task.Clock) -> None:
    """Each wait ends after its own ten seconds, and is counted."""
    first = line.join()
    clock.advance(6)
    second = line.join()
    clock.advance(3.9)
    assert len(line.waiting) == 2
    clock.advance(0.1)
    assert outcome(first) is InVain
    clock.advance(5.9)
    assert len(line.waiting) == 1
    clock.advance(0.1)
    assert outcome(second) is InVain
    assert line.timeouts == 2
    assert clock.getDelayedCalls() == []


def test_a_served_place_does_not_shorten_the_next_ones_wait(line: WaitQueue[str], clock: task.Clock) -> None:
    """Who joins after another was served has the full time."""
    first = line.join()
    line.serve("a")
    clock.advance(9)
    second = line.join()
    clock.advance(9)
    assert outcome(first) == "a"
    assert len(line.waiting) == 1
    clock.advance(1)
    assert outcome(second) is InVain


def test_who_gives_up_leaves(line: WaitQueue[str]) -> None:
    """A cancelled place is served to nobody."""
    first, second = line.join(), line.join()
    first.cancel()
    assert outcome(first) is defer.CancelledError
    line.serve("a")
    assert outcome(second) == "a"
    assert line.timeouts == 0


def test_all_can_be_sent_away(line: WaitQueue[str], clock: task.Clock) -> None:
    """Everyone fails at once, no timer stays, and the line can be used again."""
    places = [line.join(), line.join()]
    line.fail_all(KeyError)
    assert [outcome(place) for place in places] == [KeyError, KeyError]
    assert clock.getDelayedCalls() == []
    again = line.join()
    clock.advance(10)
    assert outcome(again) is InVain


def test_turns_that_all_end_at_once_do_not_exhaust_the_stack(clock: task.Clock) -> None:
    """Thousands who wait, and fail as soon as it is their turn, follow one another."""
    turns = Slots(1, WaitQueue[None](clock, 10, InVain))

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


def taking(turns: Slots, caller: str) -> defer.Deferred[None]:
    """Wait for a turn."""
    return defer.Deferred.fromCoroutine(turns.acquire(caller))


def test_one_caller_has_no_more_than_half_of_the_turns(clock: task.Clock) -> None:
    """Others go before it while it has its share; whoever waited longest goes first among the rest."""
    turns = Slots(4, WaitQueue[None](clock, 10, InVain))
    greedy = [taking(turns, "greedy") for _ in range(5)]
    assert [one.called for one in greedy] == [True, True, False, False, False]
    others = [taking(turns, caller) for caller in ("a", "b", "a")]
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
def test_turns_are_never_overdrawn_nor_left_free(steps: list[tuple[str, bool]], places: int) -> None:
    """Whatever comes and goes, nobody waits who may have a free place, and nobody has more than its share."""
    turns = Slots(places, WaitQueue[None](task.Clock(), 10, InVain))
    taken: list[tuple[str, defer.Deferred[None]]] = []
    for caller, comes in steps:
        holding = [one for one in taken if one[0] == caller and one[1].called]
        if comes:
            taken.append((caller, taking(turns, caller)))
        elif holding:
            taken.remove(holding[0])
            turns.release(caller)
        served = [one for one, place in taken if place.called]
        share = (places + 1) // 2
        assert len(served) <= places
        assert all(served.count(one) <= share for one in served if one)
        if len(served) < places:
            assert all(served.count(one) == share and one for one, place in taken if not place.called)
    turns.fail_all(KeyError)
    for _, place in taken:
        place.addErrback(lambda _: None)


WHOLE = Backoff(random=lambda: 1.0)
"""Waits as long as they may be."""


def test_waits_double_up_to_a_limit() -> None:
    """Without chance in play the waits are a quarter of a second, doubling, and never over the longest."""
    usual, quick = WHOLE, Backoff(longest=3.0, random=lambda: 1.0)
    assert [usual.after(failures) for failures in range(1, 5)] == [0.25, 0.5, 1.0, 2.0]
    assert usual.after(8) == usual.after(10**6) == MAX_DELAY == 32.0
    assert [quick.after(failures) for failures in (4, 5, 6, 10**6)] == [2.0, 3.0, 3.0, 3.0]


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_waits_are_spread_by_chance_within_bounds(failures: int, random: float) -> None:
    """Chance takes at most half of a wait away."""
    longest = WHOLE.after(failures)
    assert longest / 2 <= Backoff(random=lambda: random).after(failures) <= longest


def test_attempts_get_further_apart_until_one_succeeds(clock: task.Clock) -> None:
    """Each failure doubles the wait, a success begins anew, and only the last plan counts."""
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
