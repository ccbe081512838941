"""Outcomes: whether another attempt follows, and recording them in batches without losing any.

The waits have no jitter, and neither ``Retry-After`` nor 410 changes them
(docs/reference/webhooks.md, Delivery states).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from dataapi.concurrency.tasks import Background
from dataapi.concurrency.timers import Alarm
from dataapi.http.errors import DatabaseUnavailable
from dataapi.webhooks.model import FinishedAttempt, Status, Trigger

MAX_ATTEMPTS = 5
WAITS = (10.0, 30.0, 90.0, 270.0)
"""Seconds before attempts 2, 3, 4 and 5."""

FLUSH_AFTER = 0.01
"""Seconds that an outcome waits for others, to be recorded with them."""

MAX_BATCH = 256
"""Outcomes that one statement records; as soon as there are so many, they do not wait."""

AGAIN_AFTER = 0.5
"""Seconds until recording is tried again after it failed."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows an attempt, and in how many seconds from its end another one, if any."""

    status: Status
    retry_in: float | None = None


def decide(number: int, trigger: Trigger, *, success: bool, waits: Sequence[float] = WAITS) -> Decision:
    """Return what follows attempt ``number``, counted from 1.

    Manual and test deliveries have one attempt, automatic ones one more than there are waits, at most five.
    """
    if success:
        return Decision(Status.SUCCESS)
    if trigger is not Trigger.AUTOMATIC or number >= min(len(waits) + 1, MAX_ATTEMPTS):
        return Decision(Status.FAILED)
    return Decision(Status.FAILED, waits[number - 1])


class StoresOutcomes(Protocol):
    """Stores outcomes; see ``store.queue.Queue``."""

    async def finish(self, finished: Sequence[FinishedAttempt]) -> frozenset[UUID]:
        """Record them, and return the deliveries whose outcomes were accepted."""


@dataclass(frozen=True, slots=True)
class _Unrecorded:
    """An outcome to be recorded: when the attempt ended, and until when its lease lasts."""

    finished: FinishedAttempt
    at: float
    until: float


class Outcomes:
    """Records outcomes in batches, one statement at a time.

    While the database is unavailable, outcomes are held back: no daemon can claim the work in the meantime,
    and if one does afterwards, the fence rejects the outcome.  Outcomes that the database refuses are tried
    one by one, and abandoned when their leases end.

    :param recorded: called with what was recorded and the number of outcomes that were rejected or lost.
    :ivar stuck: whether outcomes wait for the database.
    """

    _log = Logger(namespace="dataapi.webhooks")

    def __init__(
        self,
        clock: IReactorTime,
        records: StoresOutcomes,
        recorded: Callable[[Sequence[FinishedAttempt], int], None],
    ) -> None:
        self._clock = clock
        self._records = records
        self._recorded = recorded
        self._waiting: list[_Unrecorded] = []
        self._refused: list[_Unrecorded] = []
        self._alarm = Alarm(clock, self._flush)
        self._background = Background()
        self._writing = False
        self._idle: Deferred[None] | None = None
        self.blocked = False

    def add(self, finished: FinishedAttempt, until: float) -> None:
        """Add the outcome of an attempt that ended now; its lease ends at ``until``."""
        self._waiting.append(_Unrecorded(finished, self._clock.seconds(), until))
        if self.blocked or self._writing:
            return
        if len(self._waiting) >= MAX_BATCH:
            self._flush()
        else:
            self._alarm.within(FLUSH_AFTER)

    async def settled(self) -> None:
        """Wait until everything is recorded or abandoned."""
        if self._waiting or self._refused or self._writing:
            self._idle = idle = Deferred[None]()
            if not self.blocked:
                self._flush()
            await idle

    def stop(self) -> None:
        """Stop recording, at once."""
        self._alarm.cancel()
        self._background.cancel()

    def _flush(self) -> None:
        if not self._writing and (self._waiting or self._refused):
            self._alarm.cancel()
            self._background.spawn(self._write())

    async def _write(self) -> None:
        """Record everything, until that fails."""
        self._writing = True
        try:
            while batch := self._take():
                if not await self._try(batch):
                    self._alarm.within(AGAIN_AFTER)
                    return
                self.blocked = False
                if 0 < len(self._waiting) < MAX_BATCH and not self._refused and self._idle is None:
                    self._alarm.within(FLUSH_AFTER)
                    return
        finally:
            self._writing = False
            if self._idle is not None and not self._waiting and not self._refused:
                idle, self._idle = self._idle, None
                idle.callback(None)

    def _take(self) -> list[_Unrecorded]:
        """Remove and return what is recorded next: refused outcomes one by one."""
        source, maximum = (self._waiting, MAX_BATCH) if self._waiting else (self._refused, 1)
        batch = source[:maximum]
        del source[:maximum]
        return batch

    async def _try(self, batch: list[_Unrecorded]) -> bool:
        """Record a batch; False when the next try has to wait."""
        now = self._clock.seconds()
        finished = [_as_of(one, now) for one in batch]
        try:
            accepted = await self._records.finish(finished)
        except CancelledError:
            raise
        except DatabaseUnavailable as error:
            if not self.blocked:
                self._log.warn("outcomes wait for the database: {reason}", reason=error.message)
            self.blocked = True
            self._waiting[:0] = batch
            return False
        except Exception as error:
            return self._refuse(batch, error)
        recorded = [one for one in finished if one.claim.delivery_id in accepted]
        self._recorded(recorded, len(finished) - len(recorded))
        return True

    def _refuse(self, batch: list[_Unrecorded], error: Exception) -> bool:
        """Set aside what the database refused; False when nothing is left to try at once."""
        if len(batch) > 1:
            self._log.error(
                "{count} outcomes are recorded one by one: {reason}", count=len(batch), reason=error
            )
            self._refused += batch
            return True
        [one] = batch
        if self._clock.seconds() >= one.until:
            delivery = str(one.finished.claim.delivery_id)
            self._log.error("the outcome of {delivery} is lost: {reason}", delivery=delivery, reason=error)
            self._recorded([], 1)
            return True
        self._refused.append(one)
        return False


def _as_of(unrecorded: _Unrecorded, now: float) -> FinishedAttempt:
    """Return an outcome whose retry is counted from the end of its attempt, however late it is recorded."""
    finished = unrecorded.finished
    if finished.retry_in is None:
        return finished
    return replace(finished, retry_in=max(0.0, finished.retry_in - (now - unrecorded.at)))
