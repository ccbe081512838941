"""The delivery loop: claims due work, makes the attempts, and has their outcomes recorded.

Only the database's clock decides what is due.  The reactor decides when to ask: after a notification, when an
attempt ends and there is more, at the earliest due time, and now and then for what is not announced: work
of a daemon that died, and changes of watched tables, which must not wait for each other to notify.
"""

from __future__ import annotations

import random as _random
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from dataapi.concurrency.tasks import Background
from dataapi.concurrency.timers import Alarm
from dataapi.http.errors import ApiError
from dataapi.settings import Webhooks
from dataapi.telemetry.tracing import Tracing
from dataapi.webhooks.delivery.attempt import (
    DeliveryCounters,
    DeliveryRunner,
    Render,
    SendsAttempts,
    StoresRendered,
)
from dataapi.webhooks.delivery.concurrency_limits import DEFAULT_LIMIT, ClaimedAttempt, ConcurrencyLimits
from dataapi.webhooks.delivery.outcomes import Outcomes, StoresOutcomes, decide
from dataapi.webhooks.model import AttemptError, AttemptOutcome, Claim, ClaimResult, DueWork, FinishedAttempt

ENQUEUED, CHANGED = CHANNELS = "webhooks", "webhooks_changed"
"""The channels that announce new work, and endpoints that were changed or deleted."""

LEASE_MARGIN = 10.0
"""Seconds that a lease outlasts an attempt's time limit."""

RELEASE_AFTER = 2.0
"""Seconds after which claimed work that could not begin is released; the margin's rest is for recording."""

POLL_INTERVAL = 0.25
"""Seconds between looks at the queue while work comes, with a jitter of a quarter."""

MAX_POLL_INTERVAL = 1.0
"""The same after a time without work."""

SLOWING = 0.1
"""The share of the time without work after which the next look comes, between these two."""

PAUSE = 0.01
"""Seconds between claims while attempts are in flight."""

SURPLUS_DELAY = 1.0
"""Seconds until released work can be claimed again that exceeded a limit."""

SLOW = 0.25
"""The fraction of its time limit from which an attempt counts as slow."""

RETRY_AFTER = 1.0
"""Seconds until the next claim after one failed."""


class DeliveryQueue(StoresOutcomes, StoresRendered, Protocol):
    """The queue of attempts; see ``store.queue.Queue``."""

    async def claim(
        self,
        maximum: int,
        lease: float,
        *,
        per_endpoint: int,
        limits: Mapping[UUID, int],
        full: Collection[str],
        holder: int | None,
    ) -> ClaimResult:
        """Claim due work."""

    async def release(self, claims: Iterable[Claim], seconds: float = 0.0) -> int:
        """Release claims."""

    async def next_due(self, excluded: Iterable[UUID] = (), full: Collection[str] = ()) -> float | None:
        """Return the seconds until work is due."""


