"""Who there is: organizations with their place on the allowlist, their projects, and access tokens."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from dataapi.webhooks.migrate import Fetches
from dataapi.webhooks.model import Organization, Permission, Project, Token
from dataapi.webhooks.store.statements import statements
from dataapi.webhooks.tokens import digest

_SQL = statements("directory.sql")


class Directory:
    """Organizations, projects and tokens in a database."""

    def __init__(self, database: Fetches) -> None:
        self._database = database

    async def create_organization(self, slug: str, *, early_access: bool = False) -> bool:
        """Add an organization; return False when there is one of that slug."""
        return bool(await self._database.fetch(_SQL["create_organization"], (slug, early_access)))

    async def allow(self, slug: str, allowed: bool) -> bool:
        """Put an organization on the early-access allowlist or take it off; False when there is none."""
        return bool(await self._database.fetch(_SQL["allow"], (slug, allowed)))

    async def organization(self, slug: str) -> Organization | None:
        """Return the organization of a slug, None when there is none."""
        rows = await self._database.fetch(_SQL["organization"], (slug,))
        return Organization(*rows[0]) if rows else None

    async def organizations(self) -> tuple[Organization, ...]:
        """Return every organization, by slug."""
        rows = await self._database.fetch(_SQL["organizations"])
        return tuple(Organization(*row) for row in rows)

    async def create_project(self, ref: str, organization: str) -> bool:
        """Add a project; return False when its reference is taken or there is no such organization."""
        return bool(await self._database.fetch(_SQL["create_project"], (ref, organization)))

    async def transfer_project(self, ref: str, organization: str, idempotency_key: str) -> str | None:
        """Give a project to an organization that is there; return whose it was, None when there is none.

        Its endpoints go with it.  In the same transaction the event ``v1.project.transferred`` tells both
        organizations, if on the allowlist.  Nothing happens when the project is theirs already.

        :param idempotency_key: of both events.
        """
        [(source,)] = await self._database.fetch(
            _SQL["transfer_project"], (ref, organization, idempotency_key)
        )
        found: str | None = source
        return found

    async def project(self, ref: str) -> Project | None:
        """Return the project of a reference, None when there is none."""
        rows = await self._database.fetch(_SQL["project"], (ref,))
        return Project(*rows[0]) if rows else None

    async def projects(self) -> tuple[Project, ...]:
        """Return every project, by reference."""
        rows = await self._database.fetch(_SQL["projects"])
        return tuple(Project(*row) for row in rows)

    async def create_token(
        self, secret: str, organization: str, permissions: Iterable[Permission], expires_at: datetime | None
    ) -> Token | None:
        """Keep a token's hash; return None when there is no such organization.

        :param secret: the token, as ``tokens.new_token`` makes it.
        """
        names = sorted({permission.value for permission in permissions})
        values = (organization, digest(secret), names, expires_at)
        rows = await self._database.fetch(_SQL["create_token"], values)
        return _token(rows[0]) if rows else None

    async def identify(self, secret: str) -> Token | None:
        """Return the token that a bearer shows; None when it is unknown, has expired or was revoked."""
        rows = await self._database.fetch(_SQL["identify"], (digest(secret),))
        return _token(rows[0]) if rows else None

    async def revoke(self, identifier: UUID) -> bool:
        """Make a token unusable from now on; return False when there is none."""
        return bool(await self._database.fetch(_SQL["revoke"], (str(identifier),)))

    async def tokens(self) -> tuple[Token, ...]:
        """Return every token, oldest first."""
        return tuple(_token(row) for row in await self._database.fetch(_SQL["tokens"]))


def _token(row: tuple[Any, ...]) -> Token:
    identifier, organization, permissions, *times = row
    return Token(UUID(identifier), organization, frozenset(map(Permission, permissions)), *times)
