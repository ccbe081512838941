"""The delivery loop: claims what is due, makes the attempts, and has their outcomes recorded.

Due times are the database's and are judged by its clock alone.  The reactor only says when to look: after a
notification, when an attempt of ours ends and there is more, at the earliest due time that is known, and
every few seconds for what another daemon left behind.
"""

from __future__ import annotations

import random as _random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from dataapi.database.background import Background
from dataapi.errors import ApiError
from dataapi.webhooks.concurrency_limits import ConcurrencyLimits, Held
from dataapi.webhooks.courier import Courier, Render, Renders, Sends
from dataapi.webhooks.outcomes import Outcomes, Records
from dataapi.webhooks.rules import Rules
from dataapi.webhooks.schedule import decide
from dataapi.webhooks.tally import Tally
from dataapi.webhooks.wakeup import CHANGED, Alarm
from dataapi.webhooks.work import Claim, Claimed, DueWork, ErrorWord, Finished, Outcome

MARGIN = 10.0
"""Seconds that a lease lasts beyond an attempt's time limit."""

PATIENCE = 2.0
"""Seconds after which claimed work that could not begin is given back; the margin's rest is for recording."""

POLL = 10.0
"""Seconds between looks at the queue when nothing happens, a quarter more or less by chance."""

POLL_DEAF = 1.0
"""The same while notifications do not arrive."""

PAUSE = 0.01
"""Seconds between claims while attempts are under way."""

SURPLUS_BACK = 1.0
"""Seconds until work can be claimed again that was one too many for its host."""

SLOW = 0.25
"""The part of its time limit that makes an attempt a slow one."""

TROUBLE = 1.0
"""Seconds until the queue is asked again after it could not be."""


class DueQueue(Records, Renders, Protocol):
    """Where attempts come from and their outcomes go; see ``store.queue.Queue``."""

    async def claim(
        self,
        most: int,
        lease: float,
        *,
        per_endpoint: int,
        limits: Mapping[UUID, int],
        full: Collection[str],
    ) -> Claimed:
        """Take what is due."""

    async def release(self, claims: Iterable[Claim], seconds: float = 0.0) -> int:
        """Give claims back."""

    async def next_due(self, without: Iterable[UUID] = (), full: Collection[str] = ()) -> float | None:
        """Return the seconds until something is due."""


