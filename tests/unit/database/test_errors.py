"""PostgreSQL's errors get the HTTP statuses that PostgREST uses."""

from __future__ import annotations

import json

import pytest
from dataapi.database.errors import Diagnostics, status_of, to_error
from dataapi.http.errors import DatabaseError


@pytest.mark.parametrize(
    ("state", "message", "status"),
    [
        ("08006", "", 503), ("09000", "", 500), ("0L000", "", 403), ("0P000", "", 403),
        ("23503", "", 409), ("23505", "", 409), ("23502", "", 400), ("23514", "", 400),
        ("25006", "", 405), ("25P02", "", 500), ("28000", "", 403), ("2D000", "", 500),
        ("38000", "", 500), ("39000", "", 500), ("3B000", "", 500), ("40001", "", 500), ("40P01", "", 500),
        ("53300", "", 503), ("53400", "", 500), ("54001", "", 500), ("55P03", "", 500),
        ("57014", "", 500), ("57P01", "", 503), ("58000", "", 500), ("F0000", "", 500), ("HV000", "", 500),
        ("P0001", "", 400), ("P0002", "", 500), ("XX000", "", 500),
        ("42883", "function nope() does not exist", 404),
        ("42883", "function xmlagg(text) does not exist", 406),
        ("42P01", "", 404), ("42P17", "", 500), ("42703", "", 400), ("22P02", "", 400),
        ("21000", "DELETE requires a WHERE clause", 400), ("21000", "more than one row", 500),
        ("22023", 'role "x" does not exist', 401), ("22023", "invalid value", 400),
        ("PT402", "", 402), ("PT999", "", 500), ("PTabc", "", 500), ("PT10", "", 500), ("PT²²²", "", 500),
    ],
)  # fmt: skip
def test_sqlstate_determines_the_status(state: str, message: str, status: int) -> None:
    """The cases are those of docs/reference/rest.md, SQLSTATEs."""
    assert status_of(Diagnostics(state, message), anonymous=False) == status


def test_missing_privilege_is_401_for_anonymous_and_403_for_users() -> None:
    refusal = Diagnostics("42501", "permission denied for table t")
    anonymous, known = to_error(refusal, anonymous=True), to_error(refusal, anonymous=False)
    assert (anonymous.status, anonymous.headers) == (401, (("WWW-Authenticate", "Bearer"),))
    assert (known.status, known.headers) == (403, ())


def test_error_has_code_message_details_and_hint() -> None:
    error = to_error(Diagnostics("23505", "duplicate", "Key (id)=(1) exists.", "a hint"), anonymous=False)
    assert isinstance(error, DatabaseError)
    assert (error.code, error.message, error.details, error.hint) == (
        "23505", "duplicate", "Key (id)=(1) exists.", "a hint",
    )  # fmt: skip
    assert not error.serializable_retry
    assert DatabaseError(500, "40001", "").serializable_retry


def test_raised_pgrst_error_sets_status_headers_and_body() -> None:
    body = {"code": "123", "message": "Payment Required", "details": "Quota exceeded", "hint": "Upgrade"}
    response = {"status": 402, "headers": {"X-Powered-By": "Nerd Rage"}}
    error = to_error(Diagnostics("PGRST", json.dumps(body), json.dumps(response)), anonymous=True)
    assert (error.status, error.code, error.message) == (402, "123", "Payment Required")
    assert (error.details, error.hint) == ("Quota exceeded", "Upgrade")
    assert error.headers == (("X-Powered-By", "Nerd Rage"),)
    assert error.reason is None


def test_raised_pgrst_error_sets_the_reason_phrase() -> None:
    response = {"status": 419, "status_text": "Page Expired", "headers": {}}
    body = json.dumps({"code": "1", "message": "m", "details": None})
    error = to_error(Diagnostics("PGRST", body, json.dumps(response)), anonymous=True)
    assert (error.status, error.reason, error.details, error.hint) == (419, "Page Expired", None, None)


def test_invalid_response_headers_are_omitted() -> None:
    names = ("X-Good", "X-Bad: 1\r\nX-Worse", "", "Content-Length", "transfer-encoding")
    response = {"status": 400, "headers": dict.fromkeys(names, "1")}
    error = to_error(
        Diagnostics("PGRST", '{"code": "1", "message": "m"}', json.dumps(response)), anonymous=True
    )
    assert error.headers == (("X-Good", "1"),)


def test_raised_pt_status_keeps_message_details_and_hint() -> None:
    error = to_error(Diagnostics("PT402", "Payment Required", "Quota exceeded", "Upgrade"), anonymous=True)
    assert (error.status, error.code, error.message) == (402, "PT402", "Payment Required")
    assert (error.details, error.hint) == ("Quota exceeded", "Upgrade")


@pytest.mark.parametrize(
    ("message", "detail", "at_fault"),
    [
        ("no json", '{"status": 400, "headers": {}}', "MESSAGE"),
        ('{"code": "1"}', '{"status": 400, "headers": {}}', "MESSAGE"),
        ("[]", None, "MESSAGE"),
        ('{"code": ' * 100_000, None, "MESSAGE"),
        ('{"code": "1", "message": "m"}', None, "DETAIL"),
        ('{"code": "1", "message": "m"}', '{"status": 7, "headers": {}}', "DETAIL"),
        ('{"code": "1", "message": "m"}', '{"status": 400, "headers": {"a": 1}}', "DETAIL"),
        ('{"code": "1", "message": "m"}', '{"status": 400}', "DETAIL"),
        ('{"code": "1", "message": "m"}', '{"status": true, "headers": {}}', "DETAIL"),
        ('{"code": "1", "message": "m"}', '{"status": 400, "headers": {}, "status_text": 7}', "DETAIL"),
    ],
)
def test_malformed_pgrst_error_is_pgrst121(message: str, detail: str | None, at_fault: str) -> None:
    """The hint names the invalid JSON value."""
    error = to_error(Diagnostics("PGRST", message, detail), anonymous=False)
    assert (error.status, error.code) == (500, "PGRST121")
    assert error.hint is not None
    assert error.hint.startswith(f"{at_fault} must be a JSON object")


def test_missing_detail_is_distinguished_from_invalid_json() -> None:
    message = '{"code": "1", "message": "m"}'
    missing = to_error(Diagnostics("PGRST", message, None), anonymous=False)
    assert missing.details == "DETAIL is missing in the RAISE statement"
    empty = to_error(Diagnostics("PGRST", message, ""), anonymous=False)
    assert empty.details == "Invalid JSON value for DETAIL: ''"
