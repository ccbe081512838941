"""One project's parts, started and stopped in order: pool, catalog watcher, authenticator and engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.auth.authenticator import Authenticator
from dataapi.auth.keys import is_url
from dataapi.catalog.document import catalog_document
from dataapi.catalog.watcher import CatalogWatcher
from dataapi.concurrency.tasks import Background, wait_at_most
from dataapi.concurrency.timers import Backoff
from dataapi.database.address import primary_uri
from dataapi.database.failover import FailoverWatch
from dataapi.database.listener import Listener
from dataapi.database.pool import Pool
from dataapi.database.pooler import loses_statements, pooler_advice
from dataapi.database.primary_servers import PrimaryServers
from dataapi.database.query_log import QueryLog
from dataapi.database.replicas import ReplicaFigures, Replicas
from dataapi.database.session import SessionOptions
from dataapi.database.succession import Succession
from dataapi.http.errors import DatabaseUnavailable
from dataapi.service.inspection import role_faults
from dataapi.service.settings_sources import Reconfigure
from dataapi.settings import Project
from dataapi.telemetry.metrics import Snapshot
from dataapi.telemetry.readiness import Changes, LiveState, ProjectState, ReloadError, ReplicaState
from dataapi.telemetry.vitals import Vitals

if TYPE_CHECKING:
    from dataapi.auth.published_keys import PublishedKeys
    from dataapi.live.cohort import LiveProtocol
    from dataapi.live.queries import LiveFigures, LiveQueries
    from dataapi.web.app import ProjectApis

_log = Logger(namespace="dataapi.service")
ASKING = Backoff(first=1.0)
"""For settings in a database that could not be read."""

REFLECTED_WITHIN = 60.0
"""Seconds that a statement about the catalog may take: large schemas have thousands of tables."""

LOOKED_WITHIN = 10.0
"""Seconds that a look for changes may take."""

LIVE_CHANNEL = "dataapi-live"
"""The channel of notifications that rows of a table have changed, which their payload names."""

FIRST_CATALOG_WITHIN = 5.0
"""Seconds that the start waits for the first catalog; requests without one are answered with 503."""


class ProjectPart:
    """A project while the daemon runs; its ``apis`` are None until it starts.

    :param reconfigure: called when a notification asks for the configuration to be read again, and, with our
        reference, while the settings in our database cannot be had.
    :param vitals: of this process.
    :param succession: what is known of the servers, that of a part before.
    """

    def __init__(
        self,
        reactor: Any,
        project: Project,
        reconfigure: Reconfigure = lambda _: None,
        vitals: Vitals | None = None,
        succession: Succession | None = None,
    ) -> None:
        self.ref = project.ref
        self.settings = project
        self._reconfigure = reconfigure
        self._vitals = vitals or Vitals()
        self.apis: ProjectApis | None = None
        self._listener: Listener | None = None
        self._loses = False
        self._background = Background()
        self._reactor = reactor
        self._connecting: Deferred[None] | None = None
        self.succession = succession = succession or Succession()
        self._pool = self._make_pool(project.db_uri)
        self._pool.follow(PrimaryServers(succession))
        self._failover = FailoverWatch(reactor, primary_uri(project.db_uri), succession, self._give_up)
        self._replicas: Replicas | None = None
        if project.db_read_uri is not None:
            self._replicas = Replicas(
                reactor, self._pool, primary_uri(project.db_uri), project.db_read_uri,
                project.db_read_max_lag, self._make_pool, succession,
            )  # fmt: skip
        listens = project.db_channel_enabled is not False
        self._watcher = CatalogWatcher(
            reactor,
            self._fetch,
            project.db_schemas,
            self._listen if listens else None,
            channel=project.db_channel,
            renew=self._renew,
            features=project.graphql_features,
        )
        self._authenticator = authenticator = Authenticator(project, time.time)
        self._keys: PublishedKeys | None = None
        if project.jwt_secret is not None and is_url(project.jwt_secret):
            # Most projects have a secret of their own, which takes no HTTP client.
            from dataapi.auth.published_keys import PublishedKeys, fetcher  # noqa: PLC0415

            self._keys = PublishedKeys(project.jwt_secret, fetcher(reactor), authenticator.use_keys, reactor)
            authenticator.on_unknown_key(self._keys.refresh)

    def _make_pool(self, uri: str) -> Pool:
        return Pool(
            self._reactor,
            uri,
            size=self.settings.db_pool,
            acquisition_timeout=self.settings.db_pool_acquisition_timeout,
            options=session_options(self.settings),
            anonymous_role=self.settings.db_anon_role,
        )

    def _give_up(self, place: dict[str, str]) -> None:
        """Leave a silent server, in whose place another one is the primary now."""
        self._pool.leave_server(place)
        if self._listener is not None:
            self._listener.leave_server(place)

    async def _fetch(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run SQL for the watcher; no catalog, and so no answer, comes of settings that are not complete."""
        if self.settings.settings_error is not None:
            raise DatabaseUnavailable(503, "PGRST002", self.settings.settings_error)
        return await self._pool.fetch(text, values, timeout=REFLECTED_WITHIN)

    async def _ask_for_settings(self) -> None:
        """Have the settings read again until a part that has them takes our place."""
        for failures in count(1):
            await deferLater(self._reactor, ASKING.after(failures))
            self._reconfigure(self.ref)

    def _renew_sessions(self) -> Deferred[Any]:
        """Replace every connection; fires when new ones are used."""
        replicas = [] if self._replicas is None else self._replicas.renew()
        return gatherResults([self._pool.renew(), *replicas])

    def _renew(self) -> None:
        """Renew the sessions, and have the configuration read again."""
        self._renew_sessions()
        self._reconfigure(None)

    async def start(self) -> None:
        """Connect and load the first catalog; if that takes too long, go on without waiting for it."""
        self._connecting = connecting = Deferred.fromCoroutine(self._connect())
        connecting.addErrback(_not_connected)
        self.apis = apis = await deferToThread(self._make_apis)
        await apis.documents.load()
        if self._keys is not None:
            await self._keys.start()
        await wait_at_most(FIRST_CATALOG_WITHIN, connecting, self._reactor)
        if self._watcher.current is None:
            _log.warn(
                "{project} starts without its database: {reason}",
                project=self.ref,
                reason=self.state().reason,
            )

    def _make_apis(self) -> ProjectApis:
        from dataapi.web.app import ProjectApis  # noqa: PLC0415 - see there
        from dataapi.web.console.data import ProjectData  # noqa: PLC0415

        runner = self._pool if self._replicas is None else self._replicas
        live = None if self.settings.live_interval is None else self._make_live
        data = ProjectData(
            self.settings,
            runner,
            lambda: self._watcher.current,
            lambda: None if self.apis is None else self.apis.documents.documents,
            self.state,
            self._pool.figures,
            self._vitals,
        )
        return ProjectApis(self.settings, runner, self._watcher, self._authenticator, data, live)

    def _make_live(self, rest: LiveProtocol, graphql: LiveProtocol) -> LiveQueries:
        from dataapi.live.changes import Changes  # noqa: PLC0415 - imported with the APIs
        from dataapi.live.queries import LiveQueries  # noqa: PLC0415

        fetch = self._pool.with_timeout(LOOKED_WITHIN).fetch
        changes = Changes(fetch, lambda: self._watcher.current, replicated=self._replicas is not None)
        return LiveQueries(
            self._reactor, self.settings, self._authenticator, changes, self._resize, time.time, rest, graphql
        )

    def _resize(self, more: int) -> None:
        """Have so many connections besides those of ``db-pool``."""
        size = self.settings.db_pool + more
        self._pool.resize(size)
        if self._replicas is not None:
            self._replicas.resize(size)

    def _listen(self, channels: Sequence[str], **callbacks: Any) -> Listener:
        """Make the listener of the catalog's watcher, which live queries share."""
        # A standby does not listen.
        uri = primary_uri(self.settings.db_uri)
        if self.settings.live_interval is not None:
            channels = (*channels, LIVE_CHANNEL)
            callbacks["on_notification"] = partial(self._notified, callbacks["on_notification"])
        self._listener = listener = Listener(self._reactor, uri, channels, **callbacks)
        listener.follow(PrimaryServers(self.succession))
        return listener

    def _notified(self, of_catalog: Callable[[str, str], None], channel: str, payload: str) -> None:
        if channel != LIVE_CHANNEL:
            of_catalog(channel, payload)
        elif self.apis is not None and self.apis.live is not None:
            self.apis.live.notified(payload)

    async def _connect(self) -> None:
        await self._failover.begin()
        self._background.spawn(self._pool.watch())
        self._background.spawn(self._failover.watch())
        await self._pool.start()
        if self._replicas is not None:
            await self._replicas.start()
        if self.settings.settings_error is not None:
            self._background.spawn(self._ask_for_settings())
            return
        self._pool.on_pooler = lambda: self._background.spawn(self._check_pooler())
        # Before there is a catalog, and so before the first answer.
        await self._check_pooler()
        self._background.spawn(self._watcher.poll(lambda: self.apis.requests if self.apis else 0))
        await self._watcher.start()
        for fault in self._role_faults():
            _log.error("{project}: {fault}", project=self.ref, fault=fault)

    def _role_faults(self) -> list[str]:
        catalog = self._watcher.current
        return role_faults(self.settings, catalog) if catalog is not None else []

    async def _check_pooler(self) -> None:
        """Find out whether the pooler keeps prepared statements, if the configuration enables them."""
        if self.settings.db_prepared_statements and self._pool.pooled:
            self._loses = await loses_statements(self._reactor, self.settings.db_uri)
            if self._loses:
                _log.error("{project}: {fault}", project=self.ref, fault=self._pooler_fault())

    def _pooler_fault(self) -> str | None:
        """Return which settings cannot work through the pooler before the database, None without one."""
        project, listener = self.settings, self._listener
        return pooler_advice(
            prepared=project.db_prepared_statements and self._pool.pooled and self._loses,
            listening=project.db_channel_enabled and listener is not None and listener.notifications_blocked,
        )

    async def drain(self) -> None:
        """Have the subscribers of live queries connect again elsewhere, or after the restart."""
        if self.apis is not None and self.apis.live is not None:
            await self.apis.live.drain()

    async def stop(self) -> None:
        """Let statements end and close every connection."""
        if self.apis is not None and self.apis.live is not None:
            self.apis.live.stop()
        if self._keys is not None:
            self._keys.stop()
        if self._connecting is not None:
            self._connecting.cancel()
        self._background.cancel()
        await self._watcher.stop()
        if self._replicas is not None:
            await self._replicas.stop()
        await self._pool.stop()

    async def reload(self) -> int:
        """Read the persisted documents, published keys and, over new connections, the catalog again.

        :return: the catalog's generation.
        :raises ApiError: the catalog could not be read; the former one stays.
        :raises ReloadError: the keys could not be read; the former ones stay.
        """
        if self.apis is not None:
            await self.apis.documents.load()
        problem = None if self._keys is None else await self._keys.reread()
        await self._renew_sessions()
        generation = (await self._watcher.reload()).generation
        if problem is not None:
            raise ReloadError(f"the keys at the URL of jwt-secret were not read: {problem}")
        return generation

    async def check(self) -> None:
        """Ask the database at once whether it answers; ``state`` has the result."""
        await self._pool.check()

    async def catalog(self) -> Mapping[str, Any] | None:
        """Return the catalog as values that JSON has, None before the first load."""
        catalog = self._watcher.current
        # A large one takes a while, in which others are answered.
        return None if catalog is None else await deferToThread(catalog_document, catalog)

    def state(self) -> ProjectState:
        """Return whether requests can be answered."""
        catalog = self._watcher.current
        documents = self.apis.documents.problems if self.apis else ()
        available = self._pool.available
        reason = self._watcher.error
        if not available and self._pool.trouble:
            reason = f"the database cannot be reached: {self._pool.trouble}"
        elif catalog is None:
            reason = reason or "the catalog is being loaded"
        elif not available:
            reason = reason or "the database cannot be reached"
        return ProjectState(
            ref=self.ref,
            database_available=available,
            generation=catalog.generation if catalog else None,
            problems=(
                *(f"{problem.place}: {problem.message}" for problem in self._watcher.problems),
                *(f"graphql-documents: {problem}" for problem in documents),
                *self._role_faults(),
            ),
            reason=self.settings.settings_error or reason,
            fault=self._pooler_fault(),
            changes=self._changes(),
            standby=self._watcher.is_standby,
            replicas=() if self._replicas is None else tuple(map(_replica_state, self._replicas.figures())),
            live=self._live_state(),
        )

    def _live_state(self) -> LiveState | None:
        if self.apis is None or self.apis.live is None:
            return None
        figures = self.apis.live.figures()
        return LiveState(figures.subscribers, round(figures.interval, 3), round(figures.lag, 3))

    def _changes(self) -> Changes:
        if self._listener is None:
            return "on request"
        return "polled" if self._watcher.polling else "notified"

    def snapshot(self) -> Snapshot:
        """Take the metrics of pool, catalog and caches."""
        watcher, tokens, ref = self._watcher, self._authenticator.tokens, self.ref
        catalog = watcher.current
        hits, misses = self.apis.plan_lookups if self.apis else (0, 0)
        live = self.apis.live if self.apis else None
        return {
            **pool_snapshot(ref, self._pool),
            **(replicas_snapshot(ref, self._replicas) if self._replicas is not None else {}),
            **(live_snapshot(ref, live.figures()) if live is not None else {}),
            "dataapi_catalog_generation": {(ref,): float(catalog.generation if catalog else 0)},
            "dataapi_catalog_loads_total": {
                (ref, "loaded"): float(watcher.loads),
                (ref, "failed"): float(watcher.failures),
            },
            "dataapi_catalog_load_seconds": {(ref,): watcher.load_seconds},
            "dataapi_cache_evictions_total": {(ref, "tokens"): float(tokens.evictions)},
            "dataapi_catalog_problems": {(ref,): float(len(watcher.problems))},
            "dataapi_cache_lookups_total": {
                (ref, "tokens", "hit"): float(tokens.hits),
                (ref, "tokens", "miss"): float(tokens.misses),
                (ref, "plans", "hit"): float(hits),
                (ref, "plans", "miss"): float(misses),
            },
        }


