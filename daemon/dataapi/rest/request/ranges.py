"""Which rows of a result are asked for and which were given: limits, offsets, ranges; pure.

Statuses and messages are PostgREST's (reference/rest.md 1.1 and 1.6).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dataapi.errors import ApiError

MOST = 2**63 - 1
"""The largest number that PostgreSQL takes for a limit or an offset."""

_NEGATIVE = "Limit should be greater than or equal to zero."
_NUMBER = re.compile(r"(-?)([0-9]+)", re.ASCII)
_RANGE = re.compile(r"(?:items=)?([0-9]{1,18})-([0-9]{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a result.

    :ivar limit: None for all rows from the offset on.
    """

    limit: int | None = None
    offset: int = 0

    def within(self, other: Window) -> Window:
        """Return what both have in common."""
        offset = max(self.offset, other.offset)
        ends = [window.offset + window.limit for window in (self, other) if window.limit is not None]
        return Window(max(0, min(ends) - offset) if ends else None, offset)


def narrowed(asked: Window, header: str | None) -> Window:
    """Return what a ``Range`` header leaves of what parameters ask for, from the first row on.

    As PostgREST has it, no rows are none wherever they begin.

    :raises ApiError: PGRST103 (416), that is nothing, though some rows are asked for.
    """
    if asked.limit == 0:
        return Window(0)
    both = asked.within(window_of_header(header))
    if both.limit == 0:
        raise unsatisfiable(_NEGATIVE)
    return both


def count_of(text: str, parameter: str) -> int | None:
    """Return the value of a ``limit`` or ``offset`` parameter; one beyond any table is as good as any.

    What is no whole number, and an offset of embedded rows before the first one, is as if absent; the
    outermost rows' offset may lie before the first row, as PostgREST has it.

    :raises ApiError: PGRST103 (416), the limit is negative.
    """
    number = _NUMBER.fullmatch(text.strip())
    if number is None:
        return None
    sign, digits = number.groups()
    count = MOST if len(digits) > 18 else int(digits)
    if not sign:
        return count
    if parameter == "offset":
        return -count
    if parameter.endswith("offset"):
        return None
    raise unsatisfiable(_NEGATIVE)


def window_of_header(text: str | None) -> Window:
    """Return the window of a ``Range`` header; as HTTP demands, one of another unit is as if absent.

    :raises ApiError: PGRST103 (416), the range ends before it begins.
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


def content_range(offset: int, rows: int, total: int | None) -> str:
    """Return the ``Content-Range`` of rows given from an offset on."""
    given = f"{offset}-{offset + rows - 1}" if rows and total != 0 else "*"
    return f"{given}/{'*' if total is None else total}"


def status_of(offset: int, rows: int, total: int | None) -> int:
    """Return 206 when it is known that there are more rows than were given, else 200.

    :raises ApiError: PGRST103 (416), the offset lies beyond the last row.
    """
    if total is None:
        return 200
    if offset > total:
        details = f"An offset of {offset} was requested, but there are only {total} rows."
        raise unsatisfiable(details, ("Content-Range", content_range(offset, 0, total)))
    return 206 if rows < total else 200


def unsatisfiable(details: str, *headers: tuple[str, str]) -> ApiError:
    """Return the error of a range that no result can have."""
    return ApiError(416, "PGRST103", "Requested range not satisfiable", details=details, headers=headers)
