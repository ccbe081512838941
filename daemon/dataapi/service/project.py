"""A project of the running daemon: pool, catalog watcher, authenticator and APIs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
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
from dataapi.service.role_faults import role_faults
from dataapi.service.settings_sources import Reconfigure
from dataapi.settings import Project
from dataapi.telemetry.metrics import Snapshot
from dataapi.telemetry.readiness import Changes, LiveState, ProjectState, ReloadError, ReplicaState
from dataapi.telemetry.vitals import Vitals

if TYPE_CHECKING:
    from dataapi.auth.published_keys import PublishedKeys
    from dataapi.concurrency.on_demand import OnDemand
    from dataapi.live.cohort import LiveProtocols
    from dataapi.live.protocols import Handle
    from dataapi.live.queries import LiveFigures, LiveQueries
    from dataapi.mcp.server import ToolServer
    from dataapi.web.app import ProjectApis
    from dataapi.web.console.data import ProjectData

_log = Logger(namespace="dataapi.service")
SETTINGS_RETRY = Backoff(first=1.0)

REFLECTION_TIMEOUT = 60.0
"""Maximum time of a catalog query, in seconds. Large schemas have thousands of tables."""

CHANGES_TIMEOUT = 10.0
"""Maximum time of a query for changes, in seconds."""

LIVE_CHANNEL = "dataapi-live"
"""Channel of notifications about changed rows. The payload is the name of the table."""

FIRST_CATALOG_WITHIN = 5.0
"""Maximum wait for the first catalog at startup, in seconds. Without a catalog, requests get 503."""


class ProjectPart:
    """A project of the running daemon.

    :param reconfigure: called with None when a notification requests a reload, and with the project's
        reference while the settings in its database are unavailable.
    :param succession: promotions that an earlier ``ProjectPart`` observed.
    :param tools: whether MCP tools may write, or None if MCP is disabled.
    :ivar apis: None until the project has started.
    """

    def __init__(
        self,
        reactor: Any,
        project: Project,
        reconfigure: Reconfigure = lambda _: None,
        vitals: Vitals | None = None,
        succession: Succession | None = None,
        tools: bool | None = None,
    ) -> None:
        self.ref = project.ref
        self.settings = project
        self._reconfigure = reconfigure
        self._tools = tools
        self._vitals = vitals or Vitals()
        self.apis: ProjectApis | None = None
        self._listener: Listener | None = None
        self._loses_statements = False
        self._background = Background()
        self._reactor = reactor
        self._connecting: Deferred[None] | None = None
        self.succession = succession = succession or Succession()
        self._pool = self._make_pool(project.db_uri)
        self._pool.follow(PrimaryServers(succession))
        self._failover = FailoverWatch(reactor, primary_uri(project.db_uri), succession, self._leave_server)
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
            # Most projects use a shared secret and need no HTTP client.
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

    def _leave_server(self, server: dict[str, str]) -> None:
        """Abandon the connections to an unresponsive server, because another server is now the primary."""
        self._pool.leave_server(server)
        if self._listener is not None:
            self._listener.leave_server(server)

    async def _fetch(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a catalog query. Raises ``DatabaseUnavailable`` if the settings in the database are unknown."""
        if self.settings.settings_error is not None:
            raise DatabaseUnavailable(503, "PGRST002", self.settings.settings_error)
        return await self._pool.fetch(text, values, timeout=REFLECTION_TIMEOUT)

    async def _retry_settings(self) -> None:
        for failures in count(1):
            await deferLater(self._reactor, SETTINGS_RETRY.after(failures))
            self._reconfigure(self.ref)

    def _renew_sessions(self) -> Deferred[Any]:
        replicas = [] if self._replicas is None else self._replicas.renew()
        return gatherResults([self._pool.renew(), *replicas])

    def _renew(self) -> None:
        self._renew_sessions()
        self._reconfigure(None)

    async def start(self) -> None:
        """Connect and load the first catalog. If that takes too long, continue in the background."""
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
        from dataapi.web.app import ProjectApis  # noqa: PLC0415 - imported while PostgreSQL reads its catalog

        runner = self._pool if self._replicas is None else self._replicas
        live = None if self.settings.live_interval is None else self._make_live
        tools = None if self._tools is None else self._make_tools
        data = cache(self._make_data)
        return ProjectApis(self.settings, runner, self._watcher, self._authenticator, data, live, tools)

    def _make_data(self) -> ProjectData:
        from dataapi.web.console.data import ProjectData  # noqa: PLC0415 - only if the console is opened

        return ProjectData(
            self.settings,
            self._pool if self._replicas is None else self._replicas,
            lambda: self._watcher.current,
            lambda: None if self.apis is None else self.apis.documents.documents,
            self.state,
            self._pool.figures,
            self._vitals,
        )

    def _make_tools(self, rest: Handle) -> ToolServer:
        from dataapi.mcp.server import ToolServer  # noqa: PLC0415 - few daemons have it

        runner = self._pool if self._replicas is None else self._replicas
        return ToolServer(
            self.settings, rest, runner, lambda: self._watcher.current, writes=bool(self._tools)
        )

    def _make_live(self, protocols: OnDemand[LiveProtocols]) -> LiveQueries:
        from dataapi.live.changes import Changes  # noqa: PLC0415 - imported with the APIs
        from dataapi.live.queries import LiveQueries  # noqa: PLC0415

        fetch = self._pool.with_timeout(CHANGES_TIMEOUT).fetch
        changes = Changes(fetch, lambda: self._watcher.current, replicated=self._replicas is not None)
        return LiveQueries(
            self._reactor, self.settings, self._authenticator, changes, self._resize, time.time, protocols
        )

    def _resize(self, more: int) -> None:
        size = self.settings.db_pool + more
        self._pool.resize(size)
        if self._replicas is not None:
            self._replicas.resize(size)

    def _listen(self, channels: Sequence[str], **callbacks: Any) -> Listener:
        # Standbys do not support LISTEN.
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
            self._background.spawn(self._retry_settings())
            return
        self._pool.on_pooler = lambda: self._background.spawn(self._check_pooler())
        # Check the pooler before the catalog is loaded, because requests are served as soon as there is a
        # catalog.
        await self._check_pooler()
        self._background.spawn(self._watcher.poll(lambda: self.apis.requests if self.apis else 0))
        await self._watcher.start()
        for fault in self._role_faults():
            _log.error("{project}: {fault}", project=self.ref, fault=fault)

    def _role_faults(self) -> list[str]:
        catalog = self._watcher.current
        return role_faults(self.settings, catalog) if catalog is not None else []

    async def _check_pooler(self) -> None:
        if self.settings.db_prepared_statements and self._pool.pooled:
            self._loses_statements = await loses_statements(self._reactor, self.settings.db_uri)
            if self._loses_statements:
                _log.error("{project}: {fault}", project=self.ref, fault=self._pooler_fault())

    def _pooler_fault(self) -> str | None:
        """Return advice if settings do not work through the pooler, or None."""
        project, listener = self.settings, self._listener
        return pooler_advice(
            prepared=project.db_prepared_statements and self._pool.pooled and self._loses_statements,
            listening=project.db_channel_enabled and listener is not None and listener.notifications_blocked,
        )

    async def drain(self) -> None:
        if self.apis is not None and self.apis.live is not None:
            await self.apis.live.drain()

    async def stop(self) -> None:
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
        """Reload the persisted documents, the published keys and, over new connections, the catalog.

        :return: the generation of the catalog.
        :raises ApiError: the catalog could not be read. The previous catalog stays in use.
        :raises ReloadError: the keys could not be read. The previous keys stay in use.
        """
        if self.apis is not None:
            await self.apis.documents.load()
        problem = None if self._keys is None else await self._keys.reread()
        await self._renew_sessions()
        generation = (await self._watcher.reload()).generation
        if problem is not None:
            raise ReloadError(f"the keys at the URL of jwt-secret could not be read: {problem}")
        return generation

    async def check(self) -> None:
        await self._pool.check()

    async def catalog(self) -> Mapping[str, Any] | None:
        catalog = self._watcher.current
        # A thread, because a large catalog would block the reactor.
        return None if catalog is None else await deferToThread(catalog_document, catalog)

    def state(self) -> ProjectState:
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
        watcher, tokens, ref = self._watcher, self._authenticator.tokens, self.ref
        catalog = watcher.current
        hits, misses = self.apis.plan_lookups if self.apis else (0, 0)
        live = self.apis.live if self.apis else None
        tools = self.apis.tools if self.apis else None
        return {
            **pool_snapshot(ref, self._pool),
            **(replicas_snapshot(ref, self._replicas) if self._replicas is not None else {}),
            **(live_snapshot(ref, live.figures()) if live is not None else {}),
            **(tools_snapshot(ref, tools.calls) if tools is not None else {}),
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
    return SessionOptions(
        search_path=project.search_path,
        settings=project.app_settings,
        prepared_statements=project.db_prepared_statements,
        statement_timeout=project.db_statement_timeout,
        idle_time=project.db_pool_max_idletime,
        lifetime=project.db_pool_max_lifetime,
        query_log=query_log(project),
        comments=project.sql_comments,
        lane=project.db_lane,
    )


def query_log(project: Project) -> QueryLog | None:
    if project.log_query == "no":
        return None
    slow = project.log_query_threshold if project.log_query == "slow" else None
    return QueryLog(project.log_query == "all", slow)


def pool_snapshot(ref: str, pool: Pool) -> Snapshot:
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
        "dataapi_lane_messages_total": {
            (ref, "shared"): float(figures.lane.shared),
            (ref, "returned"): float(figures.lane.returned),
        },
        "dataapi_lane_in_progress": {(ref,): float(figures.lane.in_progress)},
    }


