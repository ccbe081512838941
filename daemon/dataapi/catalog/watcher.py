"""Keeps the catalog current through notifications, and retries while the database is down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import CancelledError
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from dataapi.catalog.model import Catalog, Function, Problem, Table
from dataapi.catalog.reflect import FINGERPRINT, Fetch, reflect, regrant
from dataapi.concurrency.tasks import SingleFlight
from dataapi.concurrency.timers import Alarm, Backoff, Retry
from dataapi.http.errors import ApiError, DatabaseUnavailable

OWN_CHANNEL = "dataapi"
"""Channel of the event trigger that ``dataapi init`` installs. PostgREST's channel is ``db-channel``."""

DEBOUNCE = 0.1
"""Seconds from a notification to the reload, to combine notifications that arrive together."""

REFRESH_INTERVAL = 2.0
"""Minimum seconds since the catalog was loaded or compared before an unknown name triggers a comparison."""

COMPARE_INTERVAL = 1.0
"""Seconds between catalog comparisons while requests arrive and no event trigger reports changes."""

POLL_INTERVAL = 10.0
"""Seconds between catalog comparisons while notifications cannot arrive.

Also the maximum of the pause that ``PAUSE_FACTOR`` determines.
"""

PAUSE_FACTOR = 50
"""Minimum pause after a catalog comparison, as a multiple of the comparison's duration."""

REGRANT_INTERVAL = 0.1
"""Minimum seconds between reads of the grants of roles that were denied access."""

BACKOFF = Backoff(first=1.0)

EVENT_TRIGGER_EXISTS = """
select exists (
    select from pg_catalog.pg_event_trigger t join pg_catalog.pg_proc f on f.oid = t.evtfoid
    where t.evtevent = 'ddl_command_end' and t.evtenabled <> 'D'
      and f.prosrc ~* ('(notify +|pg_notify *[(] *'')(dataapi|' || $1::text || ')')
)
"""
"""Query that checks whether an event trigger reports schema changes: ours, or the one in PostgREST's manual.

The parameter is ``db-channel``. Channel names contain no special characters of regular expressions.
"""


def missing_trigger_note(channel: str) -> str:
    return (
        f"no event trigger reports schema changes: run NOTIFY {channel}, 'reload schema' after each change, "
        "or install the trigger with dataapi init"
    )


RELOAD_CONFIG = "reload config"
"""Notification payload that reloads the catalog and the session settings of roles and the database."""

_RELOADS = ("", "reload schema", RELOAD_CONFIG)
_log = Logger(namespace="dataapi.catalog")


class NotificationSource(Protocol):
    """A LISTEN connection, such as ``database.listener.Listener``."""

    @property
    def listening(self) -> bool:
        pass

    def start(self) -> Awaitable[None]:
        pass

    def stop(self) -> Awaitable[None]:
        pass


