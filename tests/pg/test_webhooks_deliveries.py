"""Deliveries from a real queue to real receivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.webhooks.model import Status
from support.deliveries import Deliveries, event_of, records
from support.messages import until
from support.receiver import Receiver, World
from support.webhooks import add_endpoint, publish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataapi.database.pool import Pool
    from support.postgres import Database


@pytest.fixture
def world(reactor: Any) -> Iterator[World]:
    """Give what makes receivers."""
    made = World(reactor)
    yield made
    made.end()


@pytest.fixture
def deliveries(reactor: Any, database: Database, pool: Pool) -> Iterator[Deliveries]:
    """Give what makes dispatchers."""
    made = Deliveries(reactor, database, pool)
    yield made
    made.end()


async def test_an_event_is_delivered_and_recorded(deliveries: Deliveries, world: World, reactor: Any) -> None:
    """Specification, States: a 2xx response makes the delivery successful, with no further attempts."""
    store = await deliveries.store()
    receiver = Receiver()
    await add_endpoint(store, url=f"http://127.0.0.1:{world.listen(receiver)}/hook")
    await deliveries.dispatcher(store)
    await publish(store, reason="inactivity")
    await until(reactor, lambda: bool(receiver.received))
    [request] = receiver.received
    assert event_of(request)["payload"]["reason"] == "inactivity"
    for _ in range(100):
        [record] = await records(store)
        if record.status is not Status.PENDING:
            break
    assert (record.status, record.response_code, record.attempt_number) == (Status.SUCCESS, 200, 1)
    assert str(record.event_id) == request.headers["webhook-id"] == event_of(request)["id"]
