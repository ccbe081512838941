"""How long to wait before the database is tried again."""

from __future__ import annotations

FIRST = 0.25
LONGEST = 32.0


def backoff(failures: int, random: float) -> float:
    """Return the seconds to wait after so many failures in a row: doubling, half of it by chance.

    :param random: from 0 to 1; spreads what many daemons do after one outage.
    """
    longest = min(LONGEST, FIRST * 2.0 ** min(failures - 1, 16))
    return longest * (0.5 + 0.5 * random)