def session_options(project: Project) -> SessionOptions:
    """Return how the connections of a project are used."""
    return SessionOptions(
        search_path=project.search_path,
        settings=project.app_settings,
        prepared_statements=project.db_prepared_statements,
        statement_timeout=project.db_statement_timeout,
        idle_time=project.db_pool_max_idletime,
        lifetime=project.db_pool_max_lifetime,
        query_log=query_log(project),
        comments=project.sql_comments,
    )


def query_log(project: Project) -> QueryLog | None:
    """Return what logs the project's SQL, None if ``log-query`` is ``no``."""
    if project.log_query == "no":
        return None
    slow = project.log_query_threshold if project.log_query == "slow" else None
    return QueryLog(project.log_query == "all", slow)


def pool_snapshot(ref: str, pool: Pool) -> Snapshot:
    """Take the metrics of a pool; ``ref`` is the value of their label ``project``."""
    figures = pool.figures()
    return {
        "dataapi_database_available": {(ref,): float(pool.available)},
        "dataapi_pool_size": {(ref,): float(figures.size)},
        "dataapi_pool_connections": {
            (ref, "idle"): float(figures.idle),
            (ref, "in_use"): float(figures.in_use),
        },
        "dataapi_pool_waiting": {(ref,): float(figures.waiting)},
        "dataapi_pool_timeouts_total": {(ref,): float(figures.timeouts)},
        "dataapi_pool_connects_total": {(ref,): float(figures.connects)},
        "dataapi_pool_cancels_total": {(ref,): float(figures.cancels)},
    }


