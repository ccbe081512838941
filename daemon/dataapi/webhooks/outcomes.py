"""Outcomes on their way to the database: many in one statement, and none lost while it is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from dataapi.database.background import Background
from dataapi.errors import DatabaseUnavailable
from dataapi.webhooks.wakeup import Alarm
from dataapi.webhooks.work import Finished

FLUSH_AFTER = 0.01
"""Seconds that an outcome waits for others."""

MOST_AT_ONCE = 256
"""Outcomes that one statement records; so many do not wait."""

AGAIN_AFTER = 0.5
"""Seconds until what could not be recorded is tried again."""


class Records(Protocol):
    """Keeps outcomes."""

    async def finish(self, finished: Sequence[Finished]) -> frozenset[UUID]:
        """Record them all, and return which were taken."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An outcome that is not recorded yet.

    :ivar at: when the attempt ended.
    :ivar until: when its lease ends.
    """

    finished: Finished
    at: float
    until: float


class Outcomes:
    """Records outcomes in batches, one statement at a time.

    What the database is away for is kept until it is back: nobody else can have claimed it meanwhile, and if
    somebody did since, the fence keeps the outcome out.  What the database refuses is tried singly, and given
    up when its lease is over.

    :param recorded: is told what was taken, with the seconds until each next attempt, and how many were not.
    """

    _log = Logger(namespace="dataapi.webhooks")

    def __init__(
        self, clock: IReactorTime, records: Records, recorded: Callable[[Sequence[Finished], int], None]
    ) -> None:
        self._clock = clock
        self._records = records
        self._recorded = recorded
        self._kept: list[_Kept] = []
        self._refused: list[_Kept] = []
        self._alarm = Alarm(clock, self._flush)
        self._background = Background()
        self._writing = False
        self._idle: Deferred[None] | None = None
        self.stuck = False

    def add(self, finished: Finished, until: float) -> None:
        """Take an outcome on; its attempt ended now.

        :param until: when its lease ends.
        """
        self._kept.append(_Kept(finished, self._clock.seconds(), until))
        if self.stuck or self._writing:
            return
        if len(self._kept) >= MOST_AT_ONCE:
            self._flush()
        else:
            self._alarm.within(FLUSH_AFTER)

    async def settled(self) -> None:
        """Return when everything is recorded or given up."""
        if self._kept or self._refused or self._writing:
            self._idle = idle = Deferred[None]()
            if not self.stuck:
                self._flush()
            await idle

    def stop(self) -> None:
        """Record no more; return at once."""
        self._alarm.cancel()
        self._background.cancel()

    def _flush(self) -> None:
        if not self._writing and (self._kept or self._refused):
            self._alarm.cancel()
            self._background.spawn(self._write())

    async def _write(self) -> None:
        """Record all that there is, until that fails."""
        self._writing = True
        try:
            while batch := self._take():
                if not await self._try(batch):
                    self._alarm.within(AGAIN_AFTER)
                    return
                self.stuck = False
                if 0 < len(self._kept) < MOST_AT_ONCE and not self._refused and self._idle is None:
                    self._alarm.within(FLUSH_AFTER)
                    return
        finally:
            self._writing = False
            if self._idle is not None and not self._kept and not self._refused:
                idle, self._idle = self._idle, None
                idle.callback(None)

    def _take(self) -> list[_Kept]:
        """Take out what is recorded next: the refused ones by themselves."""
        source, most = (self._kept, MOST_AT_ONCE) if self._kept else (self._refused, 1)
        batch = source[:most]
        del source[:most]
        return batch

    async def _try(self, batch: list[_Kept]) -> bool:
        """Record a batch; False when it has to wait."""
        now = self._clock.seconds()
        finished = [_as_of(one, now) for one in batch]
        try:
            taken = await self._records.finish(finished)
        except CancelledError:
            raise
        except DatabaseUnavailable as error:
            if not self.stuck:
                self._log.warn("outcomes wait for the database: {reason}", reason=error.message)
            self.stuck = True
            self._kept[:0] = batch
            return False
        except Exception as error:
            return self._refuse(batch, error)
        known = [one for one in finished if one.claim.delivery_id in taken]
        self._recorded(known, len(finished) - len(known))
        return True

    def _refuse(self, batch: list[_Kept], error: Exception) -> bool:
        """Put aside what the database refused; False when nothing else is left to be tried at once."""
        if len(batch) > 1:
            self._log.error("{count} outcomes are recorded singly: {reason}", count=len(batch), reason=error)
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


def _as_of(kept: _Kept, now: float) -> Finished:
    """Return an outcome whose next attempt is counted from its end, however late it is recorded."""
    finished = kept.finished
    if finished.retry_in is None:
        return finished
    return replace(finished, retry_in=max(0.0, finished.retry_in - (now - kept.at)))
