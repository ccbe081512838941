"""What happens to live queries if the database does not tell what changes without a transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from dataapi.live.changes import UNKNOWN, Changes


def watched(*listed: list[tuple[str]] | ApiError) -> Changes:
    """Return what looks at a database that never changes; ``listed`` is what each listing comes to."""
    answers = iter(listed)

    async def fetch(text: str) -> Any:
        if "untracked" not in text:
            return [("the same", "")]
        answer = next(answers)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    catalog: Any = SimpleNamespace(generation=1, clustered=False)
    return Changes(fetch, lambda: catalog, replicated=False)


async def test_list_that_was_not_read_is_read_again() -> None:
    changes = watched(DatabaseUnavailable(503, "PGRST001", "away"), [("tickets",)])
    assert await changes.check() == UNKNOWN
    assert (await changes.check()).visible == (1, "the same")
    assert changes.untracked == {"tickets"}
    assert await changes.check() == await changes.check()  # the list is read once for a catalog


async def test_queries_run_at_each_interval_if_the_list_is_refused() -> None:
    changes = watched(*[DatabaseError(403, "42501", "refused")] * 3)
    states = [(await changes.check()).visible for _ in range(3)]
    assert len(set(states)) == 3
