"""Resources of the management API: JSON Schemas, and their representation as JSON.

Requests are validated with the schemas in ``/v2/openapi.json``. Resources never contain signing secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from dataapi.webhooks.catalogue import ALL_EVENT_TYPES, Catalogue
from dataapi.webhooks.delivery import destinations, headers
from dataapi.webhooks.event_types import (
    ORGANIZATION,
    PROJECT,
    EventType,
    is_operational,
    schema_for_receivers,
)
from dataapi.webhooks.management.errors import Issue, IssueCode, invalid
from dataapi.webhooks.management.limits import PORTAL
from dataapi.webhooks.model import (
    Accepted,
    AttemptError,
    DailyStatistics,
    Delivery,
    Endpoint,
    Event,
    Organization,
    Permission,
    Portal,
    ProjectRecord,
    Recovery,
    SkipReason,
    Token,
)

Schema = dict[str, Any]

ATTRIBUTES = "/data/attributes"

MAX_EVENT_TYPES = 100
MAX_DESCRIPTION_LENGTH = 512
MAX_PER_SECOND = 1_000
MAX_SECRET_GRACE = 7 * 24 * 3600
"""Maximum grace period of a replaced signing secret, in seconds."""
MAX_KEY_LENGTH = 255
MAX_TOKEN_GRACE = 30 * 86_400
"""Maximum grace period of a replaced token, in seconds."""
MIN_LINK_SECONDS, LINK_SECONDS, MAX_LINK_SECONDS = 60, 3_600, 86_400
"""Minimum, default and maximum validity of a portal link, in seconds."""
MAX_NAME_LENGTH = 64
MAX_EVENTS = 1_000
"""Maximum number of events in a request."""

EVENT_TYPE = {"type": "string", "maxLength": 128, "pattern": r"^v[1-9][0-9]{0,3}(\.[a-z][a-z0-9_]*){2,}$"}
TIMESTAMP = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$",
}
IDENTIFIER = {"type": "string", "format": "uuid"}

_HEADER_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
_HEADER_VALUE = r"^([!-~]([ \t!-~]*[!-~])?)?$"
_SECRET = r"^[\u0001-\u007f]*$"
_STORABLE = r"^[^\u0000]*$"

_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-]\d\d:\d\d))", re.ASCII
)


def _object(members: Mapping[str, Any], *optional: str) -> Schema:
    required = [name for name in members if name not in optional]
    schema: Schema = {"type": "object", "properties": dict(members), "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _resource(name: str, attributes: Schema | None, identifier: Schema | None = None) -> Schema:
    members = {"type": {"const": name}, "id": identifier, "attributes": attributes}
    return _object({name: schema for name, schema in members.items() if schema is not None})


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_PERMISSION = {"type": "string", "enum": list(Permission)}
COLOR: dict[str, str] = {"type": "string", "pattern": "^#[0-9a-fA-F]{6}$"}
PLAIN = r"^[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]*$"
"""Pattern of text that contains no control characters, line breaks or bidirectional controls."""
SLUG: Schema = {**ORGANIZATION, "minLength": 1, "maxLength": 64}


def _writable(catalogue: Catalogue) -> Schema:
    types = {"type": "string", "enum": [ALL_EVENT_TYPES, *catalogue.types]}
    secret = {"minLength": headers.MIN_SECRET_LENGTH, "maxLength": headers.MAX_SECRET_LENGTH}
    header = {"type": "string", "pattern": _HEADER_VALUE, "maxLength": headers.MAX_VALUE_LENGTH}
    subscription = {"minItems": 1, "maxItems": MAX_EVENT_TYPES, "items": _object({"type": types})}
    return {
        "url": {"type": "string", "maxLength": destinations.MAX_URL_LENGTH},
        "event_types": {"type": "array", **subscription},
        "signing_secret": {"type": "string", **secret, "pattern": _SECRET, "writeOnly": True},
        "custom_headers": {
            "type": ["object", "null"],
            "maxProperties": headers.MAX_HEADERS,
            "propertyNames": {"pattern": _HEADER_NAME, "maxLength": headers.MAX_NAME_LENGTH},
            "additionalProperties": header,
        },
        "description": _or_null({**_TEXT, "maxLength": MAX_DESCRIPTION_LENGTH, "pattern": _STORABLE}),
        "enabled": {"type": "boolean"},
        "max_per_second": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_PER_SECOND},
    }


def _body(name: str, members: Mapping[str, Any], *optional: str, may_be_empty: bool = False) -> Schema:
    record = _resource(name, _object(members, *optional))
    return _object({"data": record}, *(("data",) if may_be_empty else ()))


def new_endpoint(catalogue: Catalogue) -> Schema:
    members = _writable(catalogue)
    members["enabled"] = {**members["enabled"], "default": True}
    return _body("endpoint", members, "custom_headers", "description", "enabled", "max_per_second")


def endpoint_change(catalogue: Catalogue) -> Schema:
    seconds = {"type": "integer", "minimum": 0, "maximum": MAX_SECRET_GRACE, "writeOnly": True}
    members = {**_writable(catalogue), "grace_seconds": seconds}
    attributes = {**_object(members, *members), "dependentRequired": {"grace_seconds": ["signing_secret"]}}
    return _object({"data": _resource("endpoint", attributes)})


def test_event(catalogue: Catalogue) -> Schema:
    types = {"type": "string", "enum": list(catalogue.types)}
    return _body("event", {"type": types}, "type", may_be_empty=True)


def new_url_check(_catalogue: Catalogue) -> Schema:
    return _body("url_check", {"url": {"type": "string", "maxLength": destinations.MAX_URL_LENGTH}})


def new_recovery(_catalogue: Catalogue) -> Schema:
    return _body("recovery", {"since": TIMESTAMP, "until": TIMESTAMP}, "until")


def new_organization(_catalogue: Catalogue) -> Schema:
    members = {"slug": SLUG, "early_access": {"type": "boolean", "default": False}}
    return _body("organization", members, "early_access")


def organization_change(_catalogue: Catalogue) -> Schema:
    return _body("organization", {"early_access": {"type": "boolean"}}, "early_access")


def new_project(_catalogue: Catalogue) -> Schema:
    return _body("project", {"ref": PROJECT})


def new_token(_catalogue: Catalogue) -> Schema:
    permissions = {"type": "array", "minItems": 1, "maxItems": len(Permission), "items": _PERMISSION}
    return _body("token", {"permissions": permissions, "expires_at": _or_null(TIMESTAMP)}, "expires_at")


def token_rotation(_catalogue: Catalogue) -> Schema:
    seconds = {"type": "integer", "minimum": 0, "maximum": MAX_TOKEN_GRACE, "default": 0}
    return _body("rotation", {"grace_period": seconds}, "grace_period", may_be_empty=True)


def new_portal_link(_catalogue: Catalogue) -> Schema:
    seconds = {"type": "integer", "minimum": MIN_LINK_SECONDS, "maximum": MAX_LINK_SECONDS}
    members = {
        "project_ref": _or_null(PROJECT),
        "expires_in": {**seconds, "default": LINK_SECONDS},
        "read_only": {"type": "boolean", "default": False},
        "signing_secrets": {"type": "boolean", "default": False},
        "name": {**_TEXT, "minLength": 1, "maxLength": MAX_NAME_LENGTH, "pattern": PLAIN},
        "color": COLOR,
    }
    return _body("portal_link", members, *members, may_be_empty=True)


def new_events(catalogue: Catalogue) -> Schema:
    event = new_event(catalogue)
    events = {"type": "array", "minItems": 1, "maxItems": MAX_EVENTS, "items": event}
    return {"oneOf": [event, events]}


def new_event(catalogue: Catalogue) -> Schema:
    """Return the schema of an event to publish. Payloads have their own schemas."""
    attributes = _object(
        {
            "type": {
                "type": "string",
                "enum": [name for name in catalogue.types if not is_operational(name)],
            },
            "organization_slug": ORGANIZATION,
            "project_ref": _or_null(PROJECT),
            "payload": {"type": "object"},
            "timestamp": TIMESTAMP,
        },
        "project_ref",
        "payload",
        "timestamp",
    )
    key = {"type": "string", "minLength": 1, "maxLength": MAX_KEY_LENGTH, "pattern": _STORABLE}
    return _object({"data": _resource("event", attributes), "meta": _object({"idempotency_key": key})})


_ENDPOINT_MEMBERS = {
    "id": IDENTIFIER,
    "url": _TEXT,
    "enabled": {"type": "boolean"},
    "description": _or_null(_TEXT),
    "event_types": {"type": "array", "items": _object({"type": _TEXT})},
    "custom_headers": {"type": "object", "additionalProperties": _or_null(_TEXT)},
    "created_by": _or_null(_TEXT),
    "created_at": TIMESTAMP,
    "updated_at": TIMESTAMP,
    "max_per_second": {"type": ["integer", "null"], "minimum": 1},
    "failing_since": _or_null(TIMESTAMP),
    "disabled_reason": {"enum": ["failing", None]},
    "disabled_since": _or_null(TIMESTAMP),
    "previous_secret_until": _or_null(TIMESTAMP),
}
_DELIVERY_MEMBERS = {
    "id": IDENTIFIER,
    "event_id": IDENTIFIER,
    "endpoint_id": IDENTIFIER,
    "endpoint_scope": {"enum": ["organization", "project"]},
    "event_type": _TEXT,
    "status": {"enum": ["pending", "success", "failed", "skipped"]},
    "attempt_number": {"type": "integer", "minimum": 1},
    "trigger": {"enum": ["automatic", "manual", "test"]},
    "response_code": _COUNT,
    "response_headers": {"type": ["object", "null"], "additionalProperties": _TEXT},
    "response_body": _or_null(_TEXT),
    "error": {"enum": [*AttemptError, *SkipReason, None]},
    "duration_ms": _or_null(_COUNT),
    "attempt_timestamp": _or_null(TIMESTAMP),
    "next_attempt_at": _or_null(TIMESTAMP),
    "expires_at": TIMESTAMP,
    "created_at": TIMESTAMP,
}
_EVENT_MEMBERS = {
    "id": IDENTIFIER,
    "type": _TEXT,
    "timestamp": TIMESTAMP,
    "payload": {"type": ["object", "null"]},
}
_EVENT_TYPE_MEMBERS = {
    "type": EVENT_TYPE,
    "description": _TEXT,
    "schema": {"type": "object"},
    "example": {"type": "object"},
    "renders": _or_null(EVENT_TYPE),
}
_STATISTICS_MEMBERS = {
    "day": {"type": "string", "format": "date"},
    "endpoint_id": _or_null(IDENTIFIER),
    "success": _COUNT,
    "failed": _COUNT,
    "skipped": _COUNT,
    "median_ms": _or_null(_COUNT),
    "slowest_ms": _or_null(_COUNT),
}
_PORTAL_MEMBERS = {
    "name": _TEXT,
    "color": _or_null(_TEXT),
    "signing_secrets": {"type": "boolean"},
}
_ACCESS_MEMBERS = {
    "organization_slug": _or_null(_TEXT),
    "operator": {"type": "boolean"},
    "projects": {"type": "array", "items": _TEXT},
    "permissions": {"type": "array", "items": _PERMISSION},
    "expires_at": _or_null(TIMESTAMP),
    "project_ref": _or_null(_TEXT),
    "portal": {"oneOf": [{"type": "null"}, _object(_PORTAL_MEMBERS)]},
}
_LINK_MEMBERS = {
    "path": _TEXT,
    "organization_slug": _TEXT,
    "project_ref": _or_null(_TEXT),
    "read_only": {"type": "boolean"},
    "expires_at": TIMESTAMP,
    **_PORTAL_MEMBERS,
}
_ORGANIZATION_MEMBERS = {"slug": _TEXT, "early_access": {"type": "boolean"}, "created_at": TIMESTAMP}
_PROJECT_MEMBERS = {"ref": _TEXT, "organization_slug": _TEXT, "created_at": TIMESTAMP}
_TOKEN_MEMBERS = {
    "permissions": {"type": "array", "items": _PERMISSION},
    "created_at": TIMESTAMP,
    "expires_at": _or_null(TIMESTAMP),
}
_URL_CHECK_MEMBERS = {
    "accepted": {"type": "boolean"},
    "code": _or_null(_TEXT),
    "message": _or_null(_TEXT),
}
_LOCATIONS = ("pointer", "parameter", "header")
_LOCATION = _object(dict.fromkeys(_LOCATIONS, _TEXT), *_LOCATIONS)
_ISSUE = _object({"code": {"enum": list(IssueCode)}, "message": _TEXT, "meta": _LOCATION}, "meta")
_ERROR = {"code": _TEXT, "message": _TEXT, "id": _TEXT, "issues": {"type": "array", "items": _ISSUE}}
_WITH_EVENT = {**_DELIVERY_MEMBERS, "event": _object(_EVENT_MEMBERS)}
_QUEUED = {"event_id": IDENTIFIER, "delivery_id": IDENTIFIER}
SCHEMAS = {
    "endpoint": _resource("endpoint", _object(_ENDPOINT_MEMBERS), IDENTIFIER),
    "delivery": _resource("delivery", _object(_DELIVERY_MEMBERS), IDENTIFIER),
    "delivery_with_event": _resource("delivery", _object(_WITH_EVENT), IDENTIFIER),
    "ingress": _resource("ingress", None, IDENTIFIER),
    "queued": _resource("ingress", _object(_QUEUED), IDENTIFIER),
    "recovery": _resource("recovery", _object({"matched": _COUNT}), IDENTIFIER),
    "deleted_payload": _resource("event", _object({"copies": _COUNT}), IDENTIFIER),
    "event_type": _resource("event_type", _object(_EVENT_TYPE_MEMBERS), EVENT_TYPE),
    "statistics": _resource("statistics", _object(_STATISTICS_MEMBERS)),
    "access": _resource("access", _object(_ACCESS_MEMBERS), IDENTIFIER),
    "url_check": _resource("url_check", _object(_URL_CHECK_MEMBERS)),
    "organization": _resource("organization", _object(_ORGANIZATION_MEMBERS), _TEXT),
    "project": _resource("project", _object(_PROJECT_MEMBERS), _TEXT),
    "token": _resource("token", _object(_TOKEN_MEMBERS), IDENTIFIER),
    "token_with_secret": _resource("token", _object({**_TOKEN_MEMBERS, "secret": _TEXT}), IDENTIFIER),
    "portal_link": _resource("portal_link", _object(_LINK_MEMBERS), IDENTIFIER),
    "links": _object({name: _or_null(_TEXT) for name in ("first", "prev", "next", "last")}),
    "error": _object({"error": _object(_ERROR, "issues")}),
}


Record = dict[str, Any]


def one(name: str) -> Schema:
    return _object({"data": {"$ref": f"#/components/schemas/{name}"}})


def many(name: str, *, linked: bool) -> Schema:
    listed = {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}
    links = {"links": {"$ref": "#/components/schemas/links"}} if linked else {}
    return _object({"data": listed, **links})


def parse_timestamp(text: str) -> datetime | None:
    """Parse an RFC 3339 timestamp to UTC, with microseconds. Return None if it is invalid."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    day, minute, second, fraction, offset = match.groups()
    micro = (fraction or "0")[:6].ljust(6, "0")
    if second == "60":  # a leap second
        second, micro = "59", "999999"
    try:
        return datetime.fromisoformat(f"{day}T{minute}:{second}.{micro}{offset or '+00:00'}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def one_or_many(name: str) -> Schema:
    return {"oneOf": [one(name), many(name, linked=False)]}


def checked_text(attributes: Mapping[str, Any], name: str, pattern: str) -> str:
    """Return a text attribute that fully matches a pattern.

    In JSON Schema, ``$`` also matches before a trailing line break.

    :raises ManagementError: the text does not match.
    """
    text: str = attributes[name]
    if re.fullmatch(pattern.removeprefix("^").removesuffix("$"), text) is None:
        message = "The text does not have the expected format"
        raise invalid(Issue(IssueCode.FORMAT, message, f"{ATTRIBUTES}/{name}"))
    return text


def bad_timestamp(pointer: str) -> Issue:
    return Issue(IssueCode.FORMAT, "Expected a time such as 2026-01-31T12:00:00Z", pointer)


def timestamp(attributes: Mapping[str, Any], name: str) -> datetime:
    value = parse_timestamp(attributes[name])
    if value is None:
        raise invalid(bad_timestamp(f"{ATTRIBUTES}/{name}"))
    return value


def format_timestamp(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def endpoint(endpoint: Endpoint, *, header_values: bool = True) -> Record:
    types = [{"type": name} for name in endpoint.event_types]
    attributes = _attributes(endpoint, _ENDPOINT_MEMBERS, event_types=types)
    if not header_values:
        attributes["custom_headers"] = dict.fromkeys(endpoint.custom_headers)
    return _record("endpoint", endpoint.id, attributes)


def delivery(delivery: Delivery, event: Event | None = None) -> Record:
    attributes = _attributes(delivery, _DELIVERY_MEMBERS)
    if event is not None:
        attributes["event"] = _attributes(event, _EVENT_MEMBERS)
    return _record("delivery", delivery.id, attributes)


def _attributes(value: object, members: Iterable[str], **others: Any) -> Record:
    return {name: others[name] if name in others else _json(getattr(value, name)) for name in members}


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_timestamp(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(value) if isinstance(value, Mapping) else value


def ingress(identifier: UUID) -> Record:
    return {"type": "ingress", "id": str(identifier)}


def queued(accepted: Accepted) -> Record:
    return _record("ingress", accepted.event_id, _attributes(accepted, _QUEUED))


def recovery(recovery: Recovery) -> Record:
    return _record("recovery", recovery.id, {"matched": recovery.matched})


def deleted_payload(event: UUID, copies: int) -> Record:
    return _record("event", event, {"copies": copies})


def event_type(event_type: EventType) -> Record:
    renders = event_type.renders and event_type.renders.type
    schema = schema_for_receivers(event_type.schema)
    attributes = _attributes(event_type, _EVENT_TYPE_MEMBERS, renders=renders, schema=schema)
    return _record("event_type", event_type.type, attributes)


def access(token: Token, projects: Iterable[str]) -> Record:
    attributes = _attributes(
        token,
        _ACCESS_MEMBERS,
        organization_slug=token.organization,
        projects=list(projects),
        project_ref=token.project,
        portal=token.portal and _portal(token),
    )
    return _record("access", token.id, attributes)


def portal_link(token: Token, secret: str) -> Record:
    """Return the resource of a portal link. The token is in the URL's fragment, so servers do not log it."""
    attributes = {
        "path": f"{PORTAL}#{secret}",
        "organization_slug": token.organization,
        "project_ref": token.project,
        "read_only": Permission.WRITE not in token.permissions,
        "expires_at": _json(token.expires_at),
        **_portal(token),
    }
    return _record("portal_link", token.id, attributes)


def _portal(token: Token) -> Record:
    portal = token.portal or Portal()
    return {
        "name": portal.name or token.organization,
        "color": portal.color or None,
        "signing_secrets": portal.signing_secrets,
    }


def organization(organization: Organization) -> Record:
    return _record("organization", organization.slug, _attributes(organization, _ORGANIZATION_MEMBERS))


def project(project: ProjectRecord) -> Record:
    attributes = _attributes(project, _PROJECT_MEMBERS, organization_slug=project.organization)
    return _record("project", project.ref, attributes)


def token(token: Token, secret: str | None = None) -> Record:
    shown = {} if secret is None else {"secret": secret}
    return _record("token", token.id, {**_attributes(token, _TOKEN_MEMBERS), **shown})


def checked_url(refused: tuple[str, str] | None) -> Record:
    """Return the resource of a URL check. ``refused`` is the error's code and message, or None."""
    code, message = refused or (None, None)
    return {
        "type": "url_check",
        "attributes": {"accepted": refused is None, "code": code, "message": message},
    }


def statistics(statistics: DailyStatistics) -> Record:
    attributes = _attributes(statistics, _STATISTICS_MEMBERS, day=statistics.day.isoformat())
    return {"type": "statistics", "attributes": attributes}


def _record(kind: str, identifier: UUID | str, attributes: Record) -> Record:
    return {"type": kind, "id": str(identifier), "attributes": attributes}
