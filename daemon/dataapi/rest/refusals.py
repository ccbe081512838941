"""What requests are refused for, and what their statements refuse, as the client reads it; pure.

A statement raises, so that nothing of it happens, by casting a text to an integer (see
``query.changes.RAISED``); the text is the code of the error and the number of rows that it is about.
"""

from __future__ import annotations

import re

from dataapi.errors import ApiError
from dataapi.query.changes import RAISED
from dataapi.query.refused import TOO_LARGE
from dataapi.rest.request.bounds import too_much

OTHER_KEY = "PGRST115"
NOT_SINGLE = "PGRST116"
TOO_MANY = "PGRST124"

_INVALID_TEXT = "22P02"
_UNDEFINED_FUNCTION = "42883"
# A client's own value may look so too: no more digits than a count of rows has.
_RAISED = re.compile(f"{RAISED}(PGRST[0-9]+){RAISED}([0-9]{{1,19}})(?![0-9])", re.ASCII)


def other_key() -> ApiError:
    """Return the error for a body whose rows are not the one that the URL names."""
    return ApiError(400, OTHER_KEY, "Payload values do not match URL in primary key column(s)")


def not_single(rows: int) -> ApiError:
    """Return the error for another number of rows than the one that was asked for."""
    message = "Cannot coerce the result to a single JSON object"
    return ApiError(406, NOT_SINGLE, message, details=f"The result contains {rows} rows")


def too_many(rows: int) -> ApiError:
    """Return the error for more rows than ``max-affected`` allows."""
    message = "Query result exceeds max-affected preference constraint"
    return ApiError(400, TOO_MANY, message, details=f"The query affects {rows} rows")


def too_large(size: int) -> ApiError:
    """Return the error for an answer of more bytes than ``max-answer``, or a line beyond its bound."""
    return too_much(f"The answer, or a line of it, has {size} bytes, more than max-answer allows")


def unsupported(method: str, *headers: tuple[str, str]) -> ApiError:
    """Return the error for a method that is none of those that tables and the root know."""
    return ApiError(405, "PGRST117", f"Unsupported HTTP method: {method}", headers=headers)


def told(error: ApiError) -> ApiError:
    """Return what a client is to read of a database's error: itself, or what it stands for."""
    if error.code == _UNDEFINED_FUNCTION:
        # The schema is how this service names functions and operators, not how the client does.
        error.message = error.message.replace("pg_catalog.", "")
    match = _RAISED.search(error.message) if error.code == _INVALID_TEXT else None
    if match is None:
        return error
    code, rows = match[1], int(match[2])
    if code == OTHER_KEY:
        return other_key()
    if code == NOT_SINGLE:
        return not_single(rows)
    if code == TOO_LARGE:
        return too_large(rows)
    return too_many(rows) if code == TOO_MANY else error
