"""Positions in the write-ahead log (WAL): required positions of reads, and the lag of replicas.

A position is a timeline and an LSN, such as ``1:16/B374D848``. After a promotion, the same LSN is a different
position.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_POSITION = re.compile("([0-9]{1,10}):([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
MAX_POSITIONS = 3600
"""Number of the primary's positions to store. The number limits the lag that can be measured.

With ``db-read-max-lag``, a replica that is older than all of these positions receives no reads.
"""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A WAL position. Later positions compare as greater."""

    timeline: int
    offset: int

    @property
    def lsn(self) -> str:
        return f"{self.offset >> 32:X}/{self.offset & 0xFFFFFFFF:X}"


BEGINNING = Position(0, 0)
"""Position that every server has reached."""


def required_position(headers: Mapping[str, str]) -> Position | None:
    """Return the position in ``Dataapi-LSN``, the latest if there are several (default: ``BEGINNING``).

    Return None if a position cannot be parsed.
    """
    text = headers.get("dataapi-lsn")
    if text is None:
        return BEGINNING
    matches = [_POSITION.fullmatch(part.strip()) for part in text.split(",")]
    positions = [_position(*match.groups()) for match in matches if match is not None]
    return max(positions) if len(positions) == len(matches) else None


def _position(timeline: str, high: str, low: str) -> Position:
    return Position(int(timeline), (int(high, 16) << 32) + int(low, 16))


class PrimaryProgress:
    """History of the primary's positions.

    A standby's own clock shows its lag only while the primary writes. This history also works if the standby
    is disconnected or the primary is idle.
    """

    def __init__(self) -> None:
        self._history: deque[tuple[float, int]] = deque(maxlen=MAX_POSITIONS)

    @property
    def has_data(self) -> bool:
        return bool(self._history)

    def record(self, position: int, now: float) -> None:
        if self._history and position < self._history[-1][1]:
            # The new primary was promoted before it had received all WAL of the old primary.
            self._history.clear()
        if self._history and position == self._history[-1][1]:
            self._history.pop()
        self._history.append((now, position))

    def lag(self, replayed: int) -> float | None:
        """Return the lag of a replica in seconds, or None if it is longer than the history."""
        for recorded_at, position in reversed(self._history):
            if position <= replayed:
                return self._history[-1][0] - recorded_at
        return None
