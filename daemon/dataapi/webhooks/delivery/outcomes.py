"""Outcomes of attempts: scheduling of retries, and reliable recording in batches.

Retry delays have no jitter, and do not depend on ``Retry-After`` or status 410 (docs/reference/webhooks.md,
Delivery states).
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
"""Delays before attempts 2 to 5, in seconds."""

FLUSH_AFTER = 0.01
"""Seconds to wait for more outcomes before recording a batch."""

MAX_BATCH = 256
"""Maximum number of outcomes in a batch. A full batch is recorded immediately."""

RETRY_AFTER = 0.5
"""Seconds to wait after an error before recording outcomes again."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The status after an attempt, and the seconds until its retry, if any."""

    status: Status
    retry_in: float | None = None


def decide(number: int, trigger: Trigger, *, success: bool, waits: Sequence[float] = WAITS) -> Decision:
    """Return the status and retry delay after attempt ``number``, starting at 1.

    Only automatic deliveries are retried: once for each element of ``waits``, but with at most
    ``MAX_ATTEMPTS`` attempts in total.
    """
    if success:
        return Decision(Status.SUCCESS)
    if trigger is not Trigger.AUTOMATIC or number >= min(len(waits) + 1, MAX_ATTEMPTS):
        return Decision(Status.FAILED)
    return Decision(Status.FAILED, waits[number - 1])


class OutcomeStore(Protocol):
    """Stores outcomes. Implemented by ``store.queue.Queue``."""

    async def finish(self, finished: Sequence[FinishedAttempt]) -> frozenset[UUID]:
        """Record outcomes and return the deliveries whose outcomes were accepted."""


@dataclass(frozen=True, slots=True)
class _Unrecorded:
    finished: FinishedAttempt
    at: float
    until: float


class Outcomes:
    """Records outcomes in batches, one statement at a time.

    Outcomes are retained while the database is unavailable. If another daemon claims an attempt in the
    meantime, the fencing token makes the database discard this daemon's outcome. If recording a batch fails,
    its outcomes are retried one by one until their leases end.

    :param recorded: called with the recorded attempts and the number of discarded or lost outcomes.
    :ivar blocked: whether outcomes are waiting for the database.
    """

    _log = Logger(namespace="dataapi.webhooks")

    def __init__(
        self,
        clock: IReactorTime,
        records: OutcomeStore,
        recorded: Callable[[Sequence[FinishedAttempt], int], None],
    ) -> None:
        self._clock = clock
        self._records = records
        self._recorded = recorded
        self._waiting: list[_Unrecorded] = []
        self._rejected: list[_Unrecorded] = []
        self._alarm = Alarm(clock, self._flush)
        self._background = Background()
        self._writing = False
        self._idle: Deferred[None] | None = None
        self.blocked = False

    def add(self, finished: FinishedAttempt, until: float) -> None:
        self._waiting.append(_Unrecorded(finished, self._clock.seconds(), until))
        if self.blocked or self._writing:
            return
        if len(self._waiting) >= MAX_BATCH:
            self._flush()
        else:
            self._alarm.within(FLUSH_AFTER)

    async def settled(self) -> None:
        if self._waiting or self._rejected or self._writing:
            self._idle = idle = Deferred[None]()
            if not self.blocked:
                self._flush()
            await idle

    def stop(self) -> None:
        self._alarm.cancel()
        self._background.cancel()

    def _flush(self) -> None:
        if not self._writing and (self._waiting or self._rejected):
            self._alarm.cancel()
            self._background.spawn(self._write())

    async def _write(self) -> None:
        self._writing = True
        try:
            while batch := self._next_batch():
                if not await self._try(batch):
                    self._alarm.within(RETRY_AFTER)
                    return
                self.blocked = False
                if 0 < len(self._waiting) < MAX_BATCH and not self._rejected and self._idle is None:
                    self._alarm.within(FLUSH_AFTER)
                    return
        finally:
            self._writing = False
            if self._idle is not None and not self._waiting and not self._rejected:
                idle, self._idle = self._idle, None
                idle.callback(None)

    def _next_batch(self) -> list[_Unrecorded]:
        source, maximum = (self._waiting, MAX_BATCH) if self._waiting else (self._rejected, 1)
        batch = source[:maximum]
        del source[:maximum]
        return batch

    async def _try(self, batch: list[_Unrecorded]) -> bool:
        """Record a batch. Return False to wait before the next batch."""
        now = self._clock.seconds()
        finished = [_adjusted(unrecorded, now) for unrecorded in batch]
        try:
            accepted = await self._records.finish(finished)
        except CancelledError:
            raise
        except DatabaseUnavailable as error:
            if not self.blocked:
                self._log.warn("outcomes are waiting for the database: {reason}", reason=error.message)
            self.blocked = True
            self._waiting[:0] = batch
            return False
        except Exception as error:
            return self._set_aside(batch, error)
        recorded = [attempt for attempt in finished if attempt.claim.delivery_id in accepted]
        self._recorded(recorded, len(finished) - len(recorded))
        return True

    def _set_aside(self, batch: list[_Unrecorded], error: Exception) -> bool:
        if len(batch) > 1:
            self._log.error("recording {count} outcomes one by one: {reason}", count=len(batch), reason=error)
            self._rejected += batch
            return True
        [unrecorded] = batch
        if self._clock.seconds() >= unrecorded.until:
            delivery = str(unrecorded.finished.claim.delivery_id)
            self._log.error("the outcome of {delivery} is lost: {reason}", delivery=delivery, reason=error)
            self._recorded([], 1)
            return True
        self._rejected.append(unrecorded)
        return False


def _adjusted(unrecorded: _Unrecorded, now: float) -> FinishedAttempt:
    finished = unrecorded.finished
    if finished.retry_in is None:
        return finished
    # The delay is counted from the end of the attempt, not from the recording of its outcome.
    return replace(finished, retry_in=max(0.0, finished.retry_in - (now - unrecorded.at)))
