"""Which HTTP status and body a PostgreSQL error becomes.

The table is PostgREST's, so that its clients meet the statuses they know.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dataapi.errors import ApiError, DatabaseError
from dataapi.headers import may_be_chosen
from dataapi.strict_json import NO_JSON

_EXACT = {
    "23503": 409,
    "23505": 409,
    "25006": 405,
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
_UNAUTHENTICATED = (("WWW-Authenticate", "Bearer"),)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """The fields of PostgreSQL's error message that clients see."""

    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None


def status_of(diagnostics: Diagnostics, *, anonymous: bool) -> int:
    """Return the HTTP status; ``anonymous`` says whether the statement ran as the anonymous role."""
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
    """Return what the client gets for an error of PostgreSQL's; ``RAISE SQLSTATE 'PGRST'`` chooses it all."""
    if diagnostics.sqlstate == "PGRST":
        return _raised(diagnostics)
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


def _raised(diagnostics: Diagnostics) -> ApiError:
    """Read the error that SQL raised as JSON: MESSAGE is the body, DETAIL has status and headers."""
    body = _json_object(diagnostics.message)
    if body is None or not isinstance(body.get("code"), str) or not isinstance(body.get("message"), str):
        return _malformed(
            f"Invalid JSON value for MESSAGE: '{diagnostics.message}'",
            "MESSAGE must be a JSON object with obligatory keys: 'code', 'message' "
            "and optional keys: 'details', 'hint'.",
        )
    answer = _json_object(diagnostics.detail)
    status = None if answer is None else answer.get("status")
    headers = None if answer is None else answer.get("headers")
    reason = None if answer is None else answer.get("status_text")
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
        headers=tuple((name, value) for name, value in headers.items() if may_be_chosen(name)),
        reason=reason,
    )


def _malformed(details: str, hint: str) -> ApiError:
    message = "Could not parse JSON in the \"RAISE SQLSTATE 'PGRST'\" error"
    return ApiError(500, "PGRST121", message, details=details, hint=hint)


def _json_object(text: str | None) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "")
    except NO_JSON:
        return None
    return value if isinstance(value, dict) else None


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
