"""The clock that timers run by."""

from __future__ import annotations

import time
from typing import Any


def steady(reactor: Any) -> None:
    """Let the reactor's timers run by a clock that nobody sets; by itself it takes the wall clock.

    Else a clock that is set back by an hour would hold up every retry and time limit for an hour.  To be
    called before there are timers.
    """
    if reactor.seconds is time.time:
        reactor.seconds = time.monotonic
