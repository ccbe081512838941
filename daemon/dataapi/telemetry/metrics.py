"""Metrics: plain numbers while requests run, Prometheus families when ``/metrics`` is scraped.

Each process takes a ``Snapshot`` of its values. Workers' snapshots are merged with each family's ``merge``
function.
"""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from prometheus_client import metrics_core
    from prometheus_client.registry import Collector

DURATIONS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""Upper bounds of the duration buckets, in seconds."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric family: a histogram, a counter (if its name ends in ``_total``) or a gauge.

    ``merge`` combines the values of two workers.
    """

    help: str
    labels: tuple[str, ...] = ()
    merge: Callable[[Any, Any], Any] = operator.add
    histogram: bool = False


FAMILIES: Mapping[str, Metric] = {
    "dataapi_build_info": Metric("Always 1; the label is the version of the daemon.", ("version",)),
    "dataapi_requests_total": Metric(
        "HTTP requests, by status and error code.",
        ("area", "method", "route", "status", "code"),
    ),
    "dataapi_request_errors_total": Metric(
        "HTTP requests that failed, including GraphQL errors with status 200.", ("area",)
    ),
    "dataapi_request_duration_seconds": Metric(
        "Seconds from the last byte of a request to the end of the response.", ("area",), histogram=True
    ),
    "dataapi_request_queue_seconds": Metric(
        "Seconds that requests waited for a database connection.", ("area",), histogram=True
    ),
    "dataapi_request_database_seconds": Metric(
        "Duration of the SQL statements of requests in seconds, including the network.",
        ("area",),
        histogram=True,
    ),
    "dataapi_request_daemon_seconds": Metric(
        "Seconds of request time spent outside the queue and the database.",
        ("area",),
        histogram=True,
    ),
    "dataapi_requests_in_flight": Metric("HTTP requests in flight."),
    "dataapi_database_available": Metric("1 if the database accepts connections, else 0.", ("project",), min),
    "dataapi_pool_connections": Metric("Database connections, by state.", ("project", "state")),
    "dataapi_pool_size": Metric("Maximum number of database connections.", ("project",)),
    "dataapi_pool_waiting": Metric("Requests waiting for a database connection.", ("project",)),
    "dataapi_pool_timeouts_total": Metric(
        "Requests that timed out while waiting for a connection.", ("project",)
    ),
    "dataapi_pool_connects_total": Metric("Database connections opened.", ("project",)),
    "dataapi_pool_cancels_total": Metric("Statements cancelled because the request ended.", ("project",)),
    "dataapi_lane_messages_total": Metric(
        "Messages for shared connections, by outcome: shared, or returned (run on another connection).",
        ("project", "outcome"),
    ),
    "dataapi_lane_in_progress": Metric("Messages in progress on shared database connections.", ("project",)),
    "dataapi_replica_available": Metric(
        "1 if the replica accepts reads, else 0.", ("project", "server"), min
    ),
    "dataapi_replica_lag_seconds": Metric(
        "Seconds that the replica is behind the primary.", ("project", "server"), max
    ),
    "dataapi_replica_connections": Metric(
        "Connections to the replica, by state.", ("project", "server", "state")
    ),
    "dataapi_replica_reads_total": Metric(
        "Reads sent to the replica, by outcome: answered, or repeated on another server.",
        ("project", "server", "outcome"),
    ),
    "dataapi_replica_fallbacks_total": Metric(
        "Reads sent to the primary because no replica was available.", ("project",)
    ),
    "dataapi_live_subscribers": Metric("Open live queries.", ("project",)),
    "dataapi_live_connections": Metric("Open WebSocket connections.", ("project",)),
    "dataapi_live_cohorts": Metric("Groups of live queries that share a result.", ("project",)),
    "dataapi_live_looks_total": Metric("Polls for changes in the database.", ("project",)),
    "dataapi_live_polls_total": Metric(
        "Re-executions of live queries, by outcome: changed, unchanged or failed.", ("project", "outcome")
    ),
    "dataapi_live_sent_bytes_total": Metric("Bytes of events sent to live queries.", ("project",)),
    "dataapi_live_held_bytes": Metric("Bytes of events that wait to be sent to clients.", ("project",)),
    "dataapi_live_interval_seconds": Metric(
        "Seconds between two polls for changes: live-interval, or more under load.", ("project",), max
    ),
    "dataapi_live_lag_seconds": Metric(
        "Seconds that the oldest pending live query has waited to run again.", ("project",), max
    ),
    "dataapi_mcp_calls_total": Metric(
        "Tool calls of agents, by outcome: succeeded or failed.", ("project", "tool", "outcome")
    ),
    "dataapi_catalog_generation": Metric("Generation of the current catalog.", ("project",), min),
    "dataapi_catalog_loads_total": Metric("Catalog loads, by outcome.", ("project", "outcome")),
    "dataapi_catalog_load_seconds": Metric("Seconds that the last catalog load took.", ("project",), max),
    "dataapi_catalog_problems": Metric("Malformed directives.", ("project",), max),
    "dataapi_cache_lookups_total": Metric("Cache lookups, by outcome.", ("project", "cache", "outcome")),
    "dataapi_cache_evictions_total": Metric("Entries evicted from a full cache.", ("project", "cache")),
    "dataapi_webhooks_due": Metric("Webhook attempts that are due or scheduled, by state.", ("state",), max),
    "dataapi_webhooks_oldest_due_seconds": Metric(
        "Age of the oldest unfinished attempt, in seconds.", (), max
    ),
    "dataapi_webhooks_stalled_seconds": Metric(
        "Seconds since deliveries last made progress; normally at most 1.",
        (),
        max,
    ),
    "dataapi_webhooks_in_flight": Metric("Webhook attempts in flight."),
    "dataapi_webhooks_attempts_total": Metric("Webhook attempts, by outcome.", ("outcome",)),
    "dataapi_webhooks_organization_attempts_total": Metric(
        "Webhook attempts of the busiest organizations (metrics-organizations), and of all others together.",
        ("organization", "outcome"),
    ),
    "dataapi_webhooks_failing_endpoints": Metric(
        "Endpoints with a permanently failed delivery and no later successful attempt.", (), max
    ),
    "dataapi_webhooks_attempt_seconds": Metric(
        "Seconds that an attempt took, from the name lookup to the end of the response.",
        ("outcome",),
        histogram=True,
    ),
    "dataapi_webhooks_settled_total": Metric("Deliveries skipped or dropped instead of attempted."),
    "dataapi_webhooks_lost_outcomes_total": Metric("Outcomes that arrived after their lease had expired."),
    "dataapi_webhooks_first_attempt_seconds": Metric(
        "Seconds from an event to its first attempt.", histogram=True
    ),
    "dataapi_webhooks_rejected_total": Metric(
        "Inputs of event sources that could not be published, by source and reason.", ("source", "reason")
    ),
    "dataapi_process_cpu_seconds_total": Metric("Processor time of the serving processes, in seconds."),
    "dataapi_process_resident_memory_bytes": Metric("Resident memory of the serving processes, in bytes."),
    "dataapi_event_loop_delay_seconds": Metric(
        "Seconds by which a timer fires late, sampled once a second.", histogram=True
    ),
    "dataapi_workers": Metric("Running worker processes."),
    "dataapi_workers_stuck": Metric("Worker processes that do not respond."),
    "dataapi_worker_restarts_total": Metric("Worker processes restarted after they died."),
    "pgrst_schema_cache_query_time_seconds": Metric(
        "Same as dataapi_catalog_load_seconds, under PostgREST's name."
    ),
    "pgrst_schema_cache_loads_total": Metric(
        "Same as dataapi_catalog_loads_total, under PostgREST's name.", ("status",)
    ),
    "pgrst_db_pool_max": Metric("Same as dataapi_pool_size, under PostgREST's name."),
    "pgrst_db_pool_available": Metric(
        "Idle connections of dataapi_pool_connections, under PostgREST's name."
    ),
    "pgrst_db_pool_waiting": Metric("Same as dataapi_pool_waiting, under PostgREST's name."),
    "pgrst_db_pool_timeouts_total": Metric("Same as dataapi_pool_timeouts_total, under PostgREST's name."),
    "pgrst_jwt_cache_requests_total": Metric(
        "Same as dataapi_cache_lookups_total for verified tokens, under PostgREST's name."
    ),
    "pgrst_jwt_cache_hits_total": Metric(
        "Same as dataapi_cache_lookups_total for cache hits of verified tokens, under PostgREST's name."
    ),
    "pgrst_jwt_cache_evictions_total": Metric(
        "Same as dataapi_cache_evictions_total for verified tokens, under PostgREST's name."
    ),
}


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts per bucket (not cumulative), and the sum. The last bucket is for times beyond ``DURATIONS``."""

    buckets: tuple[int, ...]
    total: float

    def __add__(self, other: Histogram) -> Histogram:
        buckets = tuple(left + right for left, right in zip(self.buckets, other.buckets, strict=True))
        return Histogram(buckets, self.total + other.total)


