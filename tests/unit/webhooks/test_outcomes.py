"""Recording of outcomes: batches, rejected outcomes and unavailable databases."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from dataapi.http.errors import DatabaseError, DatabaseUnavailable
from dataapi.webhooks.delivery.outcomes import FLUSH_AFTER, MAX_BATCH, RETRY_AFTER, Outcomes
from dataapi.webhooks.model import Claim, FinishedAttempt
from support.fake_queue import OK
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

AWAY = DatabaseUnavailable(503, "PGRST001", "away")
BAD = DatabaseError(400, "22P05", "unsupported Unicode escape sequence")


class Database:
    """A fake database that can be slow, unavailable or reject outcomes.

    :ivar slow: statements wait until this Deferred fires.
    """

    def __init__(self) -> None:
        self.batches: list[list[UUID]] = []
        self.recorded: list[UUID] = []
        self.retries: list[float | None] = []
        self.lost = 0
        self.error: Exception | None = None
        self.poison: set[UUID] = set()
        self.gone: set[UUID] = set()
        self.slow: Deferred[None] | None = None
        self.clock = Clock()
        self.outcomes = Outcomes(self.clock, self, self._on_recorded)

    def _on_recorded(self, finished: Sequence[FinishedAttempt], lost: int) -> None:
        self.recorded += [one.claim.delivery_id for one in finished]
        self.retries += [one.retry_in for one in finished]
        self.lost += lost

    async def finish(self, finished: Sequence[FinishedAttempt]) -> frozenset[UUID]:
        identifiers = [one.claim.delivery_id for one in finished]
        self.batches.append(identifiers)
        if self.slow is not None:
            await self.slow
        if self.error is not None:
            raise self.error
        if self.poison.intersection(identifiers):
            raise BAD
        return frozenset(identifiers) - self.gone

    def add(self, count: int = 1, retry_in: float | None = None) -> list[UUID]:
        """Add outcomes of attempts whose leases end in 30 seconds."""
        finished = [FinishedAttempt(Claim(uuid4(), 1), OK, retry_in) for _ in range(count)]
        for one in finished:
            self.outcomes.add(one, self.clock.seconds() + 30)
        return [one.claim.delivery_id for one in finished]


def test_simultaneous_outcomes_are_recorded_in_one_statement() -> None:
    database = Database()
    identifiers = database.add(3)
    assert database.batches == []
    database.clock.advance(FLUSH_AFTER)
    assert database.batches == [identifiers]
    assert database.recorded == identifiers
    assert not database.clock.getDelayedCalls()


def test_full_batch_is_recorded_immediately() -> None:
    database = Database()
    database.add(MAX_BATCH)
    assert [len(batch) for batch in database.batches] == [MAX_BATCH]


def test_statements_are_sequential() -> None:
    database = Database()
    running: Deferred[None] = Deferred()
    database.slow = running
    database.add()
    database.clock.advance(FLUSH_AFTER)
    later = database.add(2)
    database.clock.advance(1)
    assert len(database.batches) == 1
    database.slow = None
    running.callback(None)
    database.clock.advance(FLUSH_AFTER)
    assert database.batches[1] == later


def test_no_outcome_is_lost_while_the_database_is_unavailable() -> None:
    database = Database()
    database.error = AWAY
    first = database.add(2)
    database.clock.advance(FLUSH_AFTER)
    assert database.outcomes.blocked
    second = database.add()
    for _ in range(100):
        database.clock.advance(RETRY_AFTER)
    database.error = None
    database.clock.advance(RETRY_AFTER)
    assert database.recorded == first + second
    assert not database.outcomes.blocked
    assert database.lost == 0


def test_interrupted_batch_stays_first_in_order() -> None:
    database = Database()
    running: Deferred[None] = Deferred()
    database.slow, database.error = running, AWAY
    first = database.add()
    database.clock.advance(FLUSH_AFTER)
    second = database.add()
    running.callback(None)
    database.slow = database.error = None
    database.clock.advance(RETRY_AFTER)
    assert database.recorded == first + second


@pytest.mark.parametrize(("away", "left"), [(4.0, 6.0), (40.0, 0.0)])
def test_retry_waits_start_at_the_end_of_the_attempt(away: float, left: float) -> None:
    database = Database()
    database.error = AWAY
    database.add(retry_in=10.0)
    for _ in range(round(away / RETRY_AFTER)):
        database.clock.advance(RETRY_AFTER)
    database.error = None
    database.clock.advance(RETRY_AFTER)
    assert database.retries == [pytest.approx(left, abs=2 * RETRY_AFTER)]


def test_one_invalid_outcome_does_not_block_others() -> None:
    database = Database()
    identifiers = database.add(5)
    database.poison = {identifiers[2]}
    database.clock.advance(FLUSH_AFTER)
    for _ in range(3):
        database.clock.advance(RETRY_AFTER)
    assert sorted(database.recorded) == sorted({*identifiers} - database.poison)
    others = database.add(2)
    database.clock.advance(RETRY_AFTER)
    assert set(others) <= set(database.recorded), "later outcomes are recorded"
    assert database.lost == 0, "the lease of the invalid outcome has not ended"
    for _ in range(80):
        database.clock.advance(RETRY_AFTER)
    assert database.lost == 1
    assert not database.clock.getDelayedCalls()


def test_settled_waits_until_everything_is_recorded() -> None:
    database = Database()
    identifiers = database.add(2)
    settled = Deferred.fromCoroutine(database.outcomes.settled())
    assert settled.called
    assert database.recorded == identifiers
    database.error = AWAY
    more = database.add()
    settled = Deferred.fromCoroutine(database.outcomes.settled())
    assert not settled.called
    database.error = None
    database.clock.advance(RETRY_AFTER)
    assert settled.called
    assert database.recorded == identifiers + more


def test_lost_outcome_is_counted() -> None:
    database = Database()
    recorded, gone = database.add(2)
    database.gone = {gone}
    database.clock.advance(FLUSH_AFTER)
    assert (database.recorded, database.lost) == ([recorded], 1)
