"""State of this process and of the other workers, for the console."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dataapi.telemetry.readiness import WebhooksState
from dataapi.telemetry.slow_requests import SlowRequests

_UNREACHABLE = "the database cannot be reached"
_SEE_LOG = "see the log, or /ready on the admin listener"


@dataclass(frozen=True, slots=True)
class WorkersState:
    """The daemon's worker processes, identified by number.

    :ivar configured: how many workers the configuration requests.
    :ivar serving: workers that accept requests and respond to their parent.
    :ivar stuck: workers that do not respond to their parent.
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
    serving, stuck = tuple(document["serving"]), tuple(document["stuck"])
    return WorkersState(document["own"], document["configured"], serving, stuck)


def _no_webhooks() -> WebhooksState | None:
    return None


@dataclass(slots=True)
class Vitals:
    """State of one process.

    :ivar webhooks: returns the state of webhooks, None if they are disabled.
    :ivar workers: last report of the parent process, or None if the daemon is a single process.
    """

    webhooks: Callable[[], WebhooksState | None] = _no_webhooks
    slow: SlowRequests = field(default_factory=SlowRequests)
    workers: WorkersState | None = None

    def as_json(self) -> dict[str, Any]:
        workers = self.workers and self.workers.as_json()
        return {"workers": workers, "webhooks": _webhooks_json(self.webhooks())}


# The reason is generic, because the database may be another project's.
def _webhooks_json(state: WebhooksState | None) -> Mapping[str, Any] | None:
    if state is None:
        return None
    reason = _SEE_LOG if state.database_available else _UNREACHABLE
    return {"ready": state.ready, "reason": None if state.ready else reason}
