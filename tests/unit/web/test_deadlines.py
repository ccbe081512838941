"""Work is cancelled at its deadline (with a fake clock)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataapi.web.pipeline import Deadlines
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=20))
def test_work_is_cancelled_exactly_at_its_deadline(pieces: list[tuple[int, int]]) -> None:
    clock = Clock()
    deadlines = Deadlines(clock, 10.0)
    late: dict[int, float] = {}
    ended: set[int] = set()

    def begin(index: int, length: int) -> None:
        began = clock.seconds()
        work: Deferred[None] = Deferred()
        deadlines.begin(work)

        def cancelled(_failure: object) -> None:
            late[index] = clock.seconds() - began

        work.addErrback(cancelled)
        work.addBoth(lambda _: ended.add(index) if not deadlines.end(work) else None)
        clock.callLater(length - 0.5, lambda: None if work.called else work.callback(None))

    for index, (start, length) in enumerate(pieces):
        clock.callLater(start, begin, index, length)
    for _ in range(260):
        clock.advance(0.25)
        assert sum("_expire" in str(call) for call in clock.getDelayedCalls()) <= 1
    assert late == {index: 10.0 for index, (_, length) in enumerate(pieces) if length > 10}
    assert ended == {index for index, (_, length) in enumerate(pieces) if length <= 10}
    assert not clock.getDelayedCalls()


def test_each_item_has_its_own_timeout() -> None:
    clock = Clock()
    deadlines = Deadlines(clock, 10.0)
    waits: list[Deferred[None]] = []

    async def items() -> AsyncGenerator[int, None]:
        for number in range(3):
            waits.append(Deferred())
            await waits[-1]
            yield number

    async def collect() -> list[int]:
        try:
            async for number in deadlines.with_timeouts(items(), lambda: KeyError("late")):
                received.append(number)
        except KeyError:
            received.append(-1)
        return received

    received: list[int] = []
    outcome = Deferred.fromCoroutine(collect())
    for _ in range(2):
        clock.advance(9)
        waits[-1].callback(None)
    clock.advance(9)
    assert not outcome.called
    clock.advance(1)
    assert outcome.called
    assert received == [0, 1, -1]
    deadlines.rest()
    assert not clock.getDelayedCalls()


def test_work_cancelled_by_others_is_not_late() -> None:
    clock = Clock()
    deadlines = Deadlines(clock, 10.0)
    work: Deferred[None] = Deferred()
    deadlines.begin(work)
    work.addErrback(lambda failure: failure.trap(CancelledError))
    work.cancel()
    deadlines.rest()
    assert clock.getDelayedCalls()
    assert not deadlines.end(work)
    assert not deadlines.end(work)
    deadlines.rest()
    assert not clock.getDelayedCalls()
