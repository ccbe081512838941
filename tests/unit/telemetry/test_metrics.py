"""Metrics: counting, merging the workers' metrics, and the Prometheus format."""

from __future__ import annotations

import json

from dataapi.http.messages import Request, RequestContext
from dataapi.telemetry.metrics import (
    DURATIONS,
    FAMILIES,
    Histogram,
    Snapshot,
    counted,
    exposition,
    from_json,
    merge,
    to_json,
)
from dataapi.telemetry.requests import MAX_SERIES, CompletedRequest, RequestMetrics
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families


def samples_of(snapshot: Snapshot) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples of a snapshot, parsed by Prometheus's own parser."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(exposition(snapshot).decode())
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def completed(status: int, seconds: float = 0.002, code: str = "") -> CompletedRequest:
    context = RequestContext("/rest/v1/{resource}")
    request = Request("1", "GET", "/rest/v1/blog", "", {}, b"", context=context)
    return CompletedRequest("rest", request, status, seconds, 1, "", code)


def test_requests_are_counted_by_method_route_status_and_code() -> None:
    metrics = RequestMetrics()
    for status, code in ((200, ""), (200, ""), (404, "PGRST205"), (200, "42501")):
        metrics.observe(completed(status, code=code))
    samples = samples_of(metrics.snapshot())
    labels = {"area": "rest", "method": "GET", "route": "/rest/v1/{resource}"}
    assert samples[key("dataapi_requests_total", **labels, status="200", code="")] == 2
    assert samples[key("dataapi_requests_total", **labels, status="404", code="PGRST205")] == 1
    assert samples[key("dataapi_requests_total", **labels, status="200", code="42501")] == 1
    assert samples[key("dataapi_request_errors_total", area="rest")] == 2


def test_number_of_series_for_error_codes_is_limited() -> None:
    """SQL can raise any error code. Further codes are counted as "other"."""
    metrics = RequestMetrics()
    for number in range(MAX_SERIES + 500):
        metrics.observe(completed(400, code=f"C{number}"))
    counts = metrics.snapshot()["dataapi_requests_total"]
    assert len(counts) == MAX_SERIES + 1
    assert counts[("rest", "GET", "/rest/v1/{resource}", "400", "other")] == 500


def test_unknown_methods_are_counted_together() -> None:
    metrics = RequestMetrics()
    usual = completed(405)
    for number in range(3):
        metrics.observe(usual._replace(request=usual.request._replace(method=f"X{number}")))
    counts = metrics.snapshot()["dataapi_requests_total"]
    assert counts == {("rest", "other", "/rest/v1/{resource}", "405", ""): 3}


@given(st.lists(st.floats(0, 60)))
def test_durations_are_a_cumulative_histogram(durations: list[float]) -> None:
    metrics = RequestMetrics()
    for duration in durations:
        metrics.observe(completed(200, duration))
    samples = samples_of(metrics.snapshot())
    name = "dataapi_request_duration_seconds_bucket"
    for bound in DURATIONS:
        expected = sum(duration <= bound for duration in durations)
        assert samples.get(key(name, area="rest", le=str(bound)), 0) == expected
    assert samples.get(key(name, area="rest", le="+Inf"), 0) == len(durations)


def test_durations_of_all_requests_are_kept_between_scrapes() -> None:
    metrics = RequestMetrics()
    for number in range(1, 1001):
        metrics.observe(completed(200, 0.25))
        if number % 300 == 0:
            metrics.snapshot()
    samples = samples_of(metrics.snapshot())
    assert samples[key("dataapi_request_duration_seconds_count", area="rest")] == 1000
    assert samples[key("dataapi_request_daemon_seconds_sum", area="rest")] == 250.0


def test_request_time_is_split_into_queue_database_and_daemon() -> None:
    metrics = RequestMetrics()
    metrics.observe(completed(200, 3.5), queued=1.0, database=2.0)
    metrics.observe(completed(200, 0.25))
    samples = samples_of(metrics.snapshot())
    for stage, total, count in (("queue", 1.0, 1), ("database", 2.0, 1), ("daemon", 0.75, 2)):
        assert samples[key(f"dataapi_request_{stage}_seconds_sum", area="rest")] == total
        assert samples[key(f"dataapi_request_{stage}_seconds_count", area="rest")] == count


def test_metrics_of_workers_are_merged_by_each_familys_rule() -> None:
    first: Snapshot = {
        "dataapi_pool_waiting": {("p",): 2.0},
        "dataapi_catalog_generation": {("p",): 7.0},
        "dataapi_catalog_problems": {("p",): 3.0},
        "dataapi_database_available": {("p",): 1.0},
    }
    second: Snapshot = {
        "dataapi_pool_waiting": {("p",): 3.0, ("q",): 1.0},
        "dataapi_catalog_generation": {("p",): 6.0},
        "dataapi_catalog_problems": {("p",): 3.0},
        "dataapi_database_available": {("p",): 0.0},
    }
    assert merge([first, second]) == {
        "dataapi_pool_waiting": {("p",): 5.0, ("q",): 1.0},
        "dataapi_catalog_generation": {("p",): 6.0},
        "dataapi_catalog_problems": {("p",): 3.0},
        "dataapi_database_available": {("p",): 0.0},
    }


def test_histograms_of_workers_are_added() -> None:
    first, second = RequestMetrics(), RequestMetrics()
    first.observe(completed(200, 0.3))
    second.observe(completed(200, 20.0))
    samples = samples_of(merge([first.snapshot(), second.snapshot()]))
    assert samples[key("dataapi_request_duration_seconds_count", area="rest")] == 2
    assert samples[key("dataapi_request_duration_seconds_sum", area="rest")] == 20.3
    assert samples[key("dataapi_request_duration_seconds_bucket", area="rest", le="0.5")] == 1


def test_snapshot_is_the_same_after_json() -> None:
    metrics = RequestMetrics()
    metrics.observe(completed(503, 0.3))
    snapshot = merge([metrics.snapshot(), {"dataapi_pool_size": {("p",): 10.0}}])
    assert from_json(json.loads(json.dumps(to_json(snapshot)))) == snapshot


def test_only_counters_and_histograms_outlive_their_worker() -> None:
    metrics = RequestMetrics()
    metrics.observe(completed(200, 0.3))
    snapshot = merge([metrics.snapshot(), {"dataapi_pool_size": {("p",): 10.0}}])
    assert set(counted(snapshot)) == {
        "dataapi_requests_total",
        "dataapi_request_errors_total",
        "dataapi_request_duration_seconds",
        "dataapi_request_queue_seconds",
        "dataapi_request_database_seconds",
        "dataapi_request_daemon_seconds",
    }


def test_every_family_is_in_the_exposition() -> None:
    counts = Histogram((1,) * (len(DURATIONS) + 1), 1.0)
    snapshot: Snapshot = {
        name: {tuple("x" for _ in family.labels): counts if family.histogram else 1.0}
        for name, family in FAMILIES.items()
    }
    text = exposition(snapshot).decode()
    for name, family in FAMILIES.items():
        assert f"# HELP {name} {family.help}" in text
        assert (f"# TYPE {name} histogram" in text) == family.histogram
