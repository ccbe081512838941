"""An unformatted log record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class LogRecord:
    """An unformatted log record; ``time`` is in Unix seconds, and ``fields`` has JSON values."""

    time: float
    level: str
    logger: str
    message: str
    request_id: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    traceback: str | None = None
