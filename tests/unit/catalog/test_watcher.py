"""Loads, shared loads and retries of the catalog, with a fake clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from dataapi.catalog.model import Catalog
from dataapi.catalog.reflect import FINGERPRINT
from dataapi.catalog.watcher import (
    DEBOUNCE,
    EVENT_TRIGGER_EXISTS,
    POLL_INTERVAL,
    REFRESH_INTERVAL,
    CatalogWatcher,
    missing_trigger_note,
)
from dataapi.concurrency.timers import Backoff
from dataapi.http.errors import DatabaseError, DatabaseUnavailable
from support.catalog import at_once
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher

AWAY = DatabaseUnavailable(503, "PGRST000", "The database is away.")
REFUSED = DatabaseError(403, "42501", "permission denied for table pg_event_trigger")


class FakeListener:
    """A listener that the test controls."""

    def __init__(
        self,
        channels: Sequence[str],
        on_notification: Callable[[str, str], None],
        on_reconnect: Callable[[], None],
    ) -> None:
        self.channels = channels
        self.notify = on_notification
        self.reconnect = on_reconnect
        self.running = False

    @property
    def listening(self) -> bool:
        return self.running

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False


class ClockWithThreads(Clock):
    """A clock with a thread pool that runs work immediately."""

    def getThreadPool(self) -> ClockWithThreads:  # noqa: N802 - twisted's name
        return self

    def callFromThread(self, call: Callable[..., Any], *arguments: Any) -> None:  # noqa: N802 - twisted's name
        call(*arguments)

    def callInThreadWithCallback(  # noqa: N802 - twisted's name
        self, on_result: Callable[[bool, Any], None], work: Callable[..., Any], *arguments: Any
    ) -> None:
        at_once(work, *arguments).addCallbacks(
            lambda result: on_result(True, result), lambda failure: on_result(False, failure)
        )


class Bench:
    """A watcher of a fake database. The test controls the database's responses."""

    def __init__(self, *, announced: bool = True, listen: Any = ..., **options: Any) -> None:
        self.clock = ClockWithThreads()
        self.loads: list[Deferred[list[tuple[str, str]]]] = []
        self.announced: bool | Exception = announced
        self.compared = 0
        self.fingerprint: str | Deferred[str] = "as first"
        self.is_standby = False
        self.listeners: list[FakeListener] = []
        self.watcher = CatalogWatcher(
            self.clock,
            self._fetch,
            ["public"],
            self._listen if listen is ... else listen,
            **{"backoff": Backoff(first=1.0, spread=0.0), **options},
        )

    def _listen(self, channels: Sequence[str], **callbacks: Any) -> FakeListener:
        self.listeners.append(FakeListener(channels, **callbacks))
        return self.listeners[0]

    async def _fetch(self, text: str, _values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if text == EVENT_TRIGGER_EXISTS:
            if isinstance(self.announced, Exception):
                raise self.announced
            return [(self.announced,)]
        if text == FINGERPRINT:
            self.compared += 1
            if isinstance(self.fingerprint, Deferred):
                return [(await self.fingerprint, self.is_standby)]
            return [(self.fingerprint, self.is_standby)]
        load: Deferred[list[tuple[str, str]]] = Deferred()
        self.loads.append(load)
        return await load

    @property
    def listener(self) -> FakeListener:
        return self.listeners[0]

    def succeed(self, comment: str | None = None) -> None:
        """Make the oldest unfinished load succeed."""
        schema = json.dumps([["1", "public", comment, None]])
        server = json.dumps([["0", "0", False, None, False, False]])
        self.loads.pop(0).callback([("server", server), ("schemas", schema)])

    def fail(self, error: Exception = AWAY) -> None:
        """Make the oldest unfinished load fail."""
        self.loads.pop(0).errback(error)

    def start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.watcher.start())

    def reload(self) -> list[Catalog | str]:
        """Start a reload and return a list that will contain its outcome."""
        outcome: list[Catalog | str] = []
        deferred = Deferred.fromCoroutine(self.watcher.reload())
        deferred.addCallbacks(outcome.append, lambda failure: outcome.append(failure.type.__name__))
        return outcome


@pytest.fixture
def logged() -> Iterator[list[LogEvent]]:
    events: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if event.get("log_namespace") == "dataapi.catalog":
            events.append(event)

    globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
    yield events
    globalLogPublisher.removeObserver(observe)  # type: ignore[arg-type]


