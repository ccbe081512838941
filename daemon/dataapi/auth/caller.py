"""The authenticated caller, and settings of its transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dataapi.catalog.model import Function
from dataapi.database.sql_text import ISOLATION_LEVELS
from dataapi.http.messages import Request

Settings = tuple[tuple[str, str], ...]
"""Transaction settings as ``(name, value)``. If a name is repeated, the last value wins."""

REST_PREFIX = "/rest/v1"

_ISOLATION = "default_transaction_isolation"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller.

    ``claims`` are the verified claims as JSON text. ``subject`` is the claim ``sub``, or "".
    """

    role: str
    claims: str
    subject: str = ""


def identity(request: Request, caller: Caller) -> str:
    """Return the identity for fair sharing of connections: the user, or the client's address."""
    return f"{caller.role} {caller.subject or f'at {request.client}'}"


def hoisted_settings(function: Function, names: Collection[str]) -> Settings:
    return tuple(setting for setting in function.settings if setting[0].lower() in names)


def isolation_level(settings: Settings) -> str | None:
    level = None
    for name, value in settings:
        if name.lower() == _ISOLATION:
            level = value.upper()
    return level if level in ISOLATION_LEVELS else None


def strictest_isolation(levels: Iterable[str | None]) -> Settings:
    known = [level for level in levels if level is not None]
    return ((_ISOLATION, max(known, key=ISOLATION_LEVELS.index)),) if known else ()
