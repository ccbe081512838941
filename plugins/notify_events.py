"""Publishes PostgreSQL's notifications as events (docs/webhooks.md, Events from NOTIFY)."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from dataapi.concurrency.timers import RECONNECT_BACKOFF, Alarm, Retry
from dataapi.database import address
from dataapi.settings import NotifyChannel
from dataapi.webhooks.interfaces import IEventPublisher, IEventSource
from dataapi.webhooks.notifications import NotAnEvent, NotificationKeys, read_notification
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.plugin import IPlugin
from twisted.python.failure import Failure
from zope.interface import implementer

SILENT = "the server does not respond, or a pooler does not forward notifications"
_log = Logger(namespace="dataapi.notify")


class ChannelListener:
    """Listens on a channel, reconnects if necessary, and publishes notifications one at a time."""

    def __init__(self, channel: NotifyChannel, publisher: IEventPublisher) -> None:
        self._channel, self._publisher, self._reactor = channel, publisher, publisher.reactor
        self._parameters = address.parameters(address.primary_uri(channel.db_uri))
        self._retry = Retry(self._reactor, RECONNECT_BACKOFF, self.connect)
        self._alarm = Alarm(self._reactor, lambda: self._lost(Failure(ConnectionError(SILENT))))
        self._waiting: list[tuple[str, str]] = []
        self._publishing: Deferred[None] = succeed(None)
        self._connection: Any = None
        self._problem, self._stopped = "", False

    def connect(self) -> None:
        Deferred.fromCoroutine(self._listen()).addErrback(self._lost)

    def stop(self) -> Deferred[None]:
        self._stopped = True
        self._retry.cancel()
        self._close()
        return self._publishing

    async def _listen(self) -> None:
        library = await deferToThread(import_module, "txpostgres.txpostgres")
        server = await deferToThread(address.next_server, self._parameters, self._retry.failures)
        if self._stopped:
            return
        # ``list`` runs observers immediately. The default cooperator can change the order of notifications.
        connection = self._connection = library.Connection(self._reactor, SimpleNamespace(cooperate=list))
        connection.doRead = lambda: self._read(connection)
        keys = NotificationKeys(self._channel, str(uuid4()), self._listening)
        connection.addNotifyObserver(lambda notification: self._received(keys, notification))
        self._alarm.within(address.connect_timeout(self._parameters))
        await connection.connect(**server)
        await connection.runOperation(keys.statement)
        connection.connectionLost = self._lost
        self._read(connection)  # handles notifications that psycopg2 received with the result

    def _listening(self) -> None:
        _log.info("{source}: listening", source=self._channel.section)
        self._alarm.cancel()
        self._retry.succeeded()

    def _read(self, connection: Any) -> None:
        try:
            type(connection).doRead(connection)
        except Exception:  # otherwise, the reactor would log a traceback
            self._lost(Failure())
        if not self._retry.failures and not self._publishing.called:
            # Stop reading while events are published. PostgreSQL stores further notifications.
            self._reactor.removeReader(connection)
            self._publishing.addCallback(lambda _: connection.closed or self._reactor.addReader(connection))

    def _received(self, keys: NotificationKeys, notification: Any) -> None:
        self._waiting += keys.keyed(notification.channel, notification.payload)
        if self._waiting and self._publishing.called:
            self._publishing = Deferred.fromCoroutine(self._publish_waiting())

    async def _publish_waiting(self) -> None:
        while self._waiting:
            key, text = self._waiting.pop(0)
            event = read_notification(self._channel, text)
            if isinstance(event, NotAnEvent):
                self._publisher.reject(self._channel.section, event.value)
            else:
                await self._publisher.submit(self._channel.section, self._channel.event_type, *event, key)

    def _lost(self, failure: Failure) -> None:
        if self._stopped or self._retry.pending:
            return
        self._retry.failed()
        source, reason = self._channel.section, " ".join(failure.getErrorMessage().split())
        if reason != self._problem or self._retry.failures == 1:
            self._problem = reason
            _log.warn("{source}: notifications are being lost: {reason}", source=source, reason=reason)
        self._close()

    def _close(self) -> None:
        self._alarm.cancel()
        if self._connection is not None and self._connection.pollable() is not None:
            self._connection.close()


@implementer(IPlugin, IEventSource)
class NotifyEvents:
    """Event source with a listener for each section [notify] of the configuration."""

    def start(self, publisher: IEventPublisher) -> None:
        self._listeners = [ChannelListener(channel, publisher) for channel in publisher.settings.notify]
        for listener in self._listeners:
            listener.connect()

    def stop(self) -> Deferred[Any]:
        return gatherResults([listener.stop() for listener in self._listeners], consumeErrors=True)


notify_events = NotifyEvents()
