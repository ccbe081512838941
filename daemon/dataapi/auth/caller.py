"""Who is calling, and the settings of the caller's transaction, by which SQL learns of the request."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dataapi.catalog.model import Function
from dataapi.database.sql_text import ISOLATION_LEVELS
from dataapi.http.headers import Headers, json_object
from dataapi.http.messages import Request

Settings = tuple[tuple[str, str], ...]
"""Settings of a transaction, ``(name, value)``; the last one of a name wins."""

REST_PREFIX = "/rest/v1"
"""The path below which the REST API is served."""

_ISOLATION = "default_transaction_isolation"
_NO_ANSWER = (("response.headers", ""), ("response.status", ""))
"""What SQL says of a REST answer: nothing yet, whatever was set on the connection's session."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller after the API key and the bearer token were checked.

    :ivar role: the PostgreSQL role that the request's transaction runs under.
    :ivar claims: the verified claims as JSON text, for ``request.jwt.claims``.
    :ivar subject: the claim ``sub``, "" without one.
    """

    role: str
    claims: str
    subject: str = ""


def identity(request: Request, caller: Caller) -> str:
    """Return what identifies a caller among those who share connections: the user, else the address."""
    return f"{caller.role} {caller.subject or f'at {request.client}'}"


def settings_for(request: Request, caller: Caller) -> Settings:
    """Return the transaction-local settings of a request, as PostgREST names them.

    All of them are always set: a setting that an earlier transaction of the connection made reads as an
    empty text afterwards, which is not JSON.  Runs for every statement, so it is written for speed.
    """
    path, headers = request.path, request.headers
    rest = path.startswith(REST_PREFIX)
    if rest:
        # Functions written for PostgREST expect paths without a gateway's prefix, such as /items or /rpc/f.
        path = path[len(REST_PREFIX) :] or "/"
    settings = (
        ("request.jwt.claims", caller.claims),
        ("request.method", request.method),
        ("request.path", path),
        ("request.headers", headers.json if isinstance(headers, Headers) else json_object(headers)),
        ("request.cookies", _cookies(headers.get("cookie"))),
    )
    return settings + _NO_ANSWER if rest else settings


def _cookies(header: str | None) -> str:
    """Return the cookies as a JSON object; the first of a name wins, as RFC 6265 sorts them."""
    if not header:
        return "{}"
    cookies: dict[str, str] = {}
    for pair in header.split(";"):
        name, equals, value = pair.strip().partition("=")
        if equals and name:
            cookies.setdefault(name, value.strip('"'))
    return json_object(cookies)


def hoisted(function: Function, names: Collection[str]) -> Settings:
    """Return a function's settings that apply to the whole transaction in which it is called.

    :param names: which settings do (``db-hoisted-tx-settings``), in lower case.
    """
    return tuple(setting for setting in function.settings if setting[0].lower() in names)


def isolation_of(settings: Settings) -> str | None:
    """Return the isolation level among the settings; it must be set when the transaction begins."""
    level = None
    for name, value in settings:
        if name.lower() == _ISOLATION:
            level = value.upper()
    return level if level in ISOLATION_LEVELS else None


def strictest(levels: Iterable[str | None]) -> Settings:
    """Return the setting for the strictest of these isolation levels, or no setting without any."""
    known = [level for level in levels if level is not None]
    return ((_ISOLATION, max(known, key=ISOLATION_LEVELS.index)),) if known else ()
