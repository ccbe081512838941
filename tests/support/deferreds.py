"""Results of work that completes immediately."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Coroutine


def outcome(work: Deferred[Any] | Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a Deferred or coroutine, or its exception; fail if it is not complete."""
    deferred = work if isinstance(work, Deferred) else Deferred.fromCoroutine(work)
    results: list[Any] = []
    deferred.addBoth(results.append)
    [result] = results
    return result.value if isinstance(result, Failure) else result
