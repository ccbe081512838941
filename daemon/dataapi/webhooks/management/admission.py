"""Who may do what where: token, syntax of the scope, permission, allowlist, in this order."""

from __future__ import annotations

import re

from dataapi.web.messages import Request
from dataapi.webhooks.management import refusals
from dataapi.webhooks.model import Permission, Scope, Token
from dataapi.webhooks.store.directory import Directory

_SLUG = re.compile(r"[A-Za-z0-9_-]+")
_REF = re.compile(r"[a-z]{20}")
_BEARER = re.compile(r"bearer +([!-~]{1,512}) *", re.IGNORECASE)


class Admission:
    """Lets requests through, or refuses them in the order of reference/webhooks.md section 1.

    Every check returns, or raises ``ManagementError``.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def token(self, request: Request) -> Token:
        """Return the token that a request shows, which is good now."""
        shown = _BEARER.fullmatch(request.headers.get("authorization", ""))
        token = await self._directory.identify(shown[1]) if shown else None
        if token is None:
            raise refusals.unauthorized(shown=shown is not None)
        return token

    async def scope(self, token: Token, slug: str | None, ref: str | None) -> Scope:
        """Return the scope that a token is used in, which exists and is of the token's organization.

        :param slug: the organization that is named; None where only a project is.
        :param ref: the project that is named, if one is.
        """
        if slug not in (None, token.organization):
            raise refusals.permission_denied()
        if ref is not None:
            project = await self._directory.project(ref)
            if project is None or project.organization != token.organization:
                raise refusals.permission_denied()
        return Scope(token.organization, ref)

    async def access(self, token: Token) -> None:
        """Check that the token's organization is on the early access allowlist."""
        organization = await self._directory.organization(token.organization)
        if organization is None or not organization.early_access:
            raise refusals.access_disabled()


def check_syntax(slug: str | None, ref: str | None) -> None:
    """Check that what names a scope can name one."""
    if slug is not None and not _SLUG.fullmatch(slug):
        raise refusals.invalid_slug()
    if ref is not None and not _REF.fullmatch(ref):
        raise refusals.invalid_ref()


def check_permission(token: Token, permission: Permission) -> None:
    """Check that a token may be used for something."""
    if permission not in token.permissions:
        raise refusals.permission_denied()
