"""What follows a delivery's attempt: the table "States and transitions" of the specification, as functions.

Times are Unix seconds.  Nothing is added to the waits by chance, and a receiver's ``Retry-After`` or 410
changes nothing (reference/webhooks.md section 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataapi.webhooks.model import Status, Trigger

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_ATTEMPTS = 5
WAITS = (10.0, 30.0, 90.0, 270.0)
"""Seconds before attempts 2, 3, 4 and 5."""

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt that follows a failed one.

    :ivar number: from 2 to 5.
    :ivar due: when it is to be made.
    """

    number: int
    due: float


@dataclass(frozen=True, slots=True)
class Decision:
    """How the record of an attempt ends.

    :ivar retry: the attempt that follows, None when the delivery is settled.
    """

    status: Status
    retry: Retry | None = None


def decide(
    number: int, trigger: Trigger, *, succeeded: bool, ended: float, waits: Sequence[float] = WAITS
) -> Decision:
    """Return what follows attempt ``number`` (from 1).

    Manual and test deliveries have one attempt, automatic ones as many as there are waits and one more,
    never over five.

    :param ended: when the attempt was over; the wait begins here.
    """
    if succeeded:
        return Decision(Status.SUCCESS)
    if trigger is not Trigger.AUTOMATIC or number >= automatic_attempts(waits):
        return Decision(Status.FAILED)
    return Decision(Status.FAILED, Retry(number + 1, ended + waits[number - 1]))


def automatic_attempts(waits: Sequence[float] = WAITS) -> int:
    """Return how many attempts an automatic delivery has at most."""
    return min(len(waits) + 1, MOST_ATTEMPTS)


def before_attempt(*, enabled: bool) -> Decision | None:
    """Return how a due attempt ends without being made, None when it is to be made.

    An endpoint that was disabled, or deleted, after the event was enqueued gets nothing.
    """
    return None if enabled else Decision(Status.SKIPPED)


def expiry(created: float, retention_days: int = 14) -> float:
    """Return when a delivery stops being listed and can no longer be retried."""
    return created + retention_days * _DAY


def may_retry(created: float, now: float, retention_days: int = 14) -> bool:
    """Tell whether a delivery is within retention, so that a manual retry finds it."""
    return now < expiry(created, retention_days)
