"""Metrics with PostgREST's names and types, summed over all projects."""

from __future__ import annotations

from dataapi.auth.authenticator import Authenticator
from dataapi.settings import Project
from dataapi.telemetry.metrics import exposition
from dataapi.telemetry.postgrest_metrics import postgrest_metrics


def test_metrics_of_all_projects_are_combined() -> None:
    lines = (
        exposition(
            postgrest_metrics(
                {
                    "dataapi_catalog_generation": {("a",): 1.0, ("b",): 3.0},
                    "dataapi_catalog_load_seconds": {("a",): 0.25, ("b",): 0.5},
                    "dataapi_catalog_loads_total": {
                        ("a", "loaded"): 1.0,
                        ("b", "loaded"): 3.0,
                        ("b", "failed"): 2.0,
                    },
                    "dataapi_pool_size": {("a",): 10.0, ("b",): 5.0, ("webhooks",): 4.0},
                    "dataapi_pool_connections": {
                        ("a", "idle"): 2.0,
                        ("a", "in_use"): 1.0,
                        ("webhooks", "idle"): 1.0,
                    },
                    "dataapi_pool_waiting": {("a",): 7.0},
                    "dataapi_pool_timeouts_total": {("a",): 6.0},
                    "dataapi_cache_lookups_total": {
                        ("a", "tokens", "hit"): 8.0,
                        ("a", "tokens", "miss"): 2.0,
                        ("a", "plans", "hit"): 50.0,
                    },
                    "dataapi_cache_evictions_total": {("a", "tokens"): 9.0},
                }
            )
        )
        .decode()
        .splitlines()
    )
    samples = [line for line in lines if line.startswith("pgrst_")]
    assert samples == [
        "pgrst_schema_cache_query_time_seconds 0.5",
        'pgrst_schema_cache_loads_total{status="SUCCESS"} 4.0',
        'pgrst_schema_cache_loads_total{status="FAIL"} 2.0',
        "pgrst_db_pool_max 15.0",
        "pgrst_db_pool_available 2.0",
        "pgrst_db_pool_waiting 7.0",
        "pgrst_db_pool_timeouts_total 6.0",
        "pgrst_jwt_cache_requests_total 10.0",
        "pgrst_jwt_cache_hits_total 8.0",
        "pgrst_jwt_cache_evictions_total 9.0",
    ]
    types = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE pgrst_"))
    counters = {"schema_cache_loads", "db_pool_timeouts", "jwt_cache_requests", "jwt_cache_hits"}
    counters.add("jwt_cache_evictions")
    assert {name for name, kind in types.items() if kind == "counter"} == {
        f"pgrst_{name}_total" for name in counters
    }
    assert set(types.values()) == {"counter", "gauge"}


def test_evicted_tokens_are_counted() -> None:
    tokens = Authenticator(Project("a" * 20, "acme", "", jwt_cache_max_entries=1), lambda: 0.0).tokens
    for number in range(3):
        tokens._tokens.put(str(number), None)  # type: ignore[arg-type]
    assert tokens.evictions == 2
    tokens.replace_verifier(lambda *_: None)  # type: ignore[arg-type]
    assert tokens.evictions == 2
