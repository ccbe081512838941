"""One of a pool's connections with its prepared statements: runs messages."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import psycopg
from twisted.internet import defer

from dataapi.database import address, errors, sql_text
from dataapi.database.connection import Connection, ConnectionDied, ServerSilent
from dataapi.database.coordinator import CoordinatorComposer
from dataapi.database.message import FACTS, defaults_of, text_of
from dataapi.database.open_transaction import OpenTransaction, written_position
from dataapi.database.pooler import keeps_statements
from dataapi.database.query_log import report_failure
from dataapi.database.steps import (
    COMMITTING,
    ROLLING_BACK,
    UNDOING,
    Composer,
    PreparedStatements,
    steps_of,
)
from dataapi.http.messages import Commit, RoundTrip
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

    :ivar search_path: schemas, set for every message; none leaves it to PostgreSQL.
    :ivar settings: further ones that are made for every message, ``(name, value)``.
    :ivar prepared_statements: whether statements are prepared; None does so where no pooler stands before
        PostgreSQL or one that keeps them, for each connection by itself.
    :ivar statement_timeout: seconds for each statement of a caller whose role, function or database has no
        limit of its own; None is no limit, and the daemon's own SQL has none.
    :ivar idle_time: seconds after which a connection that is not used is closed; None keeps it.
    :ivar lifetime: seconds after which a connection is replaced; None keeps it.
    :ivar query_log: logs callers' SQL, None logs none.
    :ivar comments: whether callers' messages begin with a comment that names the request.
    """

    search_path: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    prepared_statements: bool | None = None
    statement_timeout: float | None = None
    idle_time: float | None = None
    lifetime: float | None = None
    query_log: QueryLog | None = None
    comments: bool = False


@dataclass(slots=True)
class StartUp:
    """The settings that a pool's sessions begin with, once a first one has shown that the server takes them.

    A pooler may refuse them, and so may a server; each message makes them then.

    :ivar defaults: None until it is known.
    :ivar refused: whether the server does not take them.
    """

    defaults: Defaults | None = None
    refused: bool = False

    def forget(self) -> None:
        """Let the next session find it out: the server may be another one, or have other settings."""
        self.defaults = None
        self.refused = False


