"""What the configuration changes of the management API."""

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


async def test_plain_http_may_be_refused(strict: Management) -> None:
    made = await strict.create(url="https://receiver.example/")
    sent = {"url": "http://receiver.example/"}
    created = await strict.send("POST", f"{ORGANIZATION}/endpoints", endpoint(**sent))
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    changed = await strict.send("PATCH", one, document("endpoint", **sent))
    assert created.refusal == changed.refusal == (400, "bad_request.endpoint.url.invalid")


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "127.0.0.1"])
async def test_allowed_networks_may_be_addressed(strict: Management, host: str) -> None:
    """An address within ``allow-addresses`` is no reserved one (section 4)."""
    made = await strict.create(url=f"https://{host}/")
    assert made["attributes"]["url"] == f"https://{host}/"


async def test_without_a_key_secrets_are_not_kept(keyless: Management) -> None:
    for scope in SCOPES:
        with capturedLogs() as events:
            answer = await keyless.send("POST", f"{scope}/endpoints", endpoint())
        assert answer.refusal == (503, "service_unavailable")
        assert b"key" not in answer.content
        [event] = [event for event in events if event["log_namespace"] == "dataapi.webhooks"]
        assert formatEvent(event) == (
            "createEndpoint failed: [webhooks] encryption-key is not configured."
            " Run dataapi keys to create one."
        )
        assert (await keyless.send("GET", f"{scope}/endpoints")).data == []
