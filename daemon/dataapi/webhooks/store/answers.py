"""The answers to requests with an idempotency key, so that a repeated one changes nothing again."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from uuid import UUID

from dataapi.webhooks.secrets import CannotOpen, Cipher
from dataapi.webhooks.store.statements import SqlRunner, statements

_SQL = statements("answers.sql")


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with an idempotency key, which is known for 24 hours.

    :ivar token: the identifier of the token that it came with: each token has keys of its own.
    :ivar secret: that token, without which the answer cannot be read.
    :ivar digest: of everything that makes it the same request.
    """

    token: UUID
    secret: str
    key: str
    digest: bytes

    @property
    def cipher(self) -> Cipher:
        """What seals the answer, which may hold a secret: the database has no key for it."""
        return Cipher([base64.b64encode(hashlib.sha256(f"answers {self.secret}".encode()).digest()).decode()])

    @property
    def place(self) -> str:
        """What the sealed answer is bound to."""
        return f"{self.token} {self.key}"


class OtherRequest(Exception):
    """The key was used with another request."""


class NoAnswer(Exception):
    """The request is under way, or was interrupted, so that its outcome is unknown."""


class Answers:
    """The answers in a database."""

    def __init__(self, database: SqlRunner) -> None:
        self._database = database

    async def begin(self, request: KeyedRequest) -> bytes | None:
        """Return the answer to the same request, None if this is the first one.

        :raises OtherRequest: the key is that of another request.
        :raises NoAnswer: there is no answer yet.
        """
        values = (str(request.token), request.key)
        # A key that is forgotten in the meantime, as its request was refused, can be used again.
        while not await self._database.fetch(_SQL["begin"], (*values, request.digest)):
            for digest, sealed in await self._database.fetch(_SQL["known"], values):
                if bytes(digest) != request.digest:
                    raise OtherRequest
                if sealed is None:
                    raise NoAnswer
                try:
                    return request.cipher.open(bytes(sealed), request.place)
                except CannotOpen as error:
                    raise NoAnswer from error
        return None

    async def end(self, request: KeyedRequest, answer: bytes) -> None:
        """Keep the answer to a request that was begun."""
        sealed = request.cipher.seal(answer, request.place)
        await self._database.fetch(_SQL["end"], (str(request.token), request.key, sealed))

    async def forget(self, request: KeyedRequest) -> None:
        """Forget a request that was refused and has changed nothing."""
        await self._database.fetch(_SQL["forget"], (str(request.token), request.key))