def replicas_snapshot(ref: str, replicas: Replicas) -> Snapshot:
    """Take the metrics of a project's replicas."""
    known = replicas.figures()
    return {
        "dataapi_replica_available": {(ref, one.server): float(one.available) for one in known},
        "dataapi_replica_lag_seconds": {(ref, one.server): one.lag for one in known if one.lag is not None},
        "dataapi_replica_connections": {
            (ref, one.server, state): float(count)
            for one in known
            for state, count in (("idle", one.pool.idle), ("in_use", one.pool.in_use))
        },
        "dataapi_replica_reads_total": {
            (ref, one.server, outcome): float(count)
            for one in known
            for outcome, count in (("answered", one.reads), ("repeated", one.repeated))
        },
        "dataapi_replica_fallbacks_total": {(ref,): float(replicas.fallbacks)},
    }


def live_snapshot(ref: str, figures: LiveFigures) -> Snapshot:
    """Take the metrics of a project's live queries."""
    return {
        "dataapi_live_subscribers": {(ref,): float(figures.subscribers)},
        "dataapi_live_cohorts": {(ref,): float(figures.cohorts)},
        "dataapi_live_looks_total": {(ref,): float(figures.checks)},
        "dataapi_live_polls_total": {
            (ref, "changed"): float(figures.changed),
            (ref, "unchanged"): float(figures.unchanged),
            (ref, "failed"): float(figures.failed),
        },
        "dataapi_live_sent_bytes_total": {(ref,): float(figures.sent_bytes)},
        "dataapi_live_held_bytes": {(ref,): float(figures.unsent_bytes)},
        "dataapi_live_interval_seconds": {(ref,): figures.interval},
        "dataapi_live_lag_seconds": {(ref,): figures.lag},
    }


def _replica_state(figures: ReplicaFigures) -> ReplicaState:
    return ReplicaState(figures.server, figures.available, figures.lag, figures.obstacle)


def _not_connected(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        _log.failure("the catalog is not watched", failure)
