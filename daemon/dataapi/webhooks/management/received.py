"""What endpoints receive: the section ``webhooks`` of the OpenAPI document, with deliveries by event type.

A type's delivery and payload have schemas that are named by it, from which receivers generate types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.event_types import EventType
from dataapi.webhooks.management.resources import IDENTIFIER, TIMESTAMP, Schema

_PREFIX = "#/components/schemas/"
_PAYLOAD = "{}.payload"
_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "webhook-id": ("The event's id, at every attempt the same.", IDENTIFIER),
    "webhook-timestamp": ("When the attempt was signed, in seconds since 1970.", {"type": "integer"}),
    "webhook-signature": ("The signature of Standard Webhooks.", {"type": "string", "pattern": "^v1,"}),
}
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose members are names, not keywords."""
_DATA = frozenset({"const", "enum", "default", "example", "examples"})
"""Keywords whose values are no schemas."""


def webhooks(catalogue: Catalogue) -> Schema:
    """Return the request that an endpoint gets for each type of a catalogue."""
    return {event_type.type: {"post": _delivery(event_type)} for event_type in catalogue.types.values()}


def schemas(catalogue: Catalogue) -> Schema:
    """Return the schemas of deliveries and payloads by name, for ``components``."""
    found: Schema = {}
    for name, event_type in catalogue.types.items():
        payload = _PAYLOAD.format(name)
        members = {
            "id": IDENTIFIER,
            "type": {"const": name},
            "timestamp": TIMESTAMP,
            "payload": {"$ref": _PREFIX + payload},
        }
        # Members may be added to a version: receivers ignore those that they do not know.
        found[name] = {"type": "object", "properties": members, "required": list(members)}
        found[payload] = _moved(event_type.schema, _PREFIX + payload)
    return found


def _delivery(event_type: EventType) -> Schema:
    schema = {"$ref": _PREFIX + event_type.type}
    headers = [
        {"name": name, "in": "header", "required": True, "description": text, "schema": schema}
        for name, (text, schema) in _HEADERS.items()
    ]
    return {
        "operationId": event_type.type,
        "summary": event_type.description,
        # It is the signature that authenticates a delivery.
        "security": [],
        "parameters": headers,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "2XX": {"description": "The event was received."},
            "default": {"description": "Anything else: the delivery is attempted again."},
        },
    }


def _moved(schema: Any, place: str, *, named: bool = False) -> Any:
    """Return a schema whose references to itself lead to where it stands in the document."""
    if isinstance(schema, list):
        return [_moved(one, place) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved: Schema = {}
    for key, value in schema.items():
        if named:
            moved[key] = _moved(value, place)
        elif key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            moved[key] = place + value[1:]
        else:
            moved[key] = value if key in _DATA else _moved(value, place, named=key in _NAMED)
    return moved
