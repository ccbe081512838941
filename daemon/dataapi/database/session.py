"""One of a pool's connections with what is prepared on it: runs messages."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg2
from twisted.internet import defer

from dataapi.database import errors, sql_text
from dataapi.database.connection import Connection, ConnectionDied, ServerSilent
from dataapi.database.message import FACTS, NO_DEFAULTS, defaults_of
from dataapi.database.named import NamedStatements
from dataapi.database.open_transaction import OpenTransaction, written_position
from dataapi.database.pooler import keeps_statements
from dataapi.database.prepared import Prepared, compose_inlined
from dataapi.database.query_log import Recorded
from dataapi.telemetry.logs import request_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dataapi.database.connection import Rows
    from dataapi.database.message import Message
    from dataapi.database.named import Steps
    from dataapi.database.query_log import QueryLog
    from dataapi.database.succession import Succession
    from dataapi.http.errors import ApiError
    from dataapi.http.messages import RequestFacts

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
        PostgreSQL or one that keeps them, for each connection by itself.
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

    __slots__ = ("_as_login_role", "_defaults", "_named", "_options", "_prefix", "_prepared", "_uncertain",
                 "cancelling", "connection", "opened", "uses")  # fmt: skip

    def __init__(
        self, reactor: Any, options: SessionOptions, token: str, succession: Succession | None = None
    ) -> None:
        self.connection = Connection(reactor, succession)
        self.cancelling = False
        self.opened = 0.0
        self.uses = 0
        self._options = options
        self._prefix = f"p{token}_"
        self._prepared: Prepared | None = None
        self._named: NamedStatements | None = None
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
        pooled = facts[0][0] != self.connection.process()
        if pooled:
            self.connection.behind_pooler()
        self._defaults = defaults_of(
            facts, options.search_path, options.statement_timeout, options.settings, pooled=pooled
        )
        self._as_login_role = self._defaults.undo + sql_text.as_login_role(self._defaults.own)
        if pooled and options.prepared_statements is not False and await self._keeps_statements(timeout):
            # A comment of the request's own would make each text another one.
            self._named = None if options.comments else NamedStatements(self._prefix)
        elif options.prepared_statements or (options.prepared_statements is None and not pooled):
            self._prepared = Prepared(self._prefix)

    async def _keeps_statements(self, timeout: float) -> bool:
        """Find out whether a pooler keeps statements prepared for its clients; raises ``ConnectionDied``."""
        answer = defer.Deferred.fromCoroutine(keeps_statements(self.connection))
        try:
            return await answer.addTimeout(timeout, self.connection.reactor)
        except defer.TimeoutError:
            raise ServerSilent("the server does not answer") from None

    @property
    def clean(self) -> bool:
        """Whether the next message may be anybody's."""
        return (
            not self._uncertain
            and not self.cancelling
            and self.connection.clean
            and (self._named is None or not self._named.full)
        )

    async def run(self, message: Message, *, anonymous: bool) -> Rows:
        """Run the message in one round trip; raises what ``Pool.run`` raises.

        One that is to be rolled back takes a second one.  When it fails the connection is left
        inside its transaction, so the pool closes it.
        """
        self.uses += 1
        prepared, defaults = self._prepared, self._defaults
        with Recorded(message.facts, self._options.query_log, message.statements, anonymous=anonymous):
            if self._named is not None and (steps := self._named.steps(message, defaults)) is not None:
                return await self._run_steps(message, self._named, steps)
            composed = (
                compose_inlined(message, defaults)
                if prepared is None
                else prepared.compose(message, defaults)
            )
            try:
                rows = await self.connection.send(
                    self._comment(message.facts) + composed.text, composed.values
                )
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

    async def _run_steps(self, message: Message, named: NamedStatements, steps: Steps) -> Rows:
        """Run a message whose statements a pooler keeps prepared."""
        try:
            rows = await self.connection.send_steps(steps.steps)
        except BaseException as error:
            named.failed(steps)
            if not (isinstance(error, psycopg2.Error) and plan_is_gone(error.pgcode, str(error))):
                raise
            # Nothing of the message happened, as above.
            named.renew()
            composed = compose_inlined(message, self._defaults)
            rows = await self.connection.send(composed.text, composed.values)
        if message.positioned:
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

    async def explained(self, error: ApiError, message: Message) -> ApiError:
        """Return the error, or its cause if a message that may write reached a standby."""
        if error.code == errors.READ_ONLY and not message.read_only and await self._on_standby():
            return errors.standby()
        return error

    async def _on_standby(self) -> bool:
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


def plan_is_gone(sqlstate: str | None, text: str) -> bool:
    """Tell whether a statement must be prepared again: it vanished, or a table under it changed."""
    return sqlstate == "26000" or (sqlstate == "0A000" and "cached plan must not change result type" in text)
