"""One line per answered request, as far as ``log-level`` asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from dataapi.logs import Record
from dataapi.metrics import RequestFigures

FROM_STATUS: Mapping[str, int] = MappingProxyType(
    {"crit": 1000, "error": 500, "warn": 400, "info": 0, "debug": 0}
)
"""The lowest status that each ``log-level`` writes lines of (PostgREST's rule)."""


class Answered(Protocol):
    """What is told of a request once it was answered; ``path`` has no query string, which may hold a key."""

    @property
    def area(self) -> str:
        """The part of the interface, from a small fixed set."""

    @property
    def request_id(self) -> str:
        """The request's id."""

    @property
    def method(self) -> str:
        """The HTTP method."""

    @property
    def path(self) -> str:
        """The decoded path."""

    @property
    def status(self) -> int:
        """The answer's status."""

    @property
    def seconds(self) -> float:
        """How long it took."""

    @property
    def size(self) -> int:
        """Bytes of the answer's body."""


def request_observer(
    figures: RequestFigures, level: str, put: Callable[[Record], object], now: Callable[[], float] = time.time
) -> Callable[[Answered], None]:
    """Return what is called for every answered request: it counts all and logs those of the level."""
    lowest = FROM_STATUS[level]

    def observe(served: Answered) -> None:
        figures.observe(served.area, served.status, served.seconds)
        if served.status >= lowest:
            put(_line(served, now()))

    return observe


def _line(served: Answered, time_of: float) -> Record:
    level = "error" if served.status >= 500 else "warn" if served.status >= 400 else "info"
    fields = {
        "method": served.method,
        "path": served.path,
        "status": served.status,
        "milliseconds": round(served.seconds * 1000, 3),
        "bytes": served.size,
    }
    message = f"{served.method} {served.path} {served.status}"
    return Record(time_of, level, "dataapi.requests", message, served.request_id, fields)
