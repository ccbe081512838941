"""How long the stages of a request took, for the header ``Server-Timing`` (reference/rest.md 1.5)."""

from __future__ import annotations

from collections.abc import Callable

STAGES = ("jwt", "parse", "plan", "transaction", "response")
"""What the making of an answer consists of, in the order in which it is told."""


class Timing:
    """The stages of one request, each from the end of the one before it.

    :param seconds: the clock that durations are measured by.
    """

    __slots__ = ("_failed", "_last", "_seconds", "_stages")

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._last = seconds()
        self._stages: dict[str, float] = {}
        self._failed = False

    def mark(self, stage: str) -> None:
        """End a stage now; one that comes again, as in a batch, adds up."""
        now = self._seconds()
        self._stages[stage] = self._stages.get(stage, 0.0) + now - self._last
        self._last = now

    def fail(self) -> None:
        """End the stage that was under way: the request failed in it, and there is none after it."""
        self.mark(next((stage for stage in STAGES if stage not in self._stages), STAGES[-1]))
        self._failed = True

    def header(self) -> str:
        """Return the header's value: the stages in order, with their durations in milliseconds.

        The answer is there now, which ends its own stage.
        """
        if not self._failed:
            self.mark(STAGES[-1])
        told = ((stage, self._stages[stage]) for stage in STAGES if stage in self._stages)
        return ", ".join(f"{stage};dur={seconds * 1000:.3f}" for stage, seconds in told)
