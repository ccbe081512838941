"""Organizations, their projects and place on the early access allowlist, and personal access tokens."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from dataapi.webhooks.model import Access, Organization, Permission, ProjectRecord, Token
from dataapi.webhooks.store.statements import SqlRunner, statements

PREFIX = "dapat_"
"""The prefix of every token, by which people and secret scanners recognize one."""


def new_token() -> str:
    """Return a token with 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """Return the stored hash of a token, which needs no salt, as tokens are random."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


_SQL = statements("directory.sql")


class Directory:
    """Organizations, projects and tokens in a database."""

    def __init__(self, database: SqlRunner) -> None:
        self._database = database

    async def create_organization(self, slug: str, *, early_access: bool = False) -> bool:
        """Add an organization; False when there is one with that slug."""
        return bool(await self._database.fetch(_SQL["create_organization"], (slug, early_access)))

    async def allow(self, slug: str, allowed: bool) -> bool:
        """Add an organization to the early access allowlist or remove it; False when it is unknown."""
        return bool(await self._database.fetch(_SQL["allow"], (slug, allowed)))

    async def organization(self, slug: str) -> Organization | None:
        """Return the organization with a slug, None when it is unknown."""
        rows = await self._database.fetch(_SQL["organization"], (slug,))
        return Organization(*rows[0]) if rows else None

    async def organizations(self) -> tuple[Organization, ...]:
        """Return every organization, by slug."""
        rows = await self._database.fetch(_SQL["organizations"])
        return tuple(Organization(*row) for row in rows)

    async def create_project(self, ref: str, organization: str) -> bool:
        """Add a project; False when the reference is taken or the organization unknown."""
        return bool(await self._database.fetch(_SQL["create_project"], (ref, organization)))

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
        rows = await self._database.fetch(_SQL["projects"])
        return tuple(ProjectRecord(*row) for row in rows)

    async def projects_of(self, organization: str) -> tuple[str, ...]:
        """Return the references of an organization's projects, in order."""
        return tuple(ref for (ref,) in await self._database.fetch(_SQL["projects_of"], (organization,)))

    async def create_token(
        self, secret: str, organization: str, permissions: Iterable[Permission], expires_at: datetime | None
    ) -> Token | None:
        """Store the hash of a token from ``new_token``; None when the organization is unknown."""
        names = sorted({permission.value for permission in permissions})
        values = (organization, digest(secret), names, expires_at)
        rows = await self._database.fetch(_SQL["create_token"], values)
        return _token(rows[0]) if rows else None

    async def access(self, secret: str, refs: Iterable[str] = ()) -> Access | None:
        """Return what a bearer's token gives access to, of these projects; None if it is not valid."""
        rows = await self._database.fetch(_SQL["access"], (digest(secret), list(refs)))
        if not rows:
            return None
        early_access, projects, *token = rows[0]
        return Access(_token(token), early_access, frozenset(projects))

    async def revoke(self, identifier: UUID) -> bool:
        """Revoke a token; False when it is unknown."""
        return bool(await self._database.fetch(_SQL["revoke"], (str(identifier),)))

    async def tokens(self) -> tuple[Token, ...]:
        """Return every token, oldest first."""
        return tuple(_token(row) for row in await self._database.fetch(_SQL["tokens"]))


def _token(row: Sequence[Any]) -> Token:
    identifier, organization, permissions, *times = row
    return Token(UUID(identifier), organization, frozenset(map(Permission, permissions)), *times)
