"""Positions in PostgreSQL's write-ahead log (WAL), a reader's required one, and the lag of replicas; pure.

A position is a timeline and what PostgreSQL calls an LSN, such as ``1:16/B374D848``: after a promotion the
same LSN is another place.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_POSITION = re.compile("([0-9]{1,10}):([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
REMEMBERED = 3600
"""Positions of the primary that are remembered, which limits the lag that can be measured.

A replica that is further behind gets no reads under a limit.
"""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where in the history of a cluster something happened; later ones are greater."""

    timeline: int
    offset: int

    @property
    def lsn(self) -> str:
        """The position in its timeline, as PostgreSQL writes it."""
        return f"{self.offset >> 32:X}/{self.offset & 0xFFFFFFFF:X}"


BEGINNING = Position(0, 0)
"""The position that every follower of the primary has seen."""


def required_position(headers: Mapping[str, str]) -> Position | None:
    """Return the position that ``Dataapi-LSN`` names, the furthest of several; ``BEGINNING`` without it.

    Where one cannot be read the requirement is unknown, which is None.
    """
    text = headers.get("dataapi-lsn")
    if text is None:
        return BEGINNING
    found = [_POSITION.fullmatch(part.strip()) for part in text.split(",")]
    positions = [_position(*match.groups()) for match in found if match is not None]
    return max(positions) if len(positions) == len(found) else None


def _position(timeline: str, high: str, low: str) -> Position:
    return Position(int(timeline), (int(high, 16) << 32) + int(low, 16))


class PrimaryProgress:
    """When the primary was where, as it was seen now and then.

    A standby's own clock shows its lag only while the primary writes; this shows it also for a standby that
    is cut off, and for an idle primary.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=REMEMBERED)

    @property
    def known(self) -> bool:
        """Whether the primary was seen at all."""
        return bool(self._seen)

    def see(self, position: int, now: float) -> None:
        """Record the position of the primary now."""
        if self._seen and position < self._seen[-1][1]:
            # Another server has become the primary, which goes on from an earlier position.
            self._seen.clear()
        if self._seen and position == self._seen[-1][1]:
            self._seen.pop()
        self._seen.append((now, position))

    def lag(self, replayed: int) -> float | None:
        """Return by how many seconds a replica is behind the last position seen.

        None is unknown: it may be behind all that was seen by any time.
        """
        for seen, position in reversed(self._seen):
            if position <= replayed:
                return self._seen[-1][0] - seen
        return None
