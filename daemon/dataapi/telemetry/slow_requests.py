"""The slow requests of the last minutes, kept in memory for the console."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

SLOW = 0.5
"""Seconds from which a request counts as slow."""
MAXIMUM = 100
"""Slow requests that are kept of one project."""
KEPT = 900.0
"""Seconds for which they are kept."""


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """A slow request: when it was answered, in Unix seconds, and where its time went.

    :ivar operation: the name of the GraphQL operation, "" without one.
    :ivar queued, database: seconds of ``seconds`` that it waited for a connection and for the database.
    """

    id: str
    at: float
    method: str
    path: str
    operation: str
    role: str
    status: int
    seconds: float
    queued: float
    database: float


class SlowRequests:
    """The latest slow requests of each project."""

    def __init__(self) -> None:
        self._by_project: dict[str, deque[SlowRequest]] = {}

    def add(self, project: str, request: SlowRequest) -> None:
        """Keep a request in place of the oldest one, if there are too many."""
        self._by_project.setdefault(project, deque(maxlen=MAXIMUM)).append(request)

    def of(self, project: str, now: float) -> list[SlowRequest]:
        """Return the slow requests of a project's last minutes, the latest first."""
        kept = self._by_project.get(project, ())
        return [request for request in reversed(kept) if request.at >= now - KEPT]
