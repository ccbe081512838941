"""Query parameters for paging and filtering lists, and links to other pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode
from uuid import UUID

from dataapi.http import query_string
from dataapi.webhooks import identifiers
from dataapi.webhooks.event_types import version
from dataapi.webhooks.management.errors import Issue, IssueCode, invalid
from dataapi.webhooks.management.resources import EVENT_TYPE, IDENTIFIER, TIMESTAMP, parse_timestamp
from dataapi.webhooks.model import Cursor, DeliveryFilter, DeliveryPage, Status

PAGE = 20
MAX_PAGE_SIZE = 100
MAX_OFFSET = 2**31 - 1

T = TypeVar("T")
Links = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A query parameter with its published JSON Schema.

    ``read`` parses the text, or raises ``ValueError`` with a message about the expected value.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    read: Callable[[str], Any]


def _integer(name: str, description: str, low: int, high: int, default: int) -> QueryParameter:
    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= 10 and low <= int(text) <= high:
            return int(text)
        raise ValueError(f"Expected a whole number from {low} to {high}")

    schema = {"type": "integer", "minimum": low, "maximum": high, "default": default}
    return QueryParameter(name, description, schema, read)


def _identifier(text: str) -> UUID:
    identifier = identifiers.parse(text)
    if identifier is None:
        raise ValueError("Expected an identifier")
    return identifier


def _status(text: str) -> Status:
    if text == "failure":
        return Status.FAILED
    if text in set(Status):
        return Status(text)
    raise ValueError(f"Expected one of {', '.join(Status)}")


def _event_type(text: str) -> str:
    version(text)
    return text


def _timestamp(text: str) -> datetime:
    parsed = parse_timestamp(text)
    if parsed is None:
        raise ValueError("Expected a time such as 2026-01-31T12:00:00Z")
    return parsed


_STATUSES = {"type": "string", "enum": [*Status, "failure"]}

OFFSETS = (
    _integer("page[limit]", "Maximum number of records.", 1, MAX_PAGE_SIZE, PAGE),
    _integer("page[offset]", "Number of records to skip.", 0, MAX_OFFSET, 0),
)
PERIOD = (
    QueryParameter("filter[since]", "List records created at or after this time.", TIMESTAMP, _timestamp),
    QueryParameter("filter[until]", "List records created before this time.", TIMESTAMP, _timestamp),
)
DELIVERIES = (
    _integer("page[size]", "Maximum number of records.", 1, MAX_PAGE_SIZE, PAGE),
    QueryParameter("page[after]", "List deliveries older than this one.", IDENTIFIER, _identifier),
    QueryParameter("page[before]", "List deliveries newer than this one.", IDENTIFIER, _identifier),
    QueryParameter("filter[status]", "List only deliveries with this status.", _STATUSES, _status),
    QueryParameter("filter[event_id]", "List only deliveries of this event.", IDENTIFIER, _identifier),
    QueryParameter("filter[event_type]", "List only deliveries of this event type.", EVENT_TYPE, _event_type),
    *PERIOD,
)


def parse_query(parameters: tuple[QueryParameter, ...], query: str) -> dict[str, Any]:
    """Parse a query string. Raises ``ManagementError`` with an issue for each invalid parameter."""
    by_name = {parameter.name: parameter for parameter in parameters}
    parsed: dict[str, Any] = {}
    issues = []
    for name, text in query_string.pairs(query):
        try:
            if name not in by_name:
                raise ValueError("Unknown parameter")
            if name in parsed:
                raise ValueError("Duplicate parameter")
            parsed[name] = by_name[name].read(text)
        except ValueError as error:
            issues.append(Issue(IssueCode.PARAMETER, str(error), parameter=name))
    if issues:
        raise invalid(*issues)
    return parsed


def offsets(parameters: Mapping[str, Any]) -> tuple[int, int]:
    return parameters.get("page[limit]", PAGE), parameters.get("page[offset]", 0)


def cursor(parameters: Mapping[str, Any]) -> Cursor:
    return Cursor(
        parameters.get("page[size]", PAGE), parameters.get("page[after]"), parameters.get("page[before]")
    )


def delivery_filter(parameters: Mapping[str, Any]) -> DeliveryFilter:
    names = ("status", "event_id", "event_type", "since", "until")
    return DeliveryFilter(**{name: parameters.get(f"filter[{name}]") for name in names})


def offset_links(path: str, limit: int, offset: int, total: int) -> Links:
    def page(offset: int) -> str:
        return _link(path, {"page[limit]": str(limit), "page[offset]": str(offset)})

    # Pages start at multiples of ``limit`` from the current offset, so "next" links end at the "last" page.
    start = offset if offset < total else 0
    final = start + max(total - 1 - start, 0) // limit * limit
    return {
        "first": page(0),
        "prev": page(max(0, min(offset, final + limit) - limit)) if offset > 0 else None,
        "next": page(offset + limit) if offset + limit < total else None,
        "last": page(final),
    }


def delivery_links(path: str, query: str, cursor: Cursor, page: DeliveryPage) -> Links:
    others = {
        name: text for name, text in query_string.pairs(query) if name not in ("page[after]", "page[before]")
    }

    def link(**position: UUID) -> str:
        cursors = {f"page[{name}]": str(identifier) for name, identifier in position.items()}
        return _link(path, {**others, **cursors})

    deliveries = page.deliveries
    newest = deliveries[0].id if deliveries else _adjacent(cursor.after, -1)
    oldest = deliveries[-1].id if deliveries else _adjacent(cursor.before, 1)
    at_end = cursor.before == identifiers.EARLIEST
    return {
        "first": link(),
        "prev": link(before=newest) if page.newer and newest is not None else None,
        "next": link(after=oldest) if page.older and oldest is not None and not at_end else None,
        "last": link(before=identifiers.EARLIEST),
    }


def _adjacent(identifier: UUID | None, step: int) -> UUID | None:
    """Return the identifier plus ``step``.

    Cursors are exclusive. The links of an empty page use this identifier, so that the linked page
    includes the record at the request's cursor.
    """
    if identifier is None:
        return None
    return UUID(int=min(max(identifier.int + step, 0), identifiers.LATEST.int))


def _link(path: str, parameters: Mapping[str, str]) -> str:
    query = urlencode(parameters, safe="[]:")
    return quote(path) + (f"?{query}" if query else "")
