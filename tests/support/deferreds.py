"""What became of work that has nothing to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Coroutine


def outcome(work: Deferred[Any] | Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a Deferred or a coroutine, or its exception; fails while it has neither."""
    deferred = work if isinstance(work, Deferred) else Deferred.fromCoroutine(work)
    results: list[Any] = []
    deferred.addBoth(results.append)
    [result] = results
    return result.value if isinstance(result, Failure) else result
