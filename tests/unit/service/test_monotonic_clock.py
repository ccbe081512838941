"""Timers do not follow the wall clock."""

from __future__ import annotations

import time

from dataapi.service.root_service import use_monotonic_clock
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock


def test_timers_do_not_follow_the_wall_clock() -> None:
    """A clock that is set back holds up no retry and no time limit: timers count seconds since the boot."""
    reactor = SelectReactor()
    assert abs(reactor.seconds() - time.time()) < 60, "Twisted takes another clock now"
    use_monotonic_clock(reactor)
    timer = reactor.callLater(5000.0, lambda: None)
    assert 4000.0 < timer.getTime() - time.monotonic() <= 5000.0
    assert 4000.0 < (reactor.timeout() or 0) <= 5000.0
    timer.cancel()
    for one in list(reactor.getReaders()):
        reactor.removeReader(one)


def test_a_clock_of_the_tests_stays() -> None:
    clock = Clock()
    use_monotonic_clock(clock)
    clock.advance(3)
    assert clock.seconds() == 3
