"""Makes replies of the rows of statements, and of what statements raise the errors that a client reads; pure.

What the guards of a statement (``sql.statement``) raise is the code of the error and the number of rows that
it is about.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from urllib.parse import quote

from dataapi.http.errors import ApiError
from dataapi.http.headers import CALLER_VARY, is_name, is_settable
from dataapi.http.messages import Reply
from dataapi.rest.negotiation import Media, unhex
from dataapi.rest.parse.preferences import NO_PREFERENCES, Action, applied
from dataapi.rest.parse.query import Pairs, too_much
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.parse.window import unsatisfiable
from dataapi.rest.plan.model import CallAnswer, ReadAnswer, StatementPlan, WriteAnswer
from dataapi.rest.statements import TOO_LARGE, ResultRow
from dataapi.sql.statement import violation_in

VARY = ("Vary", f"Accept, Prefer, Range, {CALLER_VARY}")

_STATUS = re.compile("[2-5][0-9][0-9]")


def reply(plan: StatementPlan, request: ApiRequest, row: ResultRow) -> Reply:
    """Return the reply that a plan's row becomes.

    :raises ApiError: the row is not an answer, such as PGRST116 (406) for another number of rows than one.
    """
    match plan.answer:
        case ReadAnswer():
            return _read(plan.media, request, row)
        case WriteAnswer() as answer:
            return _written(answer, plan.media, request, row)
        case CallAnswer() as answer:
            return _called(answer, plan.media, request, row)


def _read(media: Media, request: ApiRequest, row: ResultRow) -> Reply:
    offset = request.values.offset
    status, body = status_of(offset, row.rows, row.total), _content(media, row)
    if media.single:
        if row.rows != 1:
            raise violated(NOT_SINGLE, row.rows)
        body = body[1:-1]  # without the array's brackets
    headers = (("Content-Range", content_range(offset, row.rows, row.total)), *location(request))
    return make_reply(request, Action.READ, row, status, media.content_type, headers, body)


def location(request: ApiRequest) -> tuple[tuple[str, str], ...]:
    """Return the header with the canonical address of the rows that were read."""
    canonical = request.canonical
    if canonical is None:
        return ()
    path = _path(request.input.target)
    return (("Content-Location", f"{path}?{canonical}" if canonical else path),)


@lru_cache(maxsize=256)
def _path(table: str) -> str:
    return f"/{quote(table, safe='')}"


def _written(answer: WriteAnswer, media: Media, request: ApiRequest, row: ResultRow) -> Reply:
    headers: tuple[tuple[str, str], ...] = ()
    inserted, listed = row.inserted or 0, 0
    match answer.action:
        case Action.PUT:
            status = (201 if inserted > 0 else 200) if answer.represents else 204
        case Action.INSERT | Action.RESOLVED_INSERT:
            status = 200 if answer.merges and inserted <= 0 else 201
            if row.location is not None:
                headers = (("Location", _location_of_row(answer.table, row.location)),)
        case _:
            status = 200 if answer.represents else 204
            # As in PostgREST, deleted rows have no range.
            listed = 0 if answer.action is Action.DELETE else row.rows
    if answer.action is not Action.PUT:
        total = row.rows if request.preferences.counts else None
        headers += (("Content-Range", content_range(0, listed, total)),)
    if not answer.represents:
        return make_reply(request, answer.action, row, status, None, headers)
    body = _content(media, row)
    if media.single:
        body = body.strip()[1:-1]  # without the array's brackets
    return make_reply(request, answer.action, row, status, media.content_type, headers, body)


def _location_of_row(table: str, key: str) -> str:
    """Return the URL of a row, relative as PostgREST's is.

    :param key: a JSON object of the key columns' texts.
    """
    filters = [
        f"{quote(name, safe='')}={'is.null' if value is None else 'eq.' + quote(value, safe='')}"
        for name, value in json.loads(key).items()
    ]
    return f"{_path(table)}?{'&'.join(filters)}"


def _called(answer: CallAnswer, media: Media, request: ApiRequest, row: ResultRow) -> Reply:
    count, total = row.rows, row.total
    if answer.is_single:
        count, total = 1, 1 if request.preferences.counts else None
    offset = request.values.offset
    status = status_of(offset, count, total)
    headers = (("Content-Range", content_range(offset, count, total)),)
    if answer.is_void:
        return make_reply(request, Action.CALL, row, 204, None, headers)
    body = _content(media, row)
    if answer.is_binary:
        body = unhex(body)
    if answer.unwrapped:
        body = body[1:-1] or b"null"
    return make_reply(request, Action.CALL, row, status, media.content_type, headers, body)


def _content(media: Media, row: ResultRow) -> bytes:
    """Return the bytes of a body as the statement gave it."""
    body = row.body
    if not isinstance(body, bytes):
        body = as_bytes(body)
    return unhex(body) if media.is_binary else body


def as_bytes(value: bytes | str | None) -> bytes:
    """Return a value's bytes: columns of type json come as such, others as text."""
    if isinstance(value, bytes):
        return value
    return value.encode() if value else b""


