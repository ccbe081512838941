"""Errors for callers: PostgreSQL's errors, with PostgREST's status codes, and connection failures."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from dataapi.database.sql_text import LEFTOVERS, without_aliases
from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from dataapi.http.headers import is_settable
from dataapi.http.strict_json import INVALID_JSON

if TYPE_CHECKING:
    import psycopg

CANCELLED = "57014"
READ_ONLY = "25006"
"""SQLSTATE of a write in a read-only transaction."""

_EXACT = {
    "23503": 409,
    "23505": 409,
    READ_ONLY: 405,
    "53400": 500,
    "57P01": 503,
    "P0001": 400,
    "42P01": 404,
    "42P17": 500,
}
_CLASSES = {
    "08": 503, "09": 500, "0L": 403, "0P": 403, "25": 500, "28": 403, "2D": 500, "38": 500, "39": 500,
    "3B": 500, "40": 500, "53": 503, "54": 500, "55": 500, "57": 500, "58": 500, "F0": 500, "HV": 500,
    "P0": 500, "XX": 500,
}  # fmt: skip
_TRANSACTION_TIMEOUT = "25P04"
_UNAUTHENTICATED = (("WWW-Authenticate", "Bearer"),)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Fields of PostgreSQL's error message that clients see."""

    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None


def status_of(diagnostics: Diagnostics, *, anonymous: bool) -> int:
    state, message = diagnostics.sqlstate, diagnostics.message
    if state == "42501":
        return 401 if anonymous else 403
    if state == "42883":
        return 406 if message.startswith("function xmlagg(") else 404
    if state == "21000":
        return 400 if message.endswith("requires a WHERE clause") else 500
    if state == "22023":
        return 401 if message.startswith("role ") and message.endswith("does not exist") else 400
    if state.startswith("PT"):
        return _custom_status(state[2:])
    return _EXACT.get(state) or _CLASSES.get(state[:2], 400)


def to_error(diagnostics: Diagnostics, *, anonymous: bool) -> ApiError:
    """Convert a PostgreSQL error for the client. ``RAISE SQLSTATE 'PGRST'`` sets the whole response."""
    if diagnostics.sqlstate == "PGRST":
        return _from_raise(diagnostics)
    status = status_of(diagnostics, anonymous=anonymous)
    return DatabaseError(
        status,
        diagnostics.sqlstate,
        diagnostics.message,
        details=diagnostics.detail,
        hint=diagnostics.hint,
        headers=_UNAUTHENTICATED if status == 401 else (),
    )


def _custom_status(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() and 200 <= int(digits) <= 599 else 500


def _from_raise(diagnostics: Diagnostics) -> ApiError:
    body = _json_object(diagnostics.message)
    if body is None or not isinstance(body.get("code"), str) or not isinstance(body.get("message"), str):
        return _malformed(
            f"Invalid JSON value for MESSAGE: '{diagnostics.message}'",
            "MESSAGE must be a JSON object with obligatory keys: 'code', 'message' "
            "and optional keys: 'details', 'hint'.",
        )
    response = _json_object(diagnostics.detail)
    status = None if response is None else response.get("status")
    headers = None if response is None else response.get("headers")
    reason = None if response is None else response.get("status_text")
    if (
        not isinstance(status, int)
        or isinstance(status, bool)
        or not isinstance(reason, str | None)
        or not 200 <= status <= 599
        or not isinstance(headers, dict)
        or not all(isinstance(value, str) for value in headers.values())
    ):
        return _malformed(
            "DETAIL is missing in the RAISE statement"
            if diagnostics.detail is None
            else f"Invalid JSON value for DETAIL: '{diagnostics.detail}'",
            "DETAIL must be a JSON object with obligatory keys: 'status', 'headers' "
            "and optional key: 'status_text'.",
        )
    return DatabaseError(
        status,
        body["code"],
        body["message"],
        details=_text(body.get("details")),
        hint=_text(body.get("hint")),
        headers=tuple((name, value) for name, value in headers.items() if is_settable(name)),
        reason=reason,
    )


def _malformed(details: str, hint: str) -> ApiError:
    message = "Could not parse JSON in the \"RAISE SQLSTATE 'PGRST'\" error"
    return ApiError(500, "PGRST121", message, details=details, hint=hint)


def _json_object(text: str | None) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "")
    except INVALID_JSON:
        return None
    return value if isinstance(value, dict) else None


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


_QUOTING_CLASS = "42"
"""SQLSTATE class of errors that quote the statement: syntax errors and access rule violations."""


