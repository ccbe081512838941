"""Makes replies of result rows, and the errors that a client reads of those that statements raise; pure.

What the guards of a statement (``sql.guards``) raise is the code of the error and the number of rows that
it is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from dataapi.http.errors import ApiError
from dataapi.http.headers import CALLER, is_name, may_be_chosen
from dataapi.http.messages import Reply
from dataapi.rest.parse.query import Selection
from dataapi.rest.parse.syntax import Embed, EmbedPath, Item, too_much
from dataapi.rest.plan.plan import RestRequest, StatementPlan, StreamPlan
from dataapi.rest.statements import TOO_LARGE, ResultRow
from dataapi.sql.guards import violation_in

VARY = ("Vary", f"Accept, Prefer, Range, {CALLER}")

_STATUS = re.compile("[2-5][0-9][0-9]")


def make_reply(
    request: RestRequest,
    row: ResultRow,
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
    :raises ApiError: PGRST111 or PGRST112 (500), functions set invalid headers or an invalid status.
    """
    all_headers = list(headers)
    if media_type is not None:
        all_headers += (("Content-Type", media_type), *request.profile)
    all_headers.append(VARY)
    if applied:
        all_headers.append(("Preference-Applied", applied))
    if row.response_headers is not None:
        all_headers = _overridden(all_headers, _headers(row.response_headers))
    if row.response_status is not None:
        status = _status(row.response_status)
    content = (row.body or b"") if body is None else body
    return Reply(status, tuple(all_headers), content if media_type is not None else b"")


def _overridden(defaults: list[tuple[str, str]], chosen: list[tuple[str, str]]) -> list[tuple[str, str]]:
    names = {name.lower() for name, _ in chosen}
    return [header for header in defaults if header[0].lower() not in names] + chosen


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


OTHER_KEY = "PGRST115"
NOT_SINGLE = "PGRST116"
TOO_MANY = "PGRST124"

_UNDEFINED_FUNCTION = "42883"


def other_key() -> ApiError:
    """Return the error for a body whose rows are not the one that the URL names."""
    return ApiError(400, OTHER_KEY, "Payload values do not match URL in primary key column(s)")


def not_single(rows: int) -> ApiError:
    """Return the error for other than exactly one row."""
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
    """Return the error for a method that neither tables nor the root support."""
    return ApiError(405, "PGRST117", f"Unsupported HTTP method: {method}", headers=headers)


def client_error(error: ApiError) -> ApiError:
    """Return a database's error as the client reads it: itself, or what a guard raised by it."""
    if error.code == _UNDEFINED_FUNCTION:
        # The schema is how this service names functions and operators, not how the client does.
        error.message = error.message.replace("pg_catalog.", "")
    violation = violation_in(error.code, error.message)
    if violation is None:
        return error
    code, rows = violation.reason, violation.number
    if code == OTHER_KEY:
        return other_key()
    if code == NOT_SINGLE:
        return not_single(rows)
    if code == TOO_LARGE:
        return too_large(rows)
    return too_many(rows) if code == TOO_MANY else error


AnyPlan = TypeVar("AnyPlan", bound=StatementPlan | StreamPlan)


def with_alias_warning(planned: AnyPlan, selection: Selection) -> AnyPlan:
    """Return the plan with a warning where parameters use a relation's name although it has an alias.

    PostgREST 14 accepts both names; later versions warn and will refuse the relation's name one day
    (``docs/reference/rest.md``, Headers).
    """
    names = tuple(dict.fromkeys(_names(selection))) if selection.has_paths else ()
    if not names:
        return planned
    header = ("Warning", _warning(names))
    if isinstance(planned, StreamPlan):
        return replace(planned, head=_with_header(planned.head, header))
    finish = planned.finish

    def finish_warned(row: ResultRow) -> Reply:
        return _with_header(finish(row), header)

    return replace(planned, finish=finish_warned)


def _with_header(reply: Reply, header: tuple[str, str]) -> Reply:
    return replace(reply, headers=(*reply.headers, header))


def _warning(names: Iterable[tuple[str, str]]) -> str:
    """Return the header's value; names are escaped, so that they cannot end the quotes."""
    changes = ", ".join(f"`{name}` to `{alias}`" for name, alias in names)
    escaped = changes.encode("ascii", "backslashreplace").decode().replace("\\", "\\\\").replace('"', '\\"')
    return (
        "299 dataapi \"An embedded resource that has an alias was called by its relation's name, which is "
        f'deprecated. Change {escaped} in filters, orders and limits."'
    )


def _names(selection: Selection) -> Iterator[tuple[str, str]]:
    """Yield each relation's name that is used in place of its alias, with the alias."""
    if selection.select is not None:
        for path in _embed_paths(selection):
            if path:
                yield from _names_in(path, selection.select.items)


def _embed_paths(selection: Selection) -> Iterator[EmbedPath]:
    """Yield the paths by which parameters name embedded resources."""
    for each in selection.filters:
        yield each.target.embeds
    for path, _ in selection.logic:
        yield path
    yield from (*selection.limits, *selection.offsets)
    for order in selection.orders:
        yield order.embeds


def _names_in(path: EmbedPath, items: tuple[Item, ...]) -> Iterator[tuple[str, str]]:
    for name in path:
        embeds = [item for item in items if isinstance(item, Embed)]
        embed = next((each for each in embeds if name in (each.name, each.alias)), None)
        if embed is None:
            return
        if embed.alias is not None and name != embed.alias:
            yield name, embed.alias
        items = embed.items
