"""When the catalog is loaded, shared, retried and kept, on a clock that the test moves."""

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
    """A listener that the test speaks through."""

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
        """Whether it listens now."""
        return self.running

    async def start(self) -> None:
        """Note that it listens."""
        self.running = True

    async def stop(self) -> None:
        """Note that it does not."""
        self.running = False


class ClockWithThreads(Clock):
    """A clock of a reactor whose threads run their work immediately."""

    def getThreadPool(self) -> ClockWithThreads:  # noqa: N802 - twisted's name
        """Return the pool that runs work immediately."""
        return self

    def callFromThread(self, call: Callable[..., Any], *arguments: Any) -> None:  # noqa: N802 - twisted's name
        """Call the function."""
        call(*arguments)

    def callInThreadWithCallback(  # noqa: N802 - twisted's name
        self, on_result: Callable[[bool, Any], None], work: Callable[..., Any], *arguments: Any
    ) -> None:
        """Run the work and report its result."""
        at_once(work, *arguments).addCallbacks(
            lambda result: on_result(True, result), lambda failure: on_result(False, failure)
        )


class Bench:
    """A watcher whose database answers when the test says so."""

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
        """The one listener."""
        return self.listeners[0]

    def answer(self, comment: str | None = None) -> None:
        """Let the oldest load succeed."""
        schema = json.dumps([["1", "public", comment, None]])
        self.loads.pop(0).callback([("server", json.dumps([["0", "0", False, None]])), ("schemas", schema)])

    def fail(self, error: Exception = AWAY) -> None:
        """Let the oldest load fail."""
        self.loads.pop(0).errback(error)

    def start(self) -> Deferred[None]:
        """Start the watcher."""
        return Deferred.fromCoroutine(self.watcher.start())

    def reload(self) -> list[Catalog | str]:
        """Ask for a reload; the list gets its outcome."""
        outcome: list[Catalog | str] = []
        deferred = Deferred.fromCoroutine(self.watcher.reload())
        deferred.addCallbacks(outcome.append, lambda failure: outcome.append(failure.type.__name__))
        return outcome


@pytest.fixture
def logged() -> Iterator[list[LogEvent]]:
    """Collect what the catalog's logger says."""
    events: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if event.get("log_namespace") == "dataapi.catalog":
            events.append(event)

    globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
    yield events
    globalLogPublisher.removeObserver(observe)  # type: ignore[arg-type]


def test_starting_ends_with_the_first_catalog() -> None:
    """Generation 1 serves once start has ended, and the listener listens."""
    bench = Bench()
    started = bench.start()
    assert bench.watcher.current is None
    assert not started.called
    bench.answer()
    assert started.called
    assert bench.watcher.current is not None
    assert bench.watcher.current.generation == 1
    assert bench.listener.running
    assert bench.listener.channels == ("pgrst", "dataapi")


def test_a_database_that_is_away_is_tried_again_with_longer_waits() -> None:
    """Start returns meanwhile; waits double from one second up to 32."""
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
    bench.answer()
    assert bench.watcher.current is not None
    assert bench.watcher.error is None
    assert bench.clock.getDelayedCalls() == []


def test_chance_decides_a_part_of_the_wait() -> None:
    """So that many processes don't come back at once."""
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
def test_a_notification_reloads_after_a_moment(channel: str, payload: str, reloads: bool) -> None:
    """Only those that mean the schema, or the roles' settings."""
    bench = Bench()
    bench.start()
    bench.answer()
    bench.listener.notify(channel, payload)
    assert not bench.loads
    bench.clock.advance(DEBOUNCE)
    assert bool(bench.loads) is reloads
    if reloads:
        bench.answer()
        assert bench.watcher.current is not None
        assert bench.watcher.current.generation == 2


