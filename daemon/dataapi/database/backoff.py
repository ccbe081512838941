"""How long to wait before the database is tried again, and the timer that does it."""

from __future__ import annotations

import random as _random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

FIRST = 0.25
LONGEST = 32.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait.

    :ivar longest: the most seconds.
    :ivar random: returns a number from 0 to 1, which spreads what many daemons do after one outage.
    """

    longest: float = LONGEST
    random: Callable[[], float] = _random.random

    def after(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row: doubling, half of it by chance."""
        most = min(self.longest, FIRST * 2.0 ** min(failures - 1, 16))
        return most * (0.5 + 0.5 * self.random())


USUAL = Backoff()


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
        """Begin anew: the next failure is a first one."""
        self.failures = 0

    def cancel(self) -> None:
        """Plan nothing any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _due(self) -> None:
        self._timer = None
        self._attempt()
