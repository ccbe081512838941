"""An answered row as a reply: status and headers, with what functions set over what is usual."""

from __future__ import annotations

import json
import re

from dataapi.errors import ApiError
from dataapi.headers import CALLER, is_name, may_be_chosen
from dataapi.query.answers import Answered
from dataapi.rest.context import Context
from dataapi.web.messages import Reply

VARY = ("Vary", f"Accept, Prefer, Range, {CALLER}")

_STATUS = re.compile("[2-5][0-9][0-9]")


def make_reply(
    context: Context,
    row: Answered,
    status: int,
    media_type: str | None,
    *headers: tuple[str, str],
    applied: str = "",
    body: bytes | None = None,
) -> Reply:
    """Return the reply of a row.

    :param media_type: None for an answer without a body.
    :param applied: what ``Preference-Applied`` says.
    :param body: the body where it is not the row's own.
    :raises ApiError: PGRST111 or PGRST112 (500), functions set headers or a status that are none.
    """
    given = list(headers)
    if media_type is not None:
        given += (("Content-Type", media_type), *context.profile)
    given.append(VARY)
    if applied:
        given.append(("Preference-Applied", applied))
    if row.response_headers is not None:
        given = _overridden(given, _headers(row.response_headers))
    if row.response_status is not None:
        status = _status(row.response_status)
    content = (row.body or b"") if body is None else body
    return Reply(status, tuple(given), content if media_type is not None else b"")


def _overridden(usual: list[tuple[str, str]], own: list[tuple[str, str]]) -> list[tuple[str, str]]:
    names = {name.lower() for name, _ in own}
    return [header for header in usual if header[0].lower() not in names] + own


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
    return [(name, value) for name, value in headers if may_be_chosen(name)]


def _status(text: str) -> int:
    if _STATUS.fullmatch(text) is None:
        raise ApiError(500, "PGRST112", "response.status guc must be a valid status code")
    return int(text)
