"""Sealing secrets anew, so that an older encryption key can be taken away."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from dataapi.webhooks import identifiers
from dataapi.webhooks.migrate import Fetches
from dataapi.webhooks.secrets import CannotOpen, Cipher
from dataapi.webhooks.store.sealed import open_headers, open_secret, seal_headers, seal_secret
from dataapi.webhooks.store.statements import statements

PIECE = 100
"""The most endpoints that are read at once."""

_SQL = statements("resealing.sql")


@dataclass(frozen=True, slots=True)
class Resealed:
    """What came of it.

    :ivar sealed: how many endpoints were sealed anew.
    :ivar unreadable: those whose secrets no configured key opens; they stay as they are.
    """

    sealed: int
    unreadable: tuple[UUID, ...]


class Resealing:
    """Seals the secrets of endpoints with the first key that another one had sealed.

    Each endpoint is replaced by itself, unless it was changed meanwhile, so daemons go on working beside it;
    those that do not have the first key yet cannot open what it sealed.
    """

    def __init__(self, database: Fetches, cipher: Cipher, *, piece: int = PIECE) -> None:
        self._database = database
        self._cipher = cipher
        self._piece = piece

    async def run(self) -> Resealed:
        """Seal all endpoints that there are; raises ``NoEncryptionKey``."""
        sealed = 0
        while True:
            replaced, passed_over, unreadable = await self._walk()
            sealed += replaced
            if not passed_over:
                return Resealed(sealed, unreadable)

    async def _walk(self) -> tuple[int, int, tuple[UUID, ...]]:
        """Go through all endpoints; return how many it replaced and passed over, and which are unreadable."""
        replaced = passed_over = 0
        unreadable: list[UUID] = []
        last = identifiers.EARLIEST
        while rows := await self._database.fetch(
            _SQL["sealed_otherwise"], (self._cipher.mark, str(last), self._piece)
        ):
            for identifier, secret, headers in rows:
                last = UUID(identifier)
                try:
                    done = await self._replace(last, bytes(secret), bytes(headers))
                except CannotOpen:
                    unreadable.append(last)
                else:
                    replaced += done
                    passed_over += not done
        return replaced, passed_over, tuple(unreadable)

    async def _replace(self, endpoint: UUID, secret: bytes, headers: bytes) -> bool:
        """Seal one endpoint; False when it is not as it was read."""
        new_secret = seal_secret(self._cipher, endpoint, open_secret(self._cipher, endpoint, secret))
        new_headers = seal_headers(self._cipher, endpoint, open_headers(self._cipher, endpoint, headers))
        values = (str(endpoint), secret, headers, new_secret, new_headers)
        return bool(await self._database.fetch(_SQL["replace"], values))