def test_start_waits_for_the_first_catalog() -> None:
    bench = Bench()
    started = bench.start()
    assert bench.watcher.current is None
    assert not started.called
    bench.succeed()
    assert started.called
    assert bench.watcher.current is not None
    assert bench.watcher.current.generation == 1
    assert bench.listener.running
    assert bench.listener.channels == ("pgrst", "dataapi")


def test_unavailable_database_is_retried_with_backoff() -> None:
    """``start`` returns after the first failure. The delay between retries doubles from 1 to 32 seconds."""
    bench = Bench()
    started = bench.start()
    bench.fail()
    assert started.called
    assert bench.watcher.error == "The database is away."
    waits = []
    for _ in range(7):
        waited = 0.0
        while not bench.loads:
            bench.clock.advance(0.5)
            waited += 0.5
        waits.append(waited)
        bench.fail()
    assert waits == [1, 2, 4, 8, 16, 32, 32]
    assert bench.watcher.failures == 8
    bench.clock.advance(32)
    bench.succeed()
    assert bench.watcher.current is not None
    assert bench.watcher.error is None
    assert bench.clock.getDelayedCalls() == []


def test_retry_delay_is_randomized() -> None:
    bench = Bench(backoff=Backoff(first=1.0, random=lambda: 0.5))
    bench.start()
    bench.fail()
    assert bench.clock.getDelayedCalls()[0].getTime() == 0.75


@pytest.mark.parametrize(
    ("channel", "payload", "reloads"),
    [
        ("pgrst", "", True),
        ("pgrst", "reload schema", True),
        ("dataapi", "reload schema", True),
        ("pgrst", "reload config", True),
        ("pgrst", "reload nothing", False),
        ("other", "", False),
    ],
)
def test_notification_reloads_after_debounce(channel: str, payload: str, reloads: bool) -> None:
    bench = Bench()
    bench.start()
    bench.succeed()
    bench.listener.notify(channel, payload)
    assert not bench.loads
    bench.clock.advance(DEBOUNCE)
    assert bool(bench.loads) is reloads
    if reloads:
        bench.succeed()
        assert bench.watcher.current is not None
        assert bench.watcher.current.generation == 2


def test_burst_of_notifications_causes_one_load() -> None:
    bench = Bench()
    bench.start()
    bench.succeed()
    for _ in range(50):
        bench.listener.notify("pgrst", "")
        bench.clock.advance(DEBOUNCE / 49)
    assert len(bench.loads) == 1


def test_reconnected_listener_reloads() -> None:
    bench = Bench()
    bench.start()
    bench.succeed()
    bench.listener.reconnect()
    bench.clock.advance(DEBOUNCE)
    assert len(bench.loads) == 1


def test_concurrent_reloads_share_one_load_that_starts_later() -> None:
    bench = Bench()
    bench.start()
    bench.succeed()
    first = bench.reload()
    second, third = bench.reload(), bench.reload()
    bench.succeed()
    assert [len(first), len(second), len(third)] == [1, 0, 0]
    assert len(bench.loads) == 1
    bench.succeed()
    assert second[0] is third[0] is bench.watcher.current
    assert bench.watcher.loads == 3


def test_old_catalog_is_used_during_and_after_a_failed_reload() -> None:
    bench = Bench()
    bench.start()
    bench.succeed()
    old = bench.watcher.current
    outcome = bench.reload()
    assert bench.watcher.current is old
    bench.fail()
    assert outcome == ["DatabaseUnavailable"]
    assert bench.watcher.current is old
    assert bench.watcher.error == "The database is away."
    bench.clock.advance(1)
    bench.succeed()
    assert bench.watcher.current is not old
    assert bench.watcher.error is None


def test_notification_does_not_wait_for_the_next_retry() -> None:
    bench = Bench()
    bench.start()
    bench.fail()
    for _ in range(5):
        bench.clock.advance(32)
        bench.fail()
    bench.listener.notify("pgrst", "")
    bench.clock.advance(DEBOUNCE)
    bench.succeed()
    assert bench.watcher.current is not None
    assert bench.clock.getDelayedCalls() == []


def test_problems_are_logged_at_each_load(logged: list[LogEvent]) -> None:
    bench = Bench()
    bench.start()
    bench.succeed('@graphql({"max_rows": 0})')
    bench.reload()
    bench.succeed('@graphql({"max_rows": 0})')
    assert [problem.place for problem in bench.watcher.problems] == ["schema public"]
    assert [event["place"] for event in logged if "place" in event] == ["schema public"] * 2


