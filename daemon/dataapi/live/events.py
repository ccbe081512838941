"""Formatting of server-sent events (WHATWG HTML), and detection of requests for them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from dataapi.http.headers import CONDITIONAL_HEADERS, Headers, media_type, parse_accept
from dataapi.http.messages import Chunk, Request

EVENT_STREAM = "text/event-stream"
HEARTBEAT = Chunk(b":\n\n")
"""A comment that clients ignore. It keeps connections open and detects lost connections."""

HEADERS = (
    ("Content-Type", f"{EVENT_STREAM}; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Accel-Buffering", "no"),  # disables response buffering in nginx
)


def event(name: str, data: bytes = b"", identifier: str = "") -> bytes:
    """Return an event. All line breaks in the data become line feeds."""
    lines = [f"event: {name}".encode()]
    if identifier:
        lines.append(f"id: {identifier}".encode())
    lines += [b"data: " + line for line in data.splitlines() or [b""]]
    return b"\n".join(lines) + b"\n\n"


def fingerprint(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=12).hexdigest()


def retry(seconds: float) -> bytes:
    return f"retry: {seconds * 1000:.0f}\n".encode()


def wants_events(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return EVENT_STREAM in accept.lower() and parse_accept(accept)[0].name == EVENT_STREAM


def repeatable(request: Request, ignored: Collection[str]) -> tuple[Request, str]:
    """Return the request to run, and its headers as JSON to find equal subscriptions.

    :param ignored: lower-case names of headers to remove. A trailing ``*`` matches any suffix.
    """
    # An event stream has no entity tag.
    names = {name for name in ignored if not name.endswith("*")} | CONDITIONAL_HEADERS
    prefixes = tuple(name[:-1] for name in ignored if name.endswith("*"))
    headers = Headers(
        (name, value)
        for name, value in request.headers.items()
        if name not in names and not name.startswith(prefixes)
    )
    others = [part.strip() for part in headers["accept"].split(",") if media_type(part) != EVENT_STREAM]
    headers["accept"] = ", ".join(filter(None, others)) or "application/json"
    return request._replace(headers=headers), headers.json
