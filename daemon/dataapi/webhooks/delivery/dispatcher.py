"""The delivery loop: claims due attempts, makes them, and records their outcomes.

See docs/reference/webhooks.md, Queue. The database's clock determines when an attempt is due.
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
    RenderedPayloadStore,
    Sender,
)
from dataapi.webhooks.delivery.concurrency_limits import DEFAULT_LIMIT, ClaimedAttempt, ConcurrencyLimits
from dataapi.webhooks.delivery.outcomes import Outcomes, OutcomeStore, decide
from dataapi.webhooks.model import AttemptError, AttemptOutcome, Claim, ClaimResult, DueWork, FinishedAttempt

ENQUEUED, CHANGED = CHANNELS = "webhooks", "webhooks_changed"
"""Notification channels for new work, and for changed or deleted endpoints."""

LEASE_MARGIN = 10.0
"""Seconds by which a lease exceeds the timeout of an attempt."""

RELEASE_AFTER = 2.0
"""Seconds after which claimed work is released if it has not begun."""

POLL_INTERVAL = 0.25
"""Minimum poll interval in seconds, with a random variation of 25 %."""

MAX_POLL_INTERVAL = 1.0
"""Maximum poll interval in seconds."""

POLL_BACKOFF = 0.1
"""Poll interval as a fraction of the idle time, within the minimum and maximum above."""

CLAIM_INTERVAL = 0.01
"""Minimum interval between claims while attempts are in flight, in seconds."""

SURPLUS_DELAY = 1.0
"""Seconds until work that exceeded a limit can be claimed again."""

SLOW = 0.25
"""Minimum duration of a slow attempt, as a fraction of the attempt timeout."""

RETRY_AFTER = 1.0
"""Seconds to wait before claiming again after an error."""


class DeliveryQueue(OutcomeStore, RenderedPayloadStore, Protocol):
    """The queue of attempts. Implemented by ``store.queue.Queue``."""

    async def claim(
        self,
        maximum: int,
        lease: float,
        *,
        per_endpoint: int,
        limits: Mapping[UUID, int],
        full: Collection[str],
        holder: int | None,
    ) -> ClaimResult: ...

    async def release(self, claims: Iterable[Claim], seconds: float = 0.0) -> int: ...

    async def next_due(self, excluded: Iterable[UUID] = (), full: Collection[str] = ()) -> float | None: ...


class Dispatcher:
    """Delivers events until it is drained.

    :param listening: whether the session that receives notifications and keeps leases alive is connected.
    :ivar number: random identifier of this dispatcher.
    """

    _log = Logger(namespace="dataapi.webhooks")

    def __init__(
        self,
        clock: Any,
        queue: DeliveryQueue,
        sender: Sender,
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
        self._drained: Deferred[None] | None = None
        self._claiming: Deferred[None] | None = None
        self._claim_again = self._polling = self._starting = False
        self.claim_error = ""
        self._stopping = True
        self._last_claim = float("-inf")
        self._last_progress: float | None = None
        self._last_work = 0.0
        self._changes = 0
        self._outdated: list[Claim] = []

    @property
    def in_flight(self) -> int:
        return self._limits.running

    @property
    def stalled(self) -> float:
        """Seconds since the last claim, or 0 before the start. Unrecorded outcomes block claims."""
        return 0.0 if self._last_progress is None else float(self._clock.seconds() - self._last_progress)

    def start(self) -> None:
        self._stopping = False
        self._last_work = self._last_progress = self._clock.seconds()
        self.poll()

    def notified(self, channel: str) -> None:
        if channel == CHANGED:
            self.reclaim()
        else:
            self.wake()

    def reclaim(self) -> None:
        """Release waiting work and claim it again, because endpoints have changed."""
        self._changes += 1
        self._outdated += self._limits.drop(lambda _: True)
        self.poll()

    def poll(self) -> None:
        self._polling = True
        self.wake()

    def wake(self) -> None:
        self._claim_again = True
        if self._claiming is None and not self._stopping:
            self._claiming = Deferred()
            self._background.spawn(self._claim_while_needed(self._claiming))

    async def drain(self, seconds: float) -> None:
        """Stop claiming, wait for attempts in flight, and release the remaining claims."""
        self._stopping = True
        if self._claiming is not None:
            await self._wait(self._claiming, RETRY_AFTER)
        self._alarm.cancel()
        claims = self._outdated + self._limits.drop(lambda _: True)
        if self._attempts:
            self._drained = Deferred()
            await self._wait(self._drained, seconds)
            self._drained = None
        claims += self._attempts
        for attempt in list(self._attempts.values()):
            attempt.cancel()
        if claims:
            await self._release(claims)
        if not await self._wait(Deferred.fromCoroutine(self._outcomes.settled()), RETRY_AFTER):
            self._log.warn("outcomes could not be recorded, so their attempts will be repeated")
        self._outcomes.stop()
        self._background.cancel()

    async def _release(self, claims: Sequence[Claim]) -> None:
        try:
            released = await self._wait(Deferred.fromCoroutine(self._queue.release(claims)), RETRY_AFTER)
            reason = "the database does not respond"
        except ApiError as error:
            released, reason = False, error.message
        if not released:
            self._log.warn(
                "claims could not be released and remain until their leases end: {reason}", reason=reason
            )

    async def _wait(self, deferred: Deferred[Any], seconds: float) -> bool:
        try:
            await deferred.addTimeout(seconds, self._clock)
        except defer.TimeoutError:
            return False
        return True

    async def _claim_while_needed(self, ended: Deferred[None]) -> None:
        try:
            while self._claim_again and not self._stopping:
                pause = self._last_claim + CLAIM_INTERVAL - self._clock.seconds()
                if self._limits.running and pause > 0:
                    await deferLater(self._clock, pause)
                self._claim_again = False
                await self._claim()
                if not self._outcomes.blocked:
                    self._last_progress = self._clock.seconds()
                if self._polling and not self._claim_again:
                    await self._schedule_poll()
                self._claim_again = self._claim_again or (
                    not self._outcomes.blocked and self._limits.wants_more()
                )
            self.claim_error = ""
        except CancelledError:
            raise
        except ApiError as error:
            if not self.claim_error:
                self._log.warn("cannot claim work: {reason}", reason=error.message)
            self.claim_error = error.message
            self._retry_later()
        except Exception:
            self._log.failure("claiming failed")
            self._retry_later()
        finally:
            self._claiming = None
            ended.callback(None)

    def _retry_later(self) -> None:
        if not self._stopping:
            self._alarm.within(RETRY_AFTER)

    async def _claim(self) -> None:
        now = self._last_claim = self._clock.seconds()
        if self._outcomes.blocked:
            # Outcomes must be recorded first, or their attempts could be claimed again.
            self._alarm.within(RETRY_AFTER)
            return
        if self._polling:
            self._outdated += self._limits.drop(lambda claimed: now - claimed.since > RELEASE_AFTER)
        await self._release_outdated()
        self._start_ready()
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
        self._start_ready()
        await self._release_and_claim_later(surplus, 0.0 if obsolete else SURPLUS_DELAY)

    def _report(self, claimed: ClaimResult) -> None:
        if claimed.work or claimed.settled:
            self._last_work = self._clock.seconds()
        self.counters.settled += claimed.settled
        self._claim_again = self._claim_again or claimed.settled > 0
        for endpoint in claimed.unreadable:
            self._log.error(
                "no configured encryption-key decrypts the secrets of endpoint {endpoint}",
                endpoint=str(endpoint),
            )

    async def _release_and_claim_later(self, claims: Sequence[Claim], seconds: float = 0.0) -> None:
        if claims:
            await self._queue.release(claims, seconds)
            if not self._stopping:
                self._alarm.within(seconds)

    async def _release_outdated(self) -> None:
        outdated = list(self._outdated)
        await self._release_and_claim_later(outdated)
        del self._outdated[: len(outdated)]

    async def _schedule_poll(self) -> None:
        self._polling = False
        if self._stopping:
            return
        idle = self._clock.seconds() - self._last_work
        poll = max(POLL_INTERVAL, min(POLL_BACKOFF * idle, MAX_POLL_INTERVAL))
        self._alarm.within(poll * (0.75 + 0.5 * self._random()))
        limits, full = self._limits.limits(self._clock.seconds())
        saturated = [endpoint for endpoint, room in limits.items() if room == 0]
        seconds = await self._queue.next_due(saturated, full)
        if seconds is not None and not self._stopping:
            # Due work that was not claimed is locked by another daemon, or exceeds the limits.
            self._alarm.within(seconds if seconds > 0 else 2 * CLAIM_INTERVAL)

    def _start_ready(self) -> None:
        if self._starting:
            # Called from the loop below, because an attempt ended immediately.
            return
        self._starting = True
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
        self._starting = False

    def _attempt_ended(self, outcome: AttemptOutcome | None, work: DueWork) -> None:
        self._attempts.pop(work.claim, None)
        responded = None
        if outcome is not None and outcome.error is not AttemptError.INTERNAL:
            responded = outcome.response_code > 0
        more = self._limits.ended(work, self._clock.seconds(), responded=responded)
        if self._stopping:
            if self._drained is not None and not self._attempts:
                ended, self._drained = self._drained, None
                ended.callback(None)
            return
        self._start_ready()
        if more and self._claiming is None:
            self.wake()

    async def _attempt(self, claimed: ClaimedAttempt) -> AttemptOutcome | None:
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
        if lost:
            self.counters.lost += lost
            self._log.warn(
                "discarded {lost} outcomes, because their leases had ended or their endpoints were deleted",
                lost=lost,
            )
            # A statement whose response was lost may still have recorded an outcome and scheduled a retry.
            self.poll()
        waits = [attempt.retry_in for attempt in finished if attempt.retry_in is not None]
        if waits and not self._stopping:
            self._alarm.within(min(waits))
