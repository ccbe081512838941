"""Endpoints in the database, and key rotation: sealing their secrets again with the first key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from dataapi.http.errors import DatabaseError
from dataapi.webhooks import identifiers
from dataapi.webhooks.model import Endpoint, EndpointChange, NewEndpoint, Scope
from dataapi.webhooks.secrets import CannotOpen, Cipher, open_headers, open_secret, seal_headers, seal_secret
from dataapi.webhooks.store.statements import SqlRunner, persistently, statements

MAX_ENDPOINTS = 50
"""Endpoints that a scope may have (docs/reference/webhooks.md, Limits)."""

DELETE_BATCH = 1_000
"""Due rows, and as many deliveries, that are deleted with endpoints; upkeep removes the others."""

_NO_REFERENCE = "23503"
_SQL = statements("endpoints.sql")

BATCH = 100
"""Endpoints that are read at once."""


class TooManyEndpoints(Exception):
    """The scope has the maximum number of endpoints."""


class NoScope(Exception):
    """The organization is unknown, or its project was transferred in the meantime."""


class Endpoints:
    """Endpoints in a database.

    Reading and changing raise ``CannotOpen`` when no configured key opens an endpoint's custom headers.
    """

    def __init__(self, database: SqlRunner, cipher: Cipher, *, maximum: int = MAX_ENDPOINTS) -> None:
        self._database = database
        self._cipher = cipher
        self._maximum = maximum

    async def create(self, scope: Scope, new: NewEndpoint) -> Endpoint:
        """Add an endpoint to a scope.

        :raises NoScope: the scope no longer exists.
        :raises NoEncryptionKey: its secrets cannot be stored.
        :raises TooManyEndpoints: the scope is full.
        """
        identifier = identifiers.uuid_v7()
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
            self._maximum,
            new.max_per_second,
        )
        try:
            rows = await self._database.fetch(_SQL["create"], values)
        except DatabaseError as error:
            if error.code == _NO_REFERENCE:
                raise NoScope from error
            raise
        if not rows:
            raise TooManyEndpoints(f"a scope has at most {self._maximum} endpoints")
        return self._endpoint(rows[0])

    async def page(self, scope: Scope, limit: int, offset: int) -> tuple[tuple[Endpoint, ...], int]:
        """Return a page of a scope's endpoints, oldest first, and their total number."""
        values = (scope.organization, scope.project, limit, offset)
        rows = await self._database.fetch(_SQL["list"], values)
        if rows:
            return tuple(self._endpoint(row[1:]) for row in rows), rows[0][0]
        [(total,)] = await self._database.fetch(_SQL["count"], values[:2])
        return (), total

    async def read(self, scope: Scope, identifier: UUID) -> Endpoint | None:
        """Return an endpoint, None when the scope does not have it."""
        values = (scope.organization, scope.project, str(identifier))
        return self._only(await self._database.fetch(_SQL["read"], values))

    async def change(self, scope: Scope, identifier: UUID, change: EndpointChange) -> Endpoint | None:
        """Change an endpoint and return it, None when the scope does not have it.

        When it is disabled, queued deliveries are skipped as they come due, even if it is enabled again.

        :raises NoEncryptionKey: new secrets cannot be stored.
        """
        secret, headers = change.get("signing_secret"), change.get("custom_headers")
        values = (
            scope.organization,
            scope.project,
            str(identifier),
            change.get("url"),
            list(change["event_types"]) if "event_types" in change else None,
            None if secret is None else seal_secret(self._cipher, identifier, secret),
            None if headers is None else seal_headers(self._cipher, identifier, headers),
            "description" in change,
            change.get("description"),
            change.get("enabled"),
            "max_per_second" in change,
            change.get("max_per_second"),
            change.get("grace_seconds", 0),
        )
        return self._only(await self._database.fetch(_SQL["change"], values))

    async def delete(self, scope: Scope, identifier: UUID) -> Endpoint | None:
        """Delete an endpoint with its events and deliveries and return it; None when the scope lacks it.

        The outcome of an attempt in flight is discarded.  Of many rows upkeep deletes the rest.
        """
        return next(iter(await self.delete_all(scope, identifier)), None)

    async def delete_all(self, scope: Scope, only: UUID | None = None) -> tuple[Endpoint, ...]:
        """Delete all endpoints of a scope, or only one, with their events and deliveries, and return them.

        One whose headers no key opens is returned without them.
        """
        values = (scope.organization, scope.project, None if only is None else str(only), DELETE_BATCH)
        gone = []
        for row in await persistently(self._database, _SQL["delete"], values):
            try:
                gone.append(self._endpoint(row))
            except CannotOpen:
                gone.append(_without_headers(row))
        return tuple(gone)

    async def delete_payload(self, scope: Scope, event: UUID) -> int:
        """Delete an event's payload from the history and the queue, with what receivers answered.

        What was still to be sent is skipped, except an attempt that is under way.

        :param event: the identifier of a copy, or the one that publishing returned: then of all copies.
        :return: how many copies there were in the scope; those of an organization include its projects'.
        """
        values = (scope.organization, scope.project, str(event))
        [(copies,)] = await persistently(self._database, _SQL["delete_payload"], values)
        return int(copies)

    def _only(self, rows: list[tuple[Any, ...]]) -> Endpoint | None:
        return self._endpoint(rows[0]) if rows else None

    def _endpoint(self, row: tuple[Any, ...]) -> Endpoint:
        headers = open_headers(self._cipher, UUID(row[0]), bytes(row[5]))
        return replace(_without_headers(row), custom_headers=headers)


