"""What ``/metrics`` shows: plain integers while requests run, Prometheus families when asked.

A process takes a ``Snapshot`` of its figures; the snapshots of several workers are merged
by the rule that each family names.  The hot path touches two list items and one float.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the duration buckets, in seconds."""


class Merge(Enum):
    """How one figure of several workers becomes one."""

    SUM = "sum"
    LARGEST = "largest"
    SMALLEST = "smallest"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric that the product exposes; a name ending in ``_total`` is a counter, else a gauge."""

    help: str
    labels: tuple[str, ...] = ()
    merge: Merge = Merge.SUM


FAMILIES: Mapping[str, Family] = {
    "dataapi_requests_total": Family("HTTP requests answered.", ("area", "status")),
    "dataapi_request_duration_seconds": Family("Time from a request's last byte to its answer.", ("area",)),
    "dataapi_requests_in_flight": Family("HTTP requests being answered."),
    "dataapi_database_available": Family("1 while connections can be had.", ("project",), Merge.SMALLEST),
    "dataapi_pool_connections": Family("Database connections by what they do.", ("project", "state")),
    "dataapi_pool_size": Family("Most database connections the pools may open.", ("project",)),
    "dataapi_pool_waiting": Family("Requests waiting for a database connection.", ("project",)),
    "dataapi_pool_timeouts_total": Family("Waits for a connection that were given up.", ("project",)),
    "dataapi_pool_connects_total": Family("Database connections opened.", ("project",)),
    "dataapi_pool_cancels_total": Family("Statements given up by their callers.", ("project",)),
    "dataapi_catalog_generation": Family("Number of the catalog that serves.", ("project",), Merge.SMALLEST),
    "dataapi_catalog_loads_total": Family("Catalog loads by outcome.", ("project", "outcome")),
    "dataapi_catalog_problems": Family("Malformed directives.", ("project",), Merge.LARGEST),
    "dataapi_cache_lookups_total": Family("Cache look-ups by outcome.", ("project", "cache", "outcome")),
    "dataapi_webhooks_due": Family("Attempts to be made, by how they stand.", ("state",), Merge.LARGEST),
    "dataapi_webhooks_oldest_due_seconds": Family(
        "How long ago the earliest attempt that is not over was due.", (), Merge.LARGEST
    ),
    "dataapi_webhooks_in_flight": Family("Attempts being made."),
    "dataapi_webhooks_attempts_total": Family("Attempts made, by outcome.", ("outcome",)),
    "dataapi_webhooks_settled_total": Family("Deliveries skipped or dropped when they were due."),
    "dataapi_webhooks_lost_outcomes_total": Family("Outcomes that came after the end of their lease."),
    "dataapi_webhooks_first_attempt_seconds": Family("Time from an event to its first attempt."),
    "dataapi_workers": Family("Worker processes that serve."),
    "dataapi_workers_stuck": Family("Worker processes that do not answer their parent."),
    "dataapi_worker_restarts_total": Family("Worker processes started again after they died."),
}


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts per bucket of ``DURATIONS`` (not cumulative; the last one is beyond them) and their sum."""

    buckets: tuple[int, ...]
    total: float

    def __add__(self, other: Histogram) -> Histogram:
        """Add the counts of another worker."""
        buckets = tuple(mine + theirs for mine, theirs in zip(self.buckets, other.buckets, strict=True))
        return Histogram(buckets, self.total + other.total)


Value = float | Histogram
Snapshot = Mapping[str, Mapping[tuple[str, ...], Value]]
"""Family name to label values (in the family's order) to figure."""


class _Area:
    """The running counts of one area."""

    __slots__ = ("buckets", "classes", "total")

    def __init__(self) -> None:
        self.classes = [0] * 10
        self.buckets = [0] * (len(DURATIONS) + 1)
        self.total = 0.0


