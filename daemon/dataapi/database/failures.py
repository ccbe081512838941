"""What the callers of a pool get when it cannot answer."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from dataapi.database.quoting import without_aliases
from dataapi.database.sqlstate import Diagnostics, to_error
from dataapi.errors import ApiError, DatabaseError, DatabaseUnavailable

if TYPE_CHECKING:
    import psycopg2

_NAMES = "42"
"""The class of errors that name what stands in the statement: syntax errors and violated access rules."""


def refused(error: psycopg2.Error, *, anonymous: bool) -> ApiError:
    """Return the error for what PostgreSQL refused; see ``sqlstate.to_error``."""
    diag = error.diag
    message, detail, hint = diag.message_primary or str(error), diag.message_detail, diag.message_hint
    if (diag.sqlstate or "").startswith(_NAMES):
        message, hint = without_aliases(message), hint and without_aliases(hint)
    found = to_error(Diagnostics(diag.sqlstate or "XX000", message, detail, hint), anonymous=anonymous)
    if isinstance(found, DatabaseError):
        found.at_value = _is_at_value(error)
    return found


def _is_at_value(error: psycopg2.Error) -> bool:
    """Whether the error points at a literal: only reading it by the input function of its type does so."""
    position, cursor = error.diag.statement_position, error.cursor
    if position is None or cursor is None or cursor.query is None:
        return False
    before = cursor.query.decode()[int(position) - 1 :][:2]
    return before.startswith(("'", "E'"))


def timed_out() -> ApiError:
    """Return the error for who waited in vain for a connection."""
    return DatabaseUnavailable(504, "PGRST003", "Timed out acquiring connection from connection pool.")


def unreachable(seconds: float) -> ApiError:
    """Return the error while there is no connection; the next attempt is ``seconds`` away."""
    return _retry_after("PGRST000", "Database connection error. Retrying.", seconds)


def died() -> ApiError:
    """Return the error for a statement whose connection was lost; whether it took effect is unknown."""
    return _retry_after("PGRST001", "Database client error. Retrying.", 1)


def stopped() -> ApiError:
    """Return the error while the pool is stopping or not started."""
    return _retry_after("PGRST000", "The service is shutting down.", 1)


def _retry_after(code: str, message: str, seconds: float) -> ApiError:
    headers = (("Retry-After", str(max(1, ceil(seconds)))),)
    return DatabaseUnavailable(503, code, message, headers=headers)
