"""Metrics under PostgREST's names, for its dashboards and alerts."""

from __future__ import annotations

from dataapi.telemetry.metrics import Snapshot, Value

_Series = dict[tuple[str, ...], Value]


def postgrest_metrics(snapshot: Snapshot) -> Snapshot:
    """Return metrics under PostgREST's names, summed over all projects.

    The webhooks pool is excluded, because it has no catalog.
    """
    refs = {labels[0] for labels in snapshot.get("dataapi_catalog_generation", {})}

    def values(name: str, *labels: str) -> list[float]:
        return [
            value
            for series_labels, value in snapshot.get(name, {}).items()
            if series_labels[0] in refs and series_labels[1:] == labels and isinstance(value, float)
        ]

    def total(name: str, *labels: str) -> _Series:
        return {(): sum(values(name, *labels))}

    lookups = "dataapi_cache_lookups_total"
    hits, misses = sum(values(lookups, "tokens", "hit")), sum(values(lookups, "tokens", "miss"))
    return {
        "pgrst_schema_cache_query_time_seconds": {
            (): max(values("dataapi_catalog_load_seconds"), default=0.0)
        },
        "pgrst_schema_cache_loads_total": {
            ("SUCCESS",): sum(values("dataapi_catalog_loads_total", "loaded")),
            ("FAIL",): sum(values("dataapi_catalog_loads_total", "failed")),
        },
        "pgrst_db_pool_max": total("dataapi_pool_size"),
        "pgrst_db_pool_available": total("dataapi_pool_connections", "idle"),
        "pgrst_db_pool_waiting": total("dataapi_pool_waiting"),
        "pgrst_db_pool_timeouts_total": total("dataapi_pool_timeouts_total"),
        "pgrst_jwt_cache_requests_total": {(): hits + misses},
        "pgrst_jwt_cache_hits_total": {(): hits},
        "pgrst_jwt_cache_evictions_total": total("dataapi_cache_evictions_total", "tokens"),
    }
