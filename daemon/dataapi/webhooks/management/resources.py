"""The resources of the management API: their JSON Schemas, and how they are written as JSON.

Requests are validated by the schemas that ``/v2/openapi.json`` publishes.  No resource has a signing secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from dataapi.webhooks.catalogue import ALL_EVENT_TYPES, Catalogue
from dataapi.webhooks.delivery import destinations, headers
from dataapi.webhooks.event_types import ORGANIZATION, PROJECT, EventType, is_operational
from dataapi.webhooks.management.errors import Issue, IssueCode, invalid
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

PORTAL = "/portal"
"""The path of the page for customers."""

ATTRIBUTES = "/data/attributes"
"""The JSON pointer of the attributes in a body."""

MAX_EVENT_TYPES = 100
MAX_DESCRIPTION_LENGTH = 512
MAX_PER_SECOND = 1_000
MAX_SECRET_GRACE = 7 * 24 * 3600
"""Seconds for which an old signing secret may stay in use."""
MAX_KEY_LENGTH = 255
MAX_TOKEN_GRACE = 30 * 86_400
"""Seconds for which a token may be valid after another one took its place."""
MIN_LINK_SECONDS, LINK_SECONDS, MAX_LINK_SECONDS = 60, 3_600, 86_400
"""How long a portal link is valid: at least, by default, and at most."""
MAX_NAME_LENGTH = 64
MAX_EVENTS = 1_000
"""Events that one request may publish."""

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
    """Return the schema of an object with exactly these members, all but the optional ones required."""
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
"""The pattern of a text without control characters, those of line ends and directions included."""
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
    """Return the schema of a body with one record, which is required unless the body may be ``{}``."""
    record = _resource(name, _object(members, *optional))
    return _object({"data": record}, *(("data",) if may_be_empty else ()))


def new_endpoint(catalogue: Catalogue) -> Schema:
    """Return the schema of the document that creates an endpoint."""
    members = _writable(catalogue)
    members["enabled"] = {**members["enabled"], "default": True}
    return _body("endpoint", members, "custom_headers", "description", "enabled", "max_per_second")


def endpoint_change(catalogue: Catalogue) -> Schema:
    """Return the schema of the document that changes an endpoint; absent members are left alone."""
    seconds = {"type": "integer", "minimum": 0, "maximum": MAX_SECRET_GRACE, "writeOnly": True}
    members = {**_writable(catalogue), "grace_seconds": seconds}
    attributes = {**_object(members, *members), "dependentRequired": {"grace_seconds": ["signing_secret"]}}
    return _object({"data": _resource("endpoint", attributes)})


def test_event(catalogue: Catalogue) -> Schema:
    """Return the schema of the document that sends a test event, which may be ``{}``."""
    types = {"type": "string", "enum": list(catalogue.types)}
    return _body("event", {"type": types}, "type", may_be_empty=True)


def new_url_check(_catalogue: Catalogue) -> Schema:
    """Return the schema of the document that asks whether an endpoint may have a URL."""
    return _body("url_check", {"url": {"type": "string", "maxLength": destinations.MAX_URL_LENGTH}})


def new_recovery(_catalogue: Catalogue) -> Schema:
    """Return the schema of the document that requests a recovery."""
    return _body("recovery", {"since": TIMESTAMP, "until": TIMESTAMP}, "until")


def new_organization(_catalogue: Catalogue) -> Schema:
    """Return the schema of the document that creates an organization."""
    members = {"slug": SLUG, "early_access": {"type": "boolean", "default": False}}
    return _body("organization", members, "early_access")


def organization_change(_catalogue: Catalogue) -> Schema:
    """Return the schema of the document that puts an organization on the allowlist or takes it off."""
    return _body("organization", {"early_access": {"type": "boolean"}}, "early_access")


def new_project(_catalogue: Catalogue) -> Schema:
    """Return the schema of the document that creates a project."""
    return _body("project", {"ref": PROJECT})


def new_token(_catalogue: Catalogue) -> Schema:
    """Return the schema of the document that creates a token."""
    permissions = {"type": "array", "minItems": 1, "maxItems": len(Permission), "items": _PERMISSION}
    return _body("token", {"permissions": permissions, "expires_at": _or_null(TIMESTAMP)}, "expires_at")


def token_rotation(_catalogue: Catalogue) -> Schema:
    """Return the schema of the document that rotates a token, which may be ``{}``."""
    seconds = {"type": "integer", "minimum": 0, "maximum": MAX_TOKEN_GRACE, "default": 0}
    return _body("rotation", {"grace_period": seconds}, "grace_period", may_be_empty=True)


def new_portal_link(_catalogue: Catalogue) -> Schema:
    """Return the schema of the document that creates a portal link, which may be ``{}``."""
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
    """Return the schema of the body that publishes one event or a list of them."""
    event = new_event(catalogue)
    events = {"type": "array", "minItems": 1, "maxItems": MAX_EVENTS, "items": event}
    return {"oneOf": [event, events]}


def new_event(catalogue: Catalogue) -> Schema:
    """Return the schema of the document that publishes an event; its payload has the type's own schema."""
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
_PLACES = ("pointer", "parameter", "header")
_PLACE = _object(dict.fromkeys(_PLACES, _TEXT), *_PLACES)
_ISSUE = _object({"code": {"enum": list(IssueCode)}, "message": _TEXT, "meta": _PLACE}, "meta")
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
"""The schemas that responses refer to by name."""