def test_a_burst_of_notifications_costs_one_load() -> None:
    """A migration says reload many times; endless ones don't put the load off either."""
    bench = Bench()
    bench.start()
    bench.answer()
    for _ in range(50):
        bench.listener.notify("pgrst", "")
        bench.clock.advance(DEBOUNCE / 49)
    assert len(bench.loads) == 1


def test_a_gap_in_listening_is_followed_by_a_reload() -> None:
    """What was notified meanwhile is lost, so the catalog is read again."""
    bench = Bench()
    bench.start()
    bench.answer()
    bench.listener.reconnect()
    bench.clock.advance(DEBOUNCE)
    assert len(bench.loads) == 1


def test_reloads_at_the_same_time_share_one_load_that_began_after_they_asked() -> None:
    """A load under way may have missed what the caller has just changed."""
    bench = Bench()
    bench.start()
    bench.answer()
    first = bench.reload()
    second, third = bench.reload(), bench.reload()
    bench.answer()
    assert [len(first), len(second), len(third)] == [1, 0, 0]
    assert len(bench.loads) == 1
    bench.answer()
    assert second[0] is third[0] is bench.watcher.current
    assert bench.watcher.loads == 3


def test_the_old_catalog_serves_while_a_reload_runs_and_after_it_failed() -> None:
    """Whoever asked for the reload learns why it failed, and it is tried again."""
    bench = Bench()
    bench.start()
    bench.answer()
    old = bench.watcher.current
    outcome = bench.reload()
    assert bench.watcher.current is old
    bench.fail()
    assert outcome == ["DatabaseUnavailable"]
    assert bench.watcher.current is old
    assert bench.watcher.error == "The database is away."
    bench.clock.advance(1)
    bench.answer()
    assert bench.watcher.current is not old
    assert bench.watcher.error is None


def test_a_notification_does_not_wait_for_the_next_retry() -> None:
    """The back-off may be half a minute; somebody who says reload wants it now."""
    bench = Bench()
    bench.start()
    bench.fail()
    for _ in range(5):
        bench.clock.advance(32)
        bench.fail()
    bench.listener.notify("pgrst", "")
    bench.clock.advance(DEBOUNCE)
    bench.answer()
    assert bench.watcher.current is not None
    assert bench.clock.getDelayedCalls() == []


def test_problems_are_logged_at_each_load(logged: list[LogEvent]) -> None:
    """Each with the object that it is about."""
    bench = Bench()
    bench.start()
    bench.answer('@graphql({"max_rows": 0})')
    bench.reload()
    bench.answer('@graphql({"max_rows": 0})')
    assert [problem.place for problem in bench.watcher.problems] == ["schema public"]
    assert [event["place"] for event in logged if "place" in event] == ["schema public"] * 2


@pytest.mark.parametrize(("announced", "lines"), [(True, 0), (False, 1), (REFUSED, 0)])
def test_an_operator_learns_once_that_changes_are_not_announced(
    logged: list[LogEvent], announced: bool | Exception, lines: int
) -> None:
    """Nothing is installed; a database that does not tell is no failure."""
    bench = Bench()
    bench.announced = announced
    bench.start()
    bench.answer()
    bench.reload()
    bench.answer()
    assert bench.watcher.loads == 2
    assert [event.get("text") for event in logged].count(missing_trigger_note("pgrst")) == lines


def test_stopping_leaves_nothing_behind() -> None:
    """No timer, no listener, and nobody waits for ever."""
    bench = Bench()
    bench.start()
    bench.answer()
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


def test_a_caller_that_goes_away_does_not_stop_the_reload() -> None:
    """The load is the watcher's own."""
    bench = Bench()
    bench.start()
    bench.answer()
    deferred = Deferred.fromCoroutine(bench.watcher.reload())
    deferred.addErrback(lambda failure: failure.trap(CancelledError))
    deferred.cancel()
    bench.answer()
    assert bench.watcher.current is not None
    assert bench.watcher.current.generation == 2


