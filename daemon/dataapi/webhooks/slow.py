"""Which hosts were slow the last time, so that they do not keep those that are quick waiting."""

from __future__ import annotations

MOST_KEPT = 10_000
"""Slow names that are remembered."""


class SlowNames:
    """Names of which the last thing that was done took long; a thread may ask and tell.

    :param seconds: what takes so long is slow.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._names: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def took(self, name: str, seconds: float) -> None:
        """Remember whether a name is slow by what was done last."""
        if seconds < self._seconds:
            self._names.pop(name, None)
        elif len(self._names) < MOST_KEPT:
            self._names[name] = None
