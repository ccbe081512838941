"""Builds replies from result rows, and client errors from database errors.

The error of a guard (``sql.statement``) contains an error code and the number of rows.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote

from dataapi.http.errors import ApiError
from dataapi.http.headers import CALLER_VARY, is_name, is_settable
from dataapi.http.messages import Reply
from dataapi.rest.negotiation import Media, unhex
from dataapi.rest.parse.preconditions import MATCH, Preconditions, precondition_failed
from dataapi.rest.parse.preferences import NO_PREFERENCES, Action, applied
from dataapi.rest.parse.query import Pairs, too_much
from dataapi.rest.parse.request import READ_METHODS, ApiRequest
from dataapi.rest.parse.window import unsatisfiable
from dataapi.rest.plan.model import CallResponse, ReadResponse, StatementPlan, WriteResponse
from dataapi.rest.statements import TOO_LARGE, ResultRow
from dataapi.sql.statement import violation_in

VARY = ("Vary", f"Accept, Prefer, Range, {CALLER_VARY}")

LARGEST_TAGGED = 1 << 20
"""Maximum size of a body with an entity tag, in bytes. Hashing takes 1 to 3 ms per MiB."""
_REDIRECTION = 300
_OF_CONTENT = frozenset({"content-type", "content-range", "content-profile"})
"""Headers that a 304 omits, because they describe the body that the client already has."""

_STATUS = re.compile("[2-5][0-9][0-9]")


def reply(plan: StatementPlan, request: ApiRequest, row: ResultRow) -> Reply:
    """Return the reply for the result row of a plan.

    :raises ApiError: The response is invalid, for example PGRST116 (406) if the client requires exactly one
        row.
    """
    match plan.response:
        case ReadResponse() as response:
            return _read_reply(response, plan.media, request, row)
        case WriteResponse() as response:
            return _write_reply(response, plan.media, request, row)
        case CallResponse() as response:
            return _call_reply(response, plan.media, request, row)


def _read_reply(response: ReadResponse, media: Media, request: ApiRequest, row: ResultRow) -> Reply:
    offset = request.values.offset
    status, body = status_of(offset, row.rows, row.total), as_bytes(row.body, is_binary=media.is_binary)
    if media.single:
        if row.rows != 1:
            raise violated(NOT_SINGLE, row.rows)
        body = body[1:-1]  # without the array's brackets
    headers = (
        ("Content-Range", content_range(offset, row.rows, row.total)),
        *location(request),
        *response.headers,
    )
    return make_reply(request, Action.READ, row, status, media.content_type, headers, body)


def location(request: ApiRequest) -> tuple[tuple[str, str], ...]:
    canonical = request.canonical
    if canonical is None:
        return ()
    path = _path(request.input.target)
    return (("Content-Location", f"{path}?{canonical}" if canonical else path),)


@lru_cache(maxsize=256)
def _path(table: str) -> str:
    return f"/{quote(table, safe='')}"


def _write_reply(response: WriteResponse, media: Media, request: ApiRequest, row: ResultRow) -> Reply:
    headers: tuple[tuple[str, str], ...] = ()
    inserted, listed = row.inserted or 0, 0
    match response.action:
        case Action.PUT:
            status = (201 if inserted > 0 else 200) if response.represents else 204
        case Action.INSERT | Action.RESOLVED_INSERT:
            status = 200 if response.merges and inserted <= 0 else 201
            if row.location is not None:
                headers = (("Location", _location_of_row(response.table, row.location)),)
        case _:
            status = 200 if response.represents else 204
            # As in PostgREST, the range is empty for deleted rows.
            listed = 0 if response.action is Action.DELETE else row.rows
    if response.action is not Action.PUT:
        total = row.rows if request.preferences.counts else None
        headers += (("Content-Range", content_range(0, listed, total)),)
    if not response.represents:
        return make_reply(request, response.action, row, status, None, headers)
    body = as_bytes(row.body, is_binary=media.is_binary)
    if media.single:
        body = body.strip()[1:-1]  # without the array's brackets
    return make_reply(request, response.action, row, status, media.content_type, headers, body)


def _location_of_row(table: str, key: str) -> str:
    """Return a row's URL, relative as in PostgREST. ``key`` is a JSON object with text values."""
    filters = [
        f"{quote(name, safe='')}={'is.null' if value is None else 'eq.' + quote(value, safe='')}"
        for name, value in json.loads(key).items()
    ]
    return f"{_path(table)}?{'&'.join(filters)}"


def _call_reply(response: CallResponse, media: Media, request: ApiRequest, row: ResultRow) -> Reply:
    count, total = row.rows, row.total
    if response.is_single:
        count, total = 1, 1 if request.preferences.counts else None
    offset = request.values.offset
    status = status_of(offset, count, total)
    headers = (("Content-Range", content_range(offset, count, total)),)
    if response.is_void:
        return make_reply(request, Action.CALL, row, 204, None, headers)
    body = as_bytes(row.body, is_binary=media.is_binary)
    if response.is_binary:
        body = unhex(body)
    if response.unwrapped:
        body = body[1:-1] or b"null"
    return make_reply(request, Action.CALL, row, status, media.content_type, headers, body)


def as_bytes(value: bytes | str | None, *, is_binary: bool = False) -> bytes:
    data = value if isinstance(value, bytes) else (value or "").encode()
    return unhex(data) if is_binary else data


