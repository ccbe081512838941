"""Webhooks in a process: pool, schema, store, dispatcher and event sources."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from dataapi.concurrency.tasks import Background, wait_at_most
from dataapi.concurrency.timers import Backoff, Retry
from dataapi.database.address import primary_uri
from dataapi.database.failover import FailoverWatch
from dataapi.database.listener import Listener
from dataapi.database.pool import Pool
from dataapi.database.primary_servers import PrimaryServers
from dataapi.database.session import SessionOptions
from dataapi.database.succession import Succession
from dataapi.http.errors import ApiError
from dataapi.service.project import pool_snapshot
from dataapi.settings import Settings, Webhooks
from dataapi.telemetry.metrics import Snapshot
from dataapi.telemetry.readiness import WebhooksState
from dataapi.telemetry.tracing import Tracing
from dataapi.webhooks.delivery.attempt import AttemptSender
from dataapi.webhooks.delivery.destinations import networks
from dataapi.webhooks.delivery.dispatcher import CHANNELS, Dispatcher
from dataapi.webhooks.delivery.http_client import OutgoingRoute
from dataapi.webhooks.delivery.proxy import parse_proxy
from dataapi.webhooks.delivery.resolver import AddressCheck, SystemResolver
from dataapi.webhooks.management.api import ManagementApi
from dataapi.webhooks.management.url_check import EndpointUrlCheck
from dataapi.webhooks.model import QueueStatistics
from dataapi.webhooks.plugins import (
    EventSources,
    SourcePublisher,
    installed_catalogue,
    installed_sources,
    with_row_changes,
)
from dataapi.webhooks.secrets import Cipher, NoEncryptionKey
from dataapi.webhooks.store import make_store
from dataapi.webhooks.store.migrations import (
    INSUFFICIENT_PRIVILEGE,
    CannotMigrate,
    SchemaMigration,
    check_migrated,
    migrate,
)
from dataapi.webhooks.store.queue import join_statement

CONNECTIONS = 4
"""Maximum number of database connections of one process, in addition to the listener's."""

ENDPOINT_LOOKUPS = 8
"""Maximum number of concurrent DNS lookups for new and changed endpoints."""

LONGEST_WAIT = 3.0
"""Maximum delay between attempts to reach the database, in seconds. Meanwhile, deliveries wait."""

DENIED_BACKOFF = Backoff(first=1.0, longest=60.0, spread=0.0)
"""Delays between attempts to create the schema while the role lacks the privilege."""

READY_TIMEOUT = 5.0
"""Maximum wait for the schema at startup, in seconds."""

MAINTENANCE_INTERVAL = 3600.0
"""Seconds between maintenance runs, plus or minus 10 %."""

TYPES_EVERY = 2.0
"""Seconds between polls for event types that ``dataapi webhooks types`` has added or removed."""

WATCH_EVERY = 1.0
"""Seconds between checks of whether other dispatchers are alive."""

WATCH_AFTER = 2 * LONGEST_WAIT
"""Seconds to wait after connecting before checking other dispatchers. They may still be reconnecting."""

LEAVE_WAITS = (0.1, 0.2, 0.4, 0.8)
"""Delays in seconds between attempts to report a lost session. Other dispatchers act after two seconds."""

QUEUE_TIMEOUT = 10.0
"""Timeout of the queue's statements, in seconds. Equals the margin of a lease."""

MAINTENANCE_TIMEOUT = 600.0
"""Timeout of maintenance statements, in seconds. They may wait for locks and drop large partitions."""

STALLED_AFTER = 15.0
"""Seconds that the dispatcher may go without progress before webhooks are reported as not ready."""

STATISTICS_TIMEOUT = 2.0
"""Timeout of the queue statistics, in seconds."""

_BACKOFF = Backoff(longest=LONGEST_WAIT)
_log = Logger(namespace="dataapi.webhooks")


def _route(section: Webhooks) -> OutgoingRoute:
    proxy = None if section.delivery_proxy is None else parse_proxy(section.delivery_proxy)
    return OutgoingRoute(proxy, tuple(map(ip_address, section.bind_address)))


