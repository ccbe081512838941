"""The live queries of one project: subscriptions, checks for changes, and executions.

A live query is a request that runs again whenever its result may have changed. Each execution uses the
caller's privileges at that time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger

from dataapi.auth.authenticator import Authenticator
from dataapi.auth.caller import identity
from dataapi.auth.jwt import expiry
from dataapi.catalog.model import Catalog, TableKind
from dataapi.catalog.reflect import OUTDATED_CODES
from dataapi.concurrency.on_demand import OnDemand
from dataapi.concurrency.tasks import Background, wait_at_most
from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from dataapi.http.messages import Chunk, Reply, Request, RequestContext
from dataapi.live.changes import UNKNOWN, Changes
from dataapi.live.cohort import WRITTEN_PER_TURN, Cohort, Finished, LiveProtocol, LiveProtocols
from dataapi.live.events import HEADERS, HEARTBEAT, fingerprint, repeatable, retry
from dataapi.live.subscribers import Subscriber, Subscribers
from dataapi.live.turns import FairQueue
from dataapi.settings import Project

RECONNECT_DELAY = 2.0
"""Reconnect delay after a lost connection, in seconds."""

SHUTDOWN_RECONNECT_DELAY = 0.5, 5.0
"""Minimum and maximum reconnect delay that clients are given on shutdown, in seconds."""

_REAUTHENTICATE_AFTER = 15.0
"""Seconds between checks of an API key or token, in case it is revoked."""

_CATALOG_GRACE = 5.0
"""Seconds to wait for a new catalog after a name has become unknown."""

_RUN_PAUSE = 0.002
"""Seconds between two executions on a connection, so that other requests are not delayed."""

_MAINTENANCE_INTERVAL = 1.0
"""Seconds between checks for expired tokens, idle streams and stalled clients."""

_LONG_RUN = 0.1
"""Minimum duration of a long execution, in seconds. A caller's long executions never use all connections."""

_UNAVAILABLE = 503
_OPAQUE = frozenset({TableKind.VIEW, TableKind.MATERIALIZED_VIEW, TableKind.FOREIGN})

_log = Logger(namespace="dataapi.live")


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """Statistics of a project's live queries.

    :ivar checks: checks for changes since the start.
    :ivar changed, unchanged, failed: executions since the start, by outcome.
    :ivar sent_bytes: bytes of events since the start.
    :ivar unsent_bytes: bytes of events that clients have not received yet.
    :ivar interval: seconds between the last two checks of all queries.
    :ivar lag: seconds that the oldest due request has been waiting.
    """

    subscribers: int
    connections: int
    cohorts: int
    checks: int
    changed: int
    unchanged: int
    failed: int
    sent_bytes: int
    unsent_bytes: int
    interval: float
    lag: float


class DrainableSession(Protocol):
    """A WebSocket connection with its operations."""

    def drain(self) -> None:
        """Close the connection after running operations have ended."""


