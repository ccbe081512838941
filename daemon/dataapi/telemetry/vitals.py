"""The state of the process that answers, and of the other workers, for the console."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dataapi.telemetry.readiness import WebhooksState
from dataapi.telemetry.slow_requests import SlowRequests

_UNREACHABLE = "the database cannot be reached"
_ELSEWHERE = "the log and /ready of the admin listener say why"


@dataclass(frozen=True, slots=True)
class WorkersState:
    """The worker processes of the daemon, by their numbers.

    :ivar own: the number of the worker that answers.
    :ivar serving: those that accept requests and answer their parent.
    :ivar stuck: those that do not answer their parent.
    """

    own: int
    configured: int
    serving: tuple[int, ...] = ()
    stuck: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "own": self.own,
            "configured": self.configured,
            "serving": list(self.serving),
            "stuck": list(self.stuck),
        }


def workers_from_json(document: Mapping[str, Any]) -> WorkersState:
    """Read what ``WorkersState.as_json`` wrote."""
    serving, stuck = tuple(document["serving"]), tuple(document["stuck"])
    return WorkersState(document["own"], document["configured"], serving, stuck)


def _no_webhooks() -> WebhooksState | None:
    return None


@dataclass(slots=True)
class Vitals:
    """The state of one process.

    :ivar webhooks: whether webhooks work, None where there are none.
    :ivar workers: as the parent last reported them; None in a daemon of one process.
    """

    webhooks: Callable[[], WebhooksState | None] = _no_webhooks
    slow: SlowRequests = field(default_factory=SlowRequests)
    workers: WorkersState | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as values that JSON has, without the requests."""
        workers = self.workers and self.workers.as_json()
        return {"workers": workers, "webhooks": _webhooks_json(self.webhooks())}


def _webhooks_json(state: WebhooksState | None) -> Mapping[str, Any] | None:
    """Return what every project may know of webhooks, whose database may be another project's."""
    if state is None:
        return None
    reason = _ELSEWHERE if state.database_available else _UNREACHABLE
    return {"ready": state.ready, "reason": None if state.ready else reason}