def refresh(bench: Bench, known: Catalog) -> list[Catalog]:
    """Ask whether a catalog is outdated; the list gets the one that serves."""
    outcome: list[Catalog] = []
    Deferred.fromCoroutine(bench.watcher.refresh(known)).addCallback(outcome.append)
    return outcome


def started(**options: Any) -> tuple[Bench, Catalog]:
    """Return a bench whose catalog is loaded, and old enough to be outdated."""
    bench = Bench(**options)
    bench.start()
    bench.answer()
    bench.clock.advance(REFRESH_INTERVAL)
    assert bench.watcher.current is not None
    return bench, bench.watcher.current


def test_an_unknown_name_has_the_catalog_read_again_when_the_database_has_changed() -> None:
    """All who ask at the same time share one comparison and one load, and get the new catalog."""
    bench, old = started()
    bench.compared = 0
    bench.fingerprint = comparing = Deferred[str]()
    outcomes = [refresh(bench, old) for _ in range(5)]
    assert bench.compared == 1
    bench.fingerprint = "changed"
    comparing.callback("changed")
    assert outcomes == [[]] * 5
    assert len(bench.loads) == 1
    bench.answer("changed")
    assert all(outcome == [bench.watcher.current] for outcome in outcomes)
    assert bench.watcher.current is not None
    assert bench.watcher.current.generation == old.generation + 1


def test_a_flood_of_unknown_names_costs_one_comparison_in_two_seconds() -> None:
    """Names are mostly misspelt: between comparisons nobody waits, and nothing is loaded."""
    bench, old = started()
    bench.compared = 0
    for _ in range(100):
        assert refresh(bench, old) == [old]
        bench.clock.advance(REFRESH_INTERVAL / 20)
    assert bench.compared == 5
    assert bench.loads == []


def test_a_catalog_that_was_replaced_meanwhile_needs_no_comparison() -> None:
    """Who was planned by an older one is given the newer one at once."""
    bench, old = started()
    bench.reload()
    bench.answer("changed")
    bench.clock.advance(REFRESH_INTERVAL)
    bench.compared = 0
    assert refresh(bench, old) == [bench.watcher.current]
    assert bench.compared == 0


def test_a_database_that_cannot_be_asked_leaves_the_catalog_as_it_is() -> None:
    """The error is then answered as it was."""
    bench, old = started()
    bench.fingerprint = comparing = Deferred[str]()
    outcome = refresh(bench, old)
    comparing.errback(AWAY)
    assert outcome == [old]


def test_a_load_that_finds_nothing_new_keeps_what_was_made_of_the_catalog() -> None:
    """The generation says that it was read; its content is the same object."""
    bench, old = started()
    bench.reload()
    bench.answer()
    new = bench.watcher.current
    assert new is not None
    assert (new.generation, new.tables is old.tables) == (old.generation + 1, True)
    assert new.has_same_content(old)
    bench.reload()
    bench.answer("changed")
    assert bench.watcher.current is not None
    assert not bench.watcher.current.has_same_content(new)


def test_the_catalog_is_polled_while_no_notification_can_arrive() -> None:
    """Where notifications arrive the database is not asked."""
    bench, _ = started()
    polling = Deferred.fromCoroutine(bench.watcher.poll())
    bench.compared = 0
    bench.fingerprint = "changed"
    bench.clock.advance(POLL_INTERVAL)
    assert bench.compared == 0
    bench.listener.running = False
    bench.clock.advance(POLL_INTERVAL)
    # The load that follows reads what it is to be compared by.
    assert bench.compared == 2
    bench.answer("changed")
    bench.clock.advance(POLL_INTERVAL)
    assert bench.compared == 3
    assert bench.loads == []
    polling.addErrback(lambda failure: failure.trap(CancelledError))
    polling.cancel()