def make_reply(
    request: ApiRequest,
    action: Action,
    row: ResultRow,
    status: int,
    media_type: str | None,
    headers: tuple[tuple[str, str], ...],
    body: bytes = b"",
) -> Reply:
    """Return the reply of a row.

    :param action: the request's, for ``Preference-Applied``.
    :param media_type: None for an answer without a body.
    :param headers: its own, besides those of every reply.
    :raises ApiError: PGRST111 or PGRST112 (500), functions set invalid headers or an invalid status.
    """
    if media_type is not None:
        headers += (("Content-Type", media_type), *request.profile)
    headers += (VARY,)
    preferences = request.preferences
    if preferences is not NO_PREFERENCES:
        followed = applied(preferences, action)
        if followed:
            headers += (("Preference-Applied", followed),)
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


OTHER_KEY = "PGRST115"
NOT_SINGLE = "PGRST116"
TOO_MANY = "PGRST124"

_UNDEFINED_FUNCTION = "42883"


_VIOLATIONS: dict[str, tuple[int, str, str | None]] = {
    OTHER_KEY: (400, "Payload values do not match URL in primary key column(s)", None),
    NOT_SINGLE: (406, "Cannot coerce the result to a single JSON object", "The result contains {} rows"),
    TOO_MANY: (400, "Query result exceeds max-affected preference constraint", "The query affects {} rows"),
}
"""Status, message and details of what guards raise by their code, besides ``TOO_LARGE``."""


def violated(reason: str, number: int) -> ApiError:
    """Return the error that a guard raises.

    :param number: how many rows there are, or bytes of an answer or of a line of it.
    """
    if reason == TOO_LARGE:
        return too_much(f"The answer, or a line of it, has {number} bytes, more than max-answer allows")
    status, message, details = _VIOLATIONS[reason]
    return ApiError(status, reason, message, details=details and details.format(number))


def unsupported(method: str, *headers: tuple[str, str]) -> ApiError:
    """Return the error for a method that neither tables nor the root support."""
    return ApiError(405, "PGRST117", f"Unsupported HTTP method: {method}", headers=headers)


def client_error(error: ApiError) -> ApiError:
    """Return a database's error as the client reads it: itself, or the one that a guard raised by it."""
    if error.code == _UNDEFINED_FUNCTION:
        # The schema is how this service names functions and operators, not how the client does.
        error = error.replaced(message=error.message.replace("pg_catalog.", ""))
    violation = violation_in(error.code, error.message)
    if violation is None or violation.reason not in (*_VIOLATIONS, TOO_LARGE):
        return error
    return violated(violation.reason, violation.number)


# ---------------------------------------------------------------- headers


def content_range(offset: int, rows: int, total: int | None) -> str:
    """Return the ``Content-Range`` of an answer's rows."""
    extent = f"{offset}-{offset + rows - 1}" if rows and total != 0 else "*"
    return f"{extent}/{'*' if total is None else total}"


def status_of(offset: int, rows: int, total: int | None) -> int:
    """Return 206 if the total says that there are more rows than in the body, else 200.

    :raises ApiError: PGRST103 (416), the offset lies beyond the last row.
    """
    if total is None:
        return 200
    if offset > total:
        details = f"An offset of {offset} was requested, but there are only {total} rows."
        raise unsatisfiable(details, ("Content-Range", content_range(offset, 0, total)))
    return 206 if rows < total else 200


def _warning(names: Pairs) -> tuple[str, str]:
    """Return the header for parameters that use a relation's name although it has an alias.

    PostgREST 14 accepts both names; later versions warn and will refuse the relation's name one day
    (``docs/reference/rest.md``, Headers).  Names are escaped, so that they cannot end the quotes.
    """
    changes = ", ".join(f"`{name}` to `{alias}`" for name, alias in names)
    escaped = changes.encode("ascii", "backslashreplace").decode().replace("\\", "\\\\").replace('"', '\\"')
    return (
        "Warning",
        "299 dataapi \"An embedded resource that has an alias was called by its relation's name, which is "
        f'deprecated. Change {escaped} in filters, orders and limits."',
    )