def make_reply(
    request: ApiRequest,
    action: Action,
    row: ResultRow,
    status: int,
    media_type: str | None,
    headers: tuple[tuple[str, str], ...],
    body: bytes = b"",
) -> Reply:
    """Return the reply for a result row, without a body if there is no media type.

    :raises ApiError: PGRST111 or PGRST112 (500) if functions set invalid headers or an invalid status.
    """
    if media_type is not None:
        headers += (("Content-Type", media_type), *request.profile)
    headers += (VARY,)
    if row.body is not None and request.input.method in READ_METHODS and len(body) <= LARGEST_TAGGED:
        # A 304 leaves the Content-Range of a cached response unchanged, so the tag includes the total.
        digest = sha256(body, usedforsecurity=False).hexdigest()[:32]
        headers += (("ETag", f'"{digest}"' if row.total is None else f'"{digest}-{row.total}"'),)
    preferences = request.preferences
    if preferences is not NO_PREFERENCES:
        applied_preferences = applied(preferences, action)
        if applied_preferences:
            headers += (("Preference-Applied", applied_preferences),)
    if row.response_headers:
        chosen = _headers(row.response_headers)
        names = {name.lower() for name, _ in chosen}
        headers = (*[header for header in headers if header[0].lower() not in names], *chosen)
    if row.response_status:
        if _STATUS.fullmatch(row.response_status) is None:
            raise ApiError(500, "PGRST112", "response.status guc must be a valid status code")
        status = int(row.response_status)
    relation_names = request.input.selection.relation_names
    if relation_names:
        headers += (_warning(relation_names),)
    return Reply(status, headers, body if media_type is not None else b"")


def _headers(text: str) -> list[tuple[str, str]]:
    try:
        headers = [pair for (pair,) in (part.items() for part in json.loads(text))]
    except (ValueError, AttributeError, TypeError, RecursionError):
        headers = None
    if headers is None or not all(is_name(name) and isinstance(value, str) for name, value in headers):
        raise ApiError(
            500,
            "PGRST111",
            "response.headers guc must be a JSON array composed of objects with a single key and a string "
            "value",
        )
    return [(name, value) for name, value in headers if is_settable(name)]


def entity_tag(reply: Reply) -> str | None:
    return next((value for name, value in reply.headers if name.lower() == "etag"), None)


def conditional_reply(preconditions: Preconditions, reply: Reply, *, exists: bool) -> Reply:
    """Return the reply to a conditional read: a 304 if the client already has the response.

    As RFC 9110 section 13.2.1 requires, conditions do not change unsuccessful replies.

    :raises ApiError: PRECONDITION_FAILED (412) if ``If-Match`` is not met.
    """
    failed = preconditions.failed(entity_tag(reply), exists=exists) if reply.status < _REDIRECTION else None
    if failed is None:
        return reply
    if failed == MATCH:
        raise precondition_failed(MATCH)
    headers = tuple([header for header in reply.headers if header[0].lower() not in _OF_CONTENT])
    return Reply(304, headers, b"")


KEY_MISMATCH = "PGRST115"
NOT_SINGLE = "PGRST116"
TOO_MANY = "PGRST124"

_UNDEFINED_FUNCTION = "42883"


_VIOLATIONS: dict[str, tuple[int, str, str | None]] = {
    KEY_MISMATCH: (400, "Payload values do not match URL in primary key column(s)", None),
    NOT_SINGLE: (406, "Cannot coerce the result to a single JSON object", "The result contains {} rows"),
    TOO_MANY: (400, "Query result exceeds max-affected preference constraint", "The query affects {} rows"),
}
"""Status, message and details of guards' errors by error code, except ``TOO_LARGE``."""


def violated(reason: str, number: int) -> ApiError:
    if reason == TOO_LARGE:
        return too_much(f"The response, or a line of it, has {number} bytes, more than max-answer allows")
    status, message, details = _VIOLATIONS[reason]
    return ApiError(status, reason, message, details=details and details.format(number))


def unsupported(method: str, *headers: tuple[str, str]) -> ApiError:
    return ApiError(405, "PGRST117", f"Unsupported HTTP method: {method}", headers=headers)


def client_error(error: ApiError) -> ApiError:
    """Return a database error in the form that clients see.

    An error that a ``Guard`` raises becomes the ``ApiError`` for the guard's reason.
    """
    if error.code == _UNDEFINED_FUNCTION:
        # Omit the schema, because only our SQL qualifies functions and operators.
        error = error.replaced(message=error.message.replace("pg_catalog.", ""))
    violation = violation_in(error.code, error.message)
    if violation is None or violation.reason not in (*_VIOLATIONS, TOO_LARGE):
        return error
    return violated(violation.reason, violation.number)


# ---------------------------------------------------------------- headers


def content_range(offset: int, rows: int, total: int | None) -> str:
    extent = f"{offset}-{offset + rows - 1}" if rows and total != 0 else "*"
    return f"{extent}/{'*' if total is None else total}"


def status_of(offset: int, rows: int, total: int | None) -> int:
    """Return 206 if the total is larger than the number of rows in the body, else 200.

    :raises ApiError: PGRST103 (416) if the offset is beyond the last row.
    """
    if total is None:
        return 200
    if offset > total:
        details = f"An offset of {offset} was requested, but there are only {total} rows."
        raise unsatisfiable(details, ("Content-Range", content_range(offset, 0, total)))
    return 206 if rows < total else 200


def _warning(names: Pairs) -> tuple[str, str]:
    """Return the header that warns about using a relation's name instead of its alias.

    PostgREST 14 accepts both names. Later versions warn and will reject the relation's name
    (``docs/reference/rest.md``, Headers). Names are escaped, so that they cannot end the quoted text.
    """
    changes = ", ".join(f"`{name}` to `{alias}`" for name, alias in names)
    escaped = changes.encode("ascii", "backslashreplace").decode().replace("\\", "\\\\").replace('"', '\\"')
    return (
        "Warning",
        "299 dataapi \"An embedded resource with an alias was referenced by its relation's name, which is "
        f'deprecated. Change {escaped} in filters, orders and limits."',
    )
