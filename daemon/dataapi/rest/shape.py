"""What of a request decides its statement; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a read decides its statement.

    :ivar orders: ``order`` values by resource, as in ``Windows``.
    :ivar limited, moved: the resources with a limit, and with an offset; how much is a value.
    :ivar counted: whether all matching rows are counted.
    """

    schema: str
    table: str
    select: str
    orders: tuple[tuple[str, str], ...]
    limited: tuple[str, ...]
    moved: tuple[str, ...]
    counted: bool
