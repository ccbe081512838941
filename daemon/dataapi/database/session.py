"""A connection together with what is prepared on it: runs messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg2
from twisted.internet import defer

from dataapi.database import render
from dataapi.database.connection import Connection, ServerSilent
from dataapi.database.conversation import Conversation
from dataapi.database.defaults import FACTS, NO_DEFAULTS, defaults_of
from dataapi.database.prepared import Composed, Prepared, compose_inlined

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dataapi.database.connection import Rows
    from dataapi.database.message import Message

# Deferred constraints are checked as a commit would check them.
_ROLLBACK = "set constraints all immediate;rollback"
_PREPARED_NAMES = (
    "select name from pg_catalog.pg_prepared_statements where from_sql and pg_catalog.starts_with(name,$1)"
)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a pool's connections are used.

    :ivar search_path: schemas, set for every message; none leaves it to PostgreSQL.
    :ivar prepared_statements: whether statements are prepared; None does so where no pooler stands before
        PostgreSQL, for each connection by itself.
    :ivar statement_timeout: seconds for each statement of a caller whose role, function or database has no
        limit of its own; None is no limit, and the daemon's own SQL has none.
    :ivar idle_time: seconds after which a connection that is not used is closed; None keeps it.
    :ivar lifetime: seconds after which a connection is replaced; None keeps it.
    """

    search_path: tuple[str, ...] = ()
    prepared_statements: bool | None = None
    statement_timeout: float | None = None
    idle_time: float | None = None
    lifetime: float | None = None


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
        self.connection.pooled = pooled = facts[0][0] != self.connection.get_backend_pid()
        self._defaults = defaults_of(facts, options.search_path, options.statement_timeout, pooled=pooled)
        self._as_login_role = self._defaults.undo + render.as_login_role(self._defaults.own)
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
        rows = await self._run(message)
        if message.rollback:
            await self.connection.send(_ROLLBACK, ())
        return rows

    async def _run(self, message: Message) -> Rows:
        if self._prepared is None:
            composed = compose_inlined(message, self._defaults)
            return await self.connection.send(self._defaults.undo + composed.text, composed.values)
        composed = self._prepared.compose(message, self._defaults)
        try:
            return await self._send(composed)
        except psycopg2.Error as error:
            if not (composed.reuses and plan_is_gone(error.pgcode, str(error))):
                raise
        # Nothing of the message happened: it is one transaction, and it failed.
        if message.rollback:
            await self.connection.send("rollback", ())
        names = await self._prepared_names()
        self._prepared.forget(names)
        return await self._send(self._prepared.compose(message, self._defaults))

    def conversation(self, *, anonymous: bool) -> Conversation:
        """Return a transaction of several messages, yet to be begun."""
        self.uses += 1
        return Conversation(self.connection, self._defaults, anonymous=anonymous)

    async def fetch(self, text: str, values: Sequence[object]) -> Rows:
        """Run SQL as the login role; ``$1`` … are the values, quoted into the text."""
        self.uses += 1
        template = render.inlined(text)
        return await self.connection.send(
            self._as_login_role + template.text, template.arrange(tuple(values))
        )

    async def settle(self) -> None:
        """Find out what is prepared, after a message that prepares has failed."""
        if self._uncertain and self._prepared is not None and self.connection.clean:
            self._prepared.reconcile(await self._prepared_names())
            self._uncertain = False

    async def _send(self, composed: Composed) -> Rows:
        try:
            return await self.connection.send(self._defaults.undo + composed.text, composed.values)
        except BaseException:
            self._uncertain = self._uncertain or composed.changes
            raise

    async def _prepared_names(self) -> list[str]:
        return [str(name) for (name,) in await self.fetch(_PREPARED_NAMES, (self._prefix,))]


def plan_is_gone(sqlstate: str | None, text: str) -> bool:
    """Tell whether a statement must be prepared again: it vanished, or a table under it changed."""
    return sqlstate == "26000" or (sqlstate == "0A000" and "cached plan must not change result type" in text)