class Dispatcher:
    """Delivers until it is drained.

    :param clock: the reactor, for timers.
    :param render: renders older versions of events.
    :param listening: whether notifications arrive, in a session that says that this process lives.
    :ivar number: what this dispatcher is known by to others on the same queue.
    :ivar trouble: why work could not be claimed when that was last tried, "" if it could.
    """

    _log = Logger(namespace="dataapi.webhooks")

    def __init__(
        self,
        clock: Any,
        queue: DeliveryQueue,
        sender: SendsAttempts,
        render: Render,
        settings: Webhooks,
        *,
        listening: Callable[[], bool] = lambda: True,
        random: Callable[[], float] = _random.random,
        tracing: Tracing | None = None,
    ) -> None:
        self._clock = clock
        self._queue = queue
        self._settings = settings
        self._lease = settings.timeout + LEASE_MARGIN
        self._listening = listening
        self._random = random
        self.number = secrets.randbits(31)
        self.counters = DeliveryCounters(settings.metrics_organizations)
        self._runner = DeliveryRunner(queue, sender, render, self.counters, tracing)
        self._limits = ConcurrencyLimits(
            settings.concurrency, settings.concurrency_per_host, SLOW * settings.timeout
        )
        self._outcomes = Outcomes(clock, queue, self._recorded)
        self._alarm = Alarm(clock, self.poll)
        self._background = Background()
        self._attempts: dict[Claim, Deferred[AttemptOutcome | None]] = {}
        self._ended: Deferred[None] | None = None
        self._claiming: Deferred[None] | None = None
        self._claim_again = self._looking = self._beginning = False
        self.claim_error = ""
        self._stopping = True
        self._claimed_at = float("-inf")
        self._progressed_at: float | None = None
        self._worked_at = 0.0
        self._changes = 0
        self._outdated: list[Claim] = []

    @property
    def in_flight(self) -> int:
        return self._limits.running

    @property
    def stalled(self) -> float:
        """Seconds since the queue was last read and all outcomes were recorded, 0 before the start."""
        return 0.0 if self._progressed_at is None else float(self._clock.seconds() - self._progressed_at)

    def start(self) -> None:
        self._stopping = False
        self._worked_at = self._progressed_at = self._clock.seconds()
        self.poll()

    def notified(self, channel: str) -> None:
        if channel == CHANGED:
            self.reclaim()
        else:
            self.wake()

    def reclaim(self) -> None:
        """Release waiting work to claim it again: endpoints may have been changed, disabled or deleted."""
        self._changes += 1
        self._outdated += self._limits.drop(lambda _: True)
        self.poll()

    def poll(self) -> None:
        """Claim due work, and find out when more is due."""
        self._looking = True
        self.wake()

    def wake(self) -> None:
        """Claim due work, of which there may be some."""
        self._claim_again = True
        if self._claiming is None and not self._stopping:
            self._claiming = Deferred()
            self._background.spawn(self._claim_while_needed(self._claiming))

    async def drain(self, seconds: float) -> None:
        """Stop claiming, wait some seconds for attempts in flight, and release the rest."""
        self._stopping = True
        if self._claiming is not None:
            await self._wait(self._claiming, RETRY_AFTER)
        self._alarm.cancel()
        claims = self._outdated + self._limits.drop(lambda _: True)
        if self._attempts:
            self._ended = Deferred()
            await self._wait(self._ended, seconds)
            self._ended = None
        claims += self._attempts
        for attempt in list(self._attempts.values()):
            attempt.cancel()
        if claims:
            await self._release(claims)
        if not await self._wait(Deferred.fromCoroutine(self._outcomes.settled()), RETRY_AFTER):
            self._log.warn("outcomes could not be recorded; their attempts will be made again")
        self._outcomes.stop()
        self._background.cancel()

    async def _release(self, claims: Sequence[Claim]) -> None:
        """Release claims at the end, unless the database is unavailable or slow."""
        try:
            released = await self._wait(Deferred.fromCoroutine(self._queue.release(claims)), RETRY_AFTER)
            reason = "the database does not answer"
        except ApiError as error:
            released, reason = False, error.message
        if not released:
            self._log.warn(
                "claims could not be released and last until their leases end: {reason}", reason=reason
            )

    async def _wait(self, what: Deferred[Any], seconds: float) -> bool:
        """Wait at most so many seconds; False when that was not enough."""
        try:
            await what.addTimeout(seconds, self._clock)
        except defer.TimeoutError:
            return False
        return True

    async def _claim_while_needed(self, ended: Deferred[None]) -> None:
        """Claim as long as there may be more."""
        try:
            while self._claim_again and not self._stopping:
                pause = self._claimed_at + PAUSE - self._clock.seconds()
                if self._limits.running and pause > 0:
                    await deferLater(self._clock, pause)
                self._claim_again = False
                await self._claim()
                if not self._outcomes.blocked:
                    self._progressed_at = self._clock.seconds()
                if self._looking and not self._claim_again:
                    await self._look_ahead()
                self._claim_again = self._claim_again or (
                    not self._outcomes.blocked and self._limits.wants_more()
                )
            self.claim_error = ""
        except CancelledError:
            raise
        except ApiError as error:
            if not self.claim_error:
                self._log.warn("work cannot be claimed: {reason}", reason=error.message)
            self.claim_error = error.message
            self._try_later()
        except Exception:
            self._log.failure("claiming failed")
            self._try_later()
        finally:
            self._claiming = None
            ended.callback(None)

    def _try_later(self) -> None:
        if not self._stopping:
            self._alarm.within(RETRY_AFTER)

    async def _claim(self) -> None:
        """Claim as much as the limits allow, and begin it."""
        now = self._claimed_at = self._clock.seconds()
        if self._outcomes.blocked:
            # Record outcomes first: otherwise their attempts could be claimed again.
            self._alarm.within(RETRY_AFTER)
            return
        if self._looking:
            self._outdated += self._limits.drop(lambda claimed: now - claimed.since > RELEASE_AFTER)
        await self._release_outdated()
        self._begin_all()
        room = self._limits.room()
        if room == 0:
            return
        (limits, full), changes = self._limits.limits(now), self._changes
        claimed = await self._queue.claim(
            room,
            self._lease,
            per_endpoint=DEFAULT_LIMIT,
            limits=limits,
            full=full,
            holder=self.number if self._listening() else None,
        )
        surplus = [work.claim for work in claimed.work if not self._limits.add(ClaimedAttempt(work, now))]
        counts = Counter(work.endpoint_id for work in claimed.work)
        self._limits.claimed(counts, limits, complete=len(claimed.work) + claimed.settled < room)
        self._report(claimed)
        obsolete = self._stopping or self._changes != changes
        if obsolete:
            surplus += self._limits.drop(lambda _: True)
        self._begin_all()
        await self._release_and_claim_later(surplus, 0.0 if obsolete else SURPLUS_DELAY)

    def _report(self, claimed: ClaimResult) -> None:
        """Count and log what a claim found; claim again while it settled something that was not work."""
        if claimed.work or claimed.settled:
            self._worked_at = self._clock.seconds()
        self.counters.settled += claimed.settled
        self._claim_again = self._claim_again or claimed.settled > 0
        for endpoint in claimed.unreadable:
            self._log.error("no configured encryption-key opens endpoint {endpoint}", endpoint=str(endpoint))

    async def _release_and_claim_later(self, claims: Sequence[Claim], seconds: float = 0.0) -> None:
        if claims:
            await self._queue.release(claims, seconds)
            if not self._stopping:
                self._alarm.within(seconds)

    async def _release_outdated(self) -> None:
        """Release what waited too long or was claimed before a change; what fails stays on the list."""
        outdated = list(self._outdated)
        await self._release_and_claim_later(outdated)
        del self._outdated[: len(outdated)]

    async def _look_ahead(self) -> None:
        """Set the alarm for the next due time or the next poll."""
        self._looking = False
        if self._stopping:
            return
        idle = self._clock.seconds() - self._worked_at
        poll = max(POLL_INTERVAL, min(SLOWING * idle, MAX_POLL_INTERVAL))
        self._alarm.within(poll * (0.75 + 0.5 * self._random()))
        limits, full = self._limits.limits(self._clock.seconds())
        saturated = [endpoint for endpoint, room in limits.items() if room == 0]
        seconds = await self._queue.next_due(saturated, full)
        if seconds is not None and not self._stopping:
            # What is due but was not claimed is locked by another daemon, or exceeds the limits.
            self._alarm.within(seconds if seconds > 0 else 2 * PAUSE)

    def _begin_all(self) -> None:
        if self._beginning:
            # An attempt ended at once, within the loop below.
            return
        self._beginning = True
        now = self._clock.seconds()
        while (claimed := self._limits.next(now)) is not None:
            if now - claimed.since > RELEASE_AFTER:
                self._limits.ended(claimed.work, now)
                self._outdated.append(claimed.work.claim)
                self.poll()
                continue
            attempt = Deferred.fromCoroutine(self._attempt(claimed))
            if not attempt.called:
                self._attempts[claimed.work.claim] = attempt
            attempt.addErrback(lambda failure: self._log.failure("an attempt failed unexpectedly", failure))
            attempt.addCallback(self._attempt_ended, claimed.work)
        self._beginning = False

    def _attempt_ended(self, outcome: AttemptOutcome | None, work: DueWork) -> None:
        self._attempts.pop(work.claim, None)
        answered = None
        if outcome is not None and outcome.error is not AttemptError.INTERNAL:
            answered = outcome.response_code > 0
        more = self._limits.ended(work, self._clock.seconds(), answered=answered)
        if self._stopping:
            if self._ended is not None and not self._attempts:
                ended, self._ended = self._ended, None
                ended.callback(None)
            return
        self._begin_all()
        if more and self._claiming is None:
            self.wake()

    async def _attempt(self, claimed: ClaimedAttempt) -> AttemptOutcome | None:
        """Make one attempt and pass its outcome on; None when it was not made."""
        work = claimed.work
        outcome = await self._runner.deliver(work, self._clock.seconds() - claimed.since)
        if outcome is not None:
            decision = decide(
                work.attempt_number, work.trigger, success=outcome.success, waits=self._settings.retry_waits
            )
            finished = FinishedAttempt(work.claim, outcome, decision.retry_in)
            self._outcomes.add(finished, claimed.since + self._lease)
        return outcome

    def _recorded(self, finished: Sequence[FinishedAttempt], lost: int) -> None:
        """Set the alarm for the retries that were recorded."""
        if lost:
            self.counters.lost += lost
            self._log.warn(
                "{lost} outcomes were discarded: their leases had ended, or their endpoints were deleted",
                lost=lost,
            )
            # If the reply of a statement was lost, it may have planned attempts that no alarm is set for.
            self.poll()
        waits = [one.retry_in for one in finished if one.retry_in is not None]
        if waits and not self._stopping:
            self._alarm.within(min(waits))
