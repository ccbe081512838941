"""Who is calling, and the settings ``request.…`` by which SQL learns of the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted

from dataapi.http.messages import Request

REST_PREFIX = "/rest/v1"
"""The path below which the REST API is served."""

_NO_ANSWER = (("response.headers", ""), ("response.status", ""))
"""What SQL says of a REST answer: nothing yet, whatever was set on the connection's session."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller after the API key and the bearer token were checked.

    :ivar role: the PostgreSQL role that the request's transaction runs under.
    :ivar claims: the verified claims as JSON text, for ``request.jwt.claims``.
    """

    role: str
    claims: str


def settings_for(request: Request, caller: Caller) -> tuple[tuple[str, str], ...]:
    """Return the transaction-local settings of a request, ``(name, value)``, as PostgREST names them.

    All of them are always set: a setting that an earlier transaction of the connection made reads as an
    empty text afterwards, which is not JSON.  Runs for every statement, so it is written for speed.
    """
    path, rest = request.path, request.path.startswith(REST_PREFIX)
    if rest:
        # Functions written for PostgREST expect paths without a gateway's prefix, such as /items or /rpc/f.
        path = path[len(REST_PREFIX) :] or "/"
    settings = (
        ("request.jwt.claims", caller.claims),
        ("request.method", request.method),
        ("request.path", path),
        ("request.headers", _object(request.headers)),
        ("request.cookies", _cookies(request.headers.get("cookie"))),
    )
    return settings + _NO_ANSWER if rest else settings


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
