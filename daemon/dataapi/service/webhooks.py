"""Webhooks in one process: the pool, the schema, the store, and what delivers and raises events."""

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
"""Database connections of one process, besides the one that listens."""

ENDPOINT_LOOKUPS = 8
"""Host names of new and changed endpoints that are resolved at once."""

LONGEST_WAIT = 3.0
"""The longest wait in seconds between attempts to reach the database: deliveries wait for it."""

REFUSED = Backoff(first=1.0, longest=60.0, spread=0.0)
"""The waits between looks at whether an administrator has let the role create the schema."""

READY_WITHIN = 5.0
"""Seconds that the start of the daemon waits for the schema."""

UPKEEP_EVERY = 3600.0
"""Seconds between runs of upkeep, with a jitter of a tenth."""

TYPES_EVERY = 2.0
"""Seconds between looks for types of row changes that were added or removed."""

WATCH_EVERY = 1.0
"""Seconds between looks at whether other dispatchers still live."""

WATCH_AFTER = 2 * LONGEST_WAIT
"""Seconds from a new session to a look at others: by then others that lost theirs are back."""

LEAVE_WAITS = (0.1, 0.2, 0.4, 0.8)
"""Seconds after which a lost session is told once more; others wait two seconds until they act."""

QUEUE_WITHIN = 10.0
"""Seconds that a statement of the queue may take, the margin of a lease."""

UPKEEP_WITHIN = 600.0
"""Seconds that a statement of upkeep may take: it may wait for locks and drop large partitions."""

STALLED_AFTER = 15.0
"""Seconds without progress of the dispatcher after which webhooks are reported as not ready."""

STATISTICS_WITHIN = 2.0
"""Seconds that statistics of the queue may take."""

_BACKOFF = Backoff(longest=LONGEST_WAIT)
_log = Logger(namespace="dataapi.webhooks")


def _route(section: Webhooks) -> OutgoingRoute:
    """Return the way by which deliveries leave."""
    proxy = None if section.delivery_proxy is None else parse_proxy(section.delivery_proxy)
    return OutgoingRoute(proxy, tuple(map(ip_address, section.bind_address)))


