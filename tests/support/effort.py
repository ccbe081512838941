"""Amounts of work, independent of the speed and load of the machine."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Collections:
    """Measures the processor time of full garbage collections.

    They traverse all objects of earlier tests, so their time is not part of the measured work.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began = time.process_time()
        else:
            self.seconds += time.process_time() - self._began


_collections = _Collections()
gc.callbacks.append(_collections)


class Effort:
    """Measures processor time as a multiple of ``_piece_of_work``, a few milliseconds on a fast machine.

    :param processes: other processes to measure, such as PostgreSQL's.
    """

    def __init__(self, processes: Iterable[int] = ()) -> None:
        self._processes = tuple(processes)
        self._began = self._now()

    @property
    def seconds(self) -> float:
        """Processor time since creation, in seconds."""
        return self._now() - self._began

    @property
    def units(self) -> float:
        """Processor time since creation, as a multiple of the time of ``_piece_of_work``."""
        return in_units(self.seconds)

    def _now(self) -> float:
        own = time.process_time() - _collections.seconds
        return own + sum(map(_processor_time, self._processes))


def in_units(seconds: float) -> float:
    """Convert seconds of processor time to a multiple of the time of ``_piece_of_work``."""
    return seconds / min(_piece_of_work() for _ in range(3))


def _processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _piece_of_work() -> float:
    began = time.process_time()
    sum(len(str(number)) for number in range(60_000))
    return time.process_time() - began
