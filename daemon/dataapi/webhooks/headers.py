"""Headers of a delivery: the customer's own, checked, and those that every delivery carries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataapi.webhooks.signature import sign

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST, LONGEST_NAME, LONGEST_VALUE = 20, 128, 4096
USER_AGENT = "dataapi-webhooks/1"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_RESERVED = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
_RESERVED_PREFIXES = ("proxy-", "webhook-")


@dataclass(frozen=True, slots=True)
class HeaderIssue:
    """What is wrong with one custom header.

    :ivar name: the header as it was given; None when there are too many of them.
    """

    name: str | None
    message: str


def header_issues(headers: Mapping[str, str]) -> tuple[HeaderIssue, ...]:
    """Return what is wrong with custom headers; nothing when they may be sent.

    Limits and reserved names are those of reference/webhooks.md section 1.  Names and values are ASCII
    (RFC 9110 5.1 and 5.5), so that no CR, LF or NUL and nothing of another charset is ever sent.
    """
    if len(headers) > MOST:
        return (HeaderIssue(None, f"There are more than {MOST} headers"),)
    found: list[HeaderIssue] = []
    seen: set[str] = set()
    for name, value in headers.items():
        message = _name_problem(name, seen) or _value_problem(value)
        if message is not None:
            found.append(HeaderIssue(name, message))
        seen.add(name.lower())
    return tuple(found)


def _name_problem(name: str, seen: set[str]) -> str | None:
    if len(name) > LONGEST_NAME:
        return f"The header's name is longer than {LONGEST_NAME} characters"
    if _TOKEN.fullmatch(name) is None:
        return "The header's name is not a valid HTTP field name"
    if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIXES):
        return "The header's name is reserved"
    if name.lower() in seen:
        return "The header is there twice; names differ in more than case"
    return None


def _value_problem(value: str) -> str | None:
    if len(value) > LONGEST_VALUE:
        return f"The header's value is longer than {LONGEST_VALUE} characters"
    if _VALUE.fullmatch(value) is None:
        return "The header's value is not a valid HTTP field value of ASCII characters"
    return None


def delivery_headers(
    secret: str, event_id: str, timestamp: int, body: bytes, custom: Iterable[tuple[str, str]] = ()
) -> tuple[tuple[str, str], ...]:
    """Return all headers of one attempt except those of the connection, the customer's first.

    :param timestamp: Unix time in seconds when the attempt is signed.
    """
    return (
        *custom,
        ("content-type", "application/json"),
        ("user-agent", USER_AGENT),
        ("webhook-id", event_id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", sign(secret, event_id, timestamp, body)),
    )
