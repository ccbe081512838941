"""Event types, and the members that every payload contains.

Types have the form ``v<N>.<area>.<name>``. A change that breaks receivers needs a new version ``N``. During
the transition, both versions are sent (docs/reference/webhooks.md, Versions).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Payload: TypeAlias = Mapping[str, Any]

TYPE = re.compile(r"v([1-9][0-9]{0,3})(?:\.[a-z][a-z0-9_]*){2,}")

MAX_WATCHED_LENGTH = 56
"""Maximum length of an event type for row changes. Trigger names contain the event type."""

ORGANIZATION = {"type": "string", "pattern": r"^[A-Za-z0-9_-]+$"}
PROJECT = {"type": "string", "pattern": "^[a-z]{20}$"}


@dataclass(frozen=True, slots=True)
class Rendering:
    """Converts payloads to an older version of their event type.

    :ivar type: the older version, such as ``v1.shop.order``.
    :ivar render: converts a payload. The function must be pure and fast.
    """

    type: str
    render: Callable[[Payload], Payload]


@dataclass(frozen=True, slots=True)
class EventType:
    """An event type.

    :ivar schema: JSON Schema (2020-12) of the complete payload.
    :ivar example: a valid payload, used for test events.
    :ivar renders: conversion to an older version that is also sent, or None.
    """

    type: str
    description: str
    schema: Mapping[str, Any]
    example: Payload
    renders: Rendering | None = None


_KNOWN = "x-known-values"


def known_values(*values: str) -> dict[str, Any]:
    """Return the schema of a string with a documented set of values. Later versions may extend the set.

    Published events may contain only these values, but ``schema_for_receivers`` allows all strings.
    """
    return {"type": "string", "enum": list(values), _KNOWN: True}


def schema_for_receivers(schema: Any) -> Any:
    """Return the schema of delivered payloads. It also allows strings that are not ``known_values``."""
    if isinstance(schema, list):
        return [schema_for_receivers(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if schema.get(_KNOWN) is True:
        return {"anyOf": [{"type": "string", "enum": schema["enum"]}, {"type": "string"}]}
    return {name: schema_for_receivers(item) for name, item in schema.items()}


def is_operational(event_type: str) -> bool:
    """Whether the type is reserved for the service's own events about endpoints."""
    return event_type.startswith("v1.webhook.endpoint.")


def version(event_type: str) -> int:
    match = TYPE.fullmatch(event_type)
    if match is None:
        raise ValueError(f"{event_type} is not of the form v<N>.<area>.<name>")
    return int(match[1])


def project_schema(members: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return _schema(PROJECT, members or {})


def organization_schema(members: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return _schema({"type": "null"}, members or {})


def row_change(event_type: str, description: str, row: Mapping[str, Any] | None = None) -> EventType:
    """Return an event type for ``webhooks.watch`` (docs/reference/webhooks.md, Row changes).

    :param row: JSON Schemas of columns by name, for ``old`` and ``new``. Other columns are allowed.
    """
    columns = {"type": ["object", "null"], "properties": row or {}}
    members = {
        "operation": {"enum": ["insert", "update", "delete"]},
        "schema": {"type": "string"},
        "table": {"type": "string"},
        "old": columns,
        "new": columns,
        "truncated": {"type": "boolean"},
    }
    table = {"schema": "public", "table": event_type.rpartition(".")[2]}
    change: Payload = {"operation": "delete", **table, "old": {}, "new": None, "truncated": False}
    schema = _schema({**PROJECT, "type": ["string", "null"]}, members)
    return EventType(event_type, description, schema, complete_payload(change, "acme", None))


def any_payload(event_type: str, description: str) -> EventType:
    """Return an event type whose payload may have any members. Its events may belong to a project."""
    schema = _schema({**PROJECT, "type": ["string", "null"]}, {})
    return EventType(event_type, description, schema, complete_payload({}, "acme", None))


def _schema(project: Mapping[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
    properties = {
        "organization_slug": ORGANIZATION,
        "project_ref": project,
        "actor": {
            "type": ["object", "null"],
            "properties": {"user_id": {"type": "string"}},
            "required": ["user_id"],
        },
        **members,
    }
    # Other members are allowed, because new members do not require a new version.
    return {
        "type": "object",
        "properties": {**properties, "is_test": {"type": "boolean"}},
        "required": list(properties),
    }


def complete_payload(payload: Payload, organization: str, project: str | None) -> dict[str, Any]:
    return {"actor": None, **payload, "organization_slug": organization, "project_ref": project}
