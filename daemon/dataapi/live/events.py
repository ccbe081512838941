"""Server-sent events as text, and which requests ask for them; pure.

The format is that of the HTML standard of WHATWG, Server-sent events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from dataapi.http.headers import Headers, media_type, parse_accept
from dataapi.http.messages import Chunk, Request

EVENT_STREAM = "text/event-stream"
HEARTBEAT = Chunk(b":\n\n")
"""A comment, which clients skip. It shows each side that the other one is still connected."""

HEADERS = (
    ("Content-Type", f"{EVENT_STREAM}; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Accel-Buffering", "no"),  # has nginx pass events on as they come
)
"""The headers of a stream of events."""


def event(name: str, data: bytes = b"", identifier: str = "") -> bytes:
    """Return an event; line ends within its data reach the client as line feeds."""
    lines = [f"event: {name}".encode()]
    if identifier:
        lines.append(f"id: {identifier}".encode())
    lines += [b"data: " + line for line in data.splitlines() or [b""]]
    return b"\n".join(lines) + b"\n\n"


def fingerprint(body: bytes) -> str:
    """Return the identifier of a body: equal bodies have equal identifiers."""
    return hashlib.blake2b(body, digest_size=12).hexdigest()


def retry(seconds: float) -> bytes:
    """Return the field that sets the reconnect delay of a client."""
    return f"retry: {seconds * 1000:.0f}\n".encode()


def wants_events(request: Request) -> bool:
    """Return whether a client prefers events to any other form of the answer."""
    accept = request.headers.get("accept", "")
    return EVENT_STREAM in accept.lower() and parse_accept(accept)[0].name == EVENT_STREAM


def repeatable(request: Request, ignored: Collection[str]) -> tuple[Request, str]:
    """Return the request to run, and the text of its headers, a part of the key of equal subscriptions.

    :param ignored: names of headers to leave out, in lower case; a trailing ``*`` matches any suffix.
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
