"""Authorization: token, syntax of the scope, permission, early access, checked in this order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from dataapi.http.messages import Request
from dataapi.webhooks import identifiers
from dataapi.webhooks.management import errors
from dataapi.webhooks.management.errors import ManagementError
from dataapi.webhooks.model import Permission, Scope, Token
from dataapi.webhooks.store.directory import Directory

_SLUG = re.compile(r"[A-Za-z0-9_-]+")
_REF = re.compile(r"[a-z]{20}")
_BEARER = re.compile(r"bearer +([!-~]{1,512}) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AuthorizedRequest:
    """A request that passed every check but that of existence.

    :ivar path: decoded.
    :ivar query: raw; ``values`` has its parsed parameters.
    :ivar places: the variable parts of the path.
    :ivar document: the body, which is valid by the operation's schema; ``{}`` if the operation has none.
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
        """Return an identifier of the path; raise ``absent`` if it is invalid."""
        found = identifiers.parse(self.places[place])
        if found is None:
            raise absent
        return found


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What an operation returns: ``data`` and, for lists, ``links``.

    :ivar location: the path of what was created.
    """

    data: Any
    links: Mapping[str, str | None] | None = None
    location: str | None = None


class Authorizer:
    """Checks tokens and scopes; raises ``ManagementError`` (docs/reference/webhooks.md, Management)."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def token(self, request: Request) -> Token:
        """Return the valid token of a request."""
        bearer = _BEARER.fullmatch(request.headers.get("authorization", ""))
        token = await self._directory.identify(bearer[1]) if bearer else None
        if token is None:
            raise errors.unauthorized(presented=bearer is not None)
        return token

    async def scope(self, token: Token, slug: str | None, ref: str | None) -> Scope:
        """Return the scope of a request, which exists and belongs to the token's organization.

        :param slug: the organization in the request, if any.
        :param ref: the project in the request, if any.
        """
        if slug not in (None, token.organization):
            raise errors.permission_denied()
        if ref is not None:
            project = await self._directory.project(ref)
            if project is None or project.organization != token.organization:
                raise errors.permission_denied()
        return Scope(token.organization, ref)

    async def access(self, token: Token) -> None:
        """Check that the token's organization has early access."""
        organization = await self._directory.organization(token.organization)
        if organization is None or not organization.early_access:
            raise errors.access_disabled()


def check_syntax(slug: str | None, ref: str | None) -> None:
    """Check the syntax of a scope's slug and reference."""
    if slug is not None and not _SLUG.fullmatch(slug):
        raise errors.invalid_slug()
    if ref is not None and not _REF.fullmatch(ref):
        raise errors.invalid_ref()


def check_permission(token: Token, permission: Permission) -> None:
    """Check that a token has a permission."""
    if permission not in token.permissions:
        raise errors.permission_denied()
