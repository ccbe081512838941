"""Runs LISTEN on a dedicated connection, and reopens the connection when it is lost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from twisted.internet import defer, task
from twisted.logger import Logger

from dataapi.concurrency.tasks import Background
from dataapi.concurrency.timers import RECONNECT_BACKOFF, Backoff, Retry
from dataapi.database import address, health
from dataapi.database.connection import Connection, ConnectionFailed, ServerStatus
from dataapi.database.pooler import is_transaction_pooled
from dataapi.database.sql_text import quote_identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dataapi.database.connection import Servers


class Listener:
    """Calls a function for each notification on a list of channels.

    :param on_notification: called with the channel and payload.
    :param setup: SQL to run in each new session.
    :param on_reconnect: called when listening resumes. Notifications may have been missed, so state that
        depends on them must be reloaded.
    :ivar notifications_blocked: whether the connection goes through a pooler in transaction mode that does
        not forward notifications. Each attempt to listen checks this again.
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
        self._retry = Retry(reactor, backoff, self._reconnect)
        self._listening = False
        self._stopped = True
        self._logged_reason = ""
        self.notifications_blocked = False

    @property
    def listening(self) -> bool:
        return self._listening

    async def start(self) -> None:
        """Try to listen once. If that fails, retry in the background."""
        self._stopped = False
        await self._listen(again=False)

    async def stop(self) -> None:
        self._stopped = True
        self._listening = False
        self._retry.cancel()
        self._background.cancel()
        if self._connection is not None:
            self._connection.close()

    def follow(self, servers: Servers) -> None:
        self._servers = servers
        servers.observe(partial(self._leave_refused, servers))

    def leave_server(self, server: dict[str, str]) -> None:
        connection = self._connection
        if connection is not None and address.server_key(connection.server) == address.server_key(server):
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
        timeout = address.connect_timeout(self._parameters)
        try:
            await connection.open(self._parameters, timeout)
            setup = defer.Deferred.fromCoroutine(self._begin(connection))
            await setup.addTimeout(timeout, self._reactor)
        except (ConnectionFailed, psycopg.Error, defer.TimeoutError) as error:
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
        self.notifications_blocked = await is_transaction_pooled(connection)
        if self.notifications_blocked:
            raise ConnectionFailed("a pooler in transaction mode does not forward notifications")
        await connection.query(self._text)

    async def _watch(self, connection: Connection) -> None:
        while not connection.lost:
            await task.deferLater(self._reactor, health.CHECK_INTERVAL)
            if (
                not connection.lost
                and not await connection.is_alive(health.PROBE_TIMEOUT)
                and not connection.lost
            ):
                connection.close()
                self._lost("the server does not respond")

    def _lost(self, reason: str) -> None:
        listened, self._listening = self._listening, False
        if self._stopped:
            return
        if listened:
            self._call(self._on_lost)
        wait = self._retry.failed()
        if reason != self._logged_reason:
            self._log.warn("not listening, retrying in {wait:.1f} s: {reason}", wait=wait, reason=reason)
        self._logged_reason = reason

    def _reconnect(self) -> None:
        self._background.spawn(self._listen(again=True))

    def _notified(self, channel: str, payload: str) -> None:
        self._call(lambda: self._on_notification(channel, payload))

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            self._log.failure("a notification callback failed")