@contextmanager
def polling(bench: Bench) -> Iterator[list[None]]:
    """Compare the catalog in the background; the list has an item for each request that has come."""
    requests: list[None] = []
    task = Deferred.fromCoroutine(bench.watcher.poll(lambda: len(requests)))
    bench.compared = 0
    yield requests
    task.addErrback(lambda failure: failure.trap(CancelledError))
    task.cancel()


def pass_seconds(bench: Bench, seconds: int, requests: list[None] | None = None) -> None:
    """Let seconds pass, with a request in each one if there is a list of them."""
    for _ in range(seconds):
        if requests is not None:
            requests.append(None)
        bench.clock.advance(1)


@pytest.mark.parametrize("listen", [True, False], ids=["listening", "not listening"])
def test_unannounced_changes_are_noticed_while_requests_come(listen: bool) -> None:
    """Once a second, whatever the requests ask for; without requests nobody needs the newest catalog."""
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
        bench.answer("changed")
        assert bench.watcher.current is not old


def test_an_event_trigger_makes_comparisons_needless() -> None:
    """One that is installed later is noticed with the load that it brings about."""
    bench, _ = started(announced=False)
    with polling(bench) as requests:
        bench.announced = True
        bench.reload()
        bench.answer()
        bench.compared = 0
        pass_seconds(bench, 30, requests)
        assert bench.compared == 0
        bench.listener.running = False
        pass_seconds(bench, 3, requests)
        assert bench.compared == 3


@pytest.mark.parametrize(("took", "pause"), [(0.01, 1), (0.0625, 4), (5.0, 10)])
def test_comparisons_of_a_large_database_take_a_fiftieth_of_the_time(took: float, pause: int) -> None:
    """With a pause of ten seconds at most."""
    bench, _ = started(announced=False)
    with polling(bench) as requests:
        bench.fingerprint = comparing = Deferred[str]()
        pass_seconds(bench, 1, requests)
        bench.fingerprint = "as first"
        bench.clock.advance(took)
        comparing.callback("as first")
        pass_seconds(bench, pause - 1, requests)
        assert bench.compared == 1
        pass_seconds(bench, 1, requests)
        assert bench.compared == 2


def test_a_comparison_in_the_background_is_none_for_a_request() -> None:
    """A name that is unknown just after it is looked for at once, as if there was no other comparison."""
    bench, old = started(announced=False)
    with polling(bench) as requests:
        pass_seconds(bench, 1, requests)
        assert bench.compared == 1
        bench.fingerprint = "changed"
        outcome = refresh(bench, old)
        bench.answer("changed")
        assert outcome == [bench.watcher.current]
        assert outcome != [old]


def test_the_catalog_of_a_standby_is_polled_though_its_primary_notifies() -> None:
    """The notification may come before the change does, so the load that it asks for finds nothing new."""
    bench = Bench()
    bench.is_standby = True
    bench.start()
    bench.answer()
    polling = Deferred.fromCoroutine(bench.watcher.poll())
    bench.fingerprint = "changed"
    bench.clock.advance(POLL_INTERVAL)
    bench.answer("changed")
    assert bench.watcher.loads == 2
    polling.addErrback(lambda failure: failure.trap(CancelledError))
    polling.cancel()


def test_a_database_whose_system_tables_show_no_changes_is_read_again() -> None:
    """One in PostgreSQL's dialect, say, without ``xmin``; what was made of an equal catalog stays."""
    bench = Bench()
    bench.fingerprint = fail(DatabaseError(400, "0A000", "System column xmin is not supported"))
    bench.start()
    bench.answer()
    old = bench.watcher.current
    assert old is not None
    bench.fingerprint = fail(DatabaseError(400, "0A000", "System column xmin is not supported"))
    bench.clock.advance(REFRESH_INTERVAL)
    outcome = refresh(bench, old)
    bench.fingerprint = "irrelevant"
    bench.answer()
    [new] = outcome
    assert new.has_same_content(old)
    assert new.generation == old.generation + 1
