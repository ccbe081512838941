"""Webhooks in one process: the pool, the schema, the store, and what delivers and raises events."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from dataapi.database.address import primary_uri
from dataapi.database.background import Background
from dataapi.database.backoff import Backoff, Retry
from dataapi.database.listener import Listener
from dataapi.database.pool import Pool
from dataapi.database.session import SessionOptions
from dataapi.errors import ApiError
from dataapi.metrics import Snapshot
from dataapi.service.project import pool_snapshot
from dataapi.service.state import WebhooksState
from dataapi.settings import Settings
from dataapi.webhooks.addresses import networks
from dataapi.webhooks.attempt import Sender
from dataapi.webhooks.dispatcher import Dispatcher
from dataapi.webhooks.loading import installed_catalogue, installed_sources
from dataapi.webhooks.management.api import ManagementApi
from dataapi.webhooks.management.receivers import Receivers
from dataapi.webhooks.migrate import CannotMigrate, Migration, migrate
from dataapi.webhooks.resolver import SystemResolver, Vetting
from dataapi.webhooks.rules import Rules
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.sources import SourcePublisher, Sources
from dataapi.webhooks.store import make_store
from dataapi.webhooks.wakeup import CHANNELS
from dataapi.webhooks.work import QueueFigures

CONNECTIONS = 4
"""Database connections of one process, beside the one that listens."""

JUDGED_AT_ONCE = 8
"""Names of new and changed endpoints that are looked up at once."""

LONGEST_WAIT = 3.0
"""Seconds between attempts to reach the database, at most; deliveries wait where clients would ask again."""

READY_WITHIN = 5.0
"""Seconds that a start waits for the schema before it goes on without."""

UPKEEP_EVERY = 3600.0
"""Seconds between upkeeps, a tenth more or less by chance."""

FIGURES_WITHIN = 2.0
"""Seconds that the database may take to say how the queue stands."""

_BACKOFF = Backoff(longest=LONGEST_WAIT)
_log = Logger(namespace="dataapi.webhooks")


class WebhooksPart:
    """Webhooks while the daemon runs.

    A database without the schema, whose role may not make it, leaves webhooks waiting for one; the APIs are
    not affected.

    :ivar settings: the ``[webhooks]`` section.
    :ivar store: what is kept; of use while ``reason`` is None.
    :ivar catalogue: the event types of the installed plugins.
    :ivar vetting: looks up and checks the addresses of receivers.
    :ivar api: answers the management API.
    :ivar reason: why webhooks do not work now, None when they do.
    """

    def __init__(self, reactor: Any, settings: Settings) -> None:
        self._reactor = reactor
        self.settings = section = settings.webhooks
        project = settings.projects[0]
        # Of a project that reads from standbys, too, events are written on the primary.
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
        # Names that are judged for the management API keep no deliveries waiting.
        self._judging = SystemResolver(reactor, threads=JUDGED_AT_ONCE)
        self._background = Background()
        self._retry = Retry(reactor, _BACKOFF, self._begin)
        self._first_attempt: Deferred[None] | None = None
        self._migrated = False
        self._stopping = False
        self._why = "the database is being asked for the schema webhooks"
        self.store = make_store(self._pool, Cipher(section.encryption_key), section.retention_days)
        self.vetting = Vetting(self._resolver, networks(section.allow_addresses))
        self.catalogue = installed_catalogue()
        self._sender = Sender(
            reactor, self.vetting, time.time, timeout=section.timeout, require_https=section.require_https
        )
        rules = Rules(section.retry_waits, section.timeout, section.concurrency, section.concurrency_per_host)
        self._dispatcher = dispatcher = Dispatcher(
            reactor,
            self.store.queue,
            self._sender,
            self.catalogue.render,
            rules,
            listening=lambda: self._listener.listening,
        )
        self._listener = Listener(
            reactor,
            self._uri,
            CHANNELS,
            on_notification=lambda channel, _payload: dispatcher.notified(channel),
            on_reconnect=dispatcher.reconsider,
            backoff=_BACKOFF,
        )
        self._listens = section.db_uri is not None or project.db_channel_enabled is not False
        judging = Vetting(self._judging, self.vetting.allowed)
        receivers = Receivers(reactor, judging, require_https=section.require_https)
        self.api = ManagementApi(self.store, self.catalogue, receivers, lambda: self.reason)
        publisher = SourcePublisher(self.store.publisher, self.catalogue)
        self._sources = Sources(reactor, installed_sources(), publisher)

    @property
    def reason(self) -> str | None:
        """Why webhooks do not work now, None when they do."""
        if not self._migrated:
            return self._why
        return None if self._pool.available else "the database cannot be reached"

    async def start(self) -> None:
        """Connect, make or upgrade the schema when the role may, and begin to deliver.

        What takes too long, or fails, goes on in the background.
        """
        waited: Deferred[None] = Deferred()
        self._first_attempt = waited
        self._background.spawn(self._connect())
        expiry = self._reactor.callLater(READY_WITHIN, self._attempted)
        try:
            await waited
        finally:
            if expiry.active():
                expiry.cancel()

    async def drain(self, seconds: float) -> None:
        """Raise and claim no more; returns when no attempt is under way, or after ``seconds``."""
        self._stopping = True
        self._retry.cancel()
        self._background.cancel()
        self._attempted()
        await self._sources.stop()
        await self._dispatcher.drain(seconds)

    async def stop(self) -> None:
        """Close every connection."""
        await self._listener.stop()
        self._sender.close()
        self._resolver.stop()
        self._judging.stop()
        await self._pool.stop()

    async def check(self) -> None:
        """Find out at once whether the database answers, for ``state`` to tell."""
        await self._pool.check()

    def state(self) -> WebhooksState:
        """Tell whether webhooks work; operators read more of the reason than clients do."""
        reason = self.reason
        if reason is not None and not self._pool.available and self._pool.trouble is not None:
            reason = f"the database cannot be reached: {self._pool.trouble}"
        return WebhooksState(self._pool.available, self._migrated, reason)

    async def snapshot(self) -> Snapshot:
        """Take the figures of pool and deliveries."""
        deliveries = self._dispatcher.tally.snapshot(self._dispatcher.in_flight, await self._figures())
        return {**pool_snapshot("webhooks", self._pool), **deliveries}

    async def _figures(self) -> QueueFigures | None:
        """Return how the queue stands, None when the database does not say in time."""
        if self.reason is not None:
            return None
        asked = Deferred.fromCoroutine(self.store.queue.figures())
        try:
            return await asked.addTimeout(FIGURES_WITHIN, self._reactor)
        except (ApiError, defer.TimeoutError):
            return None

    async def _connect(self) -> None:
        self._background.spawn(self._pool.watch())
        await self._pool.start()
        await self._prepare()

    def _begin(self) -> None:
        self._background.spawn(self._prepare())

    async def _prepare(self) -> None:
        """Bring the schema up to date and begin; when that fails, try again later."""
        try:
            applied = await migrate(self._pool)
            await self.store.publisher.sync_event_types(self.catalogue.versions())
        except (ApiError, CannotMigrate) as error:
            self._not_yet(error)
        else:
            await self._deliver(applied)
        self._attempted()

    async def _deliver(self, applied: Sequence[Migration]) -> None:
        """Begin to deliver and to raise events."""
        for migration in applied:
            _log.info("applied migration {number} ({name})", number=migration.number, name=migration.name)
        self._retry.succeeded()
        await self._listen()
        if self._stopping:
            return
        self._migrated = True
        self._dispatcher.start()
        self._sources.start()
        self._background.spawn(self._keep_up())

    async def _listen(self) -> None:
        """Listen where that works; elsewhere the queue is looked at every second."""
        if self._listens:
            await self._listener.start()
        if self._listener.swallowed:
            _log.warn(
                "webhooks are delivered up to a second late: a pooler in transaction mode stands before their"
                " database; give db-uri of [webhooks] one that leads to PostgreSQL itself"
            )

    async def _keep_up(self) -> None:
        """Look after the tables, now and every hour; several daemons may do so at once."""
        while True:
            try:
                kept = await self.store.upkeep.run()
                _log.debug("upkeep: {kept}", kept=kept)
            except ApiError as error:
                _log.warn("the tables of webhooks were not looked after: {reason}", reason=error.message)
            await deferLater(self._reactor, UPKEEP_EVERY * (0.9 + 0.2 * random.random()))

    def _not_yet(self, error: ApiError | CannotMigrate) -> None:
        """Say why the schema cannot be used, once, and plan another attempt."""
        if self._stopping:
            return
        wait = self._retry.failed()
        why = error.message if isinstance(error, ApiError) else str(error)
        if why != self._why:
            _log.warn("webhooks do not work, trying again in {wait:.1f} s: {reason}", wait=wait, reason=why)
        self._why = why

    def _attempted(self) -> None:
        waiting, self._first_attempt = self._first_attempt, None
        if waiting is not None:
            waiting.callback(None)
