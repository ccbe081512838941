"""Live queries of databases that do not report every change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from dataapi.live.changes import UNKNOWN, Changes


def changes_of(*results: list[tuple[str]] | ApiError) -> Changes:
    """Return change detection for a static database. ``results`` are its lists of untracked tables."""
    remaining = iter(results)

    async def fetch(text: str) -> Any:
        if "untracked" not in text:
            return [("the same", "")]
        result = next(remaining)
        if isinstance(result, ApiError):
            raise result
        return result

    catalog: Any = SimpleNamespace(generation=1, clustered=False)
    return Changes(fetch, lambda: catalog, replicated=False)


async def test_failed_list_is_fetched_again() -> None:
    changes = changes_of(DatabaseUnavailable(503, "PGRST001", "away"), [("tickets",)])
    assert await changes.check() == UNKNOWN
    assert (await changes.check()).visible == (1, "the same")
    assert changes.untracked == {"tickets"}
    assert await changes.check() == await changes.check()  # each catalog fetches the list once


async def test_queries_run_at_each_interval_if_the_list_is_denied() -> None:
    changes = changes_of(*[DatabaseError(403, "42501", "refused")] * 3)
    states = [(await changes.check()).visible for _ in range(3)]
    assert len(set(states)) == 3
