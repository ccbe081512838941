"""A transaction of several messages, for batches and streams."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import psycopg

from dataapi.database import sql_text
from dataapi.database.connection import ConnectionFailed
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
"""Number of rows in the first fetch. The size of these rows determines the next fetch."""

_MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Continuation:
    """The next step of an open transaction.

    :ivar read_only: whether the step is read-only in a writable transaction. The settings of such a step end
        with the step.
    :ivar restored: settings to reset to their defaults first.
    """

    settings: tuple[tuple[str, str], ...]
    statements: tuple[Bound, ...]
    read_only: bool = False
    restored: tuple[str, ...] = ()


class OpenTransaction:
    """A transaction of several messages, on a connection that nothing else uses in the meantime.

    Its methods raise the same errors as ``Pool.run``.

    :param report: receives the duration of the transaction's statements.
    :param anonymous: whether the role is the anonymous role. If so, missing privileges are reported with 401
        instead of 403.
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
        self._role = message.role
        await self._send(self._composer.compose_begin(message, self._comment), message.statements)

    async def continue_with(self, step: Continuation) -> Rows:
        steps = self._closing() + (_SAVEPOINT if step.read_only else [])
        steps += self._composer.compose_continuation(
            self._role, step.settings, step.statements, step.restored, self._comment,
            read_only=step.read_only,
        )  # fmt: skip
        self._in_savepoint = step.read_only
        return await self._send(steps, step.statements)

    async def open_cursor(self, message: Message) -> Rows:
        steps = self._composer.compose_begin(message, self._comment, cursor=True)
        return await self._send([*steps, self._next(FIRST_FETCH)], message.statements)

    async def fetch(self, rows: int) -> Rows:
        return await self._send([self._next(rows)])

    async def end(self, *, rollback: bool = False) -> None:
        """End the transaction. Deferred constraints are checked even before a rollback."""
        await self._send([*self._closing(), *(UNDOING if rollback else COMMITTING)])

    async def position(self) -> str:
        return await written_position(self._connection)

    async def roll_back(self) -> None:
        """Roll back, even after an error. A lost connection has already rolled back."""
        if self._connection.lost or self._connection.busy:
            return
        with suppress(ApiError):
            await self._send(ROLLING_BACK)

    def report_rest(self) -> None:
        if self._unreported:
            now = perf_counter()
            self._report(RoundTrip(now - self._unreported, now))

    def _next(self, rows: int) -> Step:
        return Step(f"{self._comment}fetch {rows} from {sql_text.CURSOR}".encode())

    def _closing(self) -> list[Step]:
        # A read-only step runs in a savepoint. Rolling it back also ends the step's settings.
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
    """Return the number of rows to fetch next, for batches of about ``batch`` bytes.

    ``fetched`` and ``size`` are the number of rows in the last fetch and their size in bytes.
    """
    fitting = batch * fetched // max(1, size)
    # Rows differ in size, so grow by a factor of at most four.
    return max(1, min(fitting, fetched * 4, _MAX_ROWS))


# The query returns the insert position, because the commit may still be unflushed (synchronous_commit = off).
POSITION = f"""
select case when not pg_catalog.pg_is_in_recovery() then ('x' {CONCATENATE} pg_catalog.substr(
    pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint
    {CONCATENATE} ':' {CONCATENATE} pg_catalog.pg_current_wal_insert_lsn() end
"""
"""Query that returns the timeline and the WAL insert position as ``timeline:lsn``, NULL on a standby."""


async def written_position(connection: Connection) -> str:
    """Return the server's current WAL position after a commit, "" if unknown.

    Errors are ignored, because the transaction is already committed.
    """
    try:
        [(position,)] = await connection.query(POSITION)
    except (psycopg.Error, ConnectionFailed):
        return ""
    return position or ""
