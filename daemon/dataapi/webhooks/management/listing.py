"""Lists: which page and which records are asked for, and links to the other pages.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode
from uuid import UUID

from dataapi.web import querystring
from dataapi.webhooks import identifiers
from dataapi.webhooks.event_types import version
from dataapi.webhooks.management import schemas
from dataapi.webhooks.management.codes import IssueCode
from dataapi.webhooks.management.moments import read_moment
from dataapi.webhooks.management.refusals import Issue, invalid
from dataapi.webhooks.model import Cursor, DeliveryFilter, DeliveryPage, Status

PAGE = 20
LARGEST_PAGE = 100
LARGEST_OFFSET = 2**31 - 1

T = TypeVar("T")
Links = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter.

    :ivar schema: what is published of it.
    :ivar read: reads its text; ``ValueError`` says what is expected.
    """

    name: str
    schema: Mapping[str, Any]
    read: Callable[[str], Any]
    description: str


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= 10 and low <= int(text) <= high:
            return int(text)
        raise ValueError(f"Expected a whole number from {low} to {high}")

    return read


def _identifier(text: str) -> UUID:
    found = identifiers.parse(text)
    if found is None:
        raise ValueError("Expected an identifier")
    return found


def _status(text: str) -> Status:
    if text == "failure":
        return Status.FAILED
    if text in set(Status):
        return Status(text)
    raise ValueError(f"Expected one of {', '.join(Status)}")


def _event_type(text: str) -> str:
    version(text)
    return text


def _moment(text: str) -> datetime:
    found = read_moment(text)
    if found is None:
        raise ValueError("Expected a time such as 2026-01-31T12:00:00Z")
    return found


def _number(low: int, high: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, "default": default}


_STATUSES = {"type": "string", "enum": [*Status, "failure"]}

OFFSETS = (
    Parameter("page[limit]", _number(1, LARGEST_PAGE, PAGE), _whole(1, LARGEST_PAGE), "The most records."),
    Parameter(
        "page[offset]",
        _number(0, LARGEST_OFFSET, 0),
        _whole(0, LARGEST_OFFSET),
        "How many records are passed over.",
    ),
)
DELIVERIES = (
    Parameter("page[size]", _number(1, LARGEST_PAGE, PAGE), _whole(1, LARGEST_PAGE), "The most records."),
    Parameter("page[after]", schemas.IDENTIFIER, _identifier, "List what is older than this delivery."),
    Parameter("page[before]", schemas.IDENTIFIER, _identifier, "List what is newer than this delivery."),
    Parameter("filter[status]", _STATUSES, _status, "List deliveries of this status alone."),
    Parameter("filter[event_id]", schemas.IDENTIFIER, _identifier, "List deliveries of this event alone."),
    Parameter("filter[event_type]", schemas.EVENT_TYPE, _event_type, "List deliveries of this type alone."),
    Parameter("filter[since]", schemas.MOMENT, _moment, "List what was created at this time or later."),
    Parameter("filter[until]", schemas.MOMENT, _moment, "List what was created before this time."),
)


def values(parameters: tuple[Parameter, ...], query: str) -> dict[str, Any]:
    """Read a query string.

    :raises ManagementError: with an issue for each parameter that is unknown, repeated or unreadable.
    """
    known = {parameter.name: parameter for parameter in parameters}
    found: dict[str, Any] = {}
    issues = []
    for name, text in querystring.pairs(query):
        try:
            if name not in known:
                raise ValueError("There is no such parameter")
            if name in found:
                raise ValueError("The parameter is there twice")
            found[name] = known[name].read(text)
        except ValueError as error:
            issues.append(Issue(IssueCode.PARAMETER, str(error), parameter=name))
    if issues:
        raise invalid(*issues)
    return found


def cursor(found: Mapping[str, Any]) -> Cursor:
    """Return the page of deliveries that a query string asks for."""
    return Cursor(found.get("page[size]", PAGE), found.get("page[after]"), found.get("page[before]"))


def delivery_filter(found: Mapping[str, Any]) -> DeliveryFilter:
    """Return which deliveries a query string asks for."""
    names = ("status", "event_id", "event_type", "since", "until")
    return DeliveryFilter(**{name: found.get(f"filter[{name}]") for name in names})


def offset_links(path: str, limit: int, offset: int, total: int) -> Links:
    """Return links to the pages around one that passes over ``offset`` of ``total`` records."""

    def page(at: int) -> str:
        return _link(path, {"page[limit]": str(limit), "page[offset]": str(at)})

    # Pages are counted from the one that is shown, so that the last one ends where this way of paging does.
    final = offset + (max(total - 1 - offset, 0) // limit) * limit if offset < total else _last(limit, total)
    return {
        "first": page(0),
        "prev": page(max(0, min(offset, final + limit) - limit)) if offset > 0 else None,
        "next": page(offset + limit) if offset + limit < total else None,
        "last": page(final),
    }


def _last(limit: int, total: int) -> int:
    return max(total - 1, 0) // limit * limit


def delivery_links(path: str, query: str, asked: Cursor, page: DeliveryPage) -> Links:
    """Return links to the pages around one of deliveries; filters stay.

    The last page is what is right before the least identifier of all.
    """
    kept = {
        name: text for name, text in querystring.pairs(query) if name not in ("page[after]", "page[before]")
    }

    def link(**position: UUID) -> str:
        places = {f"page[{name}]": str(identifier) for name, identifier in position.items()}
        return _link(path, {**kept, **places})

    shown = page.deliveries
    newest = shown[0].id if shown else _beside(asked.after, -1)
    oldest = shown[-1].id if shown else _beside(asked.before, 1)
    at_end = asked.before == identifiers.EARLIEST
    return {
        "first": link(),
        "prev": link(before=newest) if page.newer and newest is not None else None,
        "next": link(after=oldest) if page.older and oldest is not None and not at_end else None,
        "last": link(before=identifiers.EARLIEST),
    }


def _beside(identifier: UUID | None, step: int) -> UUID | None:
    """Return the identifier next to one, so that an empty page leads back to the record it began at."""
    if identifier is None:
        return None
    return UUID(int=min(max(identifier.int + step, 0), identifiers.LATEST.int))


def _link(path: str, parameters: Mapping[str, str]) -> str:
    query = urlencode(parameters, safe="[]:")
    return quote(path) + (f"?{query}" if query else "")
