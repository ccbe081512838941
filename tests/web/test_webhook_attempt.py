"""One attempt of a delivery, to receivers good and bad, over real sockets (reference/webhooks.md 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dataapi.webhooks.signature import sign
from support.receiver import SECRET, Receiver, World, attempt


@pytest.fixture
def world(reactor: Any) -> Iterator[World]:
    """Yield what makes receivers and senders, and ends them."""
    made = World(reactor)
    yield made
    made.end()


@pytest.fixture
def receiver() -> Receiver:
    """Give a receiver that answers 200 until it is told otherwise."""
    return Receiver()


async def test_a_delivery_is_one_signed_post_of_the_very_bytes(world: World, receiver: Receiver) -> None:
    port = world.listen(receiver)
    outcome = await world.sender().send(attempt(port, "/hooks?a=%20b", custom_headers=(("X-Team", "blue"),)))
    assert outcome.succeeded
    assert (outcome.response_code, outcome.response_body, outcome.error) == (200, "ok", None)
    [request] = receiver.received
    assert request.line == "POST /hooks?a=%20b HTTP/1.1"
    assert request.body == b'{"a": 1}'
    assert request.headers == {
        "host": f"hooks.example.com:{port}",
        "content-length": "8",
        "content-type": "application/json",
        "accept-encoding": "identity",
        "user-agent": "dataapi-webhooks/1",
        "x-team": "blue",
        "webhook-id": "evt",
        "webhook-timestamp": "1614265330",
        "webhook-signature": sign(SECRET, "evt", 1_614_265_330, request.body),
    }


async def test_connections_are_used_again(world: World, receiver: Receiver) -> None:
    port = world.listen(receiver)
    sender = world.sender()
    for _ in range(3):
        assert (await sender.send(attempt(port))).succeeded
    assert len(receiver.received) == 3
    assert len(receiver.connections) == 1
