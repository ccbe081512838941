"""The settings that tell SQL about the request, ``request.…``, as PostgREST sets them.

They are made for every statement, so this is written for speed: a few microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as quoted

from dataapi.access.caller import Caller
from dataapi.access.gate import REST_PREFIX
from dataapi.web.messages import Request

_NO_ANSWER = (("response.headers", ""), ("response.status", ""))
"""What SQL may say of a REST answer: nothing yet, whatever was set on the connection's session."""


def settings_for(request: Request, caller: Caller) -> tuple[tuple[str, str], ...]:
    """Return the transaction-local settings of a request, ``(name, value)``.

    All of them are always there: a setting that an earlier transaction of the connection
    made reads as an empty text afterwards, which is no JSON.
    """
    path, rest = request.path, request.path.startswith(REST_PREFIX)
    if rest:
        # Functions written for PostgREST know no gateway's prefix: theirs is /items or /rpc/f.
        path = path[len(REST_PREFIX) :] or "/"
    told = (
        ("request.jwt.claims", caller.claims),
        ("request.method", request.method),
        ("request.path", path),
        ("request.headers", _object(request.headers)),
        ("request.cookies", _cookies(request.headers.get("cookie"))),
    )
    return told + _NO_ANSWER if rest else told


def _object(members: Mapping[str, str]) -> str:
    return "{" + ",".join([f"{quoted(name)}:{quoted(value)}" for name, value in members.items()]) + "}"


def _cookies(header: str | None) -> str:
    """Return the cookies as a JSON object; the first of a name wins, as RFC 6265 sorts them."""
    if not header:
        return "{}"
    cookies: dict[str, str] = {}
    for pair in header.split(";"):
        name, equals, value = pair.strip().partition("=")
        if equals and name:
            cookies.setdefault(name, value.strip('"'))
    return _object(cookies)
