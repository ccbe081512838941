"""Timers: attempts further apart with every failure, and an alarm for the earliest of several times."""

from __future__ import annotations

import random as _random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

LONGEST = 32.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after failures.

    :ivar first: the seconds after the first failure, ``longest`` at most; each wait doubles the one before.
    :ivar spread: the part of a wait that is left to chance, which spreads the attempts of many daemons
        after one outage.
    :ivar random: returns a number from 0 to 1.
    """

    longest: float = LONGEST
    random: Callable[[], float] = _random.random
    first: float = 0.25
    spread: float = 0.5

    def after(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        maximum = min(self.longest, self.first * 2.0 ** min(failures - 1, 16))
        return maximum * (1.0 - self.spread + self.spread * self.random())


RECONNECT_BACKOFF = Backoff(longest=2.0)
"""For connections to a database, which are to be there soon after it is, or another one in its place."""


class Retry:
    """Attempts at something, further apart with every failure.

    :ivar failures: how many failed since the last that succeeded.
    """

    def __init__(self, clock: IReactorTime, backoff: Backoff, attempt: Callable[[], None]) -> None:
        self._clock = clock
        self._backoff = backoff
        self._attempt = attempt
        self._timer: IDelayedCall | None = None
        self.failures = 0

    @property
    def pending(self) -> bool:
        """Whether an attempt is planned."""
        return self._timer is not None

    @property
    def remaining(self) -> float:
        """Return the seconds until the planned attempt, 0 without one."""
        return self._timer.getTime() - self._clock.seconds() if self._timer is not None else 0.0

    def failed(self) -> float:
        """Plan the next attempt, and return the seconds until then."""
        self.cancel()
        self.failures += 1
        wait = self._backoff.after(self.failures)
        self._timer = self._clock.callLater(wait, self._due)
        return wait

    def succeeded(self) -> None:
        """Start over: the next failure is a first one."""
        self.failures = 0

    def cancel(self) -> None:
        """Plan nothing any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _due(self) -> None:
        self._timer = None
        self._attempt()


class Alarm:
    """Calls once, at the earliest of the times that it was asked for.

    :param clock: keeps the time, in seconds.
    """

    def __init__(self, clock: IReactorTime, call: Callable[[], None]) -> None:
        self._clock = clock
        self._call = call
        self._timer: IDelayedCall | None = None

    def within(self, seconds: float) -> None:
        """Call in so many seconds, unless it is to be earlier anyway."""
        if self._timer is None:
            self._timer = self._clock.callLater(seconds, self._ring)
        elif self._timer.getTime() > self._clock.seconds() + seconds:
            self._timer.reset(seconds)

    def cancel(self) -> None:
        """Call no more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        self._call()
