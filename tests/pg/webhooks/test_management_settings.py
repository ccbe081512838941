"""Settings that affect the management API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.management import ORGANIZATION, SCOPES, Management, document, endpoint, managing
from twisted.logger import capturedLogs, formatEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database


@pytest.fixture
def strict(database: Database, reactor: Any) -> Iterator[Management]:
    """Serve the API with ``require-https``."""
    with managing(reactor, database, require_https=True) as service:
        yield service


@pytest.fixture
def keyless(database: Database, reactor: Any) -> Iterator[Management]:
    """Serve the API without an ``encryption-key``."""
    with managing(reactor, database, keys=()) as service:
        yield service


async def test_require_https_rejects_http_urls(strict: Management) -> None:
    made = await strict.create(url="https://receiver.example/")
    sent = {"url": "http://receiver.example/"}
    created = await strict.send("POST", f"{ORGANIZATION}/endpoints", endpoint(**sent))
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    changed = await strict.send("PATCH", one, document("endpoint", **sent))
    assert created.refusal == changed.refusal == (400, "bad_request.endpoint.url.invalid")


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "127.0.0.1"])
async def test_addresses_in_allowed_networks_are_accepted(strict: Management, host: str) -> None:
    made = await strict.create(url=f"https://{host}/")
    assert made["attributes"]["url"] == f"https://{host}/"


async def test_endpoint_cannot_be_created_without_an_encryption_key(keyless: Management) -> None:
    for scope in SCOPES:
        with capturedLogs() as events:
            response = await keyless.send("POST", f"{scope}/endpoints", endpoint())
        assert response.refusal == (503, "service_unavailable")
        assert b"key" not in response.content
        [event] = [event for event in events if event["log_namespace"] == "dataapi.webhooks"]
        assert formatEvent(event) == (
            "createEndpoint failed: [webhooks] encryption-key is not configured."
            " Run dataapi keys to create one."
        )
        assert (await keyless.send("GET", f"{scope}/endpoints")).data == []
