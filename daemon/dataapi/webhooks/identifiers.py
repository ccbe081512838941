"""Version 7 UUIDs for endpoints, events and deliveries. They sort by creation time.

The schema ``webhooks`` has equivalent SQL functions.
"""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

EARLIEST = UUID(int=0)
LATEST = UUID(int=2**128 - 1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RANDOM_BITS = 62


def uuid_v7(microseconds: int | None = None, random: int | None = None) -> UUID:
    """Return an identifier for the current time, or for a time in microseconds since 1970."""
    # RFC 9562, section 6.2, method 3
    now = time.time_ns() // 1000 if microseconds is None else microseconds
    milliseconds, rest = divmod(now, 1000)
    low = secrets.randbits(_RANDOM_BITS) if random is None else random
    return UUID(int=milliseconds << 80 | 7 << 76 | (rest * 4096 // 1000) << 64 | 2 << 62 | low)


def uuid_floor(created_at: datetime) -> UUID:
    milliseconds = (created_at - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=min(max(milliseconds, 0), 2**48 - 1) << 80)


def next_identifier(identifier: UUID) -> UUID:
    return UUID(int=min(identifier.int + 1, LATEST.int))


def parse(text: str) -> UUID | None:
    try:
        identifier = UUID(text)
    except ValueError:
        return None
    return identifier if str(identifier) == text.lower() else None
