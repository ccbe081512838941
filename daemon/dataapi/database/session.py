"""A pool's connection with its prepared statements."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Literal

import psycopg
from twisted.internet import defer

from dataapi.database import address, errors, sql_text
from dataapi.database.connection import (
    Connection,
    ConnectionAltered,
    ConnectionFailed,
    ServerUnresponsive,
)
from dataapi.database.coordinator import CoordinatorComposer
from dataapi.database.message import FACTS, SHORT, defaults_of, text_of
from dataapi.database.open_transaction import OpenTransaction, written_position
from dataapi.database.pooler import supports_prepared
from dataapi.database.query_log import report_failure
from dataapi.database.steps import (
    COMMITTING,
    ROLLING_BACK,
    UNDOING,
    Composer,
    PreparedStatements,
    steps_of,
)
from dataapi.http.messages import Commit, QueueWait, RoundTrip
from dataapi.telemetry.logs import request_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dataapi.database.connection import Servers
    from dataapi.database.message import Defaults, Message
    from dataapi.database.query_log import QueryLog
    from dataapi.database.steps import Rows
    from dataapi.http.errors import ApiError
    from dataapi.http.messages import RequestContext


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a pool's connections are used.

    :ivar search_path: schemas to set for each message, empty for the login role's search path.
    :ivar prepared_statements: whether to prepare statements. If None, statements are prepared unless a pooler
        does not support them.
    :ivar statement_timeout: timeout of callers' statements in seconds, unless their role, function or
        database has its own; None for no timeout. It does not apply to the daemon's own SQL.
    :ivar idle_time: seconds after which an unused connection is closed, None for never.
    :ivar lifetime: seconds after which a connection is replaced, None for never.
    :ivar query_log: logs callers' SQL, None to disable.
    :ivar comments: whether to prefix callers' statements with a comment that identifies the request.
    :ivar lane: which statements share connections: short statements (``auto``), all statements that can
        (``always``), or none (``off``).
    """

    search_path: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    prepared_statements: bool | None = None
    statement_timeout: float | None = None
    idle_time: float | None = None
    lifetime: float | None = None
    query_log: QueryLog | None = None
    comments: bool = False
    lane: Literal["auto", "always", "off"] = "auto"


@dataclass(slots=True)
class StartUp:
    """Settings that a pool's sessions start with, once the first session has verified them.

    If a pooler or server rejects the settings, they are set in each message instead.
    """

    defaults: Defaults | None = None
    refused: bool = False

    def forget(self) -> None:
        self.defaults = None
        self.refused = False


TIME_LIMIT = 30
"""Timeout of each statement on a shared connection, in milliseconds."""

_IDLE_INTERVAL = 0.01
"""Seconds between measurements of the fraction of idle time."""


class NeedsOwnConnection(Exception):
    """Raised if a message on a shared connection had no effect and must run again on its own connection."""


