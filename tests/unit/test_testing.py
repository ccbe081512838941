"""``dataapi.testing``: helpers for authors of plugins and receivers match the daemon."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest
from dataapi.testing import (
    BadEventType,
    BadPayload,
    RecordingPublisher,
    check_catalogues,
    is_signed,
    sample_delivery,
)
from dataapi.webhooks.event_types import EventType, Rendering, project_schema
from dataapi.webhooks.interfaces import IEventCatalogue, IEventPublisher
from standardwebhooks import Webhook
from support import documents
from support.webhooks import PAUSED, REF
from zope.interface import Invalid, implementer
from zope.interface.verify import verifyObject

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SHARED = {"organization_slug": "acme", "project_ref": REF, "actor": None}
OLDER = EventType(
    "v1.shop.sold", "Sold.", project_schema({"cents": {"type": "integer"}}), {**SHARED, "cents": 1}
)
NEWER = EventType(
    "v2.shop.sold",
    "Sold.",
    project_schema({"total": {"type": "string"}}),
    {**SHARED, "total": "1.00"},
    Rendering("v1.shop.sold", lambda payload: {**SHARED, "cents": int(float(payload["total"]) * 100)}),
)


@implementer(IEventCatalogue)
class Shop:
    """A catalogue of given event types."""

    def __init__(self, *types: EventType) -> None:
        self._types = types

    def event_types(self) -> tuple[EventType, ...]:
        return self._types


def test_catalogue_is_checked_together_with_the_shipped_types() -> None:
    catalogue = check_catalogues(Shop(OLDER, NEWER))
    assert {OLDER.type, NEWER.type, PAUSED} <= set(catalogue.types)


def test_object_without_the_interface_is_rejected() -> None:
    with pytest.raises(Invalid):
        check_catalogues(object())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ((NEWER,), "v2.shop.sold renders v1.shop.sold"),
        ((replace(OLDER, example=SHARED),), "the example of v1.shop.sold"),
        ((replace(OLDER, type=PAUSED),), "duplicate event type"),
        (
            (OLDER, replace(NEWER, renders=Rendering("v1.shop.sold", lambda payload: payload["none"]))),
            "v2.shop.sold does not render v1.shop.sold: KeyError",
        ),
        (
            (OLDER, replace(NEWER, renders=Rendering("v1.shop.sold", dict))),
            "v2.shop.sold does not render v1.shop.sold: BadPayload",
        ),
    ],
    ids=["no older type", "example", "type of another", "rendering fails", "rendered payload is invalid"],
)
def test_invalid_catalogue_is_rejected(types: tuple[EventType, ...], message: str) -> None:
    with pytest.raises(BadEventType, match=message):
        check_catalogues(Shop(*types))


def test_sample_delivery_can_be_verified() -> None:
    delivery = sample_delivery(check_catalogues(), PAUSED, SECRET)
    event: Any = Webhook(SECRET).verify(delivery.body, dict(delivery.headers))
    assert (event["id"], event["type"]) == (delivery.headers["webhook-id"], PAUSED)
    assert event["payload"]["is_test"] is True
    assert is_signed(SECRET, delivery.headers, delivery.body)
    assert not is_signed(SECRET, delivery.headers, delivery.body + b" ")
    assert not is_signed("another secret", delivery.headers, delivery.body)


def test_sample_delivery_may_be_signed_at_another_time() -> None:
    time = datetime(2026, 1, 31, 12, tzinfo=UTC)
    delivery = sample_delivery(check_catalogues(), PAUSED, SECRET, signed_at=time)
    assert delivery.headers["webhook-timestamp"] == str(int(time.timestamp()))
    assert json.loads(delivery.body)["timestamp"] == "2026-01-31T12:00:00.000Z"


async def test_publisher_validates_and_records_events() -> None:
    publisher = RecordingPublisher(check_catalogues(Shop(OLDER)))
    verifyObject(IEventPublisher, publisher)
    first = await publisher.publish("v1.shop.sold", "acme", REF, {"cents": 2}, "sale 1")
    repeated = await publisher.publish("v1.shop.sold", "acme", REF, {"cents": 3}, "sale 1")
    other = await publisher.publish("v1.shop.sold", "globex", REF, {"cents": 3}, "sale 1")
    assert first == repeated != other
    assert [(event.scope.organization, event.payload["cents"]) for event in publisher.events] == [
        ("acme", 2),
        ("globex", 3),
    ]
    for event_type, payload in (("v1.shop.sold", {"cents": "2"}), ("v1.shop.bought", {})):
        with pytest.raises(BadPayload):
            await publisher.publish(event_type, "acme", REF, payload, "sale 2")


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    page = documents.read("docs/webhooks.md")
    plugins = ModuleType("dataapi.plugins.shop_events")
    for block in documents.blocks(documents.chapter(page, "Plugins")):
        exec(block.text, plugins.__dict__)
    monkeypatch.setitem(sys.modules, plugins.__name__, plugins)
    [block] = documents.blocks(documents.chapter(page, "Testing plugins"))
    names: dict[str, Any] = {}
    exec(block.text, names)
    return names


def test_documented_tests_pass(documented: dict[str, Any]) -> None:
    tests = [value for name, value in documented.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
