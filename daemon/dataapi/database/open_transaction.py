"""A transaction of several messages, for batches of requests and for rows that are streamed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import psycopg

from dataapi.database import sql_text
from dataapi.database.connection import ConnectionDied
from dataapi.database.message import text_of
from dataapi.database.query_log import report_failure
from dataapi.database.sql_text import CONCATENATE
from dataapi.database.steps import COMMITTING, ROLLING_BACK, UNDOING, Step
from dataapi.http.errors import ApiError
from dataapi.http.messages import RoundTrip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dataapi.database.connection import Connection
    from dataapi.database.message import Bound, Message
    from dataapi.database.query_log import QueryLog
    from dataapi.database.steps import Composer, Rows
    from dataapi.http.messages import Fact

FIRST_FETCH = 100
"""Rows of the first fetch, by whose size the next ones are measured."""

_MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Continuation:
    """The next step of an open transaction.

    :ivar settings: made before the statements, ``(name, value)``.
    :ivar read_only: whether it refuses to write, in a transaction that does not; its settings end with it.
    :ivar restored: settings that take their default value again before.
    """

    settings: tuple[tuple[str, str], ...]
    statements: tuple[Bound, ...]
    read_only: bool = False
    restored: tuple[str, ...] = ()


class OpenTransaction:
    """A transaction of several messages, on a connection that nothing else uses meanwhile.

    Its methods raise what ``Pool.run`` raises.

    :param composer: of the connection's messages.
    :param report: takes how long its statements took.
    :param comment: the beginning of its statements.
    :param anonymous: whether its role is the one for which a missing privilege is 401 and not 403.
    """

    def __init__(
        self,
        connection: Connection,
        composer: Composer,
        report: Callable[[Fact], None],
        comment: str,
        query_log: QueryLog | None,
        *,
        anonymous: bool,
    ) -> None:
        self._connection = connection
        self._composer = composer
        self._report = report
        self._comment = comment
        self._query_log = query_log
        self._anonymous = anonymous
        self._in_savepoint = False
        self._role = ""
        self._unreported = 0.0

    async def begin(self, message: Message) -> None:
        """Begin the transaction under the message's role and run its statements."""
        self._role = message.role
        await self._send(self._composer.begun(message, self._comment), message.statements)

    async def continue_with(self, step: Continuation) -> Rows:
        """Run a step's statements under the transaction's role and return the last one's rows."""
        steps = self._closing() + (_SAVEPOINT if step.read_only else [])
        steps += self._composer.onward(
            self._role, step.settings, step.statements, step.restored, self._comment,
            read_only=step.read_only,
        )  # fmt: skip
        self._in_savepoint = step.read_only
        return await self._send(steps, step.statements)

    async def open_cursor(self, message: Message) -> Rows:
        """Begin the transaction with a cursor over the message's last statement; return its first rows."""
        steps = self._composer.begun(message, self._comment, cursor=True)
        return await self._send([*steps, self._next(FIRST_FETCH)], message.statements)

    async def fetch(self, rows: int) -> Rows:
        """Return the cursor's next rows, at most so many."""
        return await self._send([self._next(rows)])

    async def end(self, *, rollback: bool = False) -> None:
        """End the transaction and all that is open in it; deferred constraints are checked either way."""
        await self._send([*self._closing(), *(UNDOING if rollback else COMMITTING)])

    async def position(self) -> str:
        """Return the WAL position behind what was committed, "" where it is unknown."""
        return await written_position(self._connection)

    async def roll_back(self) -> None:
        """Undo everything, after an error too; a connection that is gone has done so by itself."""
        if self._connection.lost or self._connection.busy:
            return
        with suppress(ApiError):
            await self._send(ROLLING_BACK)

    def report_rest(self) -> None:
        """Report the time of all steps without statements, of which a stream may have very many, as one."""
        if self._unreported:
            now = perf_counter()
            self._report(RoundTrip(now - self._unreported, now))

    def _next(self, rows: int) -> Step:
        return Step(f"{self._comment}fetch {rows} from {sql_text.CURSOR}".encode())

    def _closing(self) -> list[Step]:
        # Within its savepoint a step may refuse to write; its settings end with that.
        return list(_SAVEPOINT_END) if self._in_savepoint else []

    async def _send(self, steps: Sequence[Step], statements: Sequence[Bound] = ()) -> Rows:
        began = perf_counter()
        try:
            rows = await self._connection.send(steps)
        except BaseException as error:
            report_failure(self._report, self._query_log, statements, began, error, anonymous=self._anonymous)
            raise
        trip = RoundTrip(began, perf_counter(), "; ".join(map(text_of, statements)))
        if statements:
            self._report(trip)
            if self._query_log is not None:
                self._query_log.add(trip)
        else:
            self._unreported += trip.ended - began
        return rows


_SAVEPOINT = [Step(b"savepoint step")]
_SAVEPOINT_END = [Step(b"rollback to savepoint step"), Step(b"release savepoint step")]


def next_fetch(fetched: int, size: int, batch: int) -> int:
    """Return how many rows to fetch next for a batch of about ``batch`` bytes.

    :param fetched: how many rows the last fetch gave, ``size`` bytes in all.
    """
    fitting = batch * fetched // max(1, size)
    # Rows differ in size: no more than four times as many as were seen to fit.
    return max(1, min(fitting, fetched * 4, _MAX_ROWS))


# The record of a commit may not be flushed yet, as with synchronous_commit = off.
POSITION = f"""
select case when not pg_catalog.pg_is_in_recovery() then ('x' {CONCATENATE} pg_catalog.substr(
    pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint
    {CONCATENATE} ':' {CONCATENATE} pg_catalog.pg_current_wal_insert_lsn() end
"""
"""The query for the position of the write-ahead log behind all that was committed, null on a standby."""


async def written_position(connection: Connection) -> str:
    """Return the WAL position behind all that was committed, "" where it is unknown.

    It is unknown until the transaction has ended, so this is a message of its own.  The transaction is
    committed: no error may hide that.
    """
    try:
        [(position,)] = await connection.query(POSITION)
    except (psycopg.Error, ConnectionDied):
        return ""
    return position or ""
