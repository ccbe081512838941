"""Keeping the catalog current: first load, reloads on notification, retries while the database is away."""

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
"""The channel of the event trigger that ``dataapi init`` installs; PostgREST's is ``db-channel``."""

DEBOUNCE = 0.1
"""Seconds from a notification to the reload, which then answers all that came meanwhile."""

FRESH = 2.0
"""Seconds after a comparison of the catalog for a request, or a load, in which no request has it compared."""

COMPARE_EVERY = 1.0
"""Seconds between comparisons of the catalog while requests come and no event trigger announces changes."""

POLL_EVERY = 10.0
"""Seconds between comparisons of the catalog while no notification can arrive, and the longest pause."""

SHARE = 50
"""How many times as long as a comparison took no other one begins."""

REGRANT_EVERY = 0.1
"""Seconds between two looks at what was granted to roles that were refused something."""

BACKOFF = Backoff(first=1.0)
"""When it is tried again to read the catalog."""

ANNOUNCED = """
select exists (
    select from pg_catalog.pg_event_trigger t join pg_catalog.pg_proc f on f.oid = t.evtfoid
    where t.evtevent = 'ddl_command_end' and t.evtenabled <> 'D'
      and f.prosrc ~* ('(notify +|pg_notify *[(] *'')(dataapi|' || $1::text || ')')
)
"""
"""Whether an event trigger announces changes of the schema, be it ours or what PostgREST's users install.

Its value is ``db-channel``, which has no character that is special in a pattern.
"""


def unannounced(channel: str) -> str:
    """Return what to say of a database where no event trigger announces changes."""
    return (
        f"no event trigger announces changes of the schema: use NOTIFY {channel}, 'reload schema' after "
        "them, or let dataapi init install one"
    )


RELOAD_CONFIG = "reload config"
"""Asks for what roles and the database set for sessions, of which the catalog has the roles' part."""

_RELOADS = ("", "reload schema", RELOAD_CONFIG)
_log = Logger(namespace="dataapi.catalog")


class Listening(Protocol):
    """A LISTEN connection, such as ``database.listener.Listener``."""

    @property
    def listening(self) -> bool:
        """Whether notifications arrive now."""

    def start(self) -> Awaitable[None]:
        """Connect and listen, again and again while the database is away."""

    def stop(self) -> Awaitable[None]:
        """Disconnect."""