class Session:
    """One of a pool's connections.

    :param start_up: the state that the pool's sessions share.
    :ivar connection: the connection.
    :ivar cancelling: whether a cancel request is on its way, which could hit the next statement.
    :ivar opened: when the connection was made, by the reactor's clock.
    :ivar uses: how often it was used.
    """

    __slots__ = (
        "_composer",
        "_options",
        "_prefix",
        "_prepared",
        "_rolls_back",
        "_servers",
        "_start_up",
        "cancelling",
        "connection",
        "opened",
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

    async def open(self, parameters: dict[str, str], timeout: float) -> None:
        """Connect, and find out what messages need here; raises ``ConnectionDied``."""
        options, known = self._options, self._start_up.defaults
        if known is None:
            defaults = await self._connect(self.connection, parameters, timeout)
            begun = defaults.begin_session()
            if begun.begun and not self._start_up.refused and not self.connection.pooled:
                defaults = begun if await self._begin_with(begun, parameters, timeout) else defaults
        else:
            defaults = known
            try:
                await self._connect(self.connection, address.beginning_with(parameters, known.begun), timeout)
                if self.connection.pooled:
                    raise ConnectionDied("a pooler has come before the server, to which it begins otherwise")
            except ConnectionDied:
                self._start_up.forget()
                raise
        self.opened = self.connection.reactor.seconds()
        pooled = self.connection.pooled
        if pooled and options.prepared_statements is not False and await self._keeps_statements(timeout):
            # A comment of the request's own would make each text another one to the pooler.
            self._prepared = None if options.comments else PreparedStatements(self._prefix, shared=True)
        elif options.prepared_statements or (options.prepared_statements is None and not pooled):
            self._prepared = PreparedStatements(self._prefix)
        self._composer = (
            CoordinatorComposer(defaults, self._prepared, self.connection.literal)
            if defaults.distributed
            else Composer(defaults, self._prepared)
        )

    async def _connect(self, connection: Connection, parameters: dict[str, str], timeout: float) -> Defaults:
        """Open a connection and return the defaults of its messages."""
        await connection.open(parameters, timeout)
        try:
            facts = await connection.query(FACTS).addTimeout(timeout, connection.reactor)
        except defer.TimeoutError:
            raise ServerSilent("the server does not answer") from None
        # A pooler makes up process numbers of its own.
        pooled = facts[0][0] != connection.process()
        if pooled:
            connection.behind_pooler()
        options = self._options
        return defaults_of(
            facts, options.search_path, options.statement_timeout, options.settings, pooled=pooled
        )

    async def _begin_with(self, defaults: Defaults, parameters: dict[str, str], timeout: float) -> bool:
        """Connect once more, to begin with settings; return whether the server takes them."""
        first, again = self.connection, Connection(self.connection.reactor, self._servers)
        try:
            await self._connect(again, address.beginning_with(parameters, defaults.begun), timeout)
        except (ConnectionDied, psycopg.Error):
            again.close()
            self._start_up.refused = True
            return False
        except defer.CancelledError:
            again.close()
            raise
        if first.lost:
            again.close()
            raise ConnectionDied("connection closed")
        first.close()
        self.connection, self._start_up.defaults = again, defaults
        return True

    async def _keeps_statements(self, timeout: float) -> bool:
        """Find out whether a pooler keeps statements prepared for its clients; raises ``ConnectionDied``."""
        answer = defer.Deferred.fromCoroutine(keeps_statements(self.connection))
        try:
            return await answer.addTimeout(timeout, self.connection.reactor)
        except defer.TimeoutError:
            raise ServerSilent("the server does not answer") from None

    @property
    def clean(self) -> bool:
        """Whether the connection may run any caller's next message."""
        prepared = self._prepared
        return not self.cancelling and self.connection.clean and (prepared is None or not prepared.full)

    async def run(self, message: Message, *, anonymous: bool) -> Rows:
        """Run the message in one round trip; raises what ``Pool.run`` raises.

        One that is to be rolled back takes a second one.  One that fails because of its predecessors'
        settings, or as its plan is gone, is sent once more: nothing of it happened, as it is one transaction.
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
                rows = await connection.send(composer.whole(message, comment), ending)
            except psycopg.Error as error:
                await self._prepare_again(error)
                rows = await connection.send(composer.whole(message, comment, repeated=True), ending)
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

    async def _prepare_again(self, error: psycopg.Error) -> None:
        """Make ready to send a message once more, or raise why that would not help."""
        if errors.plan_is_gone(error) and self._prepared is not None:
            self._prepared.renew()
        elif not errors.began_with_leftovers(error):
            raise error
        if self.connection.in_transaction:
            await self.connection.send(ROLLING_BACK)

    def transaction(self, context: RequestContext, *, anonymous: bool) -> OpenTransaction:
        """Return a transaction of several messages, yet to be begun."""
        self.uses += 1
        self._rolls_back = False
        comment = self._comment(context) if self._options.comments else ""
        return OpenTransaction(
            self.connection, self._composer, context.report, comment, self._options.query_log,
            anonymous=anonymous,
        )  # fmt: skip

    def _comment(self, context: RequestContext) -> str:
        """Return the comment before each statement of a message."""
        return sql_text.comment(
            application="dataapi",
            route=context.route,
            request_id=request_id.get(),
            traceparent=context.traceparent,
        )

    async def fetch(self, text: str, values: Sequence[object]) -> Rows:
        """Run SQL as the login role, see ``Pool.fetch``."""
        self.uses += 1
        statements = steps_of(text, values)
        try:
            return await self.connection.send(self._composer.own(statements))
        except psycopg.Error as error:
            await self._prepare_again(error)
            return await self.connection.send(self._composer.own(statements, repeated=True))

    async def explained(self, error: ApiError, message: Message) -> ApiError:
        """Return the error, or its cause if a message that may write reached a standby."""
        if error.code == errors.READ_ONLY and not message.read_only and await self._on_standby():
            return errors.standby()
        return error

    async def _on_standby(self) -> bool:
        """Return whether the server is known to be a standby."""
        if not self.connection.clean:
            return False
        with suppress(psycopg.Error, ConnectionDied):
            return bool((await self.fetch("select pg_catalog.pg_is_in_recovery()", ()))[0][0])
        return False

    async def settle(self) -> None:
        """End the transaction that a single message left open when it failed."""
        if self._rolls_back and self.connection.in_transaction:
            await self.connection.send(ROLLING_BACK)
