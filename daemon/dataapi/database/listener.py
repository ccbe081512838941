"""LISTEN on a connection of its own, taken up again whenever that connection is lost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from twisted.internet import defer, task
from twisted.logger import Logger

from dataapi.concurrency.tasks import Background
from dataapi.concurrency.timers import RECONNECT_BACKOFF, Backoff, Retry
from dataapi.database import address, health
from dataapi.database.connection import Connection, ConnectionDied, ServerStatus
from dataapi.database.pooler import lends_processes
from dataapi.database.sql_text import quote_identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dataapi.database.connection import Servers


class Listener:
    """Calls back for every notification on some channels.

    :param uri: a libpq connection string.
    :param on_notification: called with channel and payload.
    :param setup: SQL for the session that listens, run whenever there is a new one.
    :param on_lost: called when a session ended that listened.
    :param on_reconnect: called when listening begins after a time without, in which notifications
        may have been missed, so that state that follows them must be read again.
    :param backoff: how long to wait between attempts to reconnect.
    :ivar swallowed: whether a pooler in transaction mode, which passes no notifications on, was seen last; it
        is looked now and then whether it still stands there.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        uri: str,
        channels: Sequence[str],
        *,
        on_notification: Callable[[str, str], None],
        on_reconnect: Callable[[], None],
        on_lost: Callable[[], None] = lambda: None,
        setup: str = "",
        backoff: Backoff = RECONNECT_BACKOFF,
    ) -> None:
        self._reactor = reactor
        self._servers: Servers | None = None
        self._parameters = address.parameters(uri)
        self._text = ";".join(f"listen {quote_identifier(channel)}" for channel in channels)
        if setup:
            self._text = f"{self._text}; {setup}"
        self._on_lost = on_lost
        self._on_notification = on_notification
        self._on_reconnect = on_reconnect
        self._connection: Connection | None = None
        self._background = Background()
        self._retry = Retry(reactor, backoff, self._try_again)
        self._listening = False
        self._stopped = True
        self._logged_reason = ""
        self.swallowed = False

    @property
    def listening(self) -> bool:
        """Whether notifications arrive now."""
        return self._listening

    async def start(self) -> None:
        """Try to listen once; when that fails, go on trying in the background."""
        self._stopped = False
        await self._listen(again=False)

    async def stop(self) -> None:
        """Stop listening and close the connection."""
        self._stopped = True
        self._listening = False
        self._retry.cancel()
        self._background.cancel()
        if self._connection is not None:
            self._connection.close()

    def follow(self, servers: Servers) -> None:
        """Listen only on a server that may be used; to be called before the start."""
        self._servers = servers
        servers.observe(partial(self._leave_refused, servers))

    def give_up(self, place: dict[str, str]) -> None:
        """Leave a server at once if it is the one in use."""
        connection = self._connection
        if connection is not None and address.server_key(connection.place) == address.server_key(place):
            self._leave(connection)

    def _leave_refused(self, servers: Servers) -> None:
        connection = self._connection
        if connection is not None and servers.status(connection) is ServerStatus.REFUSED:
            self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        connection.close()
        if self._listening:
            self._lost("another server is the primary now")

    async def _listen(self, *, again: bool) -> None:
        connection = self._connection = Connection(self._reactor, self._servers)
        connection.on_notify = self._notified
        limit = address.connect_timeout(self._parameters)
        try:
            await connection.open(self._parameters, limit)
            beginning = defer.Deferred.fromCoroutine(self._begin(connection))
            await beginning.addTimeout(limit, self._reactor)
        except (ConnectionDied, psycopg.Error, defer.TimeoutError) as error:
            connection.close()
            self._lost(str(error))
            return
        connection.on_lost = lambda: self._lost("the connection was lost")
        self._retry.succeeded()
        self._listening = True
        self._logged_reason = ""
        self._background.spawn(self._watch(connection))
        if again:
            self._call(self._on_reconnect)

    async def _begin(self, connection: Connection) -> None:
        self.swallowed = await lends_processes(connection)
        if self.swallowed:
            raise ConnectionDied("a pooler in transaction mode passes no notifications on")
        await connection.query(self._text)

    async def _watch(self, connection: Connection) -> None:
        """Ask now and then whether the server still answers, which may have nothing to notify."""
        while not connection.lost:
            await task.deferLater(self._reactor, health.EVERY)
            if not connection.lost and not await connection.answered(health.WITHIN) and not connection.lost:
                connection.close()
                self._lost("the server does not answer")

    def _lost(self, reason: str) -> None:
        listened, self._listening = self._listening, False
        if self._stopped:
            return
        if listened:
            self._call(self._on_lost)
        wait = self._retry.failed()
        if reason != self._logged_reason:
            self._log.warn("not listening, trying again in {wait:.1f} s: {reason}", wait=wait, reason=reason)
        self._logged_reason = reason

    def _try_again(self) -> None:
        self._background.spawn(self._listen(again=True))

    def _notified(self, channel: str, payload: str) -> None:
        self._call(lambda: self._on_notification(channel, payload))

    def _call(self, callback: Callable[[], None]) -> None:
        """Call back; an error in there must not end the listening."""
        try:
            callback()
        except Exception:
            self._log.failure("a callback of the listener failed")
