"""Timers use the monotonic clock."""

from __future__ import annotations

import time

from dataapi.service.root_service import use_monotonic_clock
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock


def test_timers_use_the_monotonic_clock() -> None:
    """Setting the wall clock back must not delay retries or timeouts."""
    reactor = SelectReactor()
    assert abs(reactor.seconds() - time.time()) < 60, "Twisted uses another clock"
    use_monotonic_clock(reactor)
    timer = reactor.callLater(5000.0, lambda: None)
    assert 4000.0 < timer.getTime() - time.monotonic() <= 5000.0
    assert 4000.0 < (reactor.timeout() or 0) <= 5000.0
    timer.cancel()
    for each in list(reactor.getReaders()):
        reactor.removeReader(each)


def test_clock_of_tests_is_not_replaced() -> None:
    clock = Clock()
    use_monotonic_clock(clock)
    clock.advance(3)
    assert clock.seconds() == 3