@pytest.mark.parametrize(("announced", "lines"), [(True, 0), (False, 1), (REFUSED, 0)])
def test_missing_event_trigger_is_logged_once(
    logged: list[LogEvent], announced: bool | Exception, lines: int
) -> None:
    bench = Bench()
    bench.announced = announced
    bench.start()
    bench.succeed()
    bench.reload()
    bench.succeed()
    assert bench.watcher.loads == 2
    assert [event.get("text") for event in logged].count(missing_trigger_note("pgrst")) == lines


def test_stop_cancels_everything() -> None:
    bench = Bench()
    bench.start()
    bench.succeed()
    running, next_one = bench.reload(), bench.reload()
    bench.listener.notify("pgrst", "")
    stopped = Deferred.fromCoroutine(bench.watcher.stop())
    assert stopped.called
    assert running == next_one == [CancelledError.__name__]
    assert not bench.listener.running
    assert bench.clock.getDelayedCalls() == []
    bench.listener.notify("pgrst", "")
    assert bench.clock.getDelayedCalls() == []
    assert bench.reload() == [CancelledError.__name__]


def test_cancelled_caller_does_not_stop_the_reload() -> None:
    bench = Bench()
    bench.start()
    bench.succeed()
    deferred = Deferred.fromCoroutine(bench.watcher.reload())
    deferred.addErrback(lambda failure: failure.trap(CancelledError))
    deferred.cancel()
    bench.succeed()
    assert bench.watcher.current is not None
    assert bench.watcher.current.generation == 2


def refresh(bench: Bench, known: Catalog) -> list[Catalog]:
    """Refresh an outdated catalog and return a list that will contain the result."""
    outcome: list[Catalog] = []
    Deferred.fromCoroutine(bench.watcher.refresh(known)).addCallback(outcome.append)
    return outcome


def started(**options: Any) -> tuple[Bench, Catalog]:
    """Return a bench whose catalog was loaded one refresh interval ago."""
    bench = Bench(**options)
    bench.start()
    bench.succeed()
    bench.clock.advance(REFRESH_INTERVAL)
    assert bench.watcher.current is not None
    return bench, bench.watcher.current


def test_unknown_name_reloads_the_catalog_if_the_database_changed() -> None:
    bench, old = started()
    bench.compared = 0
    bench.fingerprint = comparing = Deferred[str]()
    outcomes = [refresh(bench, old) for _ in range(5)]
    assert bench.compared == 1
    bench.fingerprint = "changed"
    comparing.callback("changed")
    assert outcomes == [[]] * 5
    assert len(bench.loads) == 1
    bench.succeed("changed")
    assert all(outcome == [bench.watcher.current] for outcome in outcomes)
    assert bench.watcher.current is not None
    assert bench.watcher.current.generation == old.generation + 1


def test_repeated_unknown_names_cause_limited_comparisons() -> None:
    bench, old = started()
    bench.compared = 0
    for _ in range(100):
        assert refresh(bench, old) == [old]
        bench.clock.advance(REFRESH_INTERVAL / 20)
    assert bench.compared == 5
    assert bench.loads == []


def test_replaced_catalog_needs_no_comparison() -> None:
    bench, old = started()
    bench.reload()
    bench.succeed("changed")
    bench.clock.advance(REFRESH_INTERVAL)
    bench.compared = 0
    assert refresh(bench, old) == [bench.watcher.current]
    assert bench.compared == 0


def test_failed_comparison_keeps_the_catalog() -> None:
    bench, old = started()
    bench.fingerprint = comparing = Deferred[str]()
    outcome = refresh(bench, old)
    comparing.errback(AWAY)
    assert outcome == [old]


def test_unchanged_reload_reuses_the_derived_data() -> None:
    bench, old = started()
    bench.reload()
    bench.succeed()
    new = bench.watcher.current
    assert new is not None
    assert (new.generation, new.tables is old.tables) == (old.generation + 1, True)
    assert new.has_same_content(old)
    bench.reload()
    bench.succeed("changed")
    assert bench.watcher.current is not None
    assert not bench.watcher.current.has_same_content(new)