def _without_headers(row: tuple[Any, ...]) -> Endpoint:
    identifier, organization, project, url, types, _, *rest = row
    return Endpoint(UUID(identifier), Scope(organization, project), url, tuple(types), {}, *rest)


@dataclass(frozen=True, slots=True)
class RotatedKeys:
    """How many endpoints were sealed again, and those that are unchanged, as no configured key opens them."""

    sealed: int
    unreadable: tuple[UUID, ...]


class KeyRotation:
    """Seals secrets with the first key that were sealed with another one.

    Endpoints are updated one by one, unless they were changed in the meantime, while daemons go on working;
    those that do not have the first key yet cannot open what it sealed.
    """

    def __init__(self, database: SqlRunner, cipher: Cipher, *, batch_size: int = BATCH) -> None:
        self._database = database
        self._cipher = cipher
        self._batch_size = batch_size

    async def run(self) -> RotatedKeys:
        """Rotate all endpoints; raises ``NoEncryptionKey``."""
        sealed, unreadable, last = 0, list[UUID](), identifiers.EARLIEST
        while rows := await self._database.fetch(
            _SQL["sealed_otherwise"], (self._cipher.prefix, str(last), self._batch_size)
        ):
            for identifier, secret, headers, previous in rows:
                endpoint = UUID(identifier)
                try:
                    if not await self._replace(endpoint, bytes(secret), bytes(headers), previous):
                        break  # to read it again
                    sealed += 1
                except CannotOpen:
                    unreadable.append(endpoint)
                last = endpoint
        return RotatedKeys(sealed, tuple(unreadable))

    async def _replace(self, endpoint: UUID, secret: bytes, headers: bytes, previous: bytes | None) -> bool:
        """Seal one endpoint; False when it was changed since it was read."""
        new_headers = seal_headers(self._cipher, endpoint, open_headers(self._cipher, endpoint, headers))
        new_previous = None if previous is None else self._sealed(endpoint, bytes(previous))
        new = (self._sealed(endpoint, secret), new_headers, new_previous)
        values = (str(endpoint), secret, headers, previous, *new)
        return bool(await self._database.fetch(_SQL["replace"], values))

    def _sealed(self, endpoint: UUID, secret: bytes) -> bytes:
        return seal_secret(self._cipher, endpoint, open_secret(self._cipher, endpoint, secret))