Record = dict[str, Any]
"""A resource as JSON."""


def one(name: str) -> Schema:
    """Return the schema of a response with one resource."""
    return _object({"data": {"$ref": f"#/components/schemas/{name}"}})


def many(name: str, *, linked: bool) -> Schema:
    """Return the schema of a response with a list of resources, with links to other pages or without."""
    listed = {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}
    links = {"links": {"$ref": "#/components/schemas/links"}} if linked else {}
    return _object({"data": listed, **links})


def parse_timestamp(text: str) -> datetime | None:
    """Parse an RFC 3339 date-time into UTC, to the microsecond; None for an invalid one."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    day, minute, second, fraction, offset = found.groups()
    micro = (fraction or "0")[:6].ljust(6, "0")
    if second == "60":  # a leap second
        second, micro = "59", "999999"
    try:
        return datetime.fromisoformat(f"{day}T{minute}:{second}.{micro}{offset or '+00:00'}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def one_or_many(name: str) -> Schema:
    """Return the schema of a response with one resource, or with a list of them."""
    return {"oneOf": [one(name), many(name, linked=False)]}


def whole(attributes: Mapping[str, Any], name: str, pattern: str) -> str:
    """Return a text attribute that a pattern describes as a whole: its ``$`` lets a line break pass.

    :raises ManagementError: it does not.
    """
    text: str = attributes[name]
    if re.fullmatch(pattern.removeprefix("^").removesuffix("$"), text) is None:
        message = "The text does not have the expected form"
        raise invalid(Issue(IssueCode.FORMAT, message, f"{ATTRIBUTES}/{name}"))
    return text


def bad_timestamp(pointer: str) -> Issue:
    """Return the issue of a member that is not a time."""
    return Issue(IssueCode.FORMAT, "Expected a time such as 2026-01-31T12:00:00Z", pointer)


def timestamp(attributes: Mapping[str, Any], name: str) -> datetime:
    """Return an attribute that is a time.

    :raises ManagementError: it is not.
    """
    found = parse_timestamp(attributes[name])
    if found is None:
        raise invalid(bad_timestamp(f"{ATTRIBUTES}/{name}"))
    return found


def format_timestamp(at: datetime) -> str:
    """Format a time in ISO 8601, UTC, with milliseconds."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def endpoint(endpoint: Endpoint, *, header_values: bool = True) -> Record:
    """Return the resource of an endpoint.

    :param header_values: whether custom headers have their values, or null.
    """
    types = [{"type": name} for name in endpoint.event_types]
    attributes = _attributes(endpoint, _ENDPOINT_MEMBERS, event_types=types)
    if not header_values:
        attributes["custom_headers"] = dict.fromkeys(endpoint.custom_headers)
    return _record("endpoint", endpoint.id, attributes)


def delivery(delivery: Delivery, event: Event | None = None) -> Record:
    """Return the resource of a delivery, with its event if that is there."""
    attributes = _attributes(delivery, _DELIVERY_MEMBERS)
    if event is not None:
        attributes["event"] = _attributes(event, _EVENT_MEMBERS)
    return _record("delivery", delivery.id, attributes)


def _attributes(value: object, members: Iterable[str], **others: Any) -> Record:
    """Return the members of a value, as JSON: its fields of the same names, unless others are passed."""
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
    """Return the resource of a test or retry, whose identifier is its event's."""
    return _record("ingress", accepted.event_id, _attributes(accepted, _QUEUED))


def recovery(recovery: Recovery) -> Record:
    return _record("recovery", recovery.id, {"matched": recovery.matched})


def deleted_payload(event: UUID, copies: int) -> Record:
    return _record("event", event, {"copies": copies})


def event_type(event_type: EventType) -> Record:
    renders = event_type.renders and event_type.renders.type
    attributes = _attributes(event_type, _EVENT_TYPE_MEMBERS, renders=renders)
    return _record("event_type", event_type.type, attributes)


def access(token: Token, projects: Iterable[str]) -> Record:
    """Return the resource of what a token gives access to."""
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
    """Return the resource of a portal link, whose path has its token, where no log and no referrer has it."""
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
    """Return the resource of a token, with its secret where that is shown, this once."""
    shown = {} if secret is None else {"secret": secret}
    return _record("token", token.id, {**_attributes(token, _TOKEN_MEMBERS), **shown})


def checked_url(refused: tuple[str, str] | None) -> Record:
    """Return the resource of a checked URL; ``refused`` is the code and the message of a refusal."""
    code, message = refused or (None, None)
    return {
        "type": "url_check",
        "attributes": {"accepted": refused is None, "code": code, "message": message},
    }


def statistics(statistics: DailyStatistics) -> Record:
    """Return the resource of a day's statistics."""
    attributes = _attributes(statistics, _STATISTICS_MEMBERS, day=statistics.day.isoformat())
    return {"type": "statistics", "attributes": attributes}


def _record(kind: str, identifier: UUID | str, attributes: Record) -> Record:
    return {"type": kind, "id": str(identifier), "attributes": attributes}
