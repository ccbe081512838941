"""A transaction of several messages on one connection: for results that are read piece by piece.

What holds for single messages holds here: the role is set in the message that begins the
transaction, and the connection serves others only once the transaction was ended and it is known
that it was.  Statements are never prepared here, so that nothing stays behind on the connection.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dataapi.database import render
from dataapi.database.prepared import compose_inlined, compose_onward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.database.connection import Connection, Rows
    from dataapi.database.message import Bound, Message

FIRST_FETCH = 100
"""Rows of the first fetch, by whose size the next ones are measured."""

_MOST_ROWS = 10_000
_CLOSE = f"close {render.CURSOR};"


class Conversation:
    """A transaction on a connection that nobody else uses meanwhile."""

    def __init__(self, connection: Connection, search_path: tuple[str, ...]) -> None:
        self._connection = connection
        self._search_path = search_path

    async def begin(self, message: Message) -> Rows:
        """Begin the transaction under the message's role; return its last statement's rows."""
        composed = compose_inlined(_begun(message), self._search_path)
        return await self._connection.send(composed.text, composed.values)

    async def go_on(
        self, settings: tuple[tuple[str, str], ...], statements: Sequence[Bound], defaults: Sequence[str] = ()
    ) -> Rows:
        """Make further settings and run further statements; return the last one's rows.

        :param defaults: settings that take their session's value again before.
        """
        text, values = compose_onward(settings, statements, defaults)
        return await self._connection.send(text, values)

    async def open_cursor(self, message: Message) -> Rows:
        """Begin the transaction with a cursor over the message's last statement; return its first rows."""
        composed = compose_inlined(_begun(message), self._search_path, cursor=True)
        return await self._connection.send(composed.text + render.fetch(FIRST_FETCH), composed.values)

    async def fetch(self, rows: int) -> Rows:
        """Return the cursor's next rows, at most so many."""
        return await self._connection.send(render.fetch(rows), ())

    async def close_cursor(self) -> None:
        """Close the cursor and end the transaction."""
        await self._connection.send(f"{_CLOSE}commit", ())

    async def end(self, *, rollback: bool) -> None:
        """End the transaction; deferred constraints are checked however it ends."""
        text = "set constraints all immediate;rollback" if rollback else "commit"
        await self._connection.send(text, ())


def _begun(message: Message) -> Message:
    """Return the message as one that leaves its transaction open, as one to be rolled back does."""
    return replace(message, rollback=True)


def next_fetch(asked: int, size: int, wanted: int) -> int:
    """Return how many rows to fetch next, for a batch of about so many bytes.

    :param asked: how many rows the last fetch gave, ``size`` bytes in all.
    :param wanted: the bytes of a batch.
    """
    fitting = wanted * asked // max(1, size)
    # Rows differ in size: no more than four times as many as were seen to fit.
    return max(1, min(fitting, asked * 4, _MOST_ROWS))
