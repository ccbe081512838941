"""Metrics of the process: processor time, memory and event loop delay."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dataapi.telemetry.metrics import RunningHistogram, Snapshot

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall, IReactorTime

SAMPLE_INTERVAL = 1.0
"""Seconds between samples of the event loop delay."""

_PAGES = Path("/proc/self/statm")


class ProcessMetrics:
    """Metrics of one process. The metrics of several workers are summed."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._delays = RunningHistogram()
        self._due = 0.0
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        self._due = self._clock.seconds() + SAMPLE_INTERVAL
        self._timer = self._clock.callLater(SAMPLE_INTERVAL, self._measure)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _measure(self) -> None:
        self._delays.add(max(0.0, self._clock.seconds() - self._due))
        self.start()

    def snapshot(self) -> Snapshot:
        return {
            "dataapi_process_cpu_seconds_total": {(): time.process_time()},
            "dataapi_process_resident_memory_bytes": {(): _resident_memory()},
            "dataapi_event_loop_delay_seconds": {(): self._delays.counts()},
        }


def _resident_memory() -> float:
    return float(_PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
