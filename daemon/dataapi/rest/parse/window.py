"""Parses limits, offsets and ``Range`` (docs/reference/rest.md, Ranges)."""

from __future__ import annotations

import re
from typing import NamedTuple

from dataapi.http.errors import ApiError

MAXIMUM = 2**63 - 1
"""Maximum limit and offset in PostgreSQL."""

NEGATIVE = "Limit should be greater than or equal to zero."
_NUMBER = re.compile(r"(-?)([0-9]+)", re.ASCII)
_RANGE = re.compile(r"(?:items=)?([0-9]{1,18})-([0-9]{0,18})", re.ASCII)


class Window(NamedTuple):
    """A range of the rows in a result.

    :ivar limit: None for all rows after the offset.
    """

    limit: int | None = None
    offset: int = 0

    def within(self, other: Window) -> Window:
        offset = max(self.offset, other.offset)
        ends = [window.offset + window.limit for window in (self, other) if window.limit is not None]
        return Window(max(0, min(ends) - offset) if ends else None, offset)


def parse_count(text: str, parameter: str) -> int | None:
    """Return the value of a ``limit`` or ``offset`` parameter, at most ``MAXIMUM``.

    Return None, so that the parameter is ignored, if the value is not an integer or if the offset of embedded
    rows is negative. As in PostgREST, the offset of the top-level rows may be negative.

    :raises ApiError: PGRST103 (416) if the limit is negative.
    """
    number = _NUMBER.fullmatch(text.strip())
    if number is None:
        return None
    sign, digits = number.groups()
    count = MAXIMUM if len(digits) > 18 else int(digits)
    if not sign:
        return count
    if parameter == "offset":
        return -count
    if parameter.endswith("offset"):
        return None
    raise unsatisfiable(NEGATIVE)


def parse_range(text: str | None) -> Window:
    """Parse a ``Range`` header. As HTTP requires, a range in an unknown unit is ignored.

    :raises ApiError: PGRST103 (416) if the range ends before it begins.
    """
    match = _RANGE.fullmatch(text.strip()) if text else None
    if match is None:
        return Window()
    first = int(match[1])
    if not match[2]:
        return Window(None, first)
    last = int(match[2])
    if last < first:
        raise unsatisfiable(
            "The lower boundary must be lower than or equal to the upper boundary in the Range header."
        )
    return Window(last - first + 1, first)


def unsatisfiable(details: str, *headers: tuple[str, str]) -> ApiError:
    return ApiError(416, "PGRST103", "Requested range not satisfiable", details=details, headers=headers)
