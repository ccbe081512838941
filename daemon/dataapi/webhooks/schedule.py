"""What follows a delivery's attempt: the table "States and transitions" of the specification, as a function.

Nothing is added to the waits by chance, and a receiver's ``Retry-After`` or 410 changes nothing
(reference/webhooks.md section 3).
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


@dataclass(frozen=True, slots=True)
class Decision:
    """How the record of an attempt ends.

    :ivar retry_in: seconds from the attempt's end until the next one; None when the delivery is settled.
    """

    status: Status
    retry_in: float | None = None


def decide(number: int, trigger: Trigger, *, success: bool, waits: Sequence[float] = WAITS) -> Decision:
    """Return what follows attempt ``number`` (from 1).

    Manual and test deliveries have one attempt, automatic ones as many as there are waits and one more,
    never over five.
    """
    if success:
        return Decision(Status.SUCCESS)
    if trigger is not Trigger.AUTOMATIC or number >= min(len(waits) + 1, MOST_ATTEMPTS):
        return Decision(Status.FAILED)
    return Decision(Status.FAILED, waits[number - 1])
