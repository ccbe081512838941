"""Who is calling, and the settings of the caller's transaction, by which SQL learns of the request."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dataapi.catalog.model import Function
from dataapi.database.sql_text import ISOLATION_LEVELS
from dataapi.http.messages import Request

Settings = tuple[tuple[str, str], ...]
"""Settings of a transaction, ``(name, value)``; the last one of a name wins."""

REST_PREFIX = "/rest/v1"
"""The path below which the REST API is served."""

_ISOLATION = "default_transaction_isolation"


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


def hoisted_settings(function: Function, names: Collection[str]) -> Settings:
    """Return a function's settings that apply to the whole transaction in which it is called.

    :param names: which settings do (``db-hoisted-tx-settings``), in lower case.
    """
    return tuple(setting for setting in function.settings if setting[0].lower() in names)


def isolation_level(settings: Settings) -> str | None:
    """Return the isolation level among the settings; it must be set when the transaction begins."""
    level = None
    for name, value in settings:
        if name.lower() == _ISOLATION:
            level = value.upper()
    return level if level in ISOLATION_LEVELS else None


def strictest_isolation(levels: Iterable[str | None]) -> Settings:
    """Return the setting for the strictest of these isolation levels, or no setting without any."""
    known = [level for level in levels if level is not None]
    return ((_ISOLATION, max(known, key=ISOLATION_LEVELS.index)),) if known else ()
