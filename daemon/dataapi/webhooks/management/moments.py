"""Reads times as clients write them: RFC 3339 date-times."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-]\d\d:\d\d))", re.ASCII
)


def read_moment(text: str) -> datetime | None:
    """Return a time in UTC, to the microsecond; None for what is no time from the year 1 to 9999.

    A leap second is the last microsecond of its minute.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    day, minute, second, fraction, offset = found.groups()
    micro = (fraction or "0")[:6].ljust(6, "0")
    if second == "60":
        second, micro = "59", "999999"
    try:
        return datetime.fromisoformat(f"{day}T{minute}:{second}.{micro}{offset or '+00:00'}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
