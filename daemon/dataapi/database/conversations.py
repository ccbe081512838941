"""Transactions of several messages on a pool's connections, so many at a time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from dataapi.database.conversation import FIRST_FETCH, next_fetch
from dataapi.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from dataapi.database.connection import Rows
    from dataapi.database.conversation import Conversation
    from dataapi.database.line import Turns
    from dataapi.database.message import Message
    from dataapi.database.session import Session

BATCH = 65_536
"""Bytes of a stream's batch, about as many as Twisted keeps for a slow reader before it pauses."""


class Conversations:
    """Takes connections from a pool for as long as their transactions last.

    :param turns: keep part of the connections for others, as each of these waits for somebody.
    :param take: gives a connection; ``release`` takes it back, or closes one that is in a transaction.
    """

    def __init__(
        self,
        turns: Turns,
        take: Callable[[], Awaitable[Session]],
        release: Callable[[Session], None],
        anonymous_role: str,
    ) -> None:
        self._turns = turns
        self._take = take
        self._release = release
        self._anonymous_role = anonymous_role

    def fail_all(self, make: Callable[[], Exception]) -> None:
        """Send everyone away who waits for a turn."""
        self._turns.fail_all(make)

    async def stream(self, message: Message, batch: int) -> AsyncGenerator[Rows, None]:
        """Give a reading message's rows; the next batch is fetched when it is asked for.

        Whoever does not read on to the end closes the generator, which closes the connection.
        """
        async with self._conversation(message) as talk:
            rows, asked = await talk.open_cursor(message), FIRST_FETCH
            while len(rows) == asked:
                asked = next_fetch(asked, sum(len(row[0] or "") for row in rows), batch)
                yield rows
                rows = await talk.fetch(asked)
            await talk.end()
        # The connection serves others already.
        if rows:
            yield rows

    @asynccontextmanager
    async def converse(self, message: Message) -> AsyncGenerator[Conversation, None]:
        """Begin a transaction for the block to go on with and to end; an error within undoes everything."""
        async with self._conversation(message) as talk:
            await talk.begin(message)
            yield talk

    @asynccontextmanager
    async def _conversation(self, message: Message) -> AsyncGenerator[Conversation, None]:
        await self._turns.take(message.caller)
        try:
            session = await self._take()
            talk = session.conversation(anonymous=message.role == self._anonymous_role)
            try:
                yield talk
            except ApiError:
                await talk.give_up()
                raise
            finally:
                self._release(session)
        finally:
            self._turns.give_back(message.caller)