class Dispatcher:
    """Delivers, until it is stopped.

    :param clock: the reactor, for timers.
    :param render: renders older versions of events.
    :param listening: tells whether notifications arrive.
    """

    _log = Logger(namespace="dataapi.webhooks")

    def __init__(
        self,
        clock: Any,
        queue: DueQueue,
        sender: Sends,
        render: Render,
        rules: Rules,
        *,
        listening: Callable[[], bool] = lambda: True,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._clock = clock
        self._queue = queue
        self._rules = rules
        self._lease = rules.timeout + MARGIN
        self._listening = listening
        self._random = random
        self.tally = Tally()
        self._courier = Courier(queue, sender, render, self.tally)
        self._limits = ConcurrencyLimits(rules.concurrency, rules.per_host, SLOW * rules.timeout)
        self._outcomes = Outcomes(clock, queue, self._recorded)
        self._alarm = Alarm(clock, self.look)
        self._background = Background()
        self._attempts: dict[Claim, Deferred[Outcome | None]] = {}
        self._ended: Deferred[None] | None = None
        self._pumping: Deferred[None] | None = None
        self._wanted = self._looking = self._beginning = self._troubled = False
        self._stopping = True
        self._claimed_at = float("-inf")
        self._changes = 0
        self._outdated: list[Claim] = []

    @property
    def in_flight(self) -> int:
        """How many attempts are under way."""
        return self._limits.running

    def start(self) -> None:
        """Begin to deliver."""
        self._stopping = False
        self.look()

    def notified(self, channel: str) -> None:
        """Do what a notification asks for."""
        if channel == CHANGED:
            self.reconsider()
        else:
            self.wake()

    def reconsider(self) -> None:
        """Claim anew what waits: its endpoint may have another url or secret, be disabled, or be gone."""
        self._changes += 1
        self._outdated += self._limits.drop(lambda _: True)
        self.look()

    def look(self) -> None:
        """Claim what is due, and learn when something is next."""
        self._looking = True
        self.wake()

    def wake(self) -> None:
        """Claim what is due: there may be something."""
        self._wanted = True
        if self._pumping is None and not self._stopping:
            self._pumping = Deferred()
            self._background.spawn(self._pump(self._pumping))

    async def drain(self, seconds: float) -> None:
        """Claim no more, let attempts under way end for so many seconds, and give the rest back."""
        self._stopping = True
        if self._pumping is not None:
            await self._wait(self._pumping, TROUBLE)
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
        if not await self._wait(Deferred.fromCoroutine(self._outcomes.settled()), TROUBLE):
            self._log.warn("outcomes are not recorded, so that their attempts are made again")
        self._outcomes.stop()
        self._background.cancel()

    async def _release(self, claims: Sequence[Claim]) -> None:
        """Give claims back at the end, unless the database is away or takes too long."""
        try:
            released = await self._wait(Deferred.fromCoroutine(self._queue.release(claims)), TROUBLE)
            reason = "the database does not answer"
        except ApiError as error:
            released, reason = False, error.message
        if not released:
            self._log.warn("claims are left until their leases end: {reason}", reason=reason)

    async def _wait(self, what: Deferred[Any], seconds: float) -> bool:
        """Wait so long at most; False when that was not enough."""
        try:
            await what.addTimeout(seconds, self._clock)
        except defer.TimeoutError:
            return False
        return True

    async def _pump(self, ended: Deferred[None]) -> None:
        """Claim as long as there is reason to."""
        try:
            while self._wanted and not self._stopping:
                pause = self._claimed_at + PAUSE - self._clock.seconds()
                if self._limits.running and pause > 0:
                    await deferLater(self._clock, pause)
                self._wanted = False
                await self._claim()
                if self._looking and not self._wanted:
                    await self._look_ahead()
                self._wanted = self._wanted or (not self._outcomes.stuck and self._limits.hungry())
            self._troubled = False
        except CancelledError:
            raise
        except ApiError as error:
            if not self._troubled:
                self._log.warn("nothing can be claimed: {reason}", reason=error.message)
            self._troubled = True
            self._try_later()
        except Exception:
            self._log.failure("claiming failed")
            self._try_later()
        finally:
            self._pumping = None
            ended.callback(None)

    def _try_later(self) -> None:
        if not self._stopping:
            self._alarm.within(TROUBLE)

    async def _claim(self) -> None:
        """Claim what may begin, and begin it."""
        now = self._claimed_at = self._clock.seconds()
        if self._outcomes.stuck:
            # What is recorded first cannot be attempted twice.
            self._alarm.within(TROUBLE)
            return
        if self._looking:
            self._outdated += self._limits.drop(lambda held: now - held.since > PATIENCE)
            await self._give_back_outdated()
        room = self._limits.room()
        if room == 0:
            return
        self._limits.reckon(now)
        limits, full, changes = self._limits.limits(), self._limits.full(), self._changes
        claimed = await self._queue.claim(
            room, self._lease, per_endpoint=self._limits.usual_limit, limits=limits, full=full
        )
        surplus = [work.claim for work in claimed.work if not self._limits.add(Held(work, now))]
        counts = Counter(work.endpoint_id for work in claimed.work)
        self._limits.claimed(counts, limits, full, all_of_them=len(claimed.work) + claimed.settled < room)
        self._note(claimed)
        in_vain = self._stopping or self._changes != changes
        if in_vain:
            surplus += self._limits.drop(lambda _: True)
        self._begin_all()
        if self._limits.waiting and not self._stopping:
            self._alarm.within(PATIENCE)
        await self._give_back(surplus, 0.0 if in_vain else SURPLUS_BACK)

    def _note(self, claimed: Claimed) -> None:
        """Count and tell what a claim found beside work; ask again while there was any."""
        self.tally.settled += claimed.settled
        self._wanted = self._wanted or claimed.settled > 0
        for endpoint in claimed.unreadable:
            self._log.error("no configured encryption-key opens endpoint {endpoint}", endpoint=str(endpoint))

    async def _give_back(self, claims: Sequence[Claim], seconds: float = 0.0) -> None:
        if claims:
            await self._queue.release(claims, seconds)
            if not self._stopping:
                self._alarm.within(seconds)

    async def _give_back_outdated(self) -> None:
        """Give back what waited for too long, or was claimed before a change; until it is, it stays noted."""
        outdated = list(self._outdated)
        await self._give_back(outdated)
        del self._outdated[: len(outdated)]

    async def _look_ahead(self) -> None:
        """Set the alarm for the next due time, or for the next look."""
        self._looking = False
        if self._stopping:
            return
        poll = POLL if self._listening() else POLL_DEAF
        self._alarm.within(poll * (0.75 + 0.5 * self._random()))
        seconds = await self._queue.next_due(self._limits.saturated(), self._limits.full())
        if seconds is not None and not self._stopping:
            # What is due already, and was not claimed, is locked by somebody else or waits for room.
            self._alarm.within(seconds if seconds > 0 else 2 * PAUSE)

    def _begin_all(self) -> None:
        """Begin whatever may begin."""
        if self._beginning:
            # An attempt that ended at once; the loop below goes on.
            return
        self._beginning = True
        now = self._clock.seconds()
        while (held := self._limits.next()) is not None:
            if now - held.since > PATIENCE:
                self._limits.ended(held.work)
                self._outdated.append(held.work.claim)
                self.look()
                continue
            attempt = Deferred.fromCoroutine(self._attempt(held))
            if not attempt.called:
                self._attempts[held.work.claim] = attempt
            attempt.addErrback(lambda failure: self._log.failure("an attempt got lost", failure))
            attempt.addCallback(self._attempt_ended, held.work, now)
        self._beginning = False

    def _attempt_ended(self, outcome: Outcome | None, work: DueWork, began: float) -> None:
        self._attempts.pop(work.claim, None)
        if outcome is None or outcome.error is ErrorWord.INTERNAL:
            more = self._limits.ended(work)
        else:
            seconds, answered = self._clock.seconds() - began, outcome.response_code > 0
            more = self._limits.ended(work, seconds, answered=answered)
        if self._stopping:
            if self._ended is not None and not self._attempts:
                ended, self._ended = self._ended, None
                ended.callback(None)
            return
        self._begin_all()
        if more and self._pumping is None:
            self.wake()

    async def _attempt(self, held: Held) -> Outcome | None:
        """Make one attempt, and hand its outcome on; None when none was made."""
        work = held.work
        outcome = await self._courier.deliver(work, self._clock.seconds() - held.since)
        if outcome is not None:
            decision = decide(
                work.attempt_number, work.trigger, success=outcome.success, waits=self._rules.waits
            )
            finished = Finished(work.claim, outcome, decision.retry_in)
            self._outcomes.add(finished, held.since + self._lease)
        return outcome

    def _recorded(self, finished: Sequence[Finished], lost: int) -> None:
        """Be there when what was recorded is tried again."""
        if lost:
            self.tally.lost += lost
            self._log.warn(
                "{lost} outcomes came after their leases, or their endpoints were deleted", lost=lost
            )
            # A statement whose answer was lost may have planned attempts that no alarm is set for.
            self.look()
        waits = [one.retry_in for one in finished if one.retry_in is not None]
        if waits and not self._stopping:
            self._alarm.within(min(waits))
