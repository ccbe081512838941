"""What deliveries come to, counted for ``/metrics``."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from dataapi.metrics import DURATIONS, Histogram, Snapshot
from dataapi.webhooks.work import Outcome, QueueFigures


class Tally:
    """The counts of one process since its start."""

    def __init__(self) -> None:
        self._attempts: Counter[str] = Counter()
        self._buckets = [0] * (len(DURATIONS) + 1)
        self._waited = 0.0
        self.settled = 0
        self.lost = 0

    def began(self, waited: float) -> None:
        """Count a first attempt.

        :param waited: seconds since its event was raised.
        """
        waited = max(0.0, waited)
        self._buckets[bisect_left(DURATIONS, waited)] += 1
        self._waited += waited

    def ended(self, outcome: Outcome) -> None:
        """Count an attempt."""
        self._attempts[word(outcome)] += 1

    def snapshot(self, in_flight: int, figures: QueueFigures | None) -> Snapshot:
        """Return the counts so far.

        :param figures: how the queue stands; None while the database does not say.
        """
        own: dict[str, dict[tuple[str, ...], float | Histogram]] = {
            "dataapi_webhooks_in_flight": {(): float(in_flight)},
            "dataapi_webhooks_attempts_total": {
                (outcome,): float(count) for outcome, count in self._attempts.items()
            },
            "dataapi_webhooks_settled_total": {(): float(self.settled)},
            "dataapi_webhooks_lost_outcomes_total": {(): float(self.lost)},
            "dataapi_webhooks_first_attempt_seconds": {(): Histogram(tuple(self._buckets), self._waited)},
        }
        if figures is not None:
            own["dataapi_webhooks_due"] = {
                ("waiting",): float(max(0, figures.waiting - figures.ready - figures.leased)),
                ("ready",): float(figures.ready),
                ("leased",): float(figures.leased),
            }
            own["dataapi_webhooks_oldest_due_seconds"] = {(): figures.oldest_due}
        return own


def word(outcome: Outcome) -> str:
    """Return one of few words: ``success``, ``refused`` for an answer that is no success, or the error."""
    if outcome.success:
        return "success"
    return str(outcome.error) if outcome.error is not None else "refused"