Value = float | Histogram
Snapshot = Mapping[str, Mapping[tuple[str, ...], Value]]
"""Values by family name and label values (in the family's order)."""


_bucket = partial(bisect_left, DURATIONS)


class RunningHistogram:
    """A mutable histogram."""

    __slots__ = ("_buckets", "_total")

    def __init__(self) -> None:
        self._buckets = [0] * (len(DURATIONS) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        self._buckets[_bucket(seconds)] += 1
        self._total += seconds

    def add_all(self, durations: Sequence[float]) -> None:
        for bucket, count in Counter(map(_bucket, durations)).items():
            self._buckets[bucket] += count
        self._total += sum(durations)

    def counts(self) -> Histogram:
        return Histogram(tuple(self._buckets), self._total)


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    merged: dict[str, dict[tuple[str, ...], Value]] = {}
    for snapshot in snapshots:
        for name, series in snapshot.items():
            combine = FAMILIES[name].merge
            target = merged.setdefault(name, {})
            for labels, value in series.items():
                target[labels] = combine(target[labels], value) if labels in target else value
    return merged


def counted(snapshot: Snapshot) -> Snapshot:
    """Return the counters and histograms. Totals must include their values after the worker has ended."""
    return {
        name: series
        for name, series in snapshot.items()
        if name.endswith("_total") or FAMILIES[name].histogram
    }


def to_json(snapshot: Snapshot) -> list[Any]:
    return [
        [name, list(labels), [list(value.buckets), value.total] if isinstance(value, Histogram) else value]
        for name, series in snapshot.items()
        for labels, value in series.items()
    ]


def from_json(document: Iterable[Any]) -> Snapshot:
    snapshot: dict[str, dict[tuple[str, ...], Value]] = {}
    for name, labels, value in document:
        metric = Histogram(tuple(value[0]), value[1]) if isinstance(value, list) else value
        snapshot.setdefault(name, {})[tuple(labels)] = metric
    return snapshot


def _family(name: str, series: Mapping[tuple[str, ...], Any]) -> metrics_core.Metric:
    from prometheus_client.core import (  # noqa: PLC0415 - see ``exposition``
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    family = FAMILIES[name]
    if family.histogram:
        histogram = HistogramMetricFamily(name, family.help, labels=family.labels)
        bounds = [*map(str, DURATIONS), "+Inf"]
        for labels, value in series.items():
            buckets = list(zip(bounds, map(float, itertools.accumulate(value.buckets)), strict=True))
            histogram.add_metric(labels, buckets, value.total)
        return histogram
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    metric = kind(name, family.help, labels=family.labels)
    for labels, value in series.items():
        metric.add_metric(labels, value)
    return metric


def exposition(snapshot: Snapshot) -> bytes:
    # Imported here, because many daemons are never scraped.
    from prometheus_client import generate_latest  # noqa: PLC0415
    from prometheus_client.process_collector import ProcessCollector  # noqa: PLC0415

    families = [_family(name, series) for name, series in snapshot.items()]
    families += ProcessCollector(registry=None).collect()
    return generate_latest(cast("Collector", SimpleNamespace(collect=lambda: families)))
