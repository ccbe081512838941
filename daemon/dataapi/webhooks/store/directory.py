"""Organizations, their projects and place on the early access allowlist, and personal access tokens."""

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
from dataapi.webhooks.store.statements import SqlRunner, persistently, statements

PREFIX = "dapat_"
"""The prefix of every token, by which people and secret scanners recognize one."""


def new_token() -> str:
    """Return a token with 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """Return the stored hash of a token, which needs no salt, as tokens are random."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


T = TypeVar("T")

_SQL = statements("directory.sql")
_PIECE = 5_000
"""Idempotency keys that one statement deletes."""


class Directory:
    """Organizations, projects and tokens in a database."""

    def __init__(self, database: SqlRunner) -> None:
        self._database = database

    async def create_organization(self, slug: str, *, early_access: bool = False) -> Organization | None:
        """Add an organization and return it, None when there is one with that slug."""
        return await self._one(Organization, "create_organization", slug, early_access)

    async def allow(self, slug: str, allowed: bool) -> Organization | None:
        """Put an organization on the early access allowlist, or take it off; None when it is unknown."""
        return await self._one(Organization, "allow", slug, allowed)

    async def organization(self, slug: str) -> Organization | None:
        """Return the organization with a slug, None when it is unknown."""
        return await self._one(Organization, "organization", slug)

    async def organizations(self, limit: int | None = None, offset: int = 0) -> tuple[Organization, ...]:
        """Return a page of the organizations, or all of them, by slug."""
        return await self._all(Organization, "organizations", limit, offset)

    async def count_organizations(self) -> int:
        """Return how many organizations there are."""
        return await self._count("count_organizations")

    async def delete_organization(self, slug: str) -> Organization | None:
        """Delete an organization with all that is its own, and return it; None when it is unknown.

        Upkeep deletes the rest of many deliveries.
        """
        # One of the same slug, later, is not answered for what this one published.
        while len(await self._database.fetch(_SQL["forget_keys"], (slug, _PIECE))) == _PIECE:
            pass
        values = (slug, DELETE_BATCH)
        rows = await persistently(self._database, _SQL["delete_organization"], values)
        return Organization(*rows[0]) if rows else None

    async def create_project(self, ref: str, organization: str) -> ProjectRecord | None:
        """Add a project and return it; None when the reference is taken or the organization unknown."""
        return await self._one(ProjectRecord, "create_project", ref, organization)

    async def transfer_project(self, ref: str, organization: str, idempotency_key: str) -> str | None:
        """Transfer a project to an existing organization; return its former one, None if it is unknown.

        Its endpoints go with it.  The same transaction publishes ``v1.project.transferred`` to both
        organizations, if they have early access.  Nothing happens when the project already belongs to the
        organization.

        :param idempotency_key: of both events.
        """
        values = (ref, organization, idempotency_key)
        source: str | None = (await self._database.fetch(_SQL["transfer_project"], values))[0][0]
        return source

    async def projects(self) -> tuple[ProjectRecord, ...]:
        """Return every project, by reference."""
        return await self._all(ProjectRecord, "projects")

    async def projects_of(
        self, organization: str, limit: int | None = None, offset: int = 0
    ) -> tuple[ProjectRecord, ...]:
        """Return a page of an organization's projects, or all of them, by reference."""
        return await self._all(ProjectRecord, "projects_of", organization, limit, offset)

    async def count_projects_of(self, organization: str) -> int:
        """Return how many projects an organization has."""
        return await self._count("count_projects_of", organization)

    async def project(self, organization: str, ref: str) -> ProjectRecord | None:
        """Return a project, None when the organization does not have it."""
        return await self._one(ProjectRecord, "project", organization, ref)

    async def delete_project(self, organization: str, ref: str) -> ProjectRecord | None:
        """Delete a project with all that is its own, and return it; None when the organization lacks it.

        Upkeep deletes the rest of many deliveries.
        """
        values = (organization, ref, DELETE_BATCH)
        rows = await persistently(self._database, _SQL["delete_project"], values)
        return ProjectRecord(*rows[0]) if rows else None

    async def create_token(
        self,
        secret: str,
        organization: str,
        permissions: Iterable[Permission],
        expires_at: datetime | None,
    ) -> Token | None:
        """Store the hash of a token from ``new_token``; None when the organization is unknown."""
        names = sorted({permission.value for permission in permissions})
        return await self._one(_token, "create_token", organization, digest(secret), names, expires_at)

    async def create_operator_token(self, secret: str, expires_at: datetime | None) -> None:
        """Store the hash of a token from ``new_token`` that reaches every organization."""
        await self._one(_token, "create_token", None, digest(secret), [Permission.READ.value], expires_at)

    async def create_link(
        self,
        secret: str,
        scope: Scope,
        permissions: Iterable[Permission],
        seconds: int,
        portal: Portal,
    ) -> Token | None:
        """Store the hash of a portal link's token from ``new_token``; None without early access.

        :param scope: all that it reaches.
        :param seconds: for which it is valid.
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
        """Return what a bearer's token gives access to; None if it is not valid.

        :param slug: of an organization to look up.
        :param refs: of projects to look up.
        """
        rows = await self._database.fetch(_SQL["access"], (digest(secret), slug, list(refs)))
        if not rows:
            return None
        early_access, known, found, owners, *token = rows[0]
        return TokenAccess(_token(*token), early_access, known, dict(zip(found, owners, strict=True)))

    async def revoke(self, identifier: UUID, organization: str | None = None) -> Token | None:
        """Revoke a token and return it; None when there is no such token that is not revoked yet."""
        return await self._one(_token, "revoke", str(identifier), organization)

    async def rotate(
        self, organization: str, identifier: UUID, secret: str, grace_period: int
    ) -> Token | None:
        """Store the hash of a token in whose place another one of the same permissions and expiry stood.

        :param grace_period: seconds for which the former one is still valid.
        :return: None when the organization has no such valid token.
        """
        return await self._one(_token, "rotate", organization, str(identifier), digest(secret), grace_period)

    async def token(self, organization: str, identifier: UUID) -> Token | None:
        """Return a token, None when the organization does not have it or it was revoked."""
        return await self._one(_token, "token", organization, str(identifier))

    async def tokens(self) -> tuple[Token, ...]:
        """Return every token, oldest first."""
        return await self._all(_token, "tokens")

    async def tokens_of(self, organization: str, limit: int, offset: int) -> tuple[Token, ...]:
        """Return a page of an organization's tokens that were not revoked, oldest first."""
        return await self._all(_token, "tokens_of", organization, limit, offset)

    async def count_tokens_of(self, organization: str) -> int:
        """Return how many tokens an organization has that were not revoked."""
        return await self._count("count_tokens_of", organization)

    async def _one(self, make: Callable[..., T], statement: str, *values: object) -> T | None:
        """Return the value of a statement's first row, None without one."""
        return next(iter(await self._all(make, statement, *values)), None)

    async def _all(self, make: Callable[..., T], statement: str, *values: object) -> tuple[T, ...]:
        """Return the values of a statement's rows."""
        return tuple(make(*row) for row in await self._database.fetch(_SQL[statement], values))

    async def _count(self, statement: str, *values: object) -> int:
        [(number,)] = await self._database.fetch(_SQL[statement], values)
        return int(number)


def _token(*row: Any) -> Token:
    identifier, organization, permissions, created_at, expires_at, revoked_at, project, portal = row
    granted, shown = frozenset(map(Permission, permissions)), portal and Portal(**json.loads(portal))
    return Token(UUID(identifier), organization, granted, created_at, expires_at, revoked_at, project, shown)
