"""Pauses in long computations, so that other work can go on between their steps.

The code that computes only says where it may pause.  Its caller decides what a pause does, so that deep
inside a parser or a compiler nothing needs to know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

Pause = Callable[[], None]


def _go_on() -> None:
    return None


class _Here(threading.local):
    """What a pause does in this thread."""

    pause: Pause = staticmethod(_go_on)


_here = _Here()


def pause() -> None:
    """Pause between two steps of some ten microseconds; may raise what ends the computation."""
    _here.pause()


class pausing:  # noqa: N801 - a context manager
    """Lets the pauses of what runs inside call this."""

    __slots__ = ("_by", "_outer")

    def __init__(self, by: Pause) -> None:
        self._by = by

    def __enter__(self) -> None:
        self._outer, _here.pause = _here.pause, self._by

    def __exit__(self, *_error: object) -> None:
        _here.pause = self._outer
