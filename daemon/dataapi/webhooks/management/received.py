"""The section ``webhooks`` of the OpenAPI document: deliveries by event type.

Schemas of deliveries and payloads are named after the event type, so that receivers can generate types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.event_types import EventType, schema_for_receivers
from dataapi.webhooks.management.resources import IDENTIFIER, TIMESTAMP, Schema

_PREFIX = "#/components/schemas/"
_PAYLOAD = "{}.payload"
_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "webhook-id": ("ID of the event, the same for all attempts.", IDENTIFIER),
    "webhook-timestamp": ("Time of the signature, in Unix seconds.", {"type": "integer"}),
    "webhook-signature": ("Signature according to Standard Webhooks.", {"type": "string", "pattern": "^v1,"}),
}
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""JSON Schema keywords whose values map names to schemas."""
_DATA = frozenset({"const", "enum", "default", "example", "examples"})
"""JSON Schema keywords whose values are not schemas."""


def webhooks(catalogue: Catalogue) -> Schema:
    return {event_type.type: {"post": _delivery(event_type)} for event_type in catalogue.types.values()}


def schemas(catalogue: Catalogue) -> Schema:
    components: Schema = {}
    for name, event_type in catalogue.types.items():
        payload = _PAYLOAD.format(name)
        members = {
            "id": IDENTIFIER,
            "type": {"const": name},
            "timestamp": TIMESTAMP,
            "payload": {"$ref": _PREFIX + payload},
        }
        # New members do not require a new version. Receivers ignore unknown members.
        components[name] = {"type": "object", "properties": members, "required": list(members)}
        components[payload] = _relocated(schema_for_receivers(event_type.schema), _PREFIX + payload)
    return components


def _delivery(event_type: EventType) -> Schema:
    schema = {"$ref": _PREFIX + event_type.type}
    headers = [
        {"name": name, "in": "header", "required": True, "description": text, "schema": schema}
        for name, (text, schema) in _HEADERS.items()
    ]
    return {
        "operationId": event_type.type,
        "summary": event_type.description,
        # Deliveries are authenticated by their signature.
        "security": [],
        "parameters": headers,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "2XX": {"description": "The event was received."},
            "default": {"description": "The delivery failed and may be retried."},
        },
    }


def _relocated(schema: Any, location: str, *, named: bool = False) -> Any:
    """Return a schema with its internal references adjusted to its location in the document."""
    if isinstance(schema, list):
        return [_relocated(item, location) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    relocated: Schema = {}
    for key, value in schema.items():
        if named:
            relocated[key] = _relocated(value, location)
        elif key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            relocated[key] = location + value[1:]
        else:
            relocated[key] = value if key in _DATA else _relocated(value, location, named=key in _NAMED)
    return relocated
