"""The live queries of one project: who has subscribed, and which requests are run again.

A subscription is a request that is run again, and whose answer is sent again when it is another one.  Its
rights are those that the request has at that moment.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger

from dataapi.auth.authenticator import Authenticator
from dataapi.auth.caller import identity
from dataapi.auth.jwt import expiry
from dataapi.catalog.model import Catalog, TableKind
from dataapi.catalog.reflect import OUTDATED
from dataapi.concurrency.tasks import Background, wait_at_most
from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from dataapi.http.messages import Reply, Request, RequestContext
from dataapi.live.changes import UNKNOWN, Changes
from dataapi.live.cohort import Cohort, Dialect, Finished, Subscriber
from dataapi.live.events import HEADERS, HEARTBEAT, repeatable, retry
from dataapi.live.writer import Writer
from dataapi.settings import Project

RECONNECT = 2.0
"""Seconds after which a client whose connection was lost should connect again."""

SPREAD = 0.5, 5.0
"""Between which seconds the clients of a daemon that stops connect again, each at random."""

_AUTHENTICATED = 15.0
"""Seconds for which a key or a token that was valid is taken to be so; it may have been withdrawn."""

_REPLANNED = 5.0
"""Seconds in which the catalog has to follow a change of the schema by which a name became unknown."""

_PAUSE = 0.002
"""Seconds between two polls of a connection, so that requests do not wait for one after the other."""

_UNAVAILABLE = 503
_OPAQUE = frozenset({TableKind.VIEW, TableKind.MATERIALIZED_VIEW, TableKind.FOREIGN})

_log = Logger(namespace="dataapi.live")


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """The figures of a project's live queries.

    :ivar changed, unchanged, failed: requests that were run again since the start, by their outcomes.
    :ivar sent, held: bytes of events since the start, and those that clients have not taken yet.
    :ivar interval: seconds between the last two looks for changes.
    :ivar lag: seconds that the oldest request has been waiting for which a change is known.
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

    :param resize: sets how many connections there are besides those of requests.
    :param now: the time in Unix seconds.
    """

    def __init__(
        self,
        clock: Any,
        project: Project,
        authenticator: Authenticator,
        changes: Changes,
        resize: Callable[[int], object],
        now: Callable[[], float],
        rest: Dialect,
        graphql: Dialect,
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
        self._writer = Writer(clock)
        self._background = Background()
        self._callers: Counter[str] = Counter()
        self._cohorts: dict[object, Cohort] = {}
        self._urgent: set[Cohort] = set()
        self._due: dict[Cohort, float] = {}  # since when
        self._polls = 0
        self._state = UNKNOWN
        self._running = self._draining = False
        self._woken: Deferred[None] = Deferred()
        self._looks = self._changed = self._unchanged = self._failed = 0

    async def subscribe(self, request: Request, dialect: Dialect) -> Reply:
        """Answer a request with a stream of events: its answer now, and each later one that differs.

        An answer that ``Last-Event-ID`` says the client already has is not sent again.

        :raises ApiError: the request is refused, or its caller has too many subscriptions.
        """
        if self._draining:
            soon = (("Retry-After", f"{RECONNECT:.0f}"),)
            raise ApiError(503, "57P01", "The daemon is about to stop", headers=soon)
        repeated, headers = repeatable(request, self._project.live_ignored_headers)
        caller = await self._authenticator.authenticate(request)
        name, since = identity(request, caller), self._clock.seconds()
        maximum = self._project.live_subscriptions_per_caller
        if self._callers[name] >= maximum:
            message = f"A caller may have {maximum} subscriptions"
            raise ApiError(429, "TOO_MANY_SUBSCRIPTIONS", message, headers=(("Retry-After", "10"),))
        self._callers[name] += 1
        try:
            first = dialect.snapshot(await dialect.answer(repeated))
        except Finished as only:
            self._release(name)
            return Reply(200, HEADERS, dialect.end(repeated, only))
        except BaseException:
            self._release(name)
            raise
        key = repeated.method, repeated.path, repeated.query, headers, repeated.body
        cohort = self._cohorts.get(key)
        if cohort is None:
            repeated = repeated._replace(context=RequestContext(request.context.route))
            cohort = Cohort(self._clock, self._writer, key, repeated, dialect, first, expiry(caller.claims))
            self._cohorts[key] = cohort
        subscriber = Subscriber(cohort, name, first.identifier, since, self._leave)
        cohort.join(subscriber)
        if not self._running:
            self._running = True
            self._background.spawn(self._run())
        has_it = request.headers.get("last-event-id") == first.identifier
        return Reply(200, HEADERS, retry(RECONNECT) + (HEARTBEAT if has_it else first.event), feed=subscriber)

    def _leave(self, subscriber: Subscriber) -> None:
        cohort = subscriber.cohort
        self._release(subscriber.caller)
        self._writer.forget(subscriber)
        cohort.subscribers.pop(subscriber, None)
        if not cohort.subscribers:
            self._forget(cohort)

    def _release(self, caller: str) -> None:
        self._callers[caller] -= 1
        if not self._callers[caller]:
            del self._callers[caller]

    def _forget(self, cohort: Cohort) -> None:
        if self._cohorts.get(cohort.key) is cohort:
            del self._cohorts[cohort.key]
        self._urgent.discard(cohort)
        self._due.pop(cohort, None)

    # ------------------------------------------------------------ changes

    async def _run(self) -> None:
        """Look for changes, and run what they may concern, for as long as there are subscribers."""
        self._resize(self._project.live_connections)
        tending = LoopingCall(self._writer.tend)
        tending.clock = self._clock
        tending.start(1.0, now=False)
        try:
            last = self._clock.seconds()
            while self._cohorts:
                now = self._clock.seconds()
                whole = now - last >= self._interval and not self._due
                if whole:
                    self._looked_every, last = now - last, now
                if whole or self._urgent:
                    try:
                        await self._find_due(whole=whole)
                    except CancelledError:
                        raise
                    except Exception:
                        _log.failure("changes could not be looked for")
                self._woken = Deferred()
                left = max(0.0, last + self._interval - self._clock.seconds()) or self._interval
                if not self._urgent:
                    await wait_at_most(left, self._woken, self._clock)
        finally:
            if tending.running:
                tending.stop()
            self._state, self._running = UNKNOWN, False
            self._resize(0)

    async def _find_due(self, *, whole: bool) -> None:
        """Look at the database, and run the requests whose answers may have changed.

        :param whole: whether to check every cohort, or only those that a notification concerns.
        """
        urgent, self._urgent = self._urgent, set()
        self._state = await self._changes.look()
        self._looks += 1
        now = self._clock.seconds()
        if whole:
            for cohort in tuple(self._cohorts.values()):
                if cohort.expires < self._now() or now - cohort.authenticated > _AUTHENTICATED:
                    self._background.spawn(self._authenticate(cohort))
        if self._state == UNKNOWN:
            return
        visible = self._state.visible
        for cohort in sorted(self._cohorts.values() if whole else urgent, key=lambda one: one.asked):
            if cohort.seen.visible != visible:
                self._due.setdefault(cohort, now)
        self._poll_due()

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
        """Run due requests, longest wait first, on at most ``live-connections`` connections."""
        for cohort in list(self._due):
            if self._polls >= self._project.live_connections:
                return
            if not cohort.polling:
                del self._due[cohort]
                self._polls += 1
                cohort.polling = True
                self._background.spawn(self._poll(cohort))

    async def _poll(self, cohort: Cohort) -> None:
        """Run a request again and send its answer; then let others have their turn."""
        try:
            body = await self._asked(cohort)
            if body is not None and cohort.subscribers:
                if cohort.take(body):
                    self._changed += 1
                else:
                    self._unchanged += 1
                await cohort.publish()
            await deferLater(self._clock, _PAUSE)
        finally:
            cohort.polling = False
            self._polls -= 1
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
        if code not in OUTDATED:
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
        last, count = cohort.dialect.end(cohort.request, error), len(cohort.subscribers)
        _log.info("a live query of {count} ended: {code}: {error}", count=count, code=error.code, error=error)
        await cohort.end(lambda: last)

    async def drain(self) -> None:
        """End every stream, ask each client to reconnect after a random delay, and accept no new ones."""
        self._draining = True
        for cohort in tuple(self._cohorts.values()):
            self._forget(cohort)
            reconnect = cohort.dialect.reconnect
            await cohort.end(lambda reconnect=reconnect: reconnect(random.uniform(*SPREAD)))  # type: ignore[misc]

    def stop(self) -> None:
        """Run nothing any more."""
        self._background.cancel()

    def figures(self) -> LiveFigures:
        """Return the figures, for metrics."""
        first = min(self._due.values(), default=None)
        return LiveFigures(
            subscribers=sum(self._callers.values()), cohorts=len(self._cohorts), looks=self._looks,
            changed=self._changed, unchanged=self._unchanged, failed=self._failed,
            sent=self._writer.sent, held=self._writer.held, interval=self._looked_every,
            lag=0.0 if first is None else self._clock.seconds() - first,
        )  # fmt: skip


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
