"""Who may do what where: token, syntax of the scope, permission, allowlist, in this order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dataapi.web.messages import Request
from dataapi.webhooks.management import refusals
from dataapi.webhooks.model import Permission, Scope, Token
from dataapi.webhooks.store.directory import Directory

_SLUG = re.compile(r"[A-Za-z0-9_-]+")
_REF = re.compile(r"[a-z]{20}")
_BEARER = re.compile(r"bearer +([!-~]{1,512}) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that was let through.

    :ivar scope: what it is about.
    """

    token: Token
    scope: Scope


class Admission:
    """Lets requests through, or refuses them in the order of reference/webhooks.md section 1."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def token(self, request: Request) -> Token:
        """Return the token that a request shows, which is good now."""
        shown = _BEARER.fullmatch(request.headers.get("authorization", ""))
        token = await self._directory.identify(shown[1]) if shown else None
        if token is None:
            raise refusals.unauthorized()
        return token

    async def admit(
        self, token: Token, permission: Permission, slug: str | None, ref: str | None
    ) -> Admitted:
        """Return the scope that a token may be used in.

        :param slug: the organization that is named; None where only a project is.
        :param ref: the project that is named, if one is.
        """
        if slug is not None and not _SLUG.fullmatch(slug):
            raise refusals.invalid_slug()
        if ref is not None and not _REF.fullmatch(ref):
            raise refusals.invalid_ref()
        if permission not in token.permissions or slug not in (None, token.organization):
            raise refusals.permission_denied()
        if ref is not None:
            project = await self._directory.project(ref)
            if project is None or project.organization != token.organization:
                raise refusals.permission_denied()
        organization = await self._directory.organization(token.organization)
        if organization is None or not organization.early_access:
            raise refusals.access_disabled()
        return Admitted(token, Scope(token.organization, ref))

    async def admit_path(
        self, request: Request, permission: Permission, places: Mapping[str, str]
    ) -> Admitted:
        """Admit a request whose path names the scope."""
        token = await self.token(request)
        return await self.admit(token, permission, places.get("organization_slug"), places.get("project_ref"))
