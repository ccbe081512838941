"""What a pool tells about itself, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figures:
    """What a pool is doing.

    :ivar size: the most connections it may have.
    :ivar open: connections it has; ``idle`` of them are free and ``in_use`` are not.
    :ivar waiting: messages and streams that wait for a connection now.
    :ivar timeouts: messages and streams that waited in vain, since the start.
    :ivar connects: connections made, since the start.
    :ivar cancels: statements given up by their callers, since the start.
    """

    size: int
    open: int
    idle: int
    in_use: int
    waiting: int
    timeouts: int
    connects: int
    cancels: int
