"""A transaction of several messages on one connection: for results that are read piece by piece.

What holds for single messages holds here: the role is set in every message but those that only
fetch or end, and the connection serves others only once the transaction was ended and it is known
that it was.  Statements are never prepared here, so that nothing stays behind on the connection.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg2

from dataapi.database import failures, render
from dataapi.database.connection import ConnectionDied
from dataapi.database.prepared import compose_inlined, compose_onward
from dataapi.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.database.connection import Connection, Rows
    from dataapi.database.defaults import Defaults
    from dataapi.database.message import Bound, Message

FIRST_FETCH = 100
"""Rows of the first fetch, by whose size the next ones are measured."""

_MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next in a transaction.

    :ivar settings: made before the statements, ``(name, value)``.
    :ivar read_only: whether it refuses to write, in a transaction that does not; its settings end with it.
    :ivar restored: settings that take their default value again before.
    """

    settings: tuple[tuple[str, str], ...]
    statements: tuple[Bound, ...]
    read_only: bool = False
    restored: tuple[str, ...] = ()


class Conversation:
    """A transaction on a connection that nobody else uses meanwhile.

    Its methods raise what ``Pool.run`` raises.

    :param defaults: what its messages begin with.
    :param anonymous: whether its role is the one for which a missing privilege is 401 and not 403.
    """

    def __init__(self, connection: Connection, defaults: Defaults, *, anonymous: bool) -> None:
        self._connection = connection
        self._defaults = defaults
        self._anonymous = anonymous
        self._aside = False
        self._role = ""

    async def begin(self, message: Message) -> None:
        """Begin the transaction under the message's role and run its statements."""
        self._role = message.role
        composed = compose_inlined(_begun(message), self._defaults)
        await self._send(self._defaults.undo + composed.text, composed.values)

    async def go_on(self, step: Step) -> Rows:
        """Run a step's statements under the transaction's role and return the last one's rows."""
        text, values = compose_onward(
            self._role, step.settings, step.statements, step.restored, self._defaults,
            read_only=step.read_only,
        )  # fmt: skip
        opening = self._closing() + ("savepoint step;" if step.read_only else "")
        self._aside = step.read_only
        return await self._send(opening + text, values)

    async def open_cursor(self, message: Message) -> Rows:
        """Begin the transaction with a cursor over the message's last statement; return its first rows."""
        composed = compose_inlined(_begun(message), self._defaults, cursor=True)
        text = self._defaults.undo + composed.text + render.fetch(FIRST_FETCH)
        return await self._send(text, composed.values)

    async def fetch(self, rows: int) -> Rows:
        """Return the cursor's next rows, at most so many."""
        return await self._send(render.fetch(rows), ())

    async def end(self, *, rollback: bool = False) -> None:
        """End the transaction and all that is open in it; deferred constraints are checked either way."""
        ending = "set constraints all immediate;rollback" if rollback else "commit"
        await self._send(self._closing() + ending, ())

    async def give_up(self) -> None:
        """Undo everything, after an error too; a connection that is gone has done so by itself."""
        if self._connection.lost or self._connection.busy:
            return
        with suppress(ApiError):
            await self._send("rollback", ())

    def _closing(self) -> str:
        # Within its savepoint a step may refuse to write; what it set ends with that.
        return "rollback to savepoint step;release savepoint step;" if self._aside else ""

    async def _send(self, text: str, values: Sequence[object]) -> Rows:
        try:
            return await self._connection.send(text, values)
        except psycopg2.Error as error:
            raise failures.refused(error, anonymous=self._anonymous) from error
        except ConnectionDied as error:
            raise failures.died() from error


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