def replicas_snapshot(ref: str, replicas: Replicas) -> Snapshot:
    figures = replicas.figures()
    return {
        "dataapi_replica_available": {(ref, replica.server): float(replica.available) for replica in figures},
        "dataapi_replica_lag_seconds": {
            (ref, replica.server): replica.lag for replica in figures if replica.lag is not None
        },
        "dataapi_replica_connections": {
            (ref, replica.server, state): float(count)
            for replica in figures
            for state, count in (("idle", replica.pool.idle), ("in_use", replica.pool.in_use))
        },
        "dataapi_replica_reads_total": {
            (ref, replica.server, outcome): float(count)
            for replica in figures
            for outcome, count in (("answered", replica.reads), ("repeated", replica.repeated))
        },
        "dataapi_replica_fallbacks_total": {(ref,): float(replicas.fallbacks)},
    }


def live_snapshot(ref: str, figures: LiveFigures) -> Snapshot:
    return {
        "dataapi_live_subscribers": {(ref,): float(figures.subscribers)},
        "dataapi_live_connections": {(ref,): float(figures.connections)},
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


def tools_snapshot(ref: str, calls: Mapping[tuple[str, str], int]) -> Snapshot:
    return {
        "dataapi_mcp_calls_total": {
            (ref, tool, outcome): float(count) for (tool, outcome), count in calls.items()
        }
    }


def _replica_state(figures: ReplicaFigures) -> ReplicaState:
    return ReplicaState(figures.server, figures.available, figures.lag, figures.obstacle)


def _not_connected(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        _log.failure("the catalog is not watched", failure)