def test_catalog_is_polled_while_notifications_cannot_arrive() -> None:
    bench, _ = started()
    polling = Deferred.fromCoroutine(bench.watcher.poll())
    bench.compared = 0
    bench.fingerprint = "changed"
    bench.clock.advance(POLL_INTERVAL)
    assert bench.compared == 0
    bench.listener.running = False
    bench.clock.advance(POLL_INTERVAL)
    # The subsequent load also reads the fingerprint.
    assert bench.compared == 2
    bench.succeed("changed")
    bench.clock.advance(POLL_INTERVAL)
    assert bench.compared == 3
    assert bench.loads == []
    polling.addErrback(lambda failure: failure.trap(CancelledError))
    polling.cancel()


@contextmanager
def polling(bench: Bench) -> Iterator[list[None]]:
    """Poll in the background. The yielded list contains one item for each request."""
    requests: list[None] = []
    task = Deferred.fromCoroutine(bench.watcher.poll(lambda: len(requests)))
    bench.compared = 0
    yield requests
    task.addErrback(lambda failure: failure.trap(CancelledError))
    task.cancel()


def pass_seconds(bench: Bench, seconds: int, requests: list[None] | None = None) -> None:
    """Advance the clock second by second, adding one request per second to the list."""
    for _ in range(seconds):
        if requests is not None:
            requests.append(None)
        bench.clock.advance(1)


@pytest.mark.parametrize("listen", [True, False], ids=["listening", "not listening"])
def test_unannounced_changes_are_detected_while_requests_arrive(listen: bool) -> None:
    bench, old = started(announced=False, **({} if listen else {"listen": None}))
    with polling(bench) as requests:
        pass_seconds(bench, 30)
        assert bench.compared == 0
        pass_seconds(bench, 3, requests)
        assert bench.compared == 3
        pass_seconds(bench, 30)
        assert bench.compared == 3
        bench.fingerprint = "changed"
        pass_seconds(bench, 1, requests)
        bench.succeed("changed")
        assert bench.watcher.current is not old


def test_event_trigger_makes_comparisons_unnecessary() -> None:
    bench, _ = started(announced=False)
    with polling(bench) as requests:
        bench.announced = True
        bench.reload()
        bench.succeed()
        bench.compared = 0
        pass_seconds(bench, 30, requests)
        assert bench.compared == 0
        bench.listener.running = False
        pass_seconds(bench, 3, requests)
        assert bench.compared == 3


@pytest.mark.parametrize(("duration", "pause"), [(0.01, 1), (0.0625, 4), (5.0, 10)])
def test_comparisons_of_a_large_database_are_rate_limited(duration: float, pause: int) -> None:
    bench, _ = started(announced=False)
    with polling(bench) as requests:
        bench.fingerprint = comparing = Deferred[str]()
        pass_seconds(bench, 1, requests)
        bench.fingerprint = "as first"
        bench.clock.advance(duration)
        comparing.callback("as first")
        pass_seconds(bench, pause - 1, requests)
        assert bench.compared == 1
        pass_seconds(bench, 1, requests)
        assert bench.compared == 2


def test_background_comparison_does_not_delay_a_requested_refresh() -> None:
    bench, old = started(announced=False)
    with polling(bench) as requests:
        pass_seconds(bench, 1, requests)
        assert bench.compared == 1
        bench.fingerprint = "changed"
        outcome = refresh(bench, old)
        bench.succeed("changed")
        assert outcome == [bench.watcher.current]
        assert outcome != [old]


def test_standby_catalog_is_polled_despite_notifications() -> None:
    bench = Bench()
    bench.is_standby = True
    bench.start()
    bench.succeed()
    polling = Deferred.fromCoroutine(bench.watcher.poll())
    bench.fingerprint = "changed"
    bench.clock.advance(POLL_INTERVAL)
    bench.succeed("changed")
    assert bench.watcher.loads == 2
    polling.addErrback(lambda failure: failure.trap(CancelledError))
    polling.cancel()


def test_database_without_fingerprint_is_loaded_again() -> None:
    """Some databases that are compatible with PostgreSQL have no ``xmin``."""
    bench = Bench()
    bench.fingerprint = fail(DatabaseError(400, "0A000", "System column xmin is not supported"))
    bench.start()
    bench.succeed()
    old = bench.watcher.current
    assert old is not None
    bench.fingerprint = fail(DatabaseError(400, "0A000", "System column xmin is not supported"))
    bench.clock.advance(REFRESH_INTERVAL)
    outcome = refresh(bench, old)
    bench.fingerprint = "irrelevant"
    bench.succeed()
    [new] = outcome
    assert new.has_same_content(old)
    assert new.generation == old.generation + 1