class CatalogWatcher:
    """Keeps the current snapshot of a database's catalog.

    A successful reload replaces ``current``. A failed reload leaves ``current`` unchanged. Requests in
    progress keep their snapshot.

    :ivar current: current snapshot, or None before the first load.
    :ivar is_standby: whether the database was a standby when last checked.
    :ivar error: why the last load failed, or None if it succeeded.
    :ivar load_seconds: duration of the last successful load.
    :param listen: creates the listener for channels, which calls ``on_notification`` with channel and
        payload, and ``on_reconnect`` after a gap; None if notifications are disabled.
    :param channel: additional channel for reload requests.
    :param renew: replaces all sessions, so that they read their settings again.
    """

    def __init__(
        self,
        reactor: Any,
        fetch: Fetch,
        search_path: Sequence[str],
        listen: Callable[..., NotificationSource] | None = None,
        *,
        channel: str = "pgrst",
        renew: Callable[[], object] = lambda: None,
        backoff: Backoff = BACKOFF,
        features: frozenset[str] = frozenset(),
    ) -> None:
        self.current: Catalog | None = None
        self.error: str | None = None
        self.loads = 0
        self.failures = 0
        self.load_seconds = 0.0
        self._reactor = reactor
        self._fetch = fetch
        self._renew = renew
        self._search_path = tuple(search_path)
        self._features = features
        self._channel = channel
        self._channels = tuple(dict.fromkeys((channel, OWN_CHANNEL)))
        self._listener = (
            listen(self._channels, on_notification=self._notified, on_reconnect=self.request_reload)
            if listen
            else None
        )
        self._listens = listen is not None
        self._has_trigger: bool | None = None
        self._fingerprint: str | None = None
        self.is_standby = False
        self._compared_at = float("-inf")
        self._comparison = SingleFlight(self._compare_for_request)
        self._load_flight = SingleFlight(self._load, fresh=True)
        self._denied: set[tuple[str, Table | Function]] = set()
        self._regrant_flight = SingleFlight(self._regrant, fresh=True)
        self._regranted_at = float("-inf")
        self._reload_timer = Alarm(reactor, self._reload_now)
        self._retry = Retry(reactor, backoff, self._reload_now)
        self._stopped = False

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.current.problems if self.current else ()

    async def start(self) -> None:
        """Load the catalog and listen for changes. If the database is down, return and keep trying."""
        if self._listener:
            await self._listener.start()
        try:
            await self.reload()
        except CancelledError:
            raise
        except Exception:
            # The error is already logged, and a retry is scheduled.
            return

    async def stop(self) -> None:
        """Stop the listener, the timers and a running load, whose callers get ``CancelledError``."""
        self._stopped = True
        self._cancel_timers()
        self._comparison.cancel()
        self._regrant_flight.cancel()
        if self._listener:
            await self._listener.stop()
        self._load_flight.cancel()

    async def reload(self) -> Catalog:
        """Load the catalog and return the new snapshot.

        Concurrent callers share a load that starts after their calls.

        :raises ApiError: if the database cannot be queried. The current snapshot is retained.
        :raises CancelledError: if the watcher was stopped.
        """
        if self._stopped:
            raise CancelledError
        return await self._load_flight.run()

    async def refresh(self, known: Catalog) -> Catalog:
        """Return the current catalog, for a request that did not find a name in the catalog ``known``.

        If ``known`` is current, it is compared with the database and reloaded if outdated, at most once per
        ``REFRESH_INTERVAL``. If the database cannot be queried, the current catalog is returned.
        """
        if (
            self.current is known
            and self._reactor.seconds() - self._compared_at >= REFRESH_INTERVAL
            and not self._stopped
        ):
            await self._comparison.run()
        return self.current or known

    async def regrant(self, known: Catalog, role: str, item: Table | Function) -> Catalog:
        """Return the current catalog, for a request that was denied access under the catalog ``known``.

        Grants are read at most once per ``REGRANT_INTERVAL``, for all denied requests together. If the
        database cannot be queried, the current catalog is returned.
        """
        if self.current is known and not self._stopped:
            self._denied.add((role, item))
            await self._regrant_flight.run()
        return self.current or known

    async def _regrant(self) -> None:
        pause = self._regranted_at + REGRANT_INTERVAL - self._reactor.seconds()
        if pause > 0:
            await deferLater(self._reactor, pause)
        self._regranted_at = self._reactor.seconds()
        denied, self._denied = self._denied, set()
        for role, item in denied:
            known = self.current
            assert known is not None, "access is only denied after a catalog was loaded"
            if isinstance(item, Table) and known.tables.get(item.oid) is not item:
                continue  # denied under an older catalog: the request is retried with the current one
            try:
                newer = await regrant(self._fetch, known, role, item)
            except ApiError as error:
                _log.info("Cannot read the privileges: {error}", error=str(error))
                return
            if self.current is known:
                self.current = newer

    @property
    def polling(self) -> bool:
        """Whether notifications are enabled but cannot arrive, as on a standby."""
        return self._listener is not None and not self._listener.listening

    async def poll(self, requests: Callable[[], int] = lambda: 0) -> None:
        """Compare the catalog with the database while notifications are insufficient, until cancelled.

        Without an event trigger, the catalog is compared while requests arrive. If notifications cannot
        arrive, it is also compared without requests. A standby sends no notifications, and a notification
        from its primary may arrive before the standby has replayed the change.
        """
        seen_requests, compared_at, next_comparison = requests(), self._reactor.seconds(), 0.0
        while True:
            await deferLater(self._reactor, COMPARE_INTERVAL)
            now = self._reactor.seconds()
            unnotified = self.polling or self.is_standby
            due_for_requests = (
                requests() != seen_requests
                and self._fingerprint is not None
                and (unnotified or not self._has_trigger)
            )
            due_by_time = unnotified and now - compared_at >= POLL_INTERVAL
            if self.current is not None and (due_by_time or (due_for_requests and now >= next_comparison)):
                seen_requests, compared_at = requests(), now
                await self._compare()
                ended = self._reactor.seconds()
                next_comparison = ended + min(POLL_INTERVAL, PAUSE_FACTOR * (ended - now))

    def request_reload(self) -> None:
        if not self._stopped:
            self._reload_timer.within(DEBOUNCE)

    def _notified(self, channel: str, payload: str) -> None:
        if channel not in self._channels or payload not in _RELOADS:
            return
        if payload == RELOAD_CONFIG:
            self._renew()
        self.request_reload()

    async def _compare_for_request(self) -> None:
        try:
            await self._compare()
        finally:
            self._compared_at = self._reactor.seconds()

    async def _compare(self) -> None:
        try:
            fingerprint = await self._read_fingerprint()
            if fingerprint is None or fingerprint != self._fingerprint:
                await self.reload()
        except CancelledError:
            raise
        except Exception as error:
            _log.info("Cannot compare the catalog with the database: {error}", error=str(error))

    async def _read_fingerprint(self) -> str | None:
        """Return the fingerprint, or None if the system tables do not provide one."""
        try:
            [(fingerprint, self.is_standby)] = await self._fetch(FINGERPRINT, ())
        except DatabaseUnavailable:
            raise
        except ApiError as error:
            _log.debug("Cannot read the fingerprint: {code} {error}", code=error.code, error=error.message)
            return None
        return str(fingerprint)

    def _reload_now(self) -> None:
        self._cancel_timers()
        # Failures are already logged and retried.
        self._load_flight.run().addErrback(lambda _: None)

    async def _load(self) -> Catalog:
        try:
            # Read the fingerprint before the load, so that changes in between are not missed.
            fingerprint = await self._read_fingerprint()
            catalog = await self._reflect()
        except CancelledError:
            raise
        except Exception as error:
            self._failed(error)
            raise
        self._fingerprint = fingerprint
        self.current = catalog
        self.error = None
        self.loads += 1
        self._compared_at = self._reactor.seconds()
        self._retry.succeeded()
        self._retry.cancel()
        for problem in catalog.problems:
            _log.warn("{place}: {problem}", place=problem.place, problem=problem.message)
        await self._check_trigger()
        return catalog

    async def _reflect(self) -> Catalog:
        generation = self.current.generation + 1 if self.current else 1
        in_thread = partial(deferToThreadPool, self._reactor, self._reactor.getThreadPool())
        began = self._reactor.seconds()
        catalog = await reflect(
            self._fetch, self._search_path, generation, in_thread, self.current, self._features
        )
        self.load_seconds = self._reactor.seconds() - began
        _log.info(
            "Loaded catalog {generation}: {tables} tables, {functions} functions in {seconds:.3f} s.",
            generation=generation,
            tables=len(catalog.tables),
            functions=len(catalog.functions),
            seconds=self.load_seconds,
        )
        return catalog

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.error = str(error)
        wait = self._retry.failed()
        state = f"catalog {self.current.generation} stays in use" if self.current else "there is none yet"
        text = "Cannot load the catalog, {state}; retrying in {wait:.1f} s"
        if isinstance(error, ApiError):
            _log.error(text + ": {code} {error}", state=state, wait=wait, code=error.code, error=str(error))
        else:
            _log.failure(text + ".", state=state, wait=wait)

    def _cancel_timers(self) -> None:
        self._reload_timer.cancel()
        self._retry.cancel()

    async def _check_trigger(self) -> None:
        if not self._listens:
            return
        try:
            [(exists,)] = await self._fetch(EVENT_TRIGGER_EXISTS, (self._channel,))
        except ApiError:
            return  # the load itself has succeeded
        if self._has_trigger is None and not exists:
            _log.warn("{text}", text=missing_trigger_note(self._channel))
        self._has_trigger = exists