class WebhooksPart:
    """Webhooks of the running daemon.

    If the schema does not exist and the role lacks the privilege to create it, webhooks wait for the schema.
    The APIs are not affected.

    :param previous: the ``WebhooksPart`` to replace. Its ``Succession`` is copied.
    :param retries: whether to retry creating the schema if the role lacked the privilege. If false, later
        attempts only check whether the schema exists.
    :ivar store: usable while ``reason`` is None.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        tracing: Tracing | None = None,
        previous: WebhooksPart | None = None,
        *,
        retries: bool = True,
    ) -> None:
        self._reactor = reactor
        self._retries = retries
        assert settings.webhooks is not None
        self.settings = section = settings.webhooks
        project = settings.projects[0]
        # Events are written to the primary, even if the project reads from standbys.
        self._uri = primary_uri(section.db_uri or project.db_uri)
        self._pool = Pool(
            reactor,
            self._uri,
            size=CONNECTIONS,
            backoff=_BACKOFF,
            options=SessionOptions(
                prepared_statements=None if section.db_uri else project.db_prepared_statements,
                idle_time=project.db_pool_max_idletime,
                lifetime=project.db_pool_max_lifetime,
            ),
        )
        self._resolver = SystemResolver(reactor)
        # A separate resolver, so that lookups for the management API do not delay deliveries.
        self._endpoint_resolver = SystemResolver(reactor, threads=ENDPOINT_LOOKUPS)
        self._background = Background()
        self._retry = Retry(reactor, _BACKOFF, self._prepare_again)
        self._denied_retry = Retry(reactor, DENIED_BACKOFF, self._prepare_again)
        self._first_attempt: Deferred[None] | None = None
        self._migrated = False
        self._stopping = False
        self._last_reason = "the schema webhooks has not been checked yet"
        self.store = make_store(
            self._pool,
            Cipher(section.encryption_key),
            section.retention_days,
            on_enqueued=self._enqueued,
            disable_after=section.disable_after,
            for_queue=self._pool.with_timeout(QUEUE_TIMEOUT),
            for_maintenance=self._pool.with_timeout(MAINTENANCE_TIMEOUT),
        )
        self.address_check = AddressCheck(self._resolver, networks(section.allow_addresses))
        self.catalogue = self._installed = installed_catalogue(
            section.row_change_types, settings.notify_types
        )
        self._added: tuple[str, ...] = ()
        self._sender = AttemptSender(
            reactor,
            self.address_check,
            time.time,
            timeout=section.timeout,
            require_https=section.require_https,
            route=_route(section),
        )
        self._dispatcher = dispatcher = Dispatcher(
            reactor,
            self.store.queue,
            self._sender,
            self.catalogue.render,
            section,
            listening=lambda: self._listener.listening,
            tracing=tracing,
        )
        self._listener = Listener(
            reactor,
            self._uri,
            CHANNELS,
            on_notification=lambda channel, _payload: dispatcher.notified(channel),
            on_reconnect=self._listen_again,
            on_lost=lambda: self._background.spawn(self._leave()),
            setup=join_statement(dispatcher.number),
            backoff=_BACKOFF,
        )
        self._succession = succession = Succession()
        if previous is not None and previous._uri == self._uri:
            self._succession = succession = previous._succession.copy()
        self._pool.follow(PrimaryServers(succession))
        self._listener.follow(PrimaryServers(succession))
        self._failover = FailoverWatch(reactor, self._uri, succession, self._leave_server)
        self._takeover_from = 0.0
        self._listens = section.db_uri is not None or project.db_channel_enabled is not False
        endpoint_addresses = AddressCheck(self._endpoint_resolver, self.address_check.allowed)
        self._url_check = EndpointUrlCheck(reactor, endpoint_addresses, require_https=section.require_https)
        self.api = self._api()
        self._publisher = SourcePublisher(self.store.publisher, lambda: self.catalogue, settings, reactor)
        self._sources = EventSources(reactor, installed_sources(), self._publisher)

    @property
    def reason(self) -> str | None:
        if not self._migrated:
            return self._last_reason
        return None if self._pool.available else "the database cannot be reached"

    def _api(self) -> ManagementApi:
        return ManagementApi(self.store, self.catalogue, self._url_check, lambda: self.reason)

    def _enqueued(self) -> None:
        self._dispatcher.wake()

    async def start(self) -> None:
        """Connect, create or upgrade the schema if permitted, and start to deliver.

        If this takes too long or fails, continue in the background.
        """
        first_attempt: Deferred[None] = Deferred()
        self._first_attempt = first_attempt
        self._background.spawn(self._connect())
        await wait_at_most(READY_TIMEOUT, first_attempt, self._reactor)

    async def drain(self, seconds: float) -> None:
        self._stopping = True
        self._retry.cancel()
        self._denied_retry.cancel()
        self._background.cancel()
        self._first_attempt_finished()
        await self._sources.stop()
        await self._dispatcher.drain(seconds)

    async def stop(self) -> None:
        await self._listener.stop()
        self._sender.close()
        self._resolver.stop()
        self._endpoint_resolver.stop()
        await self._pool.stop()

    async def check(self) -> None:
        await self._pool.check()

    def state(self) -> WebhooksState:
        reason = self.reason
        if reason is not None and not self._pool.available and self._pool.trouble is not None:
            reason = f"the database cannot be reached: {self._pool.trouble}"
        if reason is None and self._dispatcher.stalled > STALLED_AFTER:
            reason = (
                f"deliveries have made no progress for {self._dispatcher.stalled:.0f} seconds:"
                f" {self._dispatcher.claim_error or 'the database does not respond'}"
            )
        if reason is None and not self.settings.encryption_key:
            reason = str(NoEncryptionKey())
        return WebhooksState(self._pool.available, self._migrated, reason)

    async def snapshot(self) -> Snapshot:
        statistics, dispatcher = await self._statistics(), self._dispatcher
        return {
            **pool_snapshot("webhooks", self._pool),
            **dispatcher.counters.snapshot(dispatcher.in_flight, statistics),
            "dataapi_webhooks_stalled_seconds": {(): dispatcher.stalled},
            "dataapi_webhooks_rejected_total": dict(self._publisher.rejections),
        }

    async def _statistics(self) -> QueueStatistics | None:
        if self.reason is not None:
            return None
        statistics = Deferred.fromCoroutine(self.store.queue.statistics())
        try:
            return await statistics.addTimeout(STATISTICS_TIMEOUT, self._reactor)
        except (ApiError, defer.TimeoutError):
            return None

    async def _connect(self) -> None:
        await self._failover.begin()
        self._background.spawn(self._pool.watch())
        self._background.spawn(self._failover.watch())
        await self._pool.start()
        if not self.settings.encryption_key:
            _log.warn("endpoints cannot be created: {reason}", reason=str(NoEncryptionKey()))
        await self._prepare()

    def _prepare_again(self) -> None:
        self._background.spawn(self._prepare())

    async def _prepare(self) -> None:
        try:
            may_migrate = self._retries or self._denied_retry.failures == 0
            applied = await migrate(self._pool) if may_migrate else await check_migrated(self._pool)
            await self._load_types()
            await self.store.publisher.sync_event_types(self.catalogue.versions(), self.catalogue.types)
        except (ApiError, CannotMigrate) as error:
            self._retry_later(error)
        else:
            await self._deliver(applied)
        self._first_attempt_finished()

    async def _deliver(self, applied: Sequence[SchemaMigration]) -> None:
        for migration in applied:
            _log.info("applied migration {number} ({name})", number=migration.number, name=migration.name)
        self._retry.succeeded()
        self._denied_retry.succeeded()
        await self._listen()
        if self._stopping:
            return
        self._migrated = True
        self._dispatcher.start()
        self._sources.start()
        self._background.spawn(self._run_maintenance())
        self._background.spawn(self._poll_types())
        self._takeover_from = self._reactor.seconds() + WATCH_AFTER
        self._background.spawn(self._end_lost_leases())

    def _leave_server(self, server: dict[str, str]) -> None:
        self._pool.leave_server(server)
        self._listener.leave_server(server)

    async def _listen(self) -> None:
        if self._listens:
            await self._listener.start()
        if self._listener.notifications_blocked:
            _log.warn(
                "webhooks may be delivered up to a second late: their database is behind a pooler in"
                " transaction mode; set db-uri of [webhooks] to a direct connection to PostgreSQL"
            )

    def _listen_again(self) -> None:
        self._takeover_from = self._reactor.seconds() + WATCH_AFTER
        self._dispatcher.reclaim()

    async def _leave(self) -> None:
        """Report that this dispatcher has lost its session but is alive, so that its claims stay valid.

        Without the report, other dispatchers assume after two seconds that it has died, and take over its
        claims.
        """
        for wait in (*LEAVE_WAITS, 0.0):
            try:
                await self.store.queue.leave(self._dispatcher.number)
            except ApiError:
                await deferLater(self._reactor, wait)
                if self._listener.listening:
                    return  # the new session has registered the dispatcher
            else:
                return

    async def _end_lost_leases(self) -> None:
        while True:
            await deferLater(self._reactor, WATCH_EVERY * (0.75 + 0.5 * random.random()))
            if not self._listener.listening or self._reactor.seconds() < self._takeover_from:
                continue
            try:
                count = await self.store.queue.end_lost_leases(self._dispatcher.number)
            except ApiError:
                continue
            if count:
                _log.warn("taking over {taken} deliveries of a process that died", taken=count)
                self._dispatcher.wake()

    async def _poll_types(self) -> None:
        while True:
            await deferLater(self._reactor, TYPES_EVERY * (0.75 + 0.5 * random.random()))
            with suppress(ApiError):
                await self._load_types()

    async def _load_types(self) -> None:
        added = await self.store.row_change_types.list()
        if added != self._added:
            # Compiling the schemas in the reactor's thread would block requests.
            self.catalogue = await deferToThread(with_row_changes, self._installed, added)
            self._added = added
            self.api = self._api()

    async def _run_maintenance(self) -> None:
        while True:
            try:
                result = await self.store.maintenance.run()
                _log.debug("maintenance: {result}", result=result)
            except ApiError as error:
                _log.warn("maintenance of the webhooks tables failed: {reason}", reason=error.message)
            await deferLater(self._reactor, MAINTENANCE_INTERVAL * (0.9 + 0.2 * random.random()))

    def _retry_later(self, error: ApiError | CannotMigrate) -> None:
        if self._stopping:
            return
        # An outage is usually short. A missing privilege needs an administrator: retry less often.
        denied = isinstance(error, CannotMigrate) or error.code == INSUFFICIENT_PRIVILEGE
        wait = (self._denied_retry if denied else self._retry).failed()
        reason = error.message if isinstance(error, ApiError) else str(error)
        if reason != self._last_reason:
            # All processes get the same error, but only one logs it as a warning.
            log = _log.warn if self._retries else _log.debug
            log("webhooks do not work, trying again in {wait:.1f} s: {reason}", wait=wait, reason=reason)
        self._last_reason = reason

    def _first_attempt_finished(self) -> None:
        waiting, self._first_attempt = self._first_attempt, None
        if waiting is not None:
            waiting.callback(None)
