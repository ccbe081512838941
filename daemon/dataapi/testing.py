"""Helpers for tests of plugins and receivers.

>>> catalogue = check_catalogues(ShopEvents())
>>> delivery = sample_delivery(catalogue, "v1.shop.order", SECRET)
>>> publisher = RecordingPublisher(catalogue)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from uuid import UUID

from zope.interface.verify import verifyObject

from dataapi.webhooks import identifiers
from dataapi.webhooks.catalogue import BadEventType, BadPayload, Catalogue, sample_payload
from dataapi.webhooks.delivery.headers import delivery_headers, verify
from dataapi.webhooks.interfaces import IEventCatalogue
from dataapi.webhooks.model import NewEvent
from dataapi.webhooks.plugins import SHIPPED, SourcePublisher

ORGANIZATION = "acme"
PROJECT = "abcdefghijklmnopqrst"
"""The organization and project of sample deliveries."""


def check_catalogues(*catalogues: IEventCatalogue) -> Catalogue:
    """Validate event catalogues, and return their event types together with the shipped ones.

    The daemon checks that schemas are valid, that they accept their examples, and that versions render only
    existing older versions. This function also renders each example, and validates the result in the older
    version.

    :raises zope.interface.Invalid: a catalogue does not provide ``IEventCatalogue``.
    :raises BadEventType: a type is invalid. The daemon would ignore the whole catalogue.
    """
    shipped: IEventCatalogue = import_module(SHIPPED).platform_events
    for catalogue in catalogues:
        verifyObject(IEventCatalogue, catalogue)
    types = [event_type for catalogue in (shipped, *catalogues) for event_type in catalogue.event_types()]
    checked = Catalogue(types)
    for newer, versions in checked.versions().items():
        for older in versions:
            try:
                checked.check(older, checked.render(newer, older, checked.types[newer].example))
            except Exception as error:
                raise BadEventType(f"{newer} does not render {older}: {error!r}") from error
    return checked


@dataclass(frozen=True, slots=True)
class SampleDelivery:
    """A request as received by an endpoint.

    :ivar headers: headers of the delivery, with names in lower case.
    """

    headers: Mapping[str, str]
    body: bytes


def sample_delivery(
    catalogue: Catalogue, event_type: str, secret: str, *, signed_at: datetime | None = None
) -> SampleDelivery:
    """Return a signed delivery of a type's example, marked as a test.

    :param secret: signing secret of the endpoint.
    :param signed_at: time of the signature, with a time zone (default: now).
    :raises KeyError: the catalogue does not contain the type.
    """
    described = catalogue.types[event_type]
    moment = signed_at or datetime.now(UTC)
    event_id = str(identifiers.uuid_v7())
    event = {
        "id": event_id,
        "type": event_type,
        "timestamp": moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "payload": sample_payload(described, ORGANIZATION, PROJECT),
    }
    body = json.dumps(event, separators=(",", ":")).encode()
    return SampleDelivery(dict(delivery_headers(secret, event_id, int(moment.timestamp()), body)), body)


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether a delivery is signed with a secret. The age of ``webhook-timestamp`` is not checked.

    :param headers: headers with names in lower case.
    :param body: the body as received.
    :raises KeyError: a header of the signature is missing.
    """
    timestamp = int(headers["webhook-timestamp"])
    return verify(secret, headers["webhook-id"], timestamp, body, headers["webhook-signature"])


class _Memory:
    """Stores published events, once for each organization and idempotency key."""

    def __init__(self, events: list[NewEvent]) -> None:
        self._events = events
        self._ids: dict[tuple[str, str], UUID] = {}

    async def publish(self, event: NewEvent) -> UUID:
        key = event.scope.organization, event.idempotency_key
        if key not in self._ids:
            self._ids[key] = identifiers.uuid_v7()
            self._events.append(event)
        return self._ids[key]


class RecordingPublisher(SourcePublisher):
    """An ``IEventPublisher`` for tests of event sources. It validates events like the daemon, and records
    them.

    Organizations and projects are not checked, because there is no database.

    :ivar events: the published events, without repetitions of an idempotency key.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.events: list[NewEvent] = []
        super().__init__(_Memory(self.events), lambda: catalogue)


__all__ = [
    "ORGANIZATION",
    "PROJECT",
    "BadEventType",
    "BadPayload",
    "RecordingPublisher",
    "SampleDelivery",
    "check_catalogues",
    "is_signed",
    "sample_delivery",
]
