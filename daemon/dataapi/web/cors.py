"""Cross-origin requests: requests that browsers may send, and response headers that scripts may read.

By default, scripts of all origins may call the APIs. This is safe because the daemon never
authenticates a caller by a cookie. See docs/reference/rest.md, CORS, for the headers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dataapi.http.messages import Reply, Request

_MAX_AGE = "86400"
"""Maximum cache time of a preflight response, in seconds, as in PostgREST."""

_ACCEPTED = (
    *("apikey", "authorization", "prefer", "accept-profile", "content-profile", "x-client-info"),
    *("content-type", "range", "range-unit", "accept", "x-retry-count", "x-request-id"),
    *("traceparent", "tracestate", "baggage", "dataapi-lsn", "if-match", "if-none-match"),
)
_EXPOSED = (
    "Content-Encoding, Content-Location, Content-Range, Content-Type, Dataapi-LSN, Date, ETag, "
    "Location, Preference-Applied, Proxy-Status, Range-Unit, Retry-After, Server, Transfer-Encoding, "
    "WWW-Authenticate, X-Request-Id"
)
Headers = tuple[tuple[str, str], ...]

_NAME = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}")

_READABLE = (("Access-Control-Allow-Origin", "*"), ("Access-Control-Expose-Headers", _EXPOSED))
_VARIES = (("Vary", "Origin"),)
"""Makes caches store a separate response for each origin, in addition to the response's own ``Vary``."""


def readable(request: Request, origins: Sequence[str]) -> Headers:
    """Return the headers that let the request's origin read the response, including errors.

    If ``origins`` is empty, any origin may read the response.
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
