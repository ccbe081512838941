"""Adds the location in the request body to errors from inserts with related rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from dataapi.http.errors import ApiError, DatabaseError
from dataapi.rest import respond
from dataapi.rest.parse.body import WrittenRows
from dataapi.sql.dml import CONFLICTING_VALUES, NOT_FOUND, SKIPPED
from dataapi.sql.statement import violation_in

E = TypeVar("E", bound=ApiError)

_INVALID_VALUE = re.compile("22...")
"""SQLSTATEs of data exceptions."""
_QUOTED_VALUE = re.compile(r'"([^"]+)"\Z')
_KEY_VALUE = re.compile(r"\(([^()]+)\)=\(([^()]*)\)")
"""Matches a column and its value in the details of a unique or foreign key violation."""


def placed(error: E, place: str) -> E:
    """Add the path of a JSON member to the details of an error, unless the details are a list."""
    if not place or isinstance(error.details, list):
        return error
    text = f"{error.details} " if error.details else ""
    return error.replaced(details=f"{text}The error is at {place}")


def nested_error(error: DatabaseError, groups: Sequence[WrittenRows]) -> ApiError:
    """Return a database error in the form that clients see, with its location in the body if known."""
    violation = violation_in(error.code, error.message)
    if violation is not None and violation.reason.startswith(CONFLICTING_VALUES):
        conflicting = ApiError(400, "PGRST102", violation.reason.capitalize())
        return placed(conflicting, groups[violation.index].place)
    if violation is not None and violation.reason == NOT_FOUND:
        hidden = ApiError(
            409,
            "23505",
            "Could not find the existing row by the on_conflict columns",
            hint="The role is not allowed to read the row, or the row was just inserted.",
        )
        return placed(hidden, groups[violation.index].place)
    if violation is not None and violation.reason == SKIPPED:
        skipped = ApiError(409, "23503", SKIPPED.capitalize())
        return placed(skipped, groups[violation.index].place)
    return placed(respond.client_error(error), _place(error, groups))


def _place(error: DatabaseError, groups: Sequence[WrittenRows]) -> str:
    """Return the path in the body to the value or rows that caused an error, "" if unknown."""
    quoted = _QUOTED_VALUE.search(error.message) if _INVALID_VALUE.fullmatch(error.code) else None
    if quoted is not None:
        places = [
            f"{group.place_of(index)}.{name}".lstrip(".")
            for group in groups
            for index, row in enumerate(group.rows)
            for name, value in row.items()
            if value == quoted[1]
        ]
        return places[0] if len(places) == 1 else ""
    rows = [
        (group.place_of(index), row)
        for group in groups
        for index, row in enumerate(group.rows)
        if group.table == error.table
    ]
    key = _KEY_VALUE.search(error.details) if isinstance(error.details, str) else None
    if error.column is not None:  # Only NOT NULL violations name a column.
        column, value = error.column, "None"
    elif key is not None:
        column, value = key.groups()
    else:
        column, value = "", "None"
    wrong = [place for place, row in rows if str(row.get(column)) == value]
    if len(wrong) == 1:
        return ".".join(filter(None, (wrong[0], column)))
    arrays = {place.rpartition("[")[0] for place, _ in rows}
    return arrays.pop() if len(arrays) == 1 else ""
