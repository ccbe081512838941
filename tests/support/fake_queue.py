"""An in-memory queue and HTTP client for tests of the dispatcher. The queue behaves like the real queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from dataapi.http.errors import DatabaseUnavailable
from dataapi.webhooks.delivery.attempt import Attempt
from dataapi.webhooks.model import AttemptOutcome, Claim, ClaimResult, DueWork, FinishedAttempt, Trigger
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

START = datetime(2026, 2, 3, tzinfo=UTC)
OK = AttemptOutcome(True, START, 5, 200)
REFUSED = AttemptOutcome(False, START, 5, 500)


@dataclass
class Row:
    """An attempt in the queue, and when it is due and can be claimed."""

    work: DueWork
    due: float
    claimable: float
    leased: bool = False


@dataclass
class FakeQueue:
    """An in-memory queue of one database.

    :ivar done: finished attempts, each with the claimed work.
    :ivar away: whether the database is unavailable.
    :ivar claims: number of claims.
    """

    clock: Clock
    rows: dict[UUID, Row] = field(default_factory=dict)
    disabled: set[UUID] = field(default_factory=set)
    done: list[tuple[DueWork, FinishedAttempt]] = field(default_factory=list)
    bodies: dict[UUID, bytes] = field(default_factory=dict)
    away: bool = False
    claims: int = 0

    def add(self, url: str = "https://a.example/", endpoint: UUID | None = None, **named: Any) -> UUID:
        """Add an attempt that is due now, and return its event. Each host has its own organization."""
        event, now = uuid4(), self.clock.seconds()
        values = {
            "claim": Claim(uuid4(), 0), "event_id": event, "endpoint_id": endpoint or uuid4(),
            "organization": url, "attempt_number": 1, "trigger": Trigger.AUTOMATIC,
            "waited": 0.0, "url": url, "signing_secret": "secret 12", "custom_headers": {},
            "event_type": "v1.project.paused", "body": b"{}", **named,
        }  # fmt: skip
        work = DueWork(**values)
        self.rows[work.claim.delivery_id] = Row(work, now, now)
        return event

    def _check(self) -> None:
        if self.away:
            raise DatabaseUnavailable(503, "PGRST001", "Database client error. Retrying.")

    async def claim(
        self,
        maximum: int,
        lease: float,
        *,
        per_endpoint: int = 16,
        limits: Mapping[UUID, int] | None = None,
        full: Collection[str] = (),
        holder: int | None = None,  # noqa: ARG002 - the real queue's
    ) -> ClaimResult:
        self._check()
        self.claims += 1
        now, found, settled = self.clock.seconds(), list[DueWork](), 0
        # Integers, because hashing a UUID is slow in Python.
        left = {endpoint.int: limit for endpoint, limit in (limits or {}).items()}
        due = [row for row in self.rows.values() if row.claimable <= now]
        for row in sorted(due, key=lambda row: row.claimable):
            if len(found) + settled == maximum:
                break
            endpoint = row.work.endpoint_id.int
            room = left.get(endpoint)
            if room is None:
                room = 0 if row.work.organization in full else per_endpoint
            left[endpoint] = max(0, room - 1)
            if room <= 0:
                continue
            if row.work.endpoint_id in self.disabled:
                settled += 1
                del self.rows[row.work.claim.delivery_id]
                continue
            row.leased, row.claimable = True, now + lease
            row.work = replace(
                row.work,
                claim=replace(row.work.claim, fence=row.work.claim.fence + 1),
                body=self.bodies.get(row.work.event_id, row.work.body),
            )
            found.append(row.work)
        return ClaimResult(tuple(found), settled)

    def _leased(self, claim: Claim) -> Row | None:
        row = self.rows.get(claim.delivery_id)
        return row if row is not None and row.leased and row.work.claim == claim else None

    async def finish(self, finished: Sequence[FinishedAttempt]) -> frozenset[UUID]:
        self._check()
        taken = set()
        for one in finished:
            row = self._leased(one.claim)
            if row is None:
                continue
            taken.add(one.claim.delivery_id)
            self.done.append((row.work, one))
            del self.rows[one.claim.delivery_id]
            if one.retry_in is not None:
                at = self.clock.seconds() + one.retry_in
                again = replace(row.work, claim=Claim(uuid4(), 0), attempt_number=row.work.attempt_number + 1)
                self.rows[again.claim.delivery_id] = Row(again, at, at)
        return frozenset(taken)

    async def release(self, claims: Iterable[Claim], seconds: float = 0.0) -> int:
        self._check()
        rows = [row for row in map(self._leased, claims) if row is not None]
        for row in rows:
            row.leased, row.claimable = False, max(row.due, self.clock.seconds() + seconds)
            row.work = replace(row.work, claim=replace(row.work.claim, fence=row.work.claim.fence + 1))
        return len(rows)

    async def next_due(self, excluded: Iterable[UUID] = (), full: Collection[str] = ()) -> float | None:
        """Return the seconds until the next attempt can be claimed."""
        self._check()
        unwanted = {endpoint.int for endpoint in excluded}
        times = [
            row.claimable
            for row in self.rows.values()
            if row.work.endpoint_id.int not in unwanted and row.work.organization not in full
        ]
        return min(times) - self.clock.seconds() if times else None

    async def rendered(self, event: UUID, payload: Mapping[str, Any]) -> bytes:
        self._check()
        return self.bodies.setdefault(event, str(dict(payload)).encode())


class FakeSender:
    """Records attempts; ``answer`` ends an attempt immediately if it returns an outcome.

    :ivar sent: started attempts with their times.
    :ivar open: running attempts, oldest first.
    """

    def __init__(self, clock: Clock, answer: Any = lambda _attempt: None) -> None:
        self._clock = clock
        self.answer = answer
        self.sent: list[tuple[float, Attempt]] = []
        self.open: list[tuple[Attempt, Deferred[AttemptOutcome]]] = []

    async def send(self, attempt: Attempt) -> AttemptOutcome:
        self.sent.append((self._clock.seconds(), attempt))
        outcome = self.answer(attempt)
        if outcome is not None:
            found: AttemptOutcome = outcome
            return found
        waiting: Deferred[AttemptOutcome] = Deferred()
        self.open.append((attempt, waiting))
        return await waiting

    def end(self, outcome: AttemptOutcome = OK, count: int = 1) -> None:
        """End the oldest attempts."""
        for _ in range(count):
            _, waiting = self.open.pop(0)
            waiting.callback(outcome)

    @property
    def times(self) -> list[float]:
        """The start times of the attempts."""
        return [round(at, 6) for at, _ in self.sent]
