"""Endpoints in the database, and re-encryption of their secrets after a key rotation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from dataapi.http.errors import DatabaseError
from dataapi.webhooks import identifiers
from dataapi.webhooks.model import Endpoint, EndpointChange, NewEndpoint, Scope
from dataapi.webhooks.secrets import CannotOpen, Cipher, open_headers, open_secret, seal_headers, seal_secret
from dataapi.webhooks.store.statements import SqlRunner, fetch_with_retries, load_statements

MAX_ENDPOINTS = 50
"""Maximum number of endpoints per scope (docs/reference/webhooks.md, Limits)."""

DELETE_BATCH = 1_000
"""Maximum number of attempts, and of deliveries, to delete with endpoints. Maintenance deletes the rest."""

_NO_REFERENCE = "23503"
_SQL = load_statements("endpoints.sql")

BATCH = 100
"""Number of endpoints to re-encrypt per query."""


class TooManyEndpoints(Exception):
    """Raised when the scope has the maximum number of endpoints."""


class NoScope(Exception):
    """Raised when the organization does not exist, or does not own the project."""


class Endpoints:
    """The endpoints in a database.

    Methods raise ``CannotOpen`` if no configured key decrypts an endpoint's custom headers.
    """

    def __init__(self, database: SqlRunner, cipher: Cipher, *, maximum: int = MAX_ENDPOINTS) -> None:
        self._database = database
        self._cipher = cipher
        self._maximum = maximum

    async def create(self, scope: Scope, new: NewEndpoint) -> Endpoint:
        """Create an endpoint.

        :raises NoScope: the scope does not exist.
        :raises NoEncryptionKey: secrets cannot be stored.
        :raises TooManyEndpoints: the scope has the maximum number of endpoints.
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
        values = (scope.organization, scope.project, limit, offset)
        rows = await self._database.fetch(_SQL["list"], values)
        if rows:
            return tuple(self._endpoint(row[1:]) for row in rows), rows[0][0]
        [(total,)] = await self._database.fetch(_SQL["count"], values[:2])
        return (), total

    async def read(self, scope: Scope, identifier: UUID) -> Endpoint | None:
        values = (scope.organization, scope.project, str(identifier))
        return self._first(await self._database.fetch(_SQL["read"], values))

    async def change(self, scope: Scope, identifier: UUID, change: EndpointChange) -> Endpoint | None:
        """Change an endpoint and return it, or None if the scope has no such endpoint.

        Disabling an endpoint skips its queued deliveries, even if it is enabled again before they are due.

        :raises NoEncryptionKey: secrets cannot be stored.
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
        return self._first(await self._database.fetch(_SQL["change"], values))

    async def delete(self, scope: Scope, identifier: UUID) -> Endpoint | None:
        """Delete an endpoint with its events and deliveries. Return it, or None if there is none.

        The outcome of an attempt in flight is discarded. Maintenance deletes rows beyond ``DELETE_BATCH``.
        """
        return next(iter(await self.delete_all(scope, identifier)), None)

    async def delete_all(self, scope: Scope, identifier: UUID | None = None) -> tuple[Endpoint, ...]:
        """Delete all endpoints of a scope, or one endpoint, with their events and deliveries.

        Return the endpoints, without headers that cannot be decrypted.
        """
        values = (
            scope.organization,
            scope.project,
            None if identifier is None else str(identifier),
            DELETE_BATCH,
        )
        deleted = []
        for row in await fetch_with_retries(self._database, _SQL["delete"], values):
            try:
                deleted.append(self._endpoint(row))
            except CannotOpen:
                deleted.append(_without_headers(row))
        return tuple(deleted)

    async def delete_payload(self, scope: Scope, event: UUID) -> int:
        """Delete an event's payload, and the responses to it, from the history and the queue.

        Pending attempts are recorded as skipped, unless they are in flight.

        :param event: identifier of one copy of the event, or of the published event to delete all copies.
        :return: number of copies in the scope. An organization's scope includes its projects.
        """
        values = (scope.organization, scope.project, str(event))
        [(copies,)] = await fetch_with_retries(self._database, _SQL["delete_payload"], values)
        return int(copies)

    def _first(self, rows: list[tuple[Any, ...]]) -> Endpoint | None:
        return self._endpoint(rows[0]) if rows else None

    def _endpoint(self, row: tuple[Any, ...]) -> Endpoint:
        headers = open_headers(self._cipher, UUID(row[0]), bytes(row[5]))
        return replace(_without_headers(row), custom_headers=headers)


def _without_headers(row: tuple[Any, ...]) -> Endpoint:
    identifier, organization, project, url, types, _, *rest = row
    return Endpoint(UUID(identifier), Scope(organization, project), url, tuple(types), {}, *rest)


@dataclass(frozen=True, slots=True)
class RotatedKeys:
    """Number of re-encrypted endpoints, and the endpoints that no configured key decrypts."""

    sealed: int
    unreadable: tuple[UUID, ...]


class KeyRotation:
    """Re-encrypts secrets with the first key while daemons keep running.

    Daemons that are not configured with the first key cannot read the re-encrypted secrets.
    """

    def __init__(self, database: SqlRunner, cipher: Cipher, *, batch_size: int = BATCH) -> None:
        self._database = database
        self._cipher = cipher
        self._batch_size = batch_size

    async def run(self) -> RotatedKeys:
        sealed, unreadable, last = 0, list[UUID](), identifiers.EARLIEST
        while rows := await self._database.fetch(
            _SQL["sealed_otherwise"], (self._cipher.prefix, str(last), self._batch_size)
        ):
            for identifier, secret, headers, previous in rows:
                endpoint = UUID(identifier)
                try:
                    if not await self._replace(endpoint, bytes(secret), bytes(headers), previous):
                        break  # the endpoint has changed, so read it again
                    sealed += 1
                except CannotOpen:
                    unreadable.append(endpoint)
                last = endpoint
        return RotatedKeys(sealed, tuple(unreadable))

    async def _replace(self, endpoint: UUID, secret: bytes, headers: bytes, previous: bytes | None) -> bool:
        new_headers = seal_headers(self._cipher, endpoint, open_headers(self._cipher, endpoint, headers))
        new_previous = None if previous is None else self._sealed(endpoint, bytes(previous))
        new = (self._sealed(endpoint, secret), new_headers, new_previous)
        values = (str(endpoint), secret, headers, previous, *new)
        return bool(await self._database.fetch(_SQL["replace"], values))

    def _sealed(self, endpoint: UUID, secret: bytes) -> bytes:
        return seal_secret(self._cipher, endpoint, open_secret(self._cipher, endpoint, secret))
