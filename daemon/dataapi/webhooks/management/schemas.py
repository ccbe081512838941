"""JSON Schemas of what the management API takes and gives; requests are checked by the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataapi.webhooks import headers, signature, urls
from dataapi.webhooks.catalogue import EVERYTHING, Catalogue
from dataapi.webhooks.event_types import ORGANIZATION, PROJECT
from dataapi.webhooks.management.codes import IssueCode
from dataapi.webhooks.work import ErrorWord

Schema = dict[str, Any]

MOST_EVENT_TYPES = 100
LONGEST_DESCRIPTION = 512
LONGEST_KEY = 255

EVENT_TYPE = {"type": "string", "maxLength": 128, "pattern": r"^v[1-9][0-9]{0,3}(\.[a-z][a-z0-9_]*){2,}$"}
MOMENT = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$",
}
IDENTIFIER = {"type": "string", "format": "uuid"}

_HEADER_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
_HEADER_VALUE = r"^([!-~]([ \t!-~]*[!-~])?)?$"
_SECRET = r"^[\u0001-\u007f]*$"
_STORABLE = r"^[^\u0000]*$"


def _object(members: Mapping[str, Any], *optional: str, **further: Any) -> Schema:
    """Return the schema of an object that has these members, all but the optional ones, and no others."""
    required = [name for name in members if name not in optional]
    schema: Schema = {"type": "object", "properties": dict(members), "additionalProperties": False, **further}
    return {**schema, "required": required} if required else schema


def _resource(name: str, attributes: Schema | None, *, identified: bool = False) -> Schema:
    members: Schema = {"type": {"const": name}}
    if identified:
        members["id"] = IDENTIFIER
    if attributes is not None:
        members["attributes"] = attributes
    return _object(members)


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}

LINKS = _object({name: _or_null(_TEXT) for name in ("first", "prev", "next", "last")})


def subscription(catalogue: Catalogue) -> Schema:
    """Return the schema of ``event_types``, with the types that there are."""
    known = {"type": "string", "enum": [EVERYTHING, *catalogue.types]}
    return {"type": "array", "minItems": 1, "maxItems": MOST_EVENT_TYPES, "items": _object({"type": known})}


def _writable(catalogue: Catalogue) -> Schema:
    return {
        "url": {"type": "string", "maxLength": urls.LONGEST},
        "event_types": subscription(catalogue),
        "signing_secret": {
            "type": "string",
            "minLength": signature.SHORTEST,
            "maxLength": signature.LONGEST,
            "pattern": _SECRET,
            "writeOnly": True,
        },
        "custom_headers": {
            "type": ["object", "null"],
            "maxProperties": headers.MOST,
            "propertyNames": {"pattern": _HEADER_NAME, "maxLength": headers.LONGEST_NAME},
            "additionalProperties": {
                "type": "string",
                "pattern": _HEADER_VALUE,
                "maxLength": headers.LONGEST_VALUE,
            },
        },
        "description": {"type": ["string", "null"], "maxLength": LONGEST_DESCRIPTION, "pattern": _STORABLE},
        "enabled": {"type": "boolean"},
    }


def new_endpoint(catalogue: Catalogue) -> Schema:
    """Return the schema of the document that creates an endpoint."""
    members = _writable(catalogue)
    members["enabled"] = {**members["enabled"], "default": True}
    attributes = _object(members, "custom_headers", "description", "enabled")
    return _object({"data": _resource("endpoint", attributes)})


def endpoint_change(catalogue: Catalogue) -> Schema:
    """Return the schema of the document that changes an endpoint; what is absent stays as it is."""
    members = _writable(catalogue)
    return _object({"data": _resource("endpoint", _object(members, *members))})


def test_event(catalogue: Catalogue) -> Schema:
    """Return the schema of the document that sends a test event; ``{}`` will do."""
    known = {"type": "string", "enum": list(catalogue.types)}
    return _object({"data": _resource("event", _object({"type": known}, "type"))}, "data")


def new_recovery(_catalogue: Catalogue) -> Schema:
    """Return the schema of the document that asks for a recovery."""
    return _object({"data": _resource("recovery", _object({"since": MOMENT, "until": MOMENT}, "until"))})


def new_event(catalogue: Catalogue) -> Schema:
    """Return the schema of the document that publishes an event; the type's own is checked beside it."""
    attributes = _object(
        {
            "type": {"type": "string", "enum": list(catalogue.types)},
            "organization_slug": ORGANIZATION,
            "project_ref": _or_null(PROJECT),
            "payload": {"type": "object"},
            "timestamp": MOMENT,
        },
        "project_ref",
        "payload",
        "timestamp",
    )
    key = {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": _STORABLE}
    return _object({"data": _resource("event", attributes), "meta": _object({"idempotency_key": key})})


ENDPOINT = _resource(
    "endpoint",
    _object(
        {
            "id": IDENTIFIER,
            "url": _TEXT,
            "enabled": {"type": "boolean"},
            "description": _or_null(_TEXT),
            "event_types": {"type": "array", "items": _object({"type": _TEXT})},
            "custom_headers": {"type": "object", "additionalProperties": _TEXT},
            "created_by": _or_null(_TEXT),
            "created_at": MOMENT,
            "updated_at": MOMENT,
        }
    ),
    identified=True,
)

_DELIVERY_MEMBERS = {
    "id": IDENTIFIER,
    "event_id": IDENTIFIER,
    "endpoint_id": IDENTIFIER,
    "event_type": _TEXT,
    "status": {"enum": ["pending", "success", "failed", "skipped"]},
    "attempt_number": {"type": "integer", "minimum": 1},
    "trigger": {"enum": ["automatic", "manual", "test"]},
    "response_code": _COUNT,
    "response_headers": {"type": ["object", "null"], "additionalProperties": _TEXT},
    "response_body": _or_null(_TEXT),
    "error": {"enum": [*ErrorWord, None]},
    "duration_ms": _or_null(_COUNT),
    "attempt_timestamp": _or_null(MOMENT),
    "next_attempt_at": _or_null(MOMENT),
    "expires_at": MOMENT,
    "created_at": MOMENT,
}
DELIVERY = _resource("delivery", _object(_DELIVERY_MEMBERS), identified=True)
_EVENT = _object({"id": IDENTIFIER, "type": _TEXT, "timestamp": MOMENT, "payload": {"type": "object"}})
DELIVERY_WITH_EVENT = _resource("delivery", _object({**_DELIVERY_MEMBERS, "event": _EVENT}), identified=True)

INGRESS = _resource("ingress", None, identified=True)
QUEUED = _resource("ingress", _object({"event_id": IDENTIFIER, "delivery_id": IDENTIFIER}), identified=True)
RECOVERY = _resource("recovery", _object({"matched": _COUNT}), identified=True)
EVENT_TYPE_RECORD = _object(
    {
        "type": {"const": "event_type"},
        "id": EVENT_TYPE,
        "attributes": _object(
            {
                "type": EVENT_TYPE,
                "description": _TEXT,
                "schema": {"type": "object"},
                "example": {"type": "object"},
                "renders": _or_null(EVENT_TYPE),
            }
        ),
    }
)
_ISSUE = _object(
    {
        "code": {"enum": list(IssueCode)},
        "message": _TEXT,
        "meta": _object({"pointer": _TEXT, "parameter": _TEXT}, "pointer", "parameter"),
    },
    "meta",
)
ERROR = _object(
    {
        "error": _object(
            {"code": _TEXT, "message": _TEXT, "id": _TEXT, "issues": {"type": "array", "items": _ISSUE}},
            "issues",
        )
    }
)


def one(name: str) -> Schema:
    """Return the schema of an answer about one record."""
    return _object({"data": {"$ref": f"#/components/schemas/{name}"}})


def many(name: str, *, linked: bool) -> Schema:
    """Return the schema of an answer that lists records, with links to other pages or without."""
    listed = {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}
    links = {"links": {"$ref": "#/components/schemas/links"}} if linked else {}
    return _object({"data": listed, **links})
