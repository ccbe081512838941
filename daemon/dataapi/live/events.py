"""Server-sent events as text, and which requests ask for them; pure.

The format is that of the HTML standard of WHATWG, Server-sent events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import NamedTuple

from dataapi.http.headers import Headers, media_type, parse_accept
from dataapi.http.messages import Request

EVENT_STREAM = "text/event-stream"
HEARTBEAT = b":\n\n"
"""A comment, which clients skip; it shows either side that the other one is still there."""

HEADERS = (
    ("Content-Type", f"{EVENT_STREAM}; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Accel-Buffering", "no"),  # has nginx pass events on as they come
)
"""The headers of a stream of events."""


class Snapshot(NamedTuple):
    """An answer as an event.

    :ivar identifier: equal for equal bodies.
    """

    event: bytes
    identifier: str


def event(name: str, data: bytes = b"", identifier: str = "") -> bytes:
    """Return an event; line ends within its data reach the client as line feeds."""
    lines = [f"event: {name}".encode()]
    if identifier:
        lines.append(f"id: {identifier}".encode())
    lines += [b"data: " + line for line in data.splitlines() or [b""]]
    return b"\n".join(lines) + b"\n\n"


def snapshot(name: str, body: bytes) -> Snapshot:
    """Return a body as the event of that name."""
    identifier = hashlib.blake2b(body, digest_size=12).hexdigest()
    return Snapshot(event(name, body, identifier), identifier)


def retry(seconds: float) -> bytes:
    """Return the field that says after how long a client may connect again."""
    return f"retry: {seconds * 1000:.0f}\n".encode()


def wants_events(request: Request) -> bool:
    """Return whether a client prefers events to any other form of the answer."""
    accept = request.headers.get("accept", "")
    return EVENT_STREAM in accept.lower() and parse_accept(accept)[0].name == EVENT_STREAM


def repeatable(request: Request, ignored: Collection[str]) -> tuple[Request, str]:
    """Return the request that gives the answers, and its headers as text, equal where it is the same.

    It has no header that says how it was sent, and it accepts what else the client does, or else JSON.

    :param ignored: the names of headers that statements do not see, in lower case; one that ends in ``*``
        stands for all that begin so.
    """
    names = {name for name in ignored if not name.endswith("*")}
    beginnings = tuple(name[:-1] for name in ignored if name.endswith("*"))
    headers = Headers(
        (name, value)
        for name, value in request.headers.items()
        if name not in names and not name.startswith(beginnings)
    )
    others = [part.strip() for part in headers["accept"].split(",") if media_type(part) != EVENT_STREAM]
    headers["accept"] = ", ".join(filter(None, others)) or "application/json"
    return request._replace(headers=headers), headers.json
