"""Recent slow requests, stored in memory for the console."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

SLOW = 0.5
"""Minimum duration of a slow request, in seconds."""
MAX_REQUESTS = 100
"""Maximum number of slow requests stored per project."""
RETENTION = 900.0
"""Seconds for which slow requests are stored."""


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """A slow request.

    :ivar at: when it was completed, in Unix seconds.
    :ivar operation: name of the GraphQL operation, or "".
    :ivar queued: seconds spent waiting for a connection.
    :ivar database: seconds spent on round trips to the database.
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
