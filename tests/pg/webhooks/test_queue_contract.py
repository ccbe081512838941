"""The dispatcher tests' fake queue behaves like the real queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID, uuid4

import pytest
from dataapi.webhooks.model import EndpointChange, FinishedAttempt
from support.fake_queue import OK, REFUSED, FakeQueue
from support.webhooks import ACME, add_endpoint, migrated, publish
from twisted.internet.task import Clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dataapi.database.pool import Pool
    from dataapi.webhooks.store import Store
    from support.postgres import Database


class QueueSetup(Protocol):
    """A queue with endpoints."""

    queue: Any

    async def endpoint(self) -> UUID:
        """Create an endpoint."""

    async def plan(self) -> None:
        """Plan an attempt for every endpoint, due now."""

    async def disable(self, endpoint: UUID) -> None:
        """Disable an endpoint."""


class RealQueue:
    """A queue in a database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.queue: Any = store.queue

    async def endpoint(self) -> UUID:
        return (await add_endpoint(self._store)).id

    async def plan(self) -> None:
        await publish(self._store)

    async def disable(self, endpoint: UUID) -> None:
        await self._store.endpoints.change(ACME, endpoint, EndpointChange(enabled=False))


class InMemoryQueue:
    """The fake queue."""

    def __init__(self) -> None:
        self.queue: Any = FakeQueue(Clock())
        self._endpoints: list[UUID] = []

    async def endpoint(self) -> UUID:
        self._endpoints.append(uuid4())
        return self._endpoints[-1]

    async def plan(self) -> None:
        for endpoint in self._endpoints:
            self.queue.add(endpoint=endpoint)

    async def disable(self, endpoint: UUID) -> None:
        self.queue.disabled.add(endpoint)


@pytest.fixture(params=["real", "fake"])
def make(
    request: pytest.FixtureRequest, database: Database, pool: Pool
) -> Callable[[], Awaitable[QueueSetup]]:
    """Return a function that creates a queue without endpoints."""

    async def create() -> QueueSetup:
        return InMemoryQueue() if request.param == "fake" else RealQueue(await migrated(database, pool))

    return create


async def test_claims_end_when_they_expire_or_are_released(make: Callable[[], Awaitable[QueueSetup]]) -> None:
    setup = await make()
    await setup.endpoint()
    await setup.plan()
    queue = setup.queue
    [first] = (await queue.claim(10, 0.0)).work
    [second] = (await queue.claim(10, 30.0)).work
    assert (await queue.claim(10, 30.0)).work == ()
    assert second.claim.delivery_id == first.claim.delivery_id
    assert second.claim.fence > first.claim.fence
    assert await queue.finish([FinishedAttempt(first.claim, OK)]) == frozenset()
    assert await queue.release([first.claim]) == 0
    assert 25 < await queue.next_due() <= 30
    assert await queue.release([second.claim], 5.0) == 1
    assert 4 < await queue.next_due() <= 5


async def test_outcomes_end_attempts_or_schedule_the_next(make: Callable[[], Awaitable[QueueSetup]]) -> None:
    setup = await make()
    await setup.endpoint()
    await setup.plan()
    await setup.plan()
    queue = setup.queue
    one, two = (await queue.claim(10, 30.0)).work
    accepted = await queue.finish([FinishedAttempt(one.claim, OK), FinishedAttempt(two.claim, REFUSED, 0.0)])
    assert accepted == {one.claim.delivery_id, two.claim.delivery_id}
    [again] = (await queue.claim(10, 30.0)).work
    assert (again.event_id, again.attempt_number) == (two.event_id, 2)
    assert again.claim.delivery_id != two.claim.delivery_id
    assert await queue.finish([FinishedAttempt(again.claim, REFUSED, 50.0)])
    assert (await queue.claim(10, 30.0)).work == ()
    assert 45 < await queue.next_due() <= 50


async def test_claims_respect_limits(make: Callable[[], Awaitable[QueueSetup]]) -> None:
    setup = await make()
    one, other = await setup.endpoint(), await setup.endpoint()
    for _ in range(4):
        await setup.plan()
    queue = setup.queue
    assert len((await queue.claim(3, 30.0)).work) == 3
    assert len((await queue.claim(10, 0.0, per_endpoint=1)).work) == 2
    claimed = (await queue.claim(10, 30.0, per_endpoint=9, limits={one: 0})).work
    assert {work.endpoint_id for work in claimed} == {other}
    seconds = await queue.next_due([one])
    assert seconds is not None
    assert seconds > 0
    assert len((await queue.claim(10, 30.0, limits={one: 1, other: 9})).work) == 1


async def test_work_of_a_disabled_endpoint_is_settled(make: Callable[[], Awaitable[QueueSetup]]) -> None:
    setup = await make()
    endpoint = await setup.endpoint()
    await setup.plan()
    await setup.plan()
    await setup.disable(endpoint)
    claimed = await setup.queue.claim(10, 30.0)
    assert (claimed.work, claimed.settled) == ((), 2)
    assert await setup.queue.next_due() is None
