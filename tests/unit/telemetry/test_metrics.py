"""Figures: counted cheaply, merged by rule, shown as Prometheus families."""

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


def shown(snapshot: Snapshot) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample of a snapshot's text, read back by Prometheus's own parser."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(exposition(snapshot).decode())
        for sample in family.samples
    }


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return a sample's key."""
    return name, frozenset(labels.items())


def answered(status: int, seconds: float = 0.002, code: str = "") -> CompletedRequest:
    """Return a REST request that was answered so."""
    context = RequestContext("/rest/v1/{resource}")
    request = Request("1", "GET", "/rest/v1/blog", "", {}, b"", context=context)
    return CompletedRequest("rest", request, status, seconds, 1, "", code)


def test_requests_are_counted_by_method_route_status_and_code() -> None:
    """Two tables are one route; errors show their code, also those with status 200."""
    figures = RequestMetrics()
    for status, code in ((200, ""), (200, ""), (404, "PGRST205"), (200, "42501")):
        figures.observe(answered(status, code=code))
    samples = shown(figures.snapshot())
    labels = {"area": "rest", "method": "GET", "route": "/rest/v1/{resource}"}
    assert samples[of("dataapi_requests_total", **labels, status="200", code="")] == 2
    assert samples[of("dataapi_requests_total", **labels, status="404", code="PGRST205")] == 1
    assert samples[of("dataapi_requests_total", **labels, status="200", code="42501")] == 1
    assert samples[of("dataapi_request_errors_total", area="rest")] == 2


def test_codes_that_sql_makes_up_do_not_make_series_without_end() -> None:
    """Beyond a number of series an error is counted under the code "other"; none is lost."""
    figures = RequestMetrics()
    for number in range(MAX_SERIES + 500):
        figures.observe(answered(400, code=f"C{number}"))
    counts = figures.snapshot()["dataapi_requests_total"]
    assert len(counts) == MAX_SERIES + 1
    assert counts[("rest", "GET", "/rest/v1/{resource}", "400", "other")] == 500


def test_methods_that_clients_make_up_are_counted_together() -> None:
    """Anybody may send any."""
    figures = RequestMetrics()
    usual = answered(405)
    for number in range(3):
        figures.observe(usual._replace(request=usual.request._replace(method=f"X{number}")))
    counts = figures.snapshot()["dataapi_requests_total"]
    assert counts == {("rest", "other", "/rest/v1/{resource}", "405", ""): 3}


@given(st.lists(st.floats(0, 60)))
def test_durations_are_a_cumulative_histogram(durations: list[float]) -> None:
    """Each bucket counts the requests that took at most its bound, and the last one all of them."""
    figures = RequestMetrics()
    for duration in durations:
        figures.observe(answered(200, duration))
    samples = shown(figures.snapshot())
    name = "dataapi_request_duration_seconds_bucket"
    for bound in DURATIONS:
        expected = sum(duration <= bound for duration in durations)
        assert samples.get(of(name, area="rest", le=str(bound)), 0) == expected
    assert samples.get(of(name, area="rest", le="+Inf"), 0) == len(durations)


def test_a_scrape_has_the_times_of_all_requests_since_the_start() -> None:
    """However many they were, and however often others were scraped before."""
    figures = RequestMetrics()
    for number in range(1, 1001):
        figures.observe(answered(200, 0.25))
        if number % 300 == 0:
            figures.snapshot()
    samples = shown(figures.snapshot())
    assert samples[of("dataapi_request_duration_seconds_count", area="rest")] == 1000
    assert samples[of("dataapi_request_daemon_seconds_sum", area="rest")] == 250.0


def test_the_time_of_a_request_is_split_into_queue_database_and_daemon() -> None:
    """The three add up; a request without a statement spent all of its time in the daemon."""
    figures = RequestMetrics()
    figures.observe(answered(200, 3.5), queued=1.0, database=2.0)
    figures.observe(answered(200, 0.25))
    samples = shown(figures.snapshot())
    for stage, total, count in (("queue", 1.0, 1), ("database", 2.0, 1), ("daemon", 0.75, 2)):
        assert samples[of(f"dataapi_request_{stage}_seconds_sum", area="rest")] == total
        assert samples[of(f"dataapi_request_{stage}_seconds_count", area="rest")] == count


def test_workers_are_merged_by_each_familys_rule() -> None:
    """Counts are added; the oldest catalog and the worst database count; problems are not doubled."""
    one: Snapshot = {
        "dataapi_pool_waiting": {("p",): 2.0},
        "dataapi_catalog_generation": {("p",): 7.0},
        "dataapi_catalog_problems": {("p",): 3.0},
        "dataapi_database_available": {("p",): 1.0},
    }
    other: Snapshot = {
        "dataapi_pool_waiting": {("p",): 3.0, ("q",): 1.0},
        "dataapi_catalog_generation": {("p",): 6.0},
        "dataapi_catalog_problems": {("p",): 3.0},
        "dataapi_database_available": {("p",): 0.0},
    }
    assert merge([one, other]) == {
        "dataapi_pool_waiting": {("p",): 5.0, ("q",): 1.0},
        "dataapi_catalog_generation": {("p",): 6.0},
        "dataapi_catalog_problems": {("p",): 3.0},
        "dataapi_database_available": {("p",): 0.0},
    }


def test_histograms_of_workers_are_added() -> None:
    """The buckets and sums of two workers add up."""
    one, other = RequestMetrics(), RequestMetrics()
    one.observe(answered(200, 0.3))
    other.observe(answered(200, 20.0))
    samples = shown(merge([one.snapshot(), other.snapshot()]))
    assert samples[of("dataapi_request_duration_seconds_count", area="rest")] == 2
    assert samples[of("dataapi_request_duration_seconds_sum", area="rest")] == 20.3
    assert samples[of("dataapi_request_duration_seconds_bucket", area="rest", le="0.5")] == 1


def test_a_snapshot_survives_the_pipe() -> None:
    """A snapshot is the same after it went through JSON."""
    figures = RequestMetrics()
    figures.observe(answered(503, 0.3))
    snapshot = merge([figures.snapshot(), {"dataapi_pool_size": {("p",): 10.0}}])
    assert from_json(json.loads(json.dumps(to_json(snapshot)))) == snapshot


def test_only_what_grows_outlives_its_worker() -> None:
    """Counters and histograms of a dead worker stay in the sums; its gauges do not."""
    figures = RequestMetrics()
    figures.observe(answered(200, 0.3))
    snapshot = merge([figures.snapshot(), {"dataapi_pool_size": {("p",): 10.0}}])
    assert set(counted(snapshot)) == {
        "dataapi_requests_total",
        "dataapi_request_errors_total",
        "dataapi_request_duration_seconds",
        "dataapi_request_queue_seconds",
        "dataapi_request_database_seconds",
        "dataapi_request_daemon_seconds",
    }


def test_every_family_can_be_shown() -> None:
    """Every family that is declared comes out under its name, with its help."""
    counts = Histogram((1,) * (len(DURATIONS) + 1), 1.0)
    snapshot: Snapshot = {
        name: {tuple("x" for _ in family.labels): counts if family.histogram else 1.0}
        for name, family in FAMILIES.items()
    }
    text = exposition(snapshot).decode()
    for name, family in FAMILIES.items():
        assert f"# HELP {name} {family.help}" in text
        assert (f"# TYPE {name} histogram" in text) == family.histogram
