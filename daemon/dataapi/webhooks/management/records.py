"""Records as the management API shows them (reference/webhooks.md section 1); a signing secret is in none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from dataapi.webhooks.event_types import EventType
from dataapi.webhooks.model import Accepted, Delivery, Endpoint, Event, Recovery

Record = dict[str, Any]


def moment(at: datetime | None) -> str | None:
    """Write a time in ISO 8601, UTC, with milliseconds."""
    if at is None:
        return None
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def endpoint(shown: Endpoint) -> Record:
    """Return an endpoint's record."""
    return _record(
        "endpoint",
        shown.id,
        {
            "id": str(shown.id),
            "url": shown.url,
            "enabled": shown.enabled,
            "description": shown.description,
            "event_types": [{"type": name} for name in shown.event_types],
            "custom_headers": dict(shown.custom_headers),
            "created_by": shown.created_by,
            "created_at": moment(shown.created_at),
            "updated_at": moment(shown.updated_at),
        },
    )


def delivery(shown: Delivery, event: Event | None = None) -> Record:
    """Return a delivery's record.

    :param event: what was or will be delivered, where the record is to have it.
    """
    attributes: Record = {
        "id": str(shown.id),
        "event_id": str(shown.event_id),
        "endpoint_id": str(shown.endpoint_id),
        "event_type": shown.event_type,
        "status": shown.status.value,
        "attempt_number": shown.attempt_number,
        "trigger": shown.trigger.value,
        "response_code": shown.response_code,
        "response_headers": None if shown.response_headers is None else dict(shown.response_headers),
        "response_body": shown.response_body,
        "error": shown.error,
        "duration_ms": shown.duration_ms,
        "attempt_timestamp": moment(shown.attempt_timestamp),
        "next_attempt_at": moment(shown.next_attempt_at),
        "expires_at": moment(shown.expires_at),
        "created_at": moment(shown.created_at),
    }
    if event is not None:
        attributes["event"] = {
            "id": str(event.id),
            "type": event.type,
            "timestamp": moment(event.timestamp),
            "payload": dict(event.payload),
        }
    return _record("delivery", shown.id, attributes)


def ingress(identifier: UUID) -> Record:
    """Return the record of a published event."""
    return {"type": "ingress", "id": str(identifier)}


def queued(accepted: Accepted) -> Record:
    """Return the record of a test or retry: known by its event, as all of its deliveries are."""
    event = str(accepted.event_id)
    return _record("ingress", event, {"event_id": event, "delivery_id": str(accepted.delivery_id)})


def recovery(taken: Recovery) -> Record:
    """Return the record of a recovery."""
    return _record("recovery", taken.id, {"matched": taken.matched})


def event_type(shown: EventType) -> Record:
    """Return the record of a type of event."""
    return _record(
        "event_type",
        shown.type,
        {
            "type": shown.type,
            "description": shown.description,
            "schema": shown.schema,
            "example": shown.example,
            "renders": None if shown.renders is None else shown.renders.type,
        },
    )


def _record(kind: str, identifier: UUID | str, attributes: Record) -> Record:
    return {"type": kind, "id": str(identifier), "attributes": attributes}
