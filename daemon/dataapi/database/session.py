"""One of a pool's connections with what is prepared on it: runs messages, and transactions of several."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

import psycopg2
from twisted.internet import defer

from dataapi.database import errors, sql_text
from dataapi.database.connection import Connection, ConnectionDied, ServerSilent
from dataapi.database.message import FACTS, NO_DEFAULTS, defaults_of
from dataapi.database.prepared import Prepared, compose_inlined, compose_onward
from dataapi.http.errors import ApiError
from dataapi.http.messages import Interval
from dataapi.telemetry.logs import request_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dataapi.database.connection import Rows
    from dataapi.database.message import Bound, Defaults, Message
    from dataapi.database.query_log import QueryLog
    from dataapi.http.messages import RequestFacts

FIRST_FETCH = 100
"""Rows of the first fetch, by whose size the next ones are measured."""

_MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Continuation:
    """What an open transaction runs next.

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

    :param defaults: what its messages begin with.
    :param facts: of the request that it is for, which learn how long it took.
    :param comment: what its messages begin with.
    :param anonymous: whether its role is the one for which a missing privilege is 401 and not 403.
    """

    def __init__(
        self,
        connection: Connection,
        defaults: Defaults,
        facts: RequestFacts,
        comment: str,
        query_log: QueryLog | None,
        *,
        anonymous: bool,
    ) -> None:
        self._connection = connection
        self._defaults = defaults
        self._facts = facts
        self._comment = comment
        self._query_log = query_log
        self._anonymous = anonymous
        self._in_savepoint = False
        self._role = ""

    async def begin(self, message: Message) -> None:
        """Begin the transaction under the message's role and run its statements."""
        self._role = message.role
        composed = compose_inlined(_begun(message), self._defaults)
        await self._send(composed.text, composed.values, message.statements)

    async def continue_with(self, step: Continuation) -> Rows:
        """Run a step's statements under the transaction's role and return the last one's rows."""
        text, values = compose_onward(
            self._role, step.settings, step.statements, step.restored, self._defaults,
            read_only=step.read_only,
        )  # fmt: skip
        opening = self._closing() + ("savepoint step;" if step.read_only else "")
        self._in_savepoint = step.read_only
        return await self._send(opening + text, values, step.statements)

    async def open_cursor(self, message: Message) -> Rows:
        """Begin the transaction with a cursor over the message's last statement; return its first rows."""
        composed = compose_inlined(_begun(message), self._defaults, cursor=True)
        text = composed.text + sql_text.fetch(FIRST_FETCH)
        return await self._send(text, composed.values, message.statements)

    async def fetch(self, rows: int) -> Rows:
        """Return the cursor's next rows, at most so many."""
        return await self._send(sql_text.fetch(rows), ())

    async def end(self, *, rollback: bool = False) -> None:
        """End the transaction and all that is open in it; deferred constraints are checked either way."""
        ending = "set constraints all immediate;rollback" if rollback else "commit"
        await self._send(self._closing() + ending, ())

    async def position(self) -> str:
        """Return the WAL position behind what was committed, "" where it cannot be told."""
        return await written_position(self._connection)

    async def roll_back(self) -> None:
        """Undo everything, after an error too; a connection that is gone has done so by itself."""
        if self._connection.lost or self._connection.busy:
            return
        with suppress(ApiError):
            await self._send("rollback", ())

    def _closing(self) -> str:
        # Within its savepoint a step may refuse to write; what it set ends with that.
        return "rollback to savepoint step;release savepoint step;" if self._in_savepoint else ""

    async def _send(self, text: str, values: Sequence[object], statements: Sequence[Bound] = ()) -> Rows:
        began, code = perf_counter(), ""
        try:
            return await self._connection.send(self._comment + text, values)
        except psycopg2.Error as error:
            code = self._facts.sqlstate = error.pgcode or ""
            raise errors.refused(error, anonymous=self._anonymous) from error
        except ConnectionDied as error:
            died = errors.died()
            code = died.code
            raise died from error
        finally:
            spent = perf_counter() - began
            record_statements(self._facts, self._query_log, statements, began, spent, code)