class CatalogWatcher:
    """Holds the current snapshot of one database's catalog.

    Requests hold on to the ``current`` one; a reload replaces it when the new one is complete, and a
    failed reload leaves it.

    :ivar current: the snapshot that serves, or None before the first load.
    :ivar is_standby: whether the database was a standby when it was last asked.
    :ivar error: why the last load failed, or None after one that worked.
    :ivar loads, failures: how many loads worked, and how many failed.
    :ivar load_seconds: how long the last load that worked took.
    """

    def __init__(
        self,
        reactor: Any,
        fetch: Fetch,
        search_path: Sequence[str],
        listen: Callable[..., Listening] | None = None,
        *,
        channel: str = "pgrst",
        renew: Callable[[], object] = lambda: None,
        backoff: Backoff = BACKOFF,
        features: frozenset[str] = frozenset(),
    ) -> None:
        """Prepare; nothing happens before ``start``.

        :param listen: makes the listener of channels, which calls ``on_notification`` with channel and
            payload, and ``on_reconnect`` after a gap; None when notifications are switched off.
        :param channel: on which a reload can be asked for, besides ours.
        :param renew: replaces the sessions, whose settings are to be read again.
        :param backoff: how long to wait between attempts to load.
        :param features: the features that the configuration turns on for every table.
        """
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
        self._announced: bool | None = None
        self._fingerprint: str | None = None
        self.is_standby = False
        self._compared = float("-inf")
        self._comparing = SingleFlight(self._compare_for_request)
        self._loading = SingleFlight(self._load, fresh=True)
        self._refused: set[tuple[str, Table | Function]] = set()
        self._regranting = SingleFlight(self._regrant, fresh=True)
        self._regranted = float("-inf")
        self._soon = Alarm(reactor, self._reload_now)
        self._retry = Retry(reactor, backoff, self._reload_now)
        self._stopped = False

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What an operator should know of the current catalog."""
        return self.current.problems if self.current else ()

    async def start(self) -> None:
        """Load the catalog and listen; when the database is away, return and go on trying."""
        if self._listener:
            await self._listener.start()
        try:
            await self.reload()
        except CancelledError:
            raise
        except Exception:
            # Logged where it happened, and a retry is due.
            return

    async def stop(self) -> None:
        """End the listener, the timers and a load that runs, whose callers get ``CancelledError``."""
        self._stopped = True
        self._cancel_timers()
        self._comparing.cancel()
        self._regranting.cancel()
        if self._listener:
            await self._listener.stop()
        self._loading.cancel()

    async def reload(self) -> Catalog:
        """Read the catalog again and return the new snapshot, which then serves.

        Callers that wait at the same time share one load, but never one that began before they asked.

        :raises ApiError: the database could not be asked; the old snapshot stays.
        :raises CancelledError: the watcher was stopped.
        """
        if self._stopped:
            raise CancelledError
        return await self._loading.run()

    async def refresh(self, known: Catalog) -> Catalog:
        """Return the catalog that serves, for a request that found a name missing in ``known``.

        It is compared with the database, at most once in ``FRESH`` seconds for all requests together, and
        read again when it is outdated; in between it is returned at once.  A database that cannot be
        asked leaves it as it is.
        """
        if self.current is known and self._reactor.seconds() - self._compared >= FRESH and not self._stopped:
            await self._comparing.run()
        return self.current or known

    async def regrant(self, known: Catalog, role: str, item: Table | Function) -> Catalog:
        """Return the catalog that serves, for a request that ``known`` denies a role's use of something.

        PostgreSQL is asked after each refusal: once in ``REGRANT_EVERY`` seconds for all requests together
        that are refused the same.  A database that cannot be asked leaves the catalog as it is.
        """
        if self.current is known and not self._stopped:
            self._refused.add((role, item))
            await self._regranting.run()
        return self.current or known

    async def _regrant(self) -> None:
        """Look what has been granted of all that was refused since the last look."""
        pause = self._regranted + REGRANT_EVERY - self._reactor.seconds()
        if pause > 0:
            await deferLater(self._reactor, pause)
        self._regranted = self._reactor.seconds()
        refused, self._refused = self._refused, set()
        for role, item in refused:
            known = self.current
            assert known is not None, "a catalog has refused it"
            if isinstance(item, Table) and known.tables.get(item.oid) is not item:
                continue  # of an older catalog than the one by which the request is answered again
            try:
                newer = await regrant(self._fetch, known, role, item)
            except ApiError as error:
                _log.info("Privileges could not be compared: {error}", error=str(error))
                return
            if self.current is known:
                self.current = newer

    @property
    def polling(self) -> bool:
        """Whether no notification can arrive that ought to, as on a standby."""
        return self._listener is not None and not self._listener.listening

    async def poll(self, requests: Callable[[], int] = lambda: 0) -> None:
        """Compare the catalog with the database where notifications are not enough, until it is cancelled.

        Unless an event trigger announces changes, it is compared while requests come.  Where no notification
        can arrive it is also compared without requests.  None arrive from a standby, and those of its primary
        may come before the change does.

        :param requests: returns how many requests have come.
        """
        came, compared, next_one = requests(), self._reactor.seconds(), 0.0
        while True:
            await deferLater(self._reactor, COMPARE_EVERY)
            now = self._reactor.seconds()
            alone = self.polling or self.is_standby
            asked = requests() != came and self._fingerprint is not None and (alone or not self._announced)
            idle = alone and now - compared >= POLL_EVERY
            if self.current is not None and (idle or (asked and now >= next_one)):
                came, compared = requests(), now
                await self._compare()
                ended = self._reactor.seconds()
                next_one = ended + min(POLL_EVERY, SHARE * (ended - now))

    def request_reload(self) -> None:
        """Reload soon, together with whatever else asks for it until then."""
        if not self._stopped:
            self._soon.within(DEBOUNCE)

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
            self._compared = self._reactor.seconds()

    async def _compare(self) -> None:
        """Read the catalog again when the database has changed since it was read."""
        try:
            fingerprint = await self._read_fingerprint()
            if fingerprint is None or fingerprint != self._fingerprint:
                await self.reload()
        except CancelledError:
            raise
        except Exception as error:
            _log.info("The catalog could not be compared: {error}", error=str(error))

    async def _read_fingerprint(self) -> str | None:
        """Return a text that changes with the database, None where its system tables do not say."""
        try:
            [(fingerprint, self.is_standby)] = await self._fetch(FINGERPRINT, ())
        except DatabaseUnavailable:
            raise
        except ApiError as error:
            _log.debug("The catalog has no fingerprint: {code} {error}", code=error.code, error=error.message)
            return None
        return str(fingerprint)

    def _reload_now(self) -> None:
        self._cancel_timers()
        # What fails is logged, and tried again.
        self._loading.run().addErrback(lambda _: None)

    async def _load(self) -> Catalog:
        try:
            # Before the load, so that no change falls between the two.
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
        self._compared = self._reactor.seconds()
        self._retry.succeeded()
        self._retry.cancel()
        for problem in catalog.problems:
            _log.warn("{place}: {problem}", place=problem.place, problem=problem.message)
        await self._ask_for_trigger()
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
        state = f"catalog {self.current.generation} stays" if self.current else "there is none yet"
        text = "The catalog could not be loaded, {state}; again in {wait:.1f} s"
        if isinstance(error, ApiError):
            _log.error(text + ": {code} {error}", state=state, wait=wait, code=error.code, error=str(error))
        else:
            _log.failure(text + ".", state=state, wait=wait)

    def _cancel_timers(self) -> None:
        self._soon.cancel()
        self._retry.cancel()

    async def _ask_for_trigger(self) -> None:
        """Find out whether changes are announced, and say once if an operator has to announce them."""
        if not self._listens:
            return
        try:
            [(announced,)] = await self._fetch(ANNOUNCED, (self._channel,))
        except ApiError:
            return  # the catalog is there, which matters more
        if self._announced is None and not announced:
            _log.warn("{text}", text=unannounced(self._channel))
        self._announced = announced