class RequestFigures:
    """Counts requests by area and status class, and their durations; nothing is allocated per request."""

    def __init__(self) -> None:
        self._areas: dict[str, _Area] = {}

    def observe(self, area: str, status: int, seconds: float) -> None:
        """Count one answered request. ``area`` must come from a small fixed set."""
        figures = self._areas.get(area)
        if figures is None:
            figures = self._areas[area] = _Area()
        figures.classes[status // 100] += 1
        figures.buckets[bisect_left(DURATIONS, seconds)] += 1
        figures.total += seconds

    def snapshot(self) -> Snapshot:
        """Return the counts so far."""
        return {
            "dataapi_requests_total": {
                (area, f"{status}xx"): float(count)
                for area, figures in self._areas.items()
                for status, count in enumerate(figures.classes)
                if count
            },
            "dataapi_request_duration_seconds": {
                (area,): Histogram(tuple(figures.buckets), figures.total)
                for area, figures in self._areas.items()
            },
        }


def _combine(rule: Merge, first: Value, second: Value) -> Value:
    if isinstance(first, Histogram) or isinstance(second, Histogram):
        assert isinstance(first, Histogram) and isinstance(second, Histogram)  # noqa: PT018 - one invariant
        return first + second
    if rule is Merge.SUM:
        return first + second
    return max(first, second) if rule is Merge.LARGEST else min(first, second)


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Join snapshots of several parts or workers, each figure by its family's rule."""
    merged: dict[str, dict[tuple[str, ...], Value]] = {}
    for snapshot in snapshots:
        for name, series in snapshot.items():
            rule = FAMILIES[name].merge
            target = merged.setdefault(name, {})
            for labels, value in series.items():
                target[labels] = _combine(rule, target[labels], value) if labels in target else value
    return merged


def counted(snapshot: Snapshot) -> Snapshot:
    """Keep what only ever grows, which must stay in the sums after its worker is gone."""
    return {
        name: series
        for name, series in snapshot.items()
        if name.endswith("_total") or any(isinstance(value, Histogram) for value in series.values())
    }


def to_json(snapshot: Snapshot) -> list[Any]:
    """Make a snapshot fit for the pipe between a worker and its parent."""
    return [
        [name, list(labels), [list(value.buckets), value.total] if isinstance(value, Histogram) else value]
        for name, series in snapshot.items()
        for labels, value in series.items()
    ]


def from_json(document: Iterable[Any]) -> Snapshot:
    """Read what ``to_json`` wrote."""
    snapshot: dict[str, dict[tuple[str, ...], Value]] = {}
    for name, labels, value in document:
        figure = Histogram(tuple(value[0]), value[1]) if isinstance(value, list) else value
        snapshot.setdefault(name, {})[tuple(labels)] = figure
    return snapshot


class _SnapshotCollector(Collector):
    """Shows one snapshot to prometheus-client."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield every family that has figures."""
        for name, series in self._snapshot.items():
            yield _family(name, FAMILIES[name], series)


def _family(name: str, family: Family, series: Mapping[tuple[str, ...], Value]) -> Metric:
    if any(isinstance(value, Histogram) for value in series.values()):
        histogram = HistogramMetricFamily(name, family.help, labels=family.labels)
        for labels, value in series.items():
            assert isinstance(value, Histogram)
            histogram.add_metric(labels, _cumulative(value), value.total)
        return histogram
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    metric = kind(name, family.help, labels=family.labels)
    for labels, value in series.items():
        assert not isinstance(value, Histogram)
        metric.add_metric(labels, value)
    return metric


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in DURATIONS), "+Inf"]
    running = 0
    buckets = []
    for bound, count in zip(bounds, histogram.buckets, strict=True):
        running += count
        buckets.append((bound, float(running)))
    return buckets


def exposition(snapshot: Snapshot, *others: Collector) -> bytes:
    """Write a snapshot, and other collectors beside it, in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_SnapshotCollector(snapshot))
    for collector in others:
        registry.register(collector)
    return generate_latest(registry)
