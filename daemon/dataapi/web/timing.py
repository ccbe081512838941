"""How long the stages of a request took, for the header ``Server-Timing`` (reference/rest.md 1.5)."""

from __future__ import annotations

from collections.abc import Callable


class Timing:
    """The stages of one request, each from the end of the one before it.

    :param seconds: the clock that durations are measured by.
    """

    __slots__ = ("_last", "_seconds", "_stages")

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._last = seconds()
        self._stages: dict[str, float] = {}

    def mark(self, stage: str) -> None:
        """End a stage now; one that comes again, as in a batch, adds up."""
        now = self._seconds()
        self._stages[stage] = self._stages.get(stage, 0.0) + now - self._last
        self._last = now

    def header(self) -> str:
        """Return the header's value: the stages in order, with their durations in milliseconds."""
        return ", ".join(f"{stage};dur={seconds * 1000:.3f}" for stage, seconds in self._stages.items())
