"""Metrics of a process."""

from __future__ import annotations

from dataapi.telemetry.metrics import Histogram
from dataapi.telemetry.process import SAMPLE_INTERVAL, ProcessMetrics
from twisted.internet.task import Clock


def test_blocked_event_loop_is_measured() -> None:
    clock = Clock()
    process = ProcessMetrics(clock)
    process.start()
    clock.advance(SAMPLE_INTERVAL)
    clock.advance(SAMPLE_INTERVAL + 2.0)
    delays = process.snapshot()["dataapi_event_loop_delay_seconds"][()]
    process.stop()
    assert isinstance(delays, Histogram)
    assert (sum(delays.buckets), delays.buckets[0], delays.total) == (2, 1, 2.0)
    assert not clock.getDelayedCalls()


def test_processor_time_grows_and_memory_is_plausible() -> None:
    process = ProcessMetrics(Clock())
    before = process.snapshot()["dataapi_process_cpu_seconds_total"][()]
    sum(number * number for number in range(100_000))
    after = process.snapshot()
    assert isinstance(before, float)
    assert before < after["dataapi_process_cpu_seconds_total"][()]  # type: ignore[operator]
    assert 1e6 < after["dataapi_process_resident_memory_bytes"][()] < 1e11  # type: ignore[operator]
