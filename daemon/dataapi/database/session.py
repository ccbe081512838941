"""A connection together with what is prepared on it: runs messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg2

from dataapi.database import render
from dataapi.database.connection import Connection
from dataapi.database.conversation import Conversation
from dataapi.database.pooler import PROCESS
from dataapi.database.prepared import Composed, Prepared, compose_inlined

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dataapi.database.connection import Rows
    from dataapi.database.message import Message

_AS_LOGIN_ROLE = "select set_config('role','none',true);"
# Deferred constraints are checked as a commit would check them.
_ROLLBACK = "set constraints all immediate;rollback"
# Compiling a statement of many small queries takes seconds, running it milliseconds.  Who turned it on for
# a role or a database has it.
_WITHOUT_JIT = (
    "select set_config('jit','off',false) from pg_catalog.pg_settings"
    " where name='jit' and source in ('default','configuration file')"
)
_PREPARED_NAMES = "select name from pg_prepared_statements where from_sql"


class Session:
    """One of a pool's connections.

    :ivar connection: the connection.
    :ivar cancelling: whether a cancel request is on its way, which could hit the next statement.
    """

    __slots__ = ("_prepared", "_search_path", "_uncertain", "cancelling", "connection")

    def __init__(self, reactor: Any, search_path: tuple[str, ...], prepared: Prepared | None) -> None:
        self.connection = Connection(reactor)
        self.cancelling = False
        self._search_path = search_path
        self._prepared = prepared
        self._uncertain = False

    async def open(self, parameters: dict[str, str], timeout: float) -> None:
        """Connect, and set what all messages need; raises ``ConnectionDied``.

        Without prepared statements others may use the connection too, and it stays as it is.
        """
        await self.connection.open(parameters, timeout)
        if self._prepared is None:
            return
        text, values = PROCESS, tuple[str, ...]()
        if self._search_path:
            text = f"{_WITHOUT_JIT};select set_config('search_path',%s,false);{PROCESS}"
            values = (render.search_path(self._search_path),)
        [(process,)] = await self.connection.send(text, values)
        self.connection.pooled = process != self.connection.get_backend_pid()

    @property
    def clean(self) -> bool:
        """Whether the next message may be anybody's."""
        return not self._uncertain and not self.cancelling and self.connection.clean

    async def run(self, message: Message) -> Rows:
        """Run the message in one round trip; raises ``psycopg2.Error``, ``ConnectionDied``, ``ApiError``.

        One that is to be rolled back takes a second one.  When it fails the connection is left
        inside its transaction, so the pool closes it.
        """
        rows = await self._run(message)
        if message.rollback:
            await self.connection.send(_ROLLBACK, ())
        return rows

    async def _run(self, message: Message) -> Rows:
        if self._prepared is None:
            composed = compose_inlined(message, self._search_path)
            return await self.connection.send(composed.text, composed.values)
        composed = self._prepared.compose(message)
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
        return await self._send(self._prepared.compose(message))

    def conversation(self, *, anonymous: bool) -> Conversation:
        """Return a transaction of several messages, yet to be begun."""
        path = () if self._prepared is not None else self._search_path
        return Conversation(self.connection, path, anonymous=anonymous)

    async def fetch(self, text: str, values: Sequence[object]) -> Rows:
        """Run SQL as the login role; ``$1`` … are the values, quoted into the text."""
        template = render.inlined(text)
        return await self.connection.send(_AS_LOGIN_ROLE + template.text, template.arrange(tuple(values)))

    async def settle(self) -> None:
        """Find out what is prepared, after a message that prepares has failed."""
        if self._uncertain and self._prepared is not None and self.connection.clean:
            self._prepared.reconcile(await self._prepared_names())
            self._uncertain = False

    async def _send(self, composed: Composed) -> Rows:
        try:
            return await self.connection.send(composed.text, composed.values)
        except BaseException:
            self._uncertain = self._uncertain or composed.changes
            raise

    async def _prepared_names(self) -> list[str]:
        return [str(name) for (name,) in await self.connection.send(_AS_LOGIN_ROLE + _PREPARED_NAMES, ())]


def plan_is_gone(sqlstate: str | None, text: str) -> bool:
    """Tell whether a statement must be prepared again: it vanished, or a table under it changed."""
    return sqlstate == "26000" or (sqlstate == "0A000" and "cached plan must not change result type" in text)
