"""What an operation is given once every check before existence is passed, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from dataapi.webhooks import identifiers
from dataapi.webhooks.management.refusals import ManagementError
from dataapi.webhooks.model import Scope, Token


@dataclass(frozen=True, slots=True)
class Task:
    """An admitted request.

    :ivar path: as it was asked for, decoded.
    :ivar query: raw; ``values`` has what its parameters say.
    :ivar places: the path's variable parts.
    :ivar document: the body, which the operation's schema accepts; ``{}`` when none is read.
    """

    token: Token
    scope: Scope
    path: str
    query: str
    places: Mapping[str, str]
    values: Mapping[str, Any]
    document: Mapping[str, Any]

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the body's record."""
        found: Mapping[str, Any] = self.document.get("data", {}).get("attributes", {})
        return found

    def identifier(self, place: str, absent: ManagementError) -> UUID:
        """Return an identifier of the path; raise ``absent`` for what cannot be one."""
        found = identifiers.parse(self.places[place])
        if found is None:
            raise absent
        return found


@dataclass(frozen=True, slots=True)
class Done:
    """What an operation answers: ``data`` and, for lists, ``links``.

    :ivar location: the path of what was created, or None.
    """

    data: Any
    links: Mapping[str, str | None] | None = None
    location: str | None = None