class LiveQueries:
    """Runs the live queries of a project and sends their results to subscribers.

    :param resize: sets the number of connections for live queries.
    :param now: returns the time in Unix seconds.
    :param protocols: the protocols of live queries, created on first use.
    """

    def __init__(
        self,
        clock: Any,
        project: Project,
        authenticator: Authenticator,
        changes: Changes,
        resize: Callable[[int], object],
        now: Callable[[], float],
        protocols: OnDemand[LiveProtocols],
    ) -> None:
        assert project.live_interval is not None, "live queries are disabled"
        self.protocols = protocols
        self._interval = self._observed_interval = project.live_interval
        self._clock = clock
        self._project = project
        self._authenticator = authenticator
        self._changes = changes
        self._resize = resize
        self._now = now
        self._subscribers = Subscribers(clock, self._start_due)
        self._background = Background()
        self._callers: Counter[str] = Counter()
        self._sessions: dict[DrainableSession, str] = {}
        self._cohorts: dict[object, Cohort] = {}
        self._urgent: set[Cohort] = set()
        self._due: FairQueue[Cohort] = FairQueue()
        self._rerun: set[Cohort] = set()
        self._runs: Counter[str] = Counter()
        self._state = UNKNOWN
        self._checking = self._draining = False
        self._wake: Deferred[None] = Deferred()
        self._checks = self._changed = self._unchanged = self._failed = 0

    async def subscribe(self, request: Request, protocol: LiveProtocol) -> Reply:
        """Return a stream with the request's result, followed by each new result.

        A result that the client already has, according to ``Last-Event-ID``, is not sent again.

        :raises ApiError: the request failed, the caller has too many subscriptions, or too many bytes of
            events are unsent.
        """
        self._check_open()
        live_request, headers = repeatable(request, self._project.live_ignored_headers)
        caller = await self._authenticator.authenticate(request)
        name, since = identity(request, caller), self._clock.seconds()
        self._check_room(name)
        self._callers[name] += 1
        try:
            body = await protocol.respond(live_request)
        except Finished as finished:
            self._release(name)
            return Reply(200, HEADERS, protocol.end(live_request, finished))
        except BaseException:
            self._release(name)
            raise
        key = protocol, live_request.method, live_request.path, live_request.query, headers, live_request.body
        cohort = self._cohorts.get(key)
        if cohort is None:
            cost = self._clock.seconds() - since
            live_request = live_request._replace(
                context=RequestContext(request.context.route, background=True)
            )
            cohort = Cohort(self._clock, key, live_request, protocol, body, cost, expiry(caller.claims))
            self._cohorts[key] = cohort
        identifier = fingerprint(body)
        is_current = request.headers.get("last-event-id") == identifier
        first = HEARTBEAT if is_current else cohort.event(body, identifier)
        subscriber = Subscriber(
            self._subscribers, partial(self._leave, cohort), name, identifier, since, first
        )
        cohort.join(subscriber)
        if not self._checking:
            self._checking = True
            self._background.spawn(self._check_until_idle())
        return Reply(200, HEADERS, retry(RECONNECT_DELAY), feed=subscriber)

    def _check_open(self) -> None:
        if self._draining:
            retry_after = (("Retry-After", f"{RECONNECT_DELAY:.0f}"),)
            raise ApiError(503, "57P01", "The daemon is shutting down", headers=retry_after)

    def _check_room(self, caller: str) -> None:
        maximum = self._project.live_subscriptions_per_caller
        retry_after = (("Retry-After", "10"),)
        if self._callers[caller] >= maximum:
            message = f"A caller may have at most {maximum} subscriptions"
            raise ApiError(429, "TOO_MANY_SUBSCRIPTIONS", message, headers=retry_after)
        if not self._subscribers.may_subscribe(caller):
            message = "Too many events are waiting to be read by clients"
            raise ApiError(503, "TOO_MANY_SUBSCRIPTIONS", message, headers=retry_after)

    def _leave(self, cohort: Cohort, subscriber: Subscriber) -> None:
        self._release(subscriber.caller)
        cohort.leave(subscriber)
        if not cohort.subscribers:
            self._forget(cohort)

    def _release(self, caller: str) -> None:
        self._callers[caller] -= 1
        if not self._callers[caller]:
            del self._callers[caller]
            self._due.forget(caller)

    def connect(self, session: DrainableSession, caller: str) -> None:
        """Count a session as a subscription of ``caller``, and no longer of its previous caller.

        :raises ApiError: the daemon is shutting down, or the caller has too many subscriptions.
        """
        self._check_open()
        self._check_room(caller)
        self._callers[caller] += 1
        self.disconnect(session)
        self._sessions[session] = caller

    def disconnect(self, session: DrainableSession) -> None:
        if session in self._sessions:
            self._release(self._sessions.pop(session))

    def _forget(self, cohort: Cohort) -> None:
        if self._cohorts.get(cohort.key) is cohort:
            del self._cohorts[cohort.key]
        self._urgent.discard(cohort)
        self._due.discard(cohort)
        self._rerun.discard(cohort)

    # ------------------------------------------------------------ changes

    async def _check_until_idle(self) -> None:
        self._resize(self._project.live_connections)
        maintenance = LoopingCall(self._maintain)
        maintenance.clock = self._clock
        maintenance.start(_MAINTENANCE_INTERVAL, now=False)
        try:
            last = self._clock.seconds()
            while self._cohorts:
                now = self._clock.seconds()
                check_all = now - last >= self._interval
                if check_all:
                    self._observed_interval, last = now - last, now
                if check_all or self._urgent:
                    await self._find_due(check_all=check_all)
                self._wake = Deferred()
                remaining = max(0.0, last + self._interval - self._clock.seconds())
                if not self._urgent:
                    await wait_at_most(remaining, self._wake, self._clock)
        finally:
            if maintenance.running:
                maintenance.stop()
            self._state, self._checking = UNKNOWN, False
            self._resize(0)

    def _maintain(self) -> None:
        now = self._clock.seconds()
        for cohort in tuple(self._cohorts.values()):
            if cohort.expires < self._now() or now - cohort.authenticated > _REAUTHENTICATE_AFTER:
                self._background.spawn(self._authenticate(cohort))
        self._subscribers.maintain()

    async def _find_due(self, *, check_all: bool) -> None:
        """Check the database, and queue the requests whose results may have changed.

        Unless ``check_all``, only check the queries that a notification concerns.
        """
        urgent, self._urgent = self._urgent, set()
        self._checks += 1
        try:
            self._state = await self._changes.check()
        except CancelledError:
            raise
        except Exception:
            _log.failure("checking the database for changes failed")
            return
        if self._state == UNKNOWN:
            return
        visible, untracked = self._state.visible, self._changes.untracked
        for cohort in sorted(
            self._cohorts.values() if check_all else urgent, key=lambda cohort: cohort.last_run
        ):
            if cohort.subscribers and (
                cohort.state.visible != visible or cohort.changes_without_transaction(untracked)
            ):
                self._set_due(cohort)
        self._start_due()

    def _set_due(self, cohort: Cohort) -> None:
        # Charge the execution to the caller that has used the least time among the subscribers' callers.
        if cohort.running:
            self._rerun.add(cohort)
        else:
            self._due.add(cohort, min(cohort.callers, key=self._due.used), self._clock.seconds())

    def notified(self, table: str) -> None:
        """Immediately check the queries that may read a changed table, or all queries if the name is ""."""
        catalog = self._changes.catalog()
        if catalog is None:
            return
        names = [table.rpartition(".")[2], *_opaque_names(catalog)] if table else [""]
        self._urgent.update(cohort for cohort in self._cohorts.values() if cohort.mentions_any(names))
        if self._urgent and not self._wake.called:
            self._wake.callback(None)

    # ------------------------------------------------------------ runs

    def _start_due(self) -> None:
        while self._runs.total() < self._project.live_connections and not self._subscribers.is_full:
            turn = self._due.pop(self._may_run)
            if turn is None:
                return
            cohort, caller = turn
            self._runs[caller] += 1
            cohort.running = True
            self._background.spawn(self._run_and_publish(cohort, caller))

    def _may_run(self, cohort: Cohort, caller: str) -> bool:
        return cohort.cost < _LONG_RUN or self._runs[caller] < max(1, self._project.live_connections - 1)

    async def _run_and_publish(self, cohort: Cohort, caller: str) -> None:
        estimate = cohort.cost
        self._due.charge(caller, estimate)
        started = self._clock.seconds()
        try:
            body = await self._run_cohort(cohort)
            self._due.charge(caller, self._clock.seconds() - started - estimate)
            if body is not None and cohort.subscribers:
                if await cohort.publish(body):
                    self._changed += 1
                else:
                    self._unchanged += 1
            self._subscribers.make_room()
            await deferLater(self._clock, _RUN_PAUSE)
        finally:
            cohort.running = False
            self._runs[caller] -= 1
            if not self._runs[caller]:
                del self._runs[caller]
            if cohort in self._rerun:
                self._rerun.discard(cohort)
                self._set_due(cohort)
            self._start_due()

    async def _run_cohort(self, cohort: Cohort) -> bytes | None:
        running = Deferred.fromCoroutine(cohort.run(self._state))
        try:
            return await running.addTimeout(self._project.request_timeout, self._clock)
        except defer.TimeoutError:
            cohort.state = UNKNOWN
        except (ApiError, Finished) as error:
            if _is_transient(error) or self._is_outdated(cohort, error.code):
                cohort.state = UNKNOWN
            else:
                await self._end(cohort, error)
        except CancelledError:
            raise
        except Exception:
            _log.failure("a live query failed", request_id=cohort.request.id)
            await self._end(cohort, ApiError(500, "PGRSTX00", "Internal server error"))
        self._failed += 1
        return None

    def _is_outdated(self, cohort: Cohort, code: str) -> bool:
        if code not in OUTDATED_CODES:
            return False
        now: float = self._clock.seconds()
        if cohort.outdated is None:
            cohort.outdated = now
        return now - cohort.outdated < _CATALOG_GRACE

    async def _authenticate(self, cohort: Cohort) -> None:
        cohort.authenticated = self._clock.seconds()
        try:
            await self._authenticator.authenticate(cohort.request)
        except ApiError as error:
            if not _is_transient(error):
                await self._end(cohort, error)

    # ------------------------------------------------------------ shutdown

    async def _end(self, cohort: Cohort, error: ApiError | Finished) -> None:
        self._forget(cohort)
        last, count = Chunk(cohort.protocol.end(cohort.request, error)), len(cohort.subscribers)
        _log.info(
            "a live query with {count} subscribers ended: {code}: {error}",
            count=count,
            code=error.code,
            error=error,
        )
        await cohort.end(lambda: last)

    async def drain(self) -> None:
        """End all streams, make clients reconnect after random delays, and reject new subscriptions."""
        self._draining = True
        for number, session in enumerate(tuple(self._sessions), 1):
            session.drain()
            if number % WRITTEN_PER_TURN == 0:
                await deferLater(self._clock, 0)
        for cohort in tuple(self._cohorts.values()):
            self._forget(cohort)
            await cohort.end(partial(_reconnect, cohort.protocol))

    def stop(self) -> None:
        self._background.cancel()

    def figures(self) -> LiveFigures:
        first = self._due.oldest
        return LiveFigures(
            subscribers=self._callers.total() - len(self._sessions),
            connections=len(self._sessions), cohorts=len(self._cohorts), checks=self._checks,
            changed=self._changed, unchanged=self._unchanged, failed=self._failed,
            sent_bytes=self._subscribers.sent, unsent_bytes=self._subscribers.unsent.total,
            interval=self._observed_interval, lag=0.0 if first is None else self._clock.seconds() - first,
        )  # fmt: skip


def _reconnect(protocol: LiveProtocol) -> Chunk:
    return Chunk(protocol.reconnect(random.uniform(*SHUTDOWN_RECONNECT_DELAY)))


def _is_transient(error: ApiError | Finished) -> bool:
    if isinstance(error, Finished):
        return False
    lost = isinstance(error, DatabaseError) and error.serializable_retry
    return lost or isinstance(error, DatabaseUnavailable) or error.status == _UNAVAILABLE


def _opaque_names(catalog: Catalog) -> Iterable[str]:
    """Yield the names of views and functions, because they can read tables that a query does not name."""
    yield from (table.name for table in catalog.tables.values() if table.kind in _OPAQUE)
    yield from (function.name for function in catalog.functions)
