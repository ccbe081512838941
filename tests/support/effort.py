"""How much work something is, whatever the machine and whatever else runs on it."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Collections:
    """Counts the processor's time of full garbage collections.

    They look through all that the tests of this process have made, which is no work of what is measured.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """Be told of a collection that starts or stops."""
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began = time.process_time()
        else:
            self.seconds += time.process_time() - self._began


_collections = _Collections()
gc.callbacks.append(_collections)


class Effort:
    """Counts the processor's time in units of a fixed piece of work, some milliseconds of a fast machine.

    :param processes: others whose time counts, too, such as PostgreSQL's.
    """

    def __init__(self, processes: Iterable[int] = ()) -> None:
        self._processes = tuple(processes)
        self._began = self._now()

    @property
    def seconds(self) -> float:
        """The processor's time since this was made."""
        return self._now() - self._began

    @property
    def units(self) -> float:
        """The same in units."""
        return in_units(self.seconds)

    def _now(self) -> float:
        own = time.process_time() - _collections.seconds
        return own + sum(map(_processor_time, self._processes))


def in_units(seconds: float) -> float:
    """Return how many units the processor does in so much of its time."""
    return seconds / min(_piece_of_work() for _ in range(3))


def _processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _piece_of_work() -> float:
    began = time.process_time()
    sum(len(str(number)) for number in range(60_000))
    return time.process_time() - began
