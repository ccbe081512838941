"""Stored responses to requests with an idempotency key."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from uuid import UUID

from dataapi.webhooks.secrets import CannotOpen, Cipher
from dataapi.webhooks.store.statements import SqlRunner, load_statements

_SQL = load_statements("stored_responses.sql")


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with an idempotency key. Keys expire after 24 hours, and are separate for each token.

    :ivar secret: the token itself, from which the encryption key of the response is derived.
    :ivar digest: hash of everything that must be equal in a repeated request.
    """

    token: UUID
    secret: str
    key: str
    digest: bytes

    @property
    def cipher(self) -> Cipher:
        # Responses may contain secrets, so they are encrypted with a key that is not stored in the database.
        return Cipher([base64.b64encode(hashlib.sha256(f"answers {self.secret}".encode()).digest()).decode()])

    @property
    def associated_data(self) -> str:
        return f"{self.token} {self.key}"


class KeyReused(Exception):
    """Raised when the key was used with a different request."""


class OutcomeUnknown(Exception):
    """Raised when an earlier request with the key is still running, or was interrupted."""


class StoredResponses:
    """The stored responses in a database."""

    def __init__(self, database: SqlRunner) -> None:
        self._database = database

    async def begin(self, request: KeyedRequest) -> bytes | None:
        """Return the stored response, or None if the request is new.

        :raises KeyReused: the key was used with a different request.
        :raises OutcomeUnknown: there is no response yet.
        """
        values = (str(request.token), request.key)
        # If another process forgets the key in the meantime, the key can be used again.
        while not await self._database.fetch(_SQL["begin"], (*values, request.digest)):
            for digest, sealed in await self._database.fetch(_SQL["known"], values):
                if bytes(digest) != request.digest:
                    raise KeyReused
                if sealed is None:
                    raise OutcomeUnknown
                try:
                    return request.cipher.open(bytes(sealed), request.associated_data)
                except CannotOpen as error:
                    raise OutcomeUnknown from error
        return None

    async def end(self, request: KeyedRequest, response: bytes) -> None:
        sealed = request.cipher.seal(response, request.associated_data)
        await self._database.fetch(_SQL["end"], (str(request.token), request.key, sealed))

    async def forget(self, request: KeyedRequest) -> None:
        await self._database.fetch(_SQL["forget"], (str(request.token), request.key))
