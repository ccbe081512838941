"""Recent slow requests, stored in memory for the console."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

SLOW = 0.5
"""Minimum duration of a slow request, in seconds."""
MAX_REQUESTS = 100
"""Maximum number of slow requests stored per project."""
RETENTION = 900.0
"""Retention of slow requests, in seconds."""


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """A slow request. Times are in seconds. ``at`` is the time of completion, in Unix seconds.

    ``queued`` is the time spent waiting for a connection, ``database`` the time of database round trips.
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
        self._by_project.setdefault(project, deque(maxlen=MAX_REQUESTS)).append(request)

    def recent(self, project: str, now: float) -> list[SlowRequest]:
        requests = self._by_project.get(project, ())
        return [request for request in reversed(requests) if request.at >= now - RETENTION]