class WebhooksPart:
    """Webhooks while the daemon runs.

    While the schema is missing and the role may not create it, webhooks wait; the APIs are not affected.

    :param before: the part in whose place this one comes, whose knowledge of the same servers it takes over.
    :param retries: whether it tries to make the schema again after a refusal; another process does otherwise.
    :ivar settings: the ``[webhooks]`` section.
    :ivar store: usable while ``reason`` is None.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        tracing: Tracing | None = None,
        before: WebhooksPart | None = None,
        *,
        retries: bool = True,
    ) -> None:
        self._reactor = reactor
        self._retries = retries
        assert settings.webhooks is not None
        self.settings = section = settings.webhooks
        project = settings.projects[0]
        # Events are written on the primary, even if the project reads from standbys.
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
        # Look-ups for the management API do not delay deliveries.
        self._endpoint_resolver = SystemResolver(reactor, threads=ENDPOINT_LOOKUPS)
        self._background = Background()
        self._retry = Retry(reactor, _BACKOFF, self._prepare_again)
        self._refused = Retry(reactor, REFUSED, self._prepare_again)
        self._first_attempt: Deferred[None] | None = None
        self._migrated = False
        self._stopping = False
        self._why = "the schema webhooks has not been checked yet"
        self.store = make_store(
            self._pool,
            Cipher(section.encryption_key),
            section.retention_days,
            on_enqueued=self._enqueued,
            disable_after=section.disable_after,
            for_queue=self._pool.with_timeout(QUEUE_WITHIN),
            for_upkeep=self._pool.with_timeout(UPKEEP_WITHIN),
        )
        self.address_check = AddressCheck(self._resolver, networks(section.allow_addresses))
        self.catalogue = self._installed = installed_catalogue(section.row_change_types)
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
        if before is not None and before._uri == self._uri:
            self._succession = succession = before._succession.copy()
        self._pool.follow(PrimaryServers(succession))
        self._listener.follow(PrimaryServers(succession))
        self._failover = FailoverWatch(reactor, self._uri, succession, self._give_up)
        self._watch_from = 0.0
        self._listens = section.db_uri is not None or project.db_channel_enabled is not False
        endpoint_addresses = AddressCheck(self._endpoint_resolver, self.address_check.allowed)
        self._url_check = EndpointUrlCheck(reactor, endpoint_addresses, require_https=section.require_https)
        self.api = self._api()
        publisher = SourcePublisher(self.store.publisher, lambda: self.catalogue)
        self._sources = EventSources(reactor, installed_sources(), publisher)

    @property
    def reason(self) -> str | None:
        """Why webhooks do not work now, None when they do."""
        if not self._migrated:
            return self._why
        return None if self._pool.available else "the database cannot be reached"

    def _api(self) -> ManagementApi:
        """Return the management API of the event types of the moment."""
        return ManagementApi(self.store, self.catalogue, self._url_check, lambda: self.reason)

    def _enqueued(self) -> None:
        """Deliver what this process publishes without waiting to hear of it, or to look."""
        self._dispatcher.wake()

    async def start(self) -> None:
        """Connect, create or upgrade the schema if the role may, and start to deliver.

        What takes too long or fails goes on in the background.
        """
        first_attempt: Deferred[None] = Deferred()
        self._first_attempt = first_attempt
        self._background.spawn(self._connect())
        await wait_at_most(READY_WITHIN, first_attempt, self._reactor)

    async def drain(self, seconds: float) -> None:
        """Stop publishing and claiming, and wait at most ``seconds`` for attempts in flight."""
        self._stopping = True
        self._retry.cancel()
        self._refused.cancel()
        self._background.cancel()
        self._attempted()
        await self._sources.stop()
        await self._dispatcher.drain(seconds)

    async def stop(self) -> None:
        await self._listener.stop()
        self._sender.close()
        self._resolver.stop()
        self._endpoint_resolver.stop()
        await self._pool.stop()

    async def check(self) -> None:
        """Find out now whether the database responds, for ``state``."""
        await self._pool.check()

    def state(self) -> WebhooksState:
        """Return whether webhooks work, with a more detailed reason than clients get."""
        reason = self.reason
        if reason is not None and not self._pool.available and self._pool.trouble is not None:
            reason = f"the database cannot be reached: {self._pool.trouble}"
        if reason is None and self._dispatcher.stalled > STALLED_AFTER:
            reason = (
                f"deliveries have made no progress for {self._dispatcher.stalled:.0f} seconds:"
                f" {self._dispatcher.claim_error or 'the database does not answer'}"
            )
        if reason is None and not self.settings.encryption_key:
            reason = str(NoEncryptionKey())
        return WebhooksState(self._pool.available, self._migrated, reason)

    async def snapshot(self) -> Snapshot:
        """Return the metrics of the pool and of deliveries."""
        statistics, dispatcher = await self._statistics(), self._dispatcher
        return {
            **pool_snapshot("webhooks", self._pool),
            **dispatcher.counters.snapshot(dispatcher.in_flight, statistics),
            "dataapi_webhooks_stalled_seconds": {(): dispatcher.stalled},
        }

    async def _statistics(self) -> QueueStatistics | None:
        """Return statistics of the queue, None when the database does not respond in time."""
        if self.reason is not None:
            return None
        statistics = Deferred.fromCoroutine(self.store.queue.statistics())
        try:
            return await statistics.addTimeout(STATISTICS_WITHIN, self._reactor)
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
        """Migrate the schema and start; if that fails, try again later."""
        try:
            may_migrate = self._retries or self._refused.failures == 0
            applied = await migrate(self._pool) if may_migrate else await check_migrated(self._pool)
            await self._learn_types()
            await self.store.publisher.sync_event_types(self.catalogue.versions(), self.catalogue.types)
        except (ApiError, CannotMigrate) as error:
            self._not_yet(error)
        else:
            await self._deliver(applied)
        self._attempted()

    async def _deliver(self, applied: Sequence[SchemaMigration]) -> None:
        for migration in applied:
            _log.info("applied migration {number} ({name})", number=migration.number, name=migration.name)
        self._retry.succeeded()
        self._refused.succeeded()
        await self._listen()
        if self._stopping:
            return
        self._migrated = True
        self._dispatcher.start()
        self._sources.start()
        self._background.spawn(self._keep_up())
        self._background.spawn(self._follow_types())
        self._watch_from = self._reactor.seconds() + WATCH_AFTER
        self._background.spawn(self._watch())

    def _give_up(self, place: dict[str, str]) -> None:
        """Leave a silent server, in whose place another one is the primary now."""
        self._pool.leave_server(place)
        self._listener.leave_server(place)

    async def _listen(self) -> None:
        """Listen for notifications where that works; elsewhere the queue is only polled."""
        if self._listens:
            await self._listener.start()
        if self._listener.notifications_blocked:
            _log.warn(
                "webhooks are delivered up to a second late: their database is behind a pooler in transaction"
                " mode; set db-uri of [webhooks] to one that connects to PostgreSQL itself"
            )

    def _listen_again(self) -> None:
        self._watch_from = self._reactor.seconds() + WATCH_AFTER
        self._dispatcher.reclaim()

    async def _leave(self) -> None:
        """Let the claims end with their leases alone: without its session this process seems dead.

        A process that is cut off from the database for longer cannot say so before others act upon it.
        """
        for wait in (*LEAVE_WAITS, 0.0):
            try:
                await self.store.queue.leave(self._dispatcher.number)
            except ApiError:
                await deferLater(self._reactor, wait)
                if self._listener.listening:
                    return  # it has joined again
            else:
                return

    async def _watch(self) -> None:
        """Take over from dispatchers that died; this one's own session shows that PostgreSQL did not."""
        while True:
            await deferLater(self._reactor, WATCH_EVERY * (0.75 + 0.5 * random.random()))
            if not self._listener.listening or self._reactor.seconds() < self._watch_from:
                continue
            try:
                taken = await self.store.queue.end_lost_leases(self._dispatcher.number)
            except ApiError:
                continue
            if taken:
                _log.warn("{taken} deliveries of a process that died are made again", taken=taken)
                self._dispatcher.wake()

    async def _follow_types(self) -> None:
        """Learn of the types of row changes that commands add and remove."""
        while True:
            await deferLater(self._reactor, TYPES_EVERY * (0.75 + 0.5 * random.random()))
            with suppress(ApiError):
                await self._learn_types()

    async def _learn_types(self) -> None:
        added = await self.store.row_change_types.list()
        if added != self._added:
            # Its schemas are compiled, which would hold up requests.
            self.catalogue = await deferToThread(with_row_changes, self._installed, added)
            self._added = added
            self.api = self._api()

    async def _keep_up(self) -> None:
        """Run upkeep now and every hour; several daemons may do so at once."""
        while True:
            try:
                result = await self.store.upkeep.run()
                _log.debug("upkeep: {result}", result=result)
            except ApiError as error:
                _log.warn("upkeep of the tables of webhooks failed: {reason}", reason=error.message)
            await deferLater(self._reactor, UPKEEP_EVERY * (0.9 + 0.2 * random.random()))

    def _not_yet(self, error: ApiError | CannotMigrate) -> None:
        """Log why the schema cannot be used, once, and schedule another attempt."""
        if self._stopping:
            return
        # A database that is away is soon back; what an administrator has to do takes longer.
        refused = isinstance(error, CannotMigrate) or error.code == INSUFFICIENT_PRIVILEGE
        wait = (self._refused if refused else self._retry).failed()
        why = error.message if isinstance(error, ApiError) else str(error)
        if why != self._why:
            # One process tells what all of them find.
            log = _log.warn if self._retries else _log.debug
            log("webhooks do not work, trying again in {wait:.1f} s: {reason}", wait=wait, reason=why)
        self._why = why

    def _attempted(self) -> None:
        waiting, self._first_attempt = self._first_attempt, None
        if waiting is not None:
            waiting.callback(None)
