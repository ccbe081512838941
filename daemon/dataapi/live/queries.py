"""The live queries of one project: who has subscribed, and which requests are run again.

A subscription is a request that is run again, and whose answer is sent again when it has changed.  Each run
has the rights that the request has at that moment.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger

from dataapi.auth.authenticator import Authenticator
from dataapi.auth.caller import identity
from dataapi.auth.jwt import expiry
from dataapi.catalog.model import Catalog, TableKind
from dataapi.catalog.reflect import OUTDATED_CODES
from dataapi.concurrency.tasks import Background, wait_at_most
from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from dataapi.http.messages import Chunk, Reply, Request, RequestContext
from dataapi.live.changes import UNKNOWN, Changes
from dataapi.live.cohort import Cohort, Finished, LiveProtocol
from dataapi.live.events import HEADERS, HEARTBEAT, fingerprint, repeatable, retry
from dataapi.live.subscribers import Subscriber, Subscribers
from dataapi.live.turns import FairTurns
from dataapi.settings import Project

RECONNECT = 2.0
"""Seconds that a client waits before it reconnects after its connection was lost."""

SPREAD = 0.5, 5.0
"""Minimum and maximum reconnect delay that clients are given on shutdown, in seconds."""

_AUTHENTICATED = 15.0
"""Seconds after which a key or token is checked again, because it may have been revoked."""

_REPLANNED = 5.0
"""Seconds that the catalog has to follow a change of the schema by which a name became unknown."""

_PAUSE = 0.002
"""Seconds between two polls of a connection, so that requests do not wait for one after the other."""

_TENDED_EVERY = 1.0
"""Seconds between two checks of what depends on time alone: tokens, heartbeats and slow clients."""

_LONG = 0.1
"""Seconds beyond which a run is long: the long runs of one caller leave a connection to others."""

_UNAVAILABLE = 503
_OPAQUE = frozenset({TableKind.VIEW, TableKind.MATERIALIZED_VIEW, TableKind.FOREIGN})

_log = Logger(namespace="dataapi.live")


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """The figures of a project's live queries.

    :ivar changed, unchanged, failed: requests that were run again since the start, by their outcomes.
    :ivar sent, held: bytes of events since the start, and those that clients have not taken yet.
    :ivar interval: seconds between the last two looks for changes.
    :ivar lag: seconds that the oldest request that may have changed has been waiting for its run.
    """

    subscribers: int
    cohorts: int
    looks: int
    changed: int
    unchanged: int
    failed: int
    sent: int
    held: int
    interval: float
    lag: float


class LiveQueries:
    """Keeps the answers of a project's subscribers current.

    :param resize: sets the number of connections for live queries.
    :param now: returns the time in Unix seconds.
    """

    def __init__(
        self,
        clock: Any,
        project: Project,
        authenticator: Authenticator,
        changes: Changes,
        resize: Callable[[int], object],
        now: Callable[[], float],
        rest: LiveProtocol,
        graphql: LiveProtocol,
    ) -> None:
        assert project.live_interval is not None, "else there are none"
        self.rest = rest
        self.graphql = graphql
        self._interval = self._looked_every = project.live_interval
        self._clock = clock
        self._project = project
        self._authenticator = authenticator
        self._changes = changes
        self._resize = resize
        self._now = now
        self._subscribers = Subscribers(clock, self._poll_due)
        self._background = Background()
        self._callers: Counter[str] = Counter()
        self._cohorts: dict[object, Cohort] = {}
        self._urgent: set[Cohort] = set()
        self._due: FairTurns[Cohort] = FairTurns()
        self._due_again: set[Cohort] = set()
        self._polls: Counter[str] = Counter()
        self._state = UNKNOWN
        self._running = self._draining = False
        self._woken: Deferred[None] = Deferred()
        self._looks = self._changed = self._unchanged = self._failed = 0

    async def subscribe(self, request: Request, protocol: LiveProtocol) -> Reply:
        """Answer a request with a stream of events: its answer now, and each later one that differs.

        An answer that the client already has, according to ``Last-Event-ID``, is not sent again.

        :raises ApiError: the request is refused, its caller has too many subscriptions, or there is no room
            for the bytes of more events.
        """
        if self._draining:
            soon = (("Retry-After", f"{RECONNECT:.0f}"),)
            raise ApiError(503, "57P01", "The daemon is about to stop", headers=soon)
        repeated, headers = repeatable(request, self._project.live_ignored_headers)
        caller = await self._authenticator.authenticate(request)
        name, since = identity(request, caller), self._clock.seconds()
        self._check_room(name)
        self._callers[name] += 1
        try:
            body = await protocol.answer(repeated)
        except Finished as only:
            self._release(name)
            return Reply(200, HEADERS, protocol.end(repeated, only))
        except BaseException:
            self._release(name)
            raise
        key = repeated.method, repeated.path, repeated.query, headers, repeated.body
        cohort = self._cohorts.get(key)
        if cohort is None:
            cost = self._clock.seconds() - since
            repeated = repeated._replace(context=RequestContext(request.context.route))
            cohort = Cohort(self._clock, key, repeated, protocol, body, cost, expiry(caller.claims))
            self._cohorts[key] = cohort
        identifier = fingerprint(body)
        has_it = request.headers.get("last-event-id") == identifier
        first = HEARTBEAT if has_it else cohort.event(body, identifier)
        subscriber = Subscriber(
            self._subscribers, partial(self._leave, cohort), name, identifier, since, first
        )
        cohort.join(subscriber)
        if not self._running:
            self._running = True
            self._background.spawn(self._run())
        return Reply(200, HEADERS, retry(RECONNECT), feed=subscriber)

    def _check_room(self, caller: str) -> None:
        """Refuse one more subscription of a caller if there is no room for it."""
        maximum = self._project.live_subscriptions_per_caller
        retry_after = (("Retry-After", "10"),)
        if self._callers[caller] >= maximum:
            message = f"A caller may have {maximum} subscriptions"
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

    def _forget(self, cohort: Cohort) -> None:
        if self._cohorts.get(cohort.key) is cohort:
            del self._cohorts[cohort.key]
        self._urgent.discard(cohort)
        self._due.discard(cohort)
        self._due_again.discard(cohort)

    # ------------------------------------------------------------ changes

    async def _run(self) -> None:
        """Look for changes, and run what they may concern, for as long as there are subscribers."""
        self._resize(self._project.live_connections)
        tending = LoopingCall(self._tend)
        tending.clock = self._clock
        tending.start(_TENDED_EVERY, now=False)
        try:
            last = self._clock.seconds()
            while self._cohorts:
                now = self._clock.seconds()
                whole = now - last >= self._interval
                if whole:
                    self._looked_every, last = now - last, now
                if whole or self._urgent:
                    await self._find_due(whole=whole)
                self._woken = Deferred()
                left = max(0.0, last + self._interval - self._clock.seconds())
                if not self._urgent:
                    await wait_at_most(left, self._woken, self._clock)
        finally:
            if tending.running:
                tending.stop()
            self._state, self._running = UNKNOWN, False
            self._resize(0)

    def _tend(self) -> None:
        """Check what depends on time alone: tokens, heartbeats and slow clients."""
        now = self._clock.seconds()
        for cohort in tuple(self._cohorts.values()):
            if cohort.expires < self._now() or now - cohort.authenticated > _AUTHENTICATED:
                self._background.spawn(self._authenticate(cohort))
        self._subscribers.tend()

    async def _find_due(self, *, whole: bool) -> None:
        """Look at the database, and run the requests whose answers may have changed.

        :param whole: whether to check every cohort, or only those that a notification concerns.
        """
        urgent, self._urgent = self._urgent, set()
        self._looks += 1
        try:
            self._state = await self._changes.look()
        except CancelledError:
            raise
        except Exception:
            _log.failure("changes could not be looked for")
            return
        if self._state == UNKNOWN:
            return
        visible, untracked = self._state.visible, self._changes.untracked
        for cohort in sorted(self._cohorts.values() if whole else urgent, key=lambda one: one.asked):
            if cohort.subscribers and (cohort.seen.visible != visible or cohort.changes_alone(untracked)):
                self._set_due(cohort)
        self._poll_due()

    def _set_due(self, cohort: Cohort) -> None:
        """Have a cohort run, in the turn of the caller of it that has used the least time."""
        if cohort.polling:
            self._due_again.add(cohort)
        else:
            self._due.add(cohort, min(cohort.callers, key=self._due.used), self._clock.seconds())

    def notified(self, table: str) -> None:
        """Run the queries that may read a changed table at once; all of them if no table is named."""
        catalog = self._changes.catalog()
        if catalog is None:
            return
        names = [table.rpartition(".")[2], *_opaque(catalog)] if table else [""]
        self._urgent.update(cohort for cohort in self._cohorts.values() if cohort.names(names))
        if self._urgent and not self._woken.called:
            self._woken.callback(None)

    # ------------------------------------------------------------ polls

    def _poll_due(self) -> None:
        """Run due requests in turns that are fair to callers, on at most ``live-connections`` connections."""
        while self._polls.total() < self._project.live_connections and not self._subscribers.is_full:
            turn = self._due.take(self._may_run)
            if turn is None:
                return
            cohort, caller = turn
            self._polls[caller] += 1
            cohort.polling = True
            self._background.spawn(self._poll(cohort, caller))

    def _may_run(self, cohort: Cohort, caller: str) -> bool:
        """Return whether a run may begin; long runs of one caller leave a connection to others."""
        return cohort.cost < _LONG or self._polls[caller] < max(1, self._project.live_connections - 1)

    async def _poll(self, cohort: Cohort, caller: str) -> None:
        """Run a request again and send its answer; then let others have their turn."""
        estimate = cohort.cost
        self._due.charge(caller, estimate)
        began = self._clock.seconds()
        try:
            body = await self._asked(cohort)
            self._due.charge(caller, self._clock.seconds() - began - estimate)
            if body is not None and cohort.subscribers:
                if await cohort.publish(body):
                    self._changed += 1
                else:
                    self._unchanged += 1
            self._subscribers.make_room()
            await deferLater(self._clock, _PAUSE)
        finally:
            cohort.polling = False
            self._polls[caller] -= 1
            if not self._polls[caller]:
                del self._polls[caller]
            if cohort in self._due_again:
                self._due_again.discard(cohort)
                self._set_due(cohort)
            self._poll_due()

    async def _asked(self, cohort: Cohort) -> bytes | None:
        """Run the request of a cohort; return the body of its answer, None without one."""
        asking = Deferred.fromCoroutine(cohort.ask(self._state))
        try:
            return await asking.addTimeout(self._project.request_timeout, self._clock)
        except defer.TimeoutError:
            cohort.seen = UNKNOWN
        except (ApiError, Finished) as error:
            if _is_transient(error) or self._is_outdated(cohort, error.code):
                cohort.seen = UNKNOWN
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
        """Return whether an error may be one of a catalog that does not follow a change yet."""
        if code not in OUTDATED_CODES:
            return False
        now: float = self._clock.seconds()
        if cohort.outdated is None:
            cohort.outdated = now
        return now - cohort.outdated < _REPLANNED

    async def _authenticate(self, cohort: Cohort) -> None:
        """End a subscription whose token has expired, or whose key or token is no longer valid."""
        cohort.authenticated = self._clock.seconds()
        try:
            await self._authenticator.authenticate(cohort.request)
        except ApiError as error:
            if not _is_transient(error):
                await self._end(cohort, error)

    # ------------------------------------------------------------ the end

    async def _end(self, cohort: Cohort, error: ApiError | Finished) -> None:
        self._forget(cohort)
        last, count = Chunk(cohort.protocol.end(cohort.request, error)), len(cohort.subscribers)
        _log.info("a live query of {count} ended: {code}: {error}", count=count, code=error.code, error=error)
        await cohort.end(lambda: last)

    async def drain(self) -> None:
        """End every stream, ask each client to reconnect after a random delay, and accept no new ones."""
        self._draining = True
        for cohort in tuple(self._cohorts.values()):
            self._forget(cohort)
            await cohort.end(partial(_reconnect, cohort.protocol))

    def stop(self) -> None:
        """Run nothing any more."""
        self._background.cancel()

    def figures(self) -> LiveFigures:
        """Return the figures, for metrics."""
        first = self._due.oldest
        return LiveFigures(
            subscribers=sum(self._callers.values()), cohorts=len(self._cohorts), looks=self._looks,
            changed=self._changed, unchanged=self._unchanged, failed=self._failed,
            sent=self._subscribers.sent, held=self._subscribers.unsent.total, interval=self._looked_every,
            lag=0.0 if first is None else self._clock.seconds() - first,
        )  # fmt: skip


def _reconnect(protocol: LiveProtocol) -> Chunk:
    """Return the event that has a client reconnect after a random delay."""
    return Chunk(protocol.reconnect(random.uniform(*SPREAD)))


def _is_transient(error: ApiError | Finished) -> bool:
    """Return whether the request may be answered again soon."""
    if isinstance(error, Finished):
        return False
    lost = isinstance(error, DatabaseError) and error.serializable_retry
    return lost or isinstance(error, DatabaseUnavailable) or error.status == _UNAVAILABLE


def _opaque(catalog: Catalog) -> Iterable[str]:
    """Give the names of what does not tell the tables that it reads: views and functions."""
    yield from (table.name for table in catalog.tables.values() if table.kind in _OPAQUE)
    yield from (function.name for function in catalog.functions)