class Session:
    """One of a pool's connections.

    :param token: makes the names of prepared statements unique.
    :ivar cancelling: whether a pending cancel request could affect the next statement.
    :ivar opened: reactor time when the connection was established.
    :ivar shareable: whether several messages may be in progress. False through a pooler, with Citus, or if
        statements are not prepared.
    """

    __slots__ = (
        "_composer",
        "_idle",
        "_last_end",
        "_leftovers",
        "_options",
        "_prefix",
        "_prepared",
        "_rolls_back",
        "_servers",
        "_start_up",
        "cancelling",
        "connection",
        "opened",
        "shareable",
        "uses",
    )
    _composer: Composer

    def __init__(
        self,
        reactor: Any,
        options: SessionOptions,
        token: str,
        start_up: StartUp,
        servers: Servers | None = None,
    ) -> None:
        self.connection = Connection(reactor, servers)
        self._start_up = start_up
        self._servers = servers
        self.cancelling = False
        self.opened = 0.0
        self.uses = 0
        self._options = options
        self._prefix = f"p{token}_"
        self._prepared: PreparedStatements | None = None
        self._rolls_back = False
        self.shareable = False
        self._leftovers = False
        self._last_end = 0.0
        self._idle = 0.0, 0.0, 1.0

    async def open(self, parameters: dict[str, str], timeout: float) -> None:
        """Connect, and determine the properties of the server. Raises ``ConnectionFailed``."""
        options, known_defaults = self._options, self._start_up.defaults
        if known_defaults is None:
            defaults = await self._connect(self.connection, parameters, timeout)
            startup_defaults = defaults.begin_session()
            if startup_defaults.begun and not self._start_up.refused and not self.connection.pooled:
                defaults = (
                    startup_defaults
                    if await self._reconnect_with(startup_defaults, parameters, timeout)
                    else defaults
                )
        else:
            defaults = known_defaults
            try:
                await self._connect(
                    self.connection,
                    address.with_settings(parameters, known_defaults.begun),
                    timeout,
                )
                if self.connection.pooled:
                    raise ConnectionFailed("the connection now goes through a pooler; reconnecting")
            except ConnectionFailed:
                self._start_up.forget()
                raise
        self.opened = self.connection.reactor.seconds()
        pooled = self.connection.pooled
        if pooled and options.prepared_statements is not False and await self._supports_prepared(timeout):
            # The pooler identifies statements by their text, and comments make each text unique.
            self._prepared = None if options.comments else PreparedStatements(self._prefix, shared=True)
        elif options.prepared_statements or (options.prepared_statements is None and not pooled):
            self._prepared = PreparedStatements(self._prefix)
        self._composer = (
            CoordinatorComposer(defaults, self._prepared, self.connection.literal)
            if defaults.distributed
            else Composer(defaults, self._prepared)
        )
        prepared = self._prepared is not None and not options.comments
        self.shareable = prepared and not pooled and not self._composer.blocked

    async def _connect(self, connection: Connection, parameters: dict[str, str], timeout: float) -> Defaults:
        await connection.open(parameters, timeout)
        try:
            facts = await connection.query(FACTS).addTimeout(timeout, connection.reactor)
        except defer.TimeoutError:
            raise ServerUnresponsive("the server does not respond") from None
        # Poolers report fake process IDs.
        pooled = facts[0][0] != connection.backend_pid()
        if pooled:
            connection.mark_pooled()
        options = self._options
        return defaults_of(
            facts, options.search_path, options.statement_timeout, options.settings, pooled=pooled
        )

    async def _reconnect_with(self, defaults: Defaults, parameters: dict[str, str], timeout: float) -> bool:
        current, replacement = self.connection, Connection(self.connection.reactor, self._servers)
        try:
            await self._connect(replacement, address.with_settings(parameters, defaults.begun), timeout)
        except (ConnectionFailed, psycopg.Error):
            replacement.close()
            self._start_up.refused = True
            return False
        except defer.CancelledError:
            replacement.close()
            raise
        if current.lost:
            replacement.close()
            raise ConnectionFailed("connection closed")
        current.close()
        self.connection, self._start_up.defaults = replacement, defaults
        return True

    async def _supports_prepared(self, timeout: float) -> bool:
        checking = defer.Deferred.fromCoroutine(supports_prepared(self.connection))
        try:
            return await checking.addTimeout(timeout, self.connection.reactor)
        except defer.TimeoutError:
            raise ServerUnresponsive("the server does not respond") from None

    @property
    def clean(self) -> bool:
        prepared = self._prepared
        return not self.cancelling and self.connection.clean and (prepared is None or not prepared.full)

    async def run(self, message: Message, *, anonymous: bool) -> Rows:
        """Run a message in one round trip. Raises the same errors as ``Pool.run``.

        A rollback takes a second round trip. If the message fails because of an invalid plan or a previous
        message's settings, it is sent again. That is safe, because a message is one transaction.
        """
        self.uses += 1
        composer, connection, context = self._composer, self.connection, message.context
        query_log, statements = self._options.query_log, message.statements
        comment = self._comment(context) if self._options.comments else ""
        blocked = message.isolation is not None or composer.blocked
        ending = COMMITTING if blocked and not message.rollback else ()
        began = perf_counter()
        try:
            try:
                rows = await connection.send(composer.compose(message, comment), ending)
            except psycopg.Error as error:
                await self._prepare_retry(error)
                rows = await connection.send(composer.compose(message, comment, repeated=True), ending)
            if message.rollback:
                await connection.send(UNDOING)
            elif message.positioned:
                context.report(Commit(await written_position(connection)))
        except BaseException as error:
            self._rolls_back = True
            report_failure(context.report, query_log, statements, began, error, anonymous=anonymous)
            raise
        trip = RoundTrip(began, perf_counter(), "; ".join(map(text_of, statements)))
        context.report(trip)
        if query_log is not None:
            query_log.add(trip)
        return rows

    async def run_shared(self, message: Message, *, anonymous: bool) -> Rows:
        """Run a message on a shared connection with ``TIME_LIMIT``. Raises the errors of ``run``.

        :raises NeedsOwnConnection: if the message had no effect and must run again on its own connection.
        """
        self.uses += 1
        context, statements, query_log = message.context, message.statements, self._options.query_log
        began = perf_counter()
        repeated, self._leftovers = self._leftovers, False
        try:
            steps = self._composer.compose(message, repeated=repeated, time_limit=TIME_LIMIT)
            rows = await self.connection.send(steps, shared=True)
        except BaseException as error:
            self._check_retry(message, error, began)
            report_failure(context.report, query_log, statements, began, error, anonymous=anonymous)
            raise
        ended = perf_counter()
        seconds, self._last_end = ended - max(began, self._last_end), ended
        if seconds > SHORT:
            seconds *= self._idle_share(ended)
        statements[-1].statement.times.add_shared(seconds, rows)
        trip = RoundTrip(began, ended, "; ".join(map(text_of, statements)))
        context.report(trip)
        if query_log is not None:
            query_log.add(trip)
        return rows

    def _idle_share(self, now: float) -> float:
        """Return the fraction of recent time in which this thread was idle.

        While this thread is busy, results wait to be read, so measured times are longer than the executions.
        """
        before, used_before, share = self._idle
        if now - before > _IDLE_INTERVAL:
            used = thread_time()
            share = max(0.0, 1 - (used - used_before) / (now - before))
            self._idle = now, used, share
        return share

    def _check_retry(self, message: Message, error: BaseException, began: float) -> None:
        """Raise ``NeedsOwnConnection`` if the failed message may succeed on its own connection.

        :raises DatabaseUnavailable: if the message took effect and may have written data.
        """
        if isinstance(error, ConnectionAltered):
            if error.done and not message.read_only:
                raise errors.connection_lost() from error
        elif not isinstance(error, psycopg.Error):
            return
        elif errors.is_plan_invalid(error) and self._prepared is not None:
            self._prepared.renew()
        elif errors.has_leftover_settings(error):
            self._leftovers = True
        elif error.sqlstate == errors.CANCELLED:
            message.statements[-1].statement.times.add_long()
        elif error.sqlstate != errors.READ_ONLY:
            return
        message.context.report(QueueWait(began, perf_counter()))
        raise NeedsOwnConnection from error

    async def _prepare_retry(self, error: psycopg.Error) -> None:
        if errors.is_plan_invalid(error) and self._prepared is not None:
            self._prepared.renew()
        elif not errors.has_leftover_settings(error):
            raise error
        if self.connection.in_transaction:
            await self.connection.send(ROLLING_BACK)

    def transaction(self, context: RequestContext, *, anonymous: bool) -> OpenTransaction:
        self.uses += 1
        self._rolls_back = False
        comment = self._comment(context) if self._options.comments else ""
        return OpenTransaction(
            self.connection, self._composer, context.report, comment, self._options.query_log,
            anonymous=anonymous,
        )  # fmt: skip

    def _comment(self, context: RequestContext) -> str:
        return sql_text.comment(
            application="dataapi",
            route=context.route,
            request_id=request_id.get(),
            traceparent=context.traceparent,
        )

    async def fetch(self, text: str, values: Sequence[object]) -> Rows:
        self.uses += 1
        statements = steps_of(text, values)
        try:
            return await self.connection.send(self._composer.compose_own(statements))
        except psycopg.Error as error:
            await self._prepare_retry(error)
            return await self.connection.send(self._composer.compose_own(statements, repeated=True))

    async def explained(self, error: ApiError, message: Message) -> ApiError:
        """Return the error, or a clearer error if a write was sent to a standby."""
        if error.code == errors.READ_ONLY and not message.read_only and await self._on_standby():
            return errors.standby()
        return error

    async def _on_standby(self) -> bool:
        if not self.connection.clean:
            return False
        with suppress(psycopg.Error, ConnectionFailed):
            return bool((await self.fetch("select pg_catalog.pg_is_in_recovery()", ()))[0][0])
        return False

    async def settle(self) -> None:
        if self._rolls_back and self.connection.in_transaction:
            await self.connection.send(ROLLING_BACK)
