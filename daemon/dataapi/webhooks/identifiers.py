"""Identifiers of endpoints, events and deliveries: UUIDs of version 7, which sort by creation time.

The schema ``webhooks`` has functions of the same names that make the same.
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
    """Return a new identifier (RFC 9562, method 3) of now, or of ``microseconds`` since 1970."""
    now = time.time_ns() // 1000 if microseconds is None else microseconds
    milliseconds, rest = divmod(now, 1000)
    low = secrets.randbits(_RANDOM_BITS) if random is None else random
    return UUID(int=milliseconds << 80 | 7 << 76 | (rest * 4096 // 1000) << 64 | 2 << 62 | low)


def uuid_floor(moment: datetime) -> UUID:
    """Return the lower bound of identifiers made at ``moment`` or later."""
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=min(max(milliseconds, 0), 2**48 - 1) << 80)


def next_identifier(identifier: UUID) -> UUID:
    """Return the next identifier, or the last of all."""
    return UUID(int=min(identifier.int + 1, LATEST.int))


def parse(text: str) -> UUID | None:
    """Parse an identifier in its canonical form, with hyphens; None for anything else."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text.lower() else None