def record_statements(
    facts: RequestFacts,
    query_log: QueryLog | None,
    statements: Sequence[Bound],
    began: float,
    spent: float,
    code: str,
) -> None:
    """Record how long a message took, in seconds, and the code of its error, "" without one."""
    facts.database += spent
    if facts.intervals is not None:
        text = "; ".join([bound.statement.text for bound in statements])
        facts.intervals.append(Interval("statement", began, began + spent, text))
    if query_log is not None:
        query_log.add(statements, spent, code)


def _begun(message: Message) -> Message:
    """Return the message as one that leaves its transaction open, as one to be rolled back does."""
    return replace(message, rollback=True)


def next_fetch(fetched: int, size: int, batch: int) -> int:
    """Return how many rows to fetch next for a batch of about ``batch`` bytes.

    :param fetched: how many rows the last fetch gave, ``size`` bytes in all.
    """
    fitting = batch * fetched // max(1, size)
    # Rows differ in size: no more than four times as many as were seen to fit.
    return max(1, min(fitting, fetched * 4, _MOST_ROWS))


# Deferred constraints are checked as a commit would check them.
_ROLLBACK = "set constraints all immediate;rollback"
_PREPARED_NAMES = (
    "select name from pg_catalog.pg_prepared_statements where from_sql and pg_catalog.starts_with(name,$1)"
)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a pool's connections are used.

    :ivar search_path: schemas, set for every message; none leaves it to PostgreSQL.
    :ivar settings: further ones that are made for every message, ``(name, value)``.
    :ivar prepared_statements: whether statements are prepared; None does so where no pooler stands before
        PostgreSQL, for each connection by itself.
    :ivar statement_timeout: seconds for each statement of a caller whose role, function or database has no
        limit of its own; None is no limit, and the daemon's own SQL has none.
    :ivar idle_time: seconds after which a connection that is not used is closed; None keeps it.
    :ivar lifetime: seconds after which a connection is replaced; None keeps it.
    :ivar query_log: logs callers' SQL, None logs none.
    :ivar comments: whether callers' messages begin with a comment that says what they are for.
    """

    search_path: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    prepared_statements: bool | None = None
    statement_timeout: float | None = None
    idle_time: float | None = None
    lifetime: float | None = None
    query_log: QueryLog | None = None
    comments: bool = False


class Session:
    """One of a pool's connections.

    :ivar connection: the connection.
    :ivar cancelling: whether a cancel request is on its way, which could hit the next statement.
    :ivar opened: when the connection was made, by the reactor's clock.
    :ivar uses: how often it was used.
    """

    __slots__ = ("_as_login_role", "_defaults", "_options", "_prefix", "_prepared", "_uncertain",
                 "cancelling", "connection", "opened", "uses")  # fmt: skip

    def __init__(self, reactor: Any, options: SessionOptions, token: str) -> None:
        self.connection = Connection(reactor)
        self.cancelling = False
        self.opened = 0.0
        self.uses = 0
        self._options = options
        self._prefix = f"p{token}_"
        self._prepared: Prepared | None = None
        self._defaults = NO_DEFAULTS
        self._as_login_role = ""
        self._uncertain = False

    async def open(self, parameters: dict[str, str], timeout: float) -> None:
        """Connect, and find out what messages need here; raises ``ConnectionDied``."""
        await self.connection.open(parameters, timeout)
        try:
            facts = await self.connection.send(FACTS, ()).addTimeout(timeout, self.connection.reactor)
        except defer.TimeoutError:
            raise ServerSilent("the server does not answer") from None
        self.opened = self.connection.reactor.seconds()
        options = self._options
        # A pooler makes up process numbers of its own.
        self.connection.pooled = pooled = facts[0][0] != self.connection.process()
        self._defaults = defaults_of(
            facts, options.search_path, options.statement_timeout, options.settings, pooled=pooled
        )
        self._as_login_role = self._defaults.undo + sql_text.as_login_role(self._defaults.own)
        if options.prepared_statements or (options.prepared_statements is None and not pooled):
            self._prepared = Prepared(self._prefix)

    @property
    def clean(self) -> bool:
        """Whether the next message may be anybody's."""
        return not self._uncertain and not self.cancelling and self.connection.clean

    async def run(self, message: Message) -> Rows:
        """Run the message in one round trip; raises ``psycopg2.Error``, ``ConnectionDied``, ``ApiError``.

        One that is to be rolled back takes a second one.  When it fails the connection is left
        inside its transaction, so the pool closes it.
        """
        self.uses += 1
        prepared, defaults = self._prepared, self._defaults
        composed = (
            compose_inlined(message, defaults) if prepared is None else prepared.compose(message, defaults)
        )
        try:
            rows = await self.connection.send(self._comment(message.facts) + composed.text, composed.values)
        except BaseException as error:
            self._uncertain = self._uncertain or composed.changes
            lost = isinstance(error, psycopg2.Error) and plan_is_gone(error.pgcode, str(error))
            if prepared is None or not (composed.reuses and lost):
                raise
            # Nothing of the message happened: it is one transaction, and it failed.
            rows = await self._run_anew(message, prepared)
        if message.rollback:
            await self.connection.send(_ROLLBACK, ())
        elif message.positioned:
            message.facts.position = await written_position(self.connection)
        return rows

    async def _run_anew(self, message: Message, prepared: Prepared) -> Rows:
        """Run a message with everything prepared again."""
        if message.rollback:
            await self.connection.send("rollback", ())
        prepared.forget(await self._prepared_names())
        composed = prepared.compose(message, self._defaults)
        try:
            return await self.connection.send(self._comment(message.facts) + composed.text, composed.values)
        except BaseException:
            self._uncertain = True
            raise

    def transaction(self, facts: RequestFacts, *, anonymous: bool) -> OpenTransaction:
        """Return a transaction of several messages, yet to be begun."""
        self.uses += 1
        comment, query_log = self._comment(facts), self._options.query_log
        return OpenTransaction(
            self.connection, self._defaults, facts, comment, query_log, anonymous=anonymous
        )

    def _comment(self, facts: RequestFacts) -> str:
        """Return the comment before a message, which leaves alone what is prepared by it."""
        if not self._options.comments:
            return ""
        return sql_text.comment(
            application="dataapi",
            route=facts.route,
            request_id=request_id.get(),
            traceparent=facts.traceparent,
        )

    async def fetch(self, text: str, values: Sequence[object]) -> Rows:
        """Run SQL as the login role; ``$1`` … are the values, quoted into the text."""
        self.uses += 1
        template = sql_text.inlined(text)
        return await self.connection.send(
            self._as_login_role + template.text, template.arrange(tuple(values))
        )

    async def on_standby(self) -> bool:
        """Tell whether the server is known to be a standby."""
        if not self.connection.clean:
            return False
        with suppress(psycopg2.Error, ConnectionDied):
            return bool((await self.fetch("select pg_catalog.pg_is_in_recovery()", ()))[0][0])
        return False

    async def settle(self) -> None:
        """Find out what is prepared, after a message that prepares has failed."""
        if self._uncertain and self._prepared is not None and self.connection.clean:
            self._prepared.reconcile(await self._prepared_names())
            self._uncertain = False

    async def _prepared_names(self) -> list[str]:
        return [str(name) for (name,) in await self.fetch(_PREPARED_NAMES, (self._prefix,))]


# Until the transaction has ended nothing tells where its end is, so this is a message of its own.  What is
# inserted may not be flushed yet, as with synchronous_commit = off.
_POSITION = (
    "select case when not pg_catalog.pg_is_in_recovery() then pg_catalog.pg_current_wal_insert_lsn() end"
)


async def written_position(connection: Connection) -> str:
    """Return the WAL position behind all that was committed, "" where it cannot be told.

    What was done is done: no error may hide that.
    """
    try:
        [(position,)] = await connection.send(_POSITION, ())
    except (psycopg2.Error, ConnectionDied):
        return ""
    return position or ""


def plan_is_gone(sqlstate: str | None, text: str) -> bool:
    """Tell whether a statement must be prepared again: it vanished, or a table under it changed."""
    return sqlstate == "26000" or (sqlstate == "0A000" and "cached plan must not change result type" in text)
