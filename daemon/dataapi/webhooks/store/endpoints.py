"""Endpoints: where events go, under the organization or project that they were created in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from dataapi.errors import DatabaseError
from dataapi.webhooks import identifiers
from dataapi.webhooks.migrate import Fetches
from dataapi.webhooks.model import UNCHANGED, Endpoint, EndpointChange, NewEndpoint, Scope, Unchanged
from dataapi.webhooks.secrets import CannotOpen, Cipher
from dataapi.webhooks.store.sealed import open_headers, seal_headers, seal_secret
from dataapi.webhooks.store.statements import persistently, statements

MOST_ENDPOINTS = 50
"""How many endpoints a scope may have (reference/webhooks.md 1, limits)."""

_NO_REFERENCE = "23503"
_SQL = statements("endpoints.sql")
T = TypeVar("T")


class TooManyEndpoints(Exception):
    """The scope has as many endpoints as it may have."""


class NoScope(Exception):
    """There is no such organization, or its project was given to another one meanwhile."""


class Endpoints:
    """Endpoints in a database.

    Reading and changing raise ``CannotOpen`` when no configured key opens an endpoint's custom headers.
    """

    def __init__(
        self,
        database: Fetches,
        cipher: Cipher,
        *,
        most: int = MOST_ENDPOINTS,
        new_id: Callable[[], UUID] = identifiers.uuid_v7,
    ) -> None:
        self._database = database
        self._cipher = cipher
        self._most = most
        self._new_id = new_id

    async def create(self, scope: Scope, new: NewEndpoint) -> Endpoint:
        """Add an endpoint to a scope.

        :raises NoScope: there is no such scope any more.
        :raises NoEncryptionKey: its secrets cannot be kept.
        :raises TooManyEndpoints: the scope is full.
        """
        identifier = self._new_id()
        values = (
            str(identifier),
            scope.organization,
            scope.project,
            new.url,
            list(new.event_types),
            seal_secret(self._cipher, identifier, new.signing_secret),
            seal_headers(self._cipher, identifier, new.custom_headers),
            new.description,
            new.enabled,
            new.created_by,
            self._most,
        )
        try:
            rows = await self._database.fetch(_SQL["create"], values)
        except DatabaseError as error:
            if error.code == _NO_REFERENCE:
                raise NoScope from error
            raise
        if not rows:
            raise TooManyEndpoints(f"a scope has at most {self._most} endpoints")
        return self._endpoint(rows[0])

    async def page(self, scope: Scope, limit: int, offset: int) -> tuple[tuple[Endpoint, ...], int]:
        """Return a page of a scope's endpoints, oldest first, and how many there are in all."""
        values = (scope.organization, scope.project, limit, offset)
        rows = await self._database.fetch(_SQL["list"], values)
        if rows:
            return tuple(self._endpoint(row[1:]) for row in rows), rows[0][0]
        [(total,)] = await self._database.fetch(_SQL["count"], values[:2])
        return (), total

    async def read(self, scope: Scope, identifier: UUID) -> Endpoint | None:
        """Return an endpoint, None when the scope has none of that identifier."""
        values = (scope.organization, scope.project, str(identifier))
        return self._only(await self._database.fetch(_SQL["read"], values))

    async def change(self, scope: Scope, identifier: UUID, change: EndpointChange) -> Endpoint | None:
        """Change what is given and return the endpoint; None when the scope has none of that identifier.

        Disabling it dooms what is enqueued: that is skipped when it comes due, even if the endpoint
        is enabled again before.

        :raises NoEncryptionKey: new secrets cannot be kept.
        """
        secret, headers = change.signing_secret, change.custom_headers
        types = _given(change.event_types)
        values = (
            scope.organization,
            scope.project,
            str(identifier),
            _given(change.url),
            None if types is None else list(types),
            None if isinstance(secret, Unchanged) else seal_secret(self._cipher, identifier, secret),
            None if isinstance(headers, Unchanged) else seal_headers(self._cipher, identifier, headers),
            change.description is not UNCHANGED,
            _given(change.description),
            _given(change.enabled),
        )
        return self._only(await self._database.fetch(_SQL["change"], values))

    async def delete(self, scope: Scope, identifier: UUID) -> Endpoint | None:
        """Delete an endpoint with its events and deliveries, and return what it was; None when there is none.

        The outcome of an attempt that is on its way is not recorded, and nothing follows from it.
        """
        gone = await self._delete(scope, identifier)
        return gone[0] if gone else None

    async def delete_all(self, scope: Scope) -> tuple[Endpoint, ...]:
        """Delete all endpoints of a scope with their events and deliveries, and return what they were."""
        return await self._delete(scope, None)

    async def _delete(self, scope: Scope, identifier: UUID | None) -> tuple[Endpoint, ...]:
        """Delete one endpoint or all; one whose headers no key opens is returned without them."""
        values = (scope.organization, scope.project, None if identifier is None else str(identifier))
        gone = []
        for row in await persistently(self._database, _SQL["delete"], values):
            try:
                gone.append(self._endpoint(row))
            except CannotOpen:
                gone.append(_without_headers(row))
        return tuple(gone)

    def _only(self, rows: list[tuple[Any, ...]]) -> Endpoint | None:
        return self._endpoint(rows[0]) if rows else None

    def _endpoint(self, row: tuple[Any, ...]) -> Endpoint:
        headers = open_headers(self._cipher, UUID(row[0]), bytes(row[5]))
        return replace(_without_headers(row), custom_headers=headers)


def _without_headers(row: tuple[Any, ...]) -> Endpoint:
    identifier, organization, project, url, types, _, *rest = row
    return Endpoint(UUID(identifier), Scope(organization, project), url, tuple(types), {}, *rest)


def _given(value: T | Unchanged) -> T | None:
    return None if isinstance(value, Unchanged) else value
