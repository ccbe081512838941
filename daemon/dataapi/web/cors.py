"""Cross-origin requests: the requests and headers of answers that scripts of other origins may send and read.

Any origin may call unless some are named: cookies authenticate no caller here, so a foreign page has
nothing to exploit.  The names are those that clients send and read
(docs/reference/rest.md, CORS).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dataapi.http.messages import Reply, Request

_MAX_AGE = "86400"
"""Seconds for which a browser may remember a preflight, PostgREST's value."""

_ACCEPTED = (
    *("apikey", "authorization", "prefer", "accept-profile", "content-profile", "x-client-info"),
    *("content-type", "range", "range-unit", "accept", "x-retry-count", "x-request-id"),
    *("traceparent", "tracestate", "baggage", "dataapi-lsn"),
)
_EXPOSED = (
    "Content-Encoding, Content-Location, Content-Range, Content-Type, Dataapi-LSN, Date, Location, "
    "Preference-Applied, Proxy-Status, Range-Unit, Retry-After, Server, Transfer-Encoding, WWW-Authenticate, "
    "X-Request-Id"
)
Headers = tuple[tuple[str, str], ...]

_NAME = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}")

_READABLE = (("Access-Control-Allow-Origin", "*"), ("Access-Control-Expose-Headers", _EXPOSED))
_VARIES = (("Vary", "Origin"),)
"""Makes caches keep the answers to different origins apart; adds to an answer's own ``Vary``."""


def readable(request: Request, origins: Sequence[str]) -> Headers:
    """Return the headers by which scripts of the request's origin may read its answer, errors included.

    :param origins: those that may call; any, when there are none.
    """
    if not origins:
        return _READABLE
    origin = request.headers.get("origin")
    if origin is None or origin not in origins:
        return _VARIES
    return (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Allow-Credentials", "true"),
        ("Access-Control-Expose-Headers", _EXPOSED),
        *_VARIES,
    )


def preflight(request: Request, methods: Sequence[str], origins: Sequence[str] = ()) -> Reply | None:
    """Return the answer to a browser's question whether it may send a request, or None if it asks none.

    :param origins: those that may call; any, when there are none.
    """
    headers = request.headers
    if request.method != "OPTIONS" or not {"origin", "access-control-request-method"} <= headers.keys():
        return None
    if origins and headers["origin"] not in origins:
        return Reply(200, (), b"")
    requested = (
        name.strip().lower() for name in headers.get("access-control-request-headers", "").split(",")
    )
    names = dict.fromkeys((*_ACCEPTED, *(name for name in requested if _NAME.fullmatch(name))))
    return Reply(
        200,
        (
            ("Access-Control-Allow-Methods", ", ".join(methods)),
            ("Access-Control-Allow-Headers", ", ".join(names)),
            ("Access-Control-Max-Age", _MAX_AGE),
        ),
        b"",
    )
