"""The delivery loop, with a fake clock, queue and HTTP client."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from dataapi.http.errors import DatabaseError, DatabaseUnavailable
from dataapi.settings import Webhooks
from dataapi.telemetry.tracing import Tracing
from dataapi.webhooks.delivery.attempt import Attempt
from dataapi.webhooks.delivery.concurrency_limits import MAX_AHEAD
from dataapi.webhooks.delivery.dispatcher import (
    CHANGED,
    LEASE_MARGIN,
    MAX_POLL_INTERVAL,
    POLL_INTERVAL,
    Dispatcher,
)
from dataapi.webhooks.model import AttemptError, AttemptOutcome, Trigger
from support.fake_queue import OK, REFUSED, FakeQueue, FakeSender
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

USUAL = Webhooks()


class Machine:
    """A dispatcher with a fake clock, queue and HTTP client."""

    def __init__(
        self, rules: Webhooks = USUAL, respond: Any = lambda _attempt: None, render: Any = None
    ) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.queue = FakeQueue(self.clock)
        self.sender = FakeSender(self.clock, respond)
        self.dispatcher = self.another(rules, render)

    def another(self, rules: Webhooks = USUAL, render: Any = None, **named: Any) -> Dispatcher:
        """Create another dispatcher on the same queue."""
        return Dispatcher(
            self.clock, self.queue, self.sender, render or (lambda *_: {}), rules, random=lambda: 0.5, **named
        )

    def pass_time(self, seconds: float, step: float = 0.01) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)

    @property
    def began(self) -> list[float]:
        """Start times of the attempts, in seconds."""
        return [round(at - 1000, 2) for at in self.sender.times]


def test_failures_are_retried_after_10_30_90_and_270_seconds() -> None:
    machine = Machine(respond=lambda _: REFUSED)
    machine.queue.add()
    machine.dispatcher.start()
    machine.pass_time(500, 0.05)
    waits = [after - before for before, after in zip(machine.began, machine.began[1:], strict=False)]
    assert machine.began[0] == 0
    assert waits == pytest.approx([10, 30, 90, 270], abs=0.2)
    assert [work.attempt_number for work, _ in machine.queue.done] == [1, 2, 3, 4, 5]
    assert not machine.queue.rows, "the queue is empty"


def test_success_ends_the_attempts() -> None:
    outcomes = [REFUSED, OK]
    machine = Machine(respond=lambda _: outcomes.pop(0))
    machine.queue.add()
    machine.dispatcher.start()
    machine.pass_time(60, 0.05)
    assert [finished.outcome for _, finished in machine.queue.done] == [REFUSED, OK]
    assert not machine.queue.rows


@pytest.mark.parametrize("begins", [False, True])
def test_failing_span_does_not_prevent_delivery(*, begins: bool) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra otel is not installed")

    class Broken(sdk.SpanProcessor):  # type: ignore[misc, name-defined]
        def on_start(self, *_: object, **__: object) -> None:
            if not begins:
                raise RuntimeError("no span")

        def on_end(self, *_: object) -> None:
            raise RuntimeError("no end")

    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    machine = Machine(respond=lambda _: OK)
    machine.dispatcher = machine.another(tracing=Tracing(provider))
    machine.queue.add(traceparent=f"00-{'1' * 32}-{'2' * 16}-01")
    with capturedLogs() as reported:
        machine.dispatcher.start()
        machine.pass_time(0.1)
    assert [finished.outcome for _, finished in machine.queue.done] == [OK]
    [(_, attempt)] = machine.sender.sent
    assert attempt.traceparent.startswith(f"00-{'1' * 32}-")
    assert [event for event in reported if event["log_namespace"] == "dataapi.tracing"]


@pytest.mark.parametrize("trigger", [Trigger.MANUAL, Trigger.TEST])
def test_manual_retries_and_test_events_are_attempted_once(trigger: Trigger) -> None:
    machine = Machine(respond=lambda _: REFUSED)
    machine.queue.add(trigger=trigger)
    machine.dispatcher.start()
    machine.pass_time(15)
    assert len(machine.queue.done) == 1
    assert not machine.queue.rows


def test_events_of_a_disabled_endpoint_are_not_sent() -> None:
    machine = Machine(respond=lambda _: OK)
    off = uuid4()
    machine.queue.disabled.add(off)
    for _ in range(40):
        machine.queue.add(endpoint=off)
    event = machine.queue.add()
    machine.dispatcher.start()
    machine.pass_time(0.1)
    assert [attempt.event_id for _, attempt in machine.sender.sent] == [str(event)]
    assert not machine.queue.rows
    assert machine.dispatcher.counters.settled == 40


@pytest.mark.parametrize("listening", [True, False])
def test_queue_is_polled_without_notifications(*, listening: bool) -> None:
    machine = Machine(respond=lambda _: OK)
    machine.dispatcher = machine.another(listening=lambda: listening)

    def claims_within(seconds: float) -> int:
        before = machine.queue.claims
        machine.pass_time(seconds)
        return machine.queue.claims - before

    machine.dispatcher.start()
    assert claims_within(2) == pytest.approx(2 / POLL_INTERVAL, abs=1)
    assert claims_within(20) < 2 / 3 * 20 / POLL_INTERVAL
    assert claims_within(20) == pytest.approx(20 / MAX_POLL_INTERVAL, abs=1)
    machine.queue.add()
    machine.pass_time(MAX_POLL_INTERVAL)
    assert len(machine.sender.sent) == 1
    assert claims_within(2) == pytest.approx(2 / POLL_INTERVAL, abs=1)


def test_due_times_planned_by_other_dispatchers_are_met() -> None:
    machine = Machine(respond=lambda _: OK)
    machine.queue.add()
    [row] = machine.queue.rows.values()
    row.due = row.claimable = machine.clock.seconds() + 3.2
    machine.dispatcher.start()
    machine.pass_time(5)
    assert machine.began == [pytest.approx(3.2, abs=0.011)]


def test_notification_starts_the_attempt_immediately() -> None:
    machine = Machine(respond=lambda _: OK)
    machine.dispatcher.start()
    machine.pass_time(2)
    machine.queue.add()
    machine.dispatcher.wake()
    assert machine.began == [2]


def test_many_notifications_cause_few_claims() -> None:
    machine = Machine()
    machine.queue.add()
    machine.dispatcher.start()
    before = machine.queue.claims
    for _ in range(200):
        machine.dispatcher.wake()
        machine.clock.advance(0.001)
    assert 15 <= machine.queue.claims - before <= 21


def test_long_queue_is_claimed_without_delay() -> None:
    machine = Machine(Webhooks(concurrency=2), lambda _: OK)
    for number in range(3 * MAX_AHEAD):
        machine.queue.add(f"https://{number}.example/")
    machine.dispatcher.start()
    machine.pass_time(0.5)
    assert len(machine.queue.done) == 3 * MAX_AHEAD


def test_dead_host_does_not_exceed_its_share() -> None:
    """New endpoints use at most half of ``concurrency_per_host``."""
    machine = Machine(
        Webhooks(concurrency=8, concurrency_per_host=4), lambda one: None if "dead" in one.url else OK
    )
    for _ in range(50):
        machine.queue.add("https://dead.example/", uuid4())
    for number in range(50):
        machine.queue.add(f"https://{number}.example/")
    machine.dispatcher.start()
    machine.pass_time(1.5)
    urls = [attempt.url for _, attempt in machine.sender.sent]
    assert urls.count("https://dead.example/") == 2
    assert len(set(urls)) == 51
    assert len(urls) == 52
    assert machine.queue.claims < 12, "released work is not claimed repeatedly"


def test_hanging_hosts_leave_half_of_the_attempts_to_others() -> None:
    machine = Machine(Webhooks(concurrency=16, concurrency_per_host=4))

    def respond(attempt: Attempt) -> AttemptOutcome | None:
        if "dead" in attempt.url:
            machine.clock.callLater(USUAL.timeout, machine.sender.end, REFUSED)
            return None
        return OK

    machine.sender.answer = respond
    for number in range(12):
        endpoint = uuid4()
        for _ in range(100):
            machine.queue.add(f"https://dead{number}.example/", endpoint, trigger=Trigger.MANUAL)
    machine.dispatcher.start()
    assert machine.dispatcher.in_flight == 12, "each endpoint begins with one attempt"
    machine.pass_time(55, 0.05)
    claims, sent = machine.queue.claims, len(machine.sender.sent)
    delays = []
    for _ in range(40):
        machine.queue.add("https://quick.example/")
        planned = machine.clock.seconds()
        machine.dispatcher.wake()
        machine.pass_time(1, 0.05)
        delays += [at - planned for at, one in machine.sender.sent[sent:] if "quick" in one.url]
        sent = len(machine.sender.sent)
    assert len(delays) == 40
    assert max(delays) <= 0.1
    hanging = Counter(one.url for at, one in machine.sender.sent if at > 1055 and "dead" in one.url)
    assert len(hanging) == 12, "each hanging endpoint is still tried"
    assert machine.queue.claims - claims < 400


def test_endpoint_change_applies_to_claimed_attempts() -> None:
    machine = Machine(Webhooks(concurrency_per_host=1))
    for number in range(3):
        machine.queue.add(body=b"old", url=f"https://{number}.example/")
    claims: list[Deferred[None]] = []
    claim = machine.queue.claim

    async def slow(*args: Any, **kwargs: Any) -> Any:
        works = await claim(*args, **kwargs)
        claims.append(Deferred())
        await claims[-1]
        return works

    machine.queue.claim = slow  # type: ignore[method-assign]
    machine.dispatcher.start()
    for row in machine.queue.rows.values():
        row.work = replace(row.work, body=b"new")
    machine.dispatcher.notified(CHANGED)
    claims[0].callback(None)
    machine.pass_time(0.1)
    assert machine.sender.sent == []
    claims[1].callback(None)
    machine.pass_time(0.1)
    assert [attempt.body for _, attempt in machine.sender.sent] == [b"new"] * 3


def test_endpoint_change_applies_to_waiting_attempts() -> None:
    machine = Machine(Webhooks(concurrency=1))
    machine.queue.add("https://first.example/")
    machine.queue.add("https://second.example/")
    machine.dispatcher.start()
    machine.pass_time(0.1)
    [second] = [row for row in machine.queue.rows.values() if "second" in row.work.url]
    assert second.leased
    second.work = replace(second.work, body=b"new")
    machine.dispatcher.notified(CHANGED)
    machine.pass_time(0.1)
    assert not second.leased
    machine.sender.end()
    machine.pass_time(0.1)
    assert [attempt.body for _, attempt in machine.sender.sent] == [b"{}", b"new"]


def test_repeated_changes_release_waiting_attempts() -> None:
    machine = Machine(Webhooks(concurrency=1))
    machine.queue.add("https://first.example/")
    machine.queue.add("https://second.example/")
    machine.dispatcher.start()
    for _ in range(2):
        machine.dispatcher.notified(CHANGED)
    machine.pass_time(0.1)
    machine.sender.end()
    machine.pass_time(0.1)
    assert len(machine.sender.sent) == 2


def test_attempt_begins_with_nearly_its_full_lease() -> None:
    machine = Machine(Webhooks(concurrency=1))
    machine.queue.add("https://first.example/")
    machine.queue.add("https://second.example/")
    machine.dispatcher.start()
    [second] = [row for row in machine.queue.rows.values() if "second" in row.work.url]
    machine.clock.rightNow += LEASE_MARGIN
    machine.sender.end()
    machine.pass_time(0.1)
    assert len(machine.sender.sent) == 2
    assert second.claimable - machine.clock.seconds() > USUAL.timeout + LEASE_MARGIN - 1


@pytest.mark.parametrize("stalled", [True, False])
def test_attempts_that_waited_too_long_are_released_after_an_outage(stalled: bool) -> None:
    machine = Machine(Webhooks(concurrency=1))
    machine.queue.add("https://first.example/")
    machine.queue.add("https://second.example/")
    machine.dispatcher.start()
    machine.queue.away = True
    if stalled:
        machine.clock.rightNow += 3
    else:
        machine.pass_time(3)
    with capturedLogs() as events:
        machine.sender.end()
        machine.pass_time(2)
    assert not [event for event in events if "log_failure" in event]
    machine.queue.away = False
    machine.pass_time(3)
    assert [attempt.url for _, attempt in machine.sender.sent][1:] == ["https://second.example/"]


def test_attempt_near_its_timeout_is_not_repeated_by_another_daemon() -> None:
    machine = Machine()
    machine.queue.add()
    machine.dispatcher.start()
    machine.another().start()
    machine.pass_time(USUAL.timeout + 0.5, 0.05)
    assert len(machine.sender.sent) == 1
    machine.sender.end(REFUSED)
    machine.pass_time(0.5)
    assert [finished.outcome for _, finished in machine.queue.done] == [REFUSED]


def test_work_for_a_hanging_host_is_not_claimed_repeatedly() -> None:
    machine = Machine(Webhooks(concurrency_per_host=2))
    endpoint = uuid4()
    for _ in range(5):
        machine.queue.add(endpoint=endpoint)
    machine.dispatcher.start()
    machine.pass_time(5)
    assert machine.dispatcher.in_flight == 1
    assert machine.queue.claims <= 3 + 5 / POLL_INTERVAL


def test_concurrency_is_limited_across_hosts() -> None:
    machine = Machine(Webhooks(concurrency=3, concurrency_per_host=2))
    for number in range(10):
        machine.queue.add(f"https://{number}.example/")
    machine.dispatcher.start()
    machine.pass_time(1)
    assert machine.dispatcher.in_flight == len(machine.sender.open) == 3
    machine.sender.end(count=2)
    machine.pass_time(0.1)
    assert len(machine.sender.sent) == 5
    while machine.sender.open:
        machine.sender.end()
        machine.pass_time(0.1)
    assert len(machine.queue.done) == 10


def test_event_beyond_the_limit_begins_when_an_attempt_ends() -> None:
    machine = Machine(Webhooks(concurrency=2))
    machine.queue.add()
    machine.queue.add("https://b.example/")
    machine.dispatcher.start()
    machine.pass_time(1)
    machine.queue.add("https://c.example/")
    machine.dispatcher.wake()
    machine.pass_time(1)
    machine.sender.end()
    machine.pass_time(0.05)
    assert machine.dispatcher.in_flight == 2


def test_work_for_a_hanging_host_is_released() -> None:
    """Otherwise, leases would expire while the work waits."""
    machine = Machine(Webhooks(concurrency_per_host=1))
    endpoint = uuid4()
    for _ in range(400):
        machine.queue.add(endpoint=endpoint)
    machine.dispatcher.start()
    for _ in range(200):
        machine.sender.end()
        machine.pass_time(0.01)
    assert sum(row.leased for row in machine.queue.rows.values()) > 1, "a quick host has work ahead"
    machine.pass_time(3)
    assert sum(row.leased for row in machine.queue.rows.values()) == 1


def test_outcome_after_the_lease_is_discarded() -> None:
    machine = Machine(Webhooks(timeout=20))
    machine.queue.add()
    machine.dispatcher.start()
    other = machine.another()
    machine.pass_time(20 + LEASE_MARGIN + 1, 0.05)
    other.start()
    assert len(machine.sender.open) == 2, "the attempt is repeated when its lease expires"
    machine.sender.end(REFUSED)
    machine.pass_time(0.1)
    assert not machine.queue.done
    assert machine.dispatcher.counters.lost == 1
    machine.sender.end(OK)
    machine.pass_time(0.1)
    assert [finished.outcome for _, finished in machine.queue.done] == [OK]


def test_dispatchers_share_a_queue_without_duplicates() -> None:
    machine = Machine(respond=lambda _: OK)
    events = {str(machine.queue.add(f"https://{number % 7}.example/")) for number in range(200)}
    others = [machine.another() for _ in range(3)]
    for one in (machine.dispatcher, *others):
        one.start()
    machine.pass_time(2)
    assert sorted(attempt.event_id for _, attempt in machine.sender.sent) == sorted(events)


def test_outcomes_are_recorded_before_new_claims_after_an_outage() -> None:
    machine = Machine()
    event = machine.queue.add()
    machine.dispatcher.start()
    machine.queue.away = True
    machine.sender.end(REFUSED)
    machine.pass_time(60, 0.05)
    machine.queue.away = False
    machine.pass_time(3)
    assert [attempt.event_id for _, attempt in machine.sender.sent] == [str(event)] * 2
    assert [finished.outcome for _, finished in machine.queue.done] == [REFUSED]
    assert machine.began[1] == pytest.approx(60, abs=2), "the retry delay begins at the end of the attempt"


def test_attempt_is_not_repeated_while_its_outcome_waits() -> None:
    machine = Machine()
    machine.queue.add()
    machine.dispatcher.start()
    finish = machine.queue.finish

    async def away(*_: object) -> frozenset[UUID]:
        raise DatabaseUnavailable(503, "PGRST001", "away")

    machine.queue.finish = away  # type: ignore[method-assign, assignment]
    machine.sender.end(OK)
    machine.pass_time(USUAL.timeout + LEASE_MARGIN + 5, 0.05)
    machine.queue.finish = finish  # type: ignore[method-assign]
    machine.pass_time(2)
    assert len(machine.sender.sent) == 1
    assert len(machine.queue.done) == 1


def test_retry_is_made_in_time_if_its_commit_was_not_confirmed() -> None:
    machine = Machine(Webhooks(retry_waits=(3, 30)), lambda _: REFUSED)
    machine.queue.add()
    finish, breaks = machine.queue.finish, [True]

    async def unconfirmed(finished: Any) -> Any:
        recorded = await finish(finished)
        if breaks and breaks.pop():
            raise DatabaseUnavailable(503, "PGRST001", "away")
        return recorded

    machine.queue.finish = unconfirmed  # type: ignore[method-assign]
    machine.dispatcher.start()
    machine.pass_time(5)
    assert machine.began == [0, pytest.approx(3, abs=0.1)]


def test_earliest_of_several_retries_is_made_in_time() -> None:
    machine = Machine(Webhooks(retry_waits=(3, 30)), lambda _: REFUSED)
    machine.queue.add(attempt_number=2)
    machine.queue.add()
    machine.dispatcher.start()
    machine.pass_time(5)
    assert machine.began == [0, 0, pytest.approx(3, abs=0.1)]


def test_rejected_outcome_is_abandoned_when_its_lease_ends() -> None:
    machine = Machine()

    async def reject(*_: object) -> frozenset[UUID]:
        raise DatabaseError(500, "22P05", "unsupported")

    machine.queue.finish = reject  # type: ignore[method-assign, assignment]
    machine.queue.add()
    machine.dispatcher.start()
    machine.pass_time(USUAL.timeout - 1, 0.05)
    machine.sender.end()
    machine.pass_time(LEASE_MARGIN, 0.05)
    assert machine.dispatcher.counters.lost == 0
    machine.pass_time(2, 0.05)
    assert machine.dispatcher.counters.lost == 1


def test_claiming_resumes_when_the_database_returns() -> None:
    machine = Machine(respond=lambda _: OK)
    machine.queue.away = True
    machine.queue.add()
    with capturedLogs() as events:
        machine.dispatcher.start()
        machine.pass_time(5)
    assert [event["log_format"] for event in events].count("cannot claim work: {reason}") == 1
    machine.queue.away = False
    machine.pass_time(1.1)
    assert len(machine.queue.done) == 1


def test_claim_is_repeated_after_an_internal_error() -> None:
    machine = Machine(respond=lambda _: OK)
    machine.queue.add()
    claim, breaks = machine.queue.claim, [True]

    async def broken(*args: Any, **kwargs: Any) -> Any:
        if breaks and breaks.pop():
            raise KeyError("unexpected")
        return await claim(*args, **kwargs)

    machine.queue.claim = broken  # type: ignore[method-assign]
    with capturedLogs() as events:
        machine.dispatcher.start()
        machine.pass_time(1.1)
    assert "claiming failed" in [event["log_format"] for event in events]
    assert len(machine.queue.done) == 1


def test_notification_claims_nothing_while_outcomes_wait() -> None:
    """A host with more work than its limit must not cause a busy loop during an outage."""
    machine = Machine(Webhooks(concurrency_per_host=1))
    endpoint = uuid4()
    for _ in range(5):
        machine.queue.add(endpoint=endpoint)
    machine.dispatcher.start()
    machine.queue.away = True
    machine.sender.end()
    machine.pass_time(0.1)
    claims = machine.queue.claims
    for _ in range(3):
        machine.dispatcher.wake()
        machine.pass_time(1.5)
    assert machine.queue.claims == claims
    machine.queue.away = False
    machine.pass_time(3)
    assert len(machine.sender.sent) == 2


def test_older_version_is_rendered_stored_and_sent() -> None:
    rendered = []

    def render(newer: str, older: str, payload: Any) -> Any:
        rendered.append((newer, older, payload))
        return {"old": True}

    machine = Machine(respond=lambda _: REFUSED, render=render)
    machine.queue.add(body=None, rendered_from="v2.project.paused", payload='{"new": 1}')
    machine.dispatcher.start()
    machine.pass_time(12)
    assert rendered == [("v2.project.paused", "v1.project.paused", {"new": 1})]
    assert [attempt.body for _, attempt in machine.sender.sent] == [b"{'old': True}"] * 2


def test_internal_error_counts_as_an_attempt() -> None:
    def render(*_: object) -> Any:
        raise KeyError("no such version")

    machine = Machine(Webhooks(retry_waits=(1, 1, 1, 1)), render=render)
    machine.queue.add(body=None, rendered_from="v2.project.paused", payload="{}")
    machine.dispatcher.start()
    machine.pass_time(6)
    assert [finished.outcome.error for _, finished in machine.queue.done] == [AttemptError.INTERNAL] * 5
    assert not machine.queue.rows
    assert not machine.sender.sent


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (DatabaseError(400, "22P02", 'Token "NaN" is invalid.'), True),
        (DatabaseError(500, "57014", "canceling statement"), False),
    ],
)
def test_permanent_error_while_storing_a_body_counts_as_an_attempt(error: DatabaseError, ends: bool) -> None:
    machine = Machine(Webhooks(retry_waits=(1, 1, 1, 1)))

    async def rendered(event: UUID, payload: Any) -> bytes:  # noqa: ARG001 - the queue's signature
        raise error

    machine.queue.rendered = rendered  # type: ignore[method-assign]
    machine.queue.add(body=None, rendered_from="v2.project.paused", payload="{}")
    machine.dispatcher.start()
    machine.pass_time(6)
    assert len(machine.queue.done) == (5 if ends else 0)
    assert bool(machine.queue.rows) is not ends
    assert not machine.sender.sent


def test_many_immediate_failures_do_not_exhaust_the_stack() -> None:
    machine = Machine(Webhooks(concurrency=2000, concurrency_per_host=2000), lambda _: REFUSED)
    endpoint = uuid4()
    for _ in range(1000):
        machine.queue.add(endpoint=endpoint, trigger=Trigger.MANUAL)
    machine.dispatcher.start()
    machine.pass_time(1)
    assert len(machine.queue.done) == 1000


def test_drain_finishes_attempts_and_releases_waiting_work() -> None:
    machine = Machine(Webhooks(concurrency_per_host=1))
    endpoint = uuid4()
    for _ in range(3):
        machine.queue.add(endpoint=endpoint)
    machine.queue.add("https://b.example/")
    machine.dispatcher.start()
    assert len(machine.sender.open) == 2
    stopped = Deferred.fromCoroutine(machine.dispatcher.drain(10))
    assert not stopped.called
    machine.sender.end()
    machine.pass_time(10.1)
    assert stopped.called
    assert len(machine.queue.done) == 1
    assert [row.leased for row in machine.queue.rows.values()] == [False] * 3
    machine.queue.add()
    machine.dispatcher.wake()
    machine.pass_time(20)
    assert len(machine.sender.sent) == 2, "no more work is claimed"
    assert not machine.clock.getDelayedCalls()


def test_drain_releases_outdated_work() -> None:
    machine = Machine(Webhooks(concurrency=1))
    for name in ("first", "second", "third"):
        machine.queue.add(f"https://{name}.example/")
    machine.dispatcher.start()
    machine.queue.away = True
    machine.sender.end()
    machine.pass_time(0.1)
    machine.dispatcher.notified(CHANGED)
    machine.queue.away = False
    stopped = Deferred.fromCoroutine(machine.dispatcher.drain(0.1))
    machine.pass_time(3)
    assert stopped.called
    assert [row.leased for row in machine.queue.rows.values()] == [False] * 2


def test_time_to_first_attempt_uses_the_database_clock() -> None:
    machine = Machine(respond=lambda _: REFUSED)
    machine.queue.add(waited=0.3)
    machine.dispatcher.start()
    machine.pass_time(15)
    snapshot = machine.dispatcher.counters.snapshot(0, None)
    histogram: Any = snapshot["dataapi_webhooks_first_attempt_seconds"][()]
    assert (sum(histogram.buckets), histogram.total) == (1, pytest.approx(0.3))
    assert snapshot["dataapi_webhooks_attempts_total"] == {("refused",): 2.0}


def test_attempt_durations_are_recorded_by_outcome() -> None:
    responses = iter([REFUSED, OK])
    machine = Machine(respond=lambda _: next(responses))
    machine.queue.add()
    machine.dispatcher.start()
    machine.pass_time(15)
    times: Any = machine.dispatcher.counters.snapshot(0, None)["dataapi_webhooks_attempt_seconds"]
    assert {outcome: (sum(time.buckets), time.total) for outcome, time in times.items()} == {
        ("refused",): (1, pytest.approx(REFUSED.duration_ms / 1000)),
        ("success",): (1, pytest.approx(OK.duration_ms / 1000)),
    }


def test_time_to_first_attempt_includes_waiting_for_capacity() -> None:
    machine = Machine(Webhooks(concurrency=1))
    machine.queue.add()
    machine.queue.add("https://b.example/")
    machine.dispatcher.start()
    machine.pass_time(1.5)
    machine.sender.end()
    histogram: Any = machine.dispatcher.counters.snapshot(0, None)["dataapi_webhooks_first_attempt_seconds"][
        ()
    ]
    assert histogram.total == pytest.approx(1.5)
