"""Processor time for counting a request: our counters compared with prometheus-client.

Run as ``PYTHONPATH=daemon:tests python tests/bench/metrics.py``. Each line is one round, in microseconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dataapi.http.messages import Request, RequestContext
from dataapi.telemetry.metrics import DURATIONS
from dataapi.telemetry.requests import CompletedRequest, RequestMetrics
from prometheus_client import CollectorRegistry, Counter, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

REQUESTS = 100_000
LABELS = ("graphql", "POST", "/graphql/v1", "200", "")
SECONDS = (0.0012, 0.0001, 0.0008, 0.0003)
"""Duration of a request, and the parts of it spent in the queue, the database and the daemon."""


def measure(count: Callable[[], None]) -> float:
    """Return the microseconds of processor time per call."""
    started = time.process_time()
    for _ in range(REQUESTS):
        count()
    return (time.process_time() - started) / REQUESTS * 1e6


def main() -> None:
    registry = CollectorRegistry()
    counter = Counter("requests", "-", ("area", "method", "route", "status", "code"), registry=registry)
    histograms = [
        Histogram(name, "-", ("area",), buckets=DURATIONS, registry=registry)
        for name in ("duration", "queue", "database", "daemon")
    ]
    children = {LABELS: counter.labels(*LABELS)}
    area_histograms = [histogram.labels("graphql") for histogram in histograms]
    ours = RequestMetrics()
    context = RequestContext(route="/graphql/v1")
    request = Request("id", "POST", "/graphql/v1", "", {}, b"", context=context)
    completed = CompletedRequest("graphql", request, 200, SECONDS[0], 300)

    def by_labels() -> None:
        counter.labels(*LABELS).inc()
        for histogram, seconds in zip(histograms, SECONDS, strict=True):
            histogram.labels("graphql").observe(seconds)

    def by_children() -> None:
        children[LABELS].inc()
        for histogram, seconds in zip(area_histograms, SECONDS, strict=True):
            histogram.observe(seconds)

    for _ in range(5):
        own = measure(lambda: ours.observe(completed, SECONDS[1], SECONDS[2]))
        print(  # noqa: T201
            f"dataapi {own:.2f}, registry with cached children {measure(by_children):.2f}, "
            f"registry with labels() {measure(by_labels):.2f}"
        )


if __name__ == "__main__":
    main()
