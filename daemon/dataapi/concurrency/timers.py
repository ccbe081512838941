"""Exponential backoff, retries and one-shot alarms."""

from __future__ import annotations

import random as _random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

MAX_DELAY = 32.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double with every failure.

    :ivar longest: maximum delay, in seconds.
    :ivar random: returns a number from 0 to 1.
    :ivar first: delay after the first failure, in seconds.
    :ivar spread: fraction of each delay that is random, so that many daemons do not retry at the same time.
    """

    longest: float = MAX_DELAY
    random: Callable[[], float] = _random.random
    first: float = 0.25
    spread: float = 0.5

    def after(self, failures: int) -> float:
        maximum = min(self.longest, self.first * 2.0 ** min(failures - 1, 16))
        return maximum * (1.0 - self.spread + self.spread * self.random())


RECONNECT_BACKOFF = Backoff(longest=2.0)
"""Backoff for database connections: short, to reconnect soon after a restart or a failover."""


class Retry:
    """Schedules attempts with backoff, and counts consecutive failures."""

    def __init__(self, clock: IReactorTime, backoff: Backoff, attempt: Callable[[], None]) -> None:
        self._clock = clock
        self._backoff = backoff
        self._attempt = attempt
        self._timer: IDelayedCall | None = None
        self.failures = 0

    @property
    def pending(self) -> bool:
        return self._timer is not None

    @property
    def remaining(self) -> float:
        return self._timer.getTime() - self._clock.seconds() if self._timer is not None else 0.0

    def failed(self) -> float:
        """Schedule the next attempt and return the delay, in seconds."""
        self.cancel()
        self.failures += 1
        wait = self._backoff.after(self.failures)
        self._timer = self._clock.callLater(wait, self._due)
        return wait

    def succeeded(self) -> None:
        self.failures = 0

    def cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _due(self) -> None:
        self._timer = None
        self._attempt()


class Alarm:
    """A timer that fires once, at the earliest of the requested times."""

    def __init__(self, clock: IReactorTime, call: Callable[[], None]) -> None:
        self._clock = clock
        self._call = call
        self._timer: IDelayedCall | None = None

    def within(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._clock.callLater(seconds, self._ring)
        elif self._timer.getTime() > self._clock.seconds() + seconds:
            self._timer.reset(seconds)

    def cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        self._call()