def from_postgres(error: psycopg.Error, *, anonymous: bool) -> ApiError:
    diag = error.diag
    message, detail, hint = diag.message_primary or str(error), diag.message_detail, diag.message_hint
    if (diag.sqlstate or "").startswith(_QUOTING_CLASS):
        message, hint = without_aliases(message), hint and without_aliases(hint)
    client_error = to_error(Diagnostics(diag.sqlstate or "XX000", message, detail, hint), anonymous=anonymous)
    if not isinstance(client_error, DatabaseError):
        return client_error
    return client_error.replaced(at_value=_is_at_value(error), table=diag.table_name, column=diag.column_name)


def _is_at_value(error: psycopg.Error) -> bool:
    """Whether PostgreSQL failed to parse a parameter, according to the (localized) context of the error."""
    return _PARAMETER_CONTEXT.match(error.diag.context or "") is not None


_PARAMETER_CONTEXT = re.compile(r'[^"«»“”„]*\s\$[0-9]+\s')
"""Start of contexts such as ``unnamed portal parameter $1 = '...'``. Names with spaces are quoted."""

_FATAL = ("FATAL", "PANIC")


def ends_connection(error: psycopg.Error) -> bool:
    severity = error.diag.severity_nonlocalized or error.diag.severity
    return error.sqlstate is None or severity in _FATAL


def is_plan_invalid(error: psycopg.Error) -> bool:
    """Whether to prepare a statement again, because it no longer exists or its result type has changed."""
    return error.sqlstate == "26000" or (
        error.sqlstate == "0A000" and "cached plan must not change result type" in str(error)
    )


def has_leftover_settings(error: psycopg.Error) -> bool:
    return error.sqlstate == "22P02" and LEFTOVERS in str(error)


def unstorable(character: str) -> ApiError:
    return ApiError(400, "22021", f"A text value contains {character}, which PostgreSQL cannot store.")


def standby() -> ApiError:
    """Return the error for a write on a standby.

    The status is 405, as for all read-only transactions. With 503, clients would retry and proxies would
    remove the server.
    """
    return DatabaseError(
        405,
        READ_ONLY,
        "The database is a read-only standby",
        hint="Send writes to a service whose db-uri connects to the primary.",
        headers=(("Allow", "OPTIONS, GET, HEAD"),),
    )


def timed_out() -> ApiError:
    return DatabaseUnavailable(504, "PGRST003", "Timed out acquiring connection from connection pool.")


def unreachable(seconds: float) -> ApiError:
    """Return the error if there is no connection. ``seconds`` is the time until the next attempt."""
    return _retry_after("PGRST000", "Database connection error. Retrying.", seconds)


def encoding_changed() -> ApiError:
    return DatabaseError(
        400,
        "0A000",
        "client_encoding was changed, but results must be UTF-8",
        hint="To return text in another encoding, return a bytea created with convert_to.",
    )


def connection_lost(cause: BaseException | None = None) -> ApiError:
    """Return the error for a lost connection. The outcome of the statement is unknown.

    An exceeded ``transaction_timeout`` has its own error, because retrying would not help.
    """
    # If the timeout expires between two messages, libpq provides only the text of the error, no SQLSTATE.
    timeout_text = "terminating connection due to transaction timeout"
    if getattr(cause, "sqlstate", None) == _TRANSACTION_TIMEOUT or timeout_text in str(cause):
        message = "the transaction and its connection were terminated: transaction_timeout exceeded"
        return to_error(Diagnostics(_TRANSACTION_TIMEOUT, message), anonymous=False)
    return _retry_after("PGRST001", "Database client error. Retrying.", 1)


def timed_out_query(seconds: float) -> ApiError:
    return _retry_after("PGRST001", f"The database did not respond within {seconds:g} seconds. Retrying.", 1)


def stopped() -> ApiError:
    return _retry_after("PGRST000", "The service is shutting down.", 1)


def _retry_after(code: str, message: str, seconds: float) -> ApiError:
    headers = (("Retry-After", str(max(1, ceil(seconds)))),)
    return DatabaseUnavailable(503, code, message, headers=headers)


MINIMUM_VERSION = 13


def version_refusal(server_version: int) -> str | None:
    """Return why a server's version is not supported, None if it is supported.

    :param server_version: as in ``server_version_num``; 0 if a pooler or proxy does not report it.
    """
    if server_version == 0 or server_version >= MINIMUM_VERSION * 10_000:
        return None
    if server_version >= 100_000:
        version = f"{server_version // 10_000}.{server_version % 10_000}"
    else:
        version = f"{server_version // 10_000}.{server_version // 100 % 100}"
    return f"PostgreSQL {version} is too old: {MINIMUM_VERSION} is the oldest supported version"
