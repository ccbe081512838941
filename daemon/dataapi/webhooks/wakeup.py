"""What makes a daemon look at its queue: notifications, and one timer for whatever comes first."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

ENQUEUED, CHANGED = CHANNELS = "webhooks", "webhooks_changed"
"""What is notified on when there is new work, and when an endpoint was changed or deleted."""


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
