"""Organizations, the early access allowlist, projects, and personal access tokens."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from dataapi.webhooks.model import Organization, Permission, Portal, ProjectRecord, Scope, Token, TokenAccess
from dataapi.webhooks.store.endpoints import DELETE_BATCH
from dataapi.webhooks.store.statements import SqlRunner, fetch_with_retries, load_statements

PREFIX = "dapat_"
"""Prefix of tokens, for secret scanners."""


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """Return the stored hash of a token. Random tokens need no salt."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


T = TypeVar("T")

_SQL = load_statements("directory.sql")
_KEY_BATCH = 5_000
"""Number of idempotency keys to delete per statement."""


class Directory:
    """Organizations, projects and tokens in a database.

    Methods return None if there is no such object. Methods named ``create_…`` return None if the object
    already exists, or its owner does not exist.
    """

    def __init__(self, database: SqlRunner) -> None:
        self._database = database

    async def create_organization(self, slug: str, *, early_access: bool = False) -> Organization | None:
        return await self._one(Organization, "create_organization", slug, early_access)

    async def set_early_access(self, slug: str, allowed: bool) -> Organization | None:
        return await self._one(Organization, "allow", slug, allowed)

    async def organization(self, slug: str) -> Organization | None:
        return await self._one(Organization, "organization", slug)

    async def organizations(self, limit: int | None = None, offset: int = 0) -> tuple[Organization, ...]:
        return await self._all(Organization, "organizations", limit, offset)

    async def count_organizations(self) -> int:
        return await self._count("count_organizations")

    async def delete_organization(self, slug: str) -> Organization | None:
        # A later organization with the same slug must not inherit the idempotency keys.
        while len(await self._database.fetch(_SQL["forget_keys"], (slug, _KEY_BATCH))) == _KEY_BATCH:
            pass
        values = (slug, DELETE_BATCH)
        rows = await fetch_with_retries(self._database, _SQL["delete_organization"], values)
        return Organization(*rows[0]) if rows else None

    async def create_project(self, ref: str, organization: str) -> ProjectRecord | None:
        return await self._one(ProjectRecord, "create_project", ref, organization)

    async def transfer_project(self, ref: str, organization: str, idempotency_key: str) -> str | None:
        """Transfer a project with its endpoints to an organization, and return its previous organization.

        The same transaction publishes ``v1.project.transferred`` to organizations with early access.
        Nothing happens if the organization already owns the project.
        """
        values = (ref, organization, idempotency_key)
        source: str | None = (await self._database.fetch(_SQL["transfer_project"], values))[0][0]
        return source

    async def projects(self) -> tuple[ProjectRecord, ...]:
        return await self._all(ProjectRecord, "projects")

    async def projects_of(
        self, organization: str, limit: int | None = None, offset: int = 0
    ) -> tuple[ProjectRecord, ...]:
        return await self._all(ProjectRecord, "projects_of", organization, limit, offset)

    async def count_projects_of(self, organization: str) -> int:
        return await self._count("count_projects_of", organization)

    async def project(self, organization: str, ref: str) -> ProjectRecord | None:
        return await self._one(ProjectRecord, "project", organization, ref)

    async def delete_project(self, organization: str, ref: str) -> ProjectRecord | None:
        values = (organization, ref, DELETE_BATCH)
        rows = await fetch_with_retries(self._database, _SQL["delete_project"], values)
        return ProjectRecord(*rows[0]) if rows else None

    async def create_token(
        self,
        secret: str,
        organization: str,
        permissions: Iterable[Permission],
        expires_at: datetime | None,
    ) -> Token | None:
        names = sorted({permission.value for permission in permissions})
        return await self._one(_token, "create_token", organization, digest(secret), names, expires_at)

    async def create_operator_token(self, secret: str, expires_at: datetime | None) -> None:
        await self._one(_token, "create_token", None, digest(secret), [Permission.READ.value], expires_at)

    async def create_link(
        self,
        secret: str,
        scope: Scope,
        permissions: Iterable[Permission],
        seconds: int,
        portal: Portal,
    ) -> Token | None:
        """Store the hash of a portal link's token, which is valid for ``seconds``.

        Return None if the organization has no early access.
        """
        names = sorted({permission.value for permission in permissions})
        values = (
            scope.organization,
            digest(secret),
            names,
            seconds,
            scope.project,
            json.dumps(asdict(portal)),
        )
        return await self._one(_token, "create_link", *values)

    async def access(
        self, secret: str, slug: str | None = None, refs: Iterable[str] = ()
    ) -> TokenAccess | None:
        """Return the access of a token to an organization and projects, or None if the token is not valid."""
        rows = await self._database.fetch(_SQL["access"], (digest(secret), slug, list(refs)))
        if not rows:
            return None
        early_access, organization_exists, accessible, owners, *token = rows[0]
        return TokenAccess(
            _token(*token), early_access, organization_exists, dict(zip(accessible, owners, strict=True))
        )

    async def revoke(self, identifier: UUID, organization: str | None = None) -> Token | None:
        return await self._one(_token, "revoke", str(identifier), organization)

    async def rotate(
        self, organization: str, identifier: UUID, secret: str, grace_period: int
    ) -> Token | None:
        """Store the hash of a token that replaces another token, with the same permissions and expiry.

        The replaced token is valid for ``grace_period`` seconds. Return None if the token to replace is not
        valid.
        """
        return await self._one(_token, "rotate", organization, str(identifier), digest(secret), grace_period)

    async def token(self, organization: str, identifier: UUID) -> Token | None:
        return await self._one(_token, "token", organization, str(identifier))

    async def tokens(self) -> tuple[Token, ...]:
        return await self._all(_token, "tokens")

    async def tokens_of(self, organization: str, limit: int, offset: int) -> tuple[Token, ...]:
        return await self._all(_token, "tokens_of", organization, limit, offset)

    async def count_tokens_of(self, organization: str) -> int:
        return await self._count("count_tokens_of", organization)

    async def _one(self, make: Callable[..., T], statement: str, *values: object) -> T | None:
        return next(iter(await self._all(make, statement, *values)), None)

    async def _all(self, make: Callable[..., T], statement: str, *values: object) -> tuple[T, ...]:
        return tuple(make(*row) for row in await self._database.fetch(_SQL[statement], values))

    async def _count(self, statement: str, *values: object) -> int:
        [(number,)] = await self._database.fetch(_SQL[statement], values)
        return int(number)


def _token(*row: Any) -> Token:
    identifier, organization, permissions, created_at, expires_at, revoked_at, project, portal = row
    granted, shown = frozenset(map(Permission, permissions)), portal and Portal(**json.loads(portal))
    return Token(UUID(identifier), organization, granted, created_at, expires_at, revoked_at, project, shown)
