"""The OpenAPI 3.1 document of the management API, made from the table of operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.event_types import ORGANIZATION as SLUG
from dataapi.webhooks.event_types import PROJECT as REF
from dataapi.webhooks.management import resources
from dataapi.webhooks.management.errors import ErrorCode
from dataapi.webhooks.management.operations import ORGANIZATION, PROJECT, ManagementOperation, by_path

Json = dict[str, Any]

_NAMES = {
    401: "Unauthorized",
    403: "Forbidden",
    405: "MethodNotAllowed",
    409: "Conflict",
    413: "ContentTooLarge",
    414: "UriTooLong",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    431: "RequestHeaderFieldsTooLarge",
    500: "InternalServerError",
    503: "ServiceUnavailable",
    504: "GatewayTimeout",
}
"""The names of responses that are the same for every operation."""
_HEADERS: Mapping[int, Mapping[str, tuple[str, Json]]] = {
    401: {"WWW-Authenticate": ("How to authenticate.", {"type": "string"})},
    405: {"Allow": ("The methods that are taken.", {"type": "string"})},
    429: {"Retry-After": ("Seconds after which there is room again.", {"type": "integer", "minimum": 1})},
}
_PLACES: Mapping[str, tuple[str, Json]] = {
    "organization_slug": ("The organization.", {**SLUG, "minLength": 1}),
    "project_ref": ("The project.", dict(REF)),
    "endpoint_id": ("The endpoint.", resources.IDENTIFIER),
    "delivery_id": ("The delivery.", resources.IDENTIFIER),
}
_RECORDS = {
    "endpoint": resources.ENDPOINT,
    "delivery": resources.DELIVERY,
    "delivery_with_event": resources.DELIVERY_WITH_EVENT,
    "ingress": resources.INGRESS,
    "queued": resources.QUEUED,
    "recovery": resources.RECOVERY,
    "event_type": resources.EVENT_TYPE_RECORD,
    "links": resources.LINKS,
    "error": resources.ERROR,
}
_SCOPES = {ORGANIZATION: "OfOrganization", PROJECT: "OfProject"}


def description(catalogue: Catalogue, version: str) -> Json:
    """Return the document.

    :param catalogue: the types that can be subscribed to and published.
    :param version: of the product.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Webhook management",
            "version": version,
            "description": "Endpoints that receive events, and what was delivered to them.",
        },
        "security": [{"token": []}],
        "paths": {
            path: {name.lower(): _operation(one, path) for name, one in methods.items()}
            for path, methods in by_path().items()
        },
        "components": {
            "schemas": {**_RECORDS, **_bodies(catalogue)},
            "responses": {
                name: _error(status, [one for one in ErrorCode if one.status == status])
                for status, name in _NAMES.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _bodies(catalogue: Catalogue) -> Json:
    found = {one.body for methods in by_path().values() for one in methods.values() if one.body}
    return {make.__name__: make(catalogue) for make in sorted(found, key=lambda make: make.__name__)}


def _operation(operation: ManagementOperation, path: str) -> Json:
    scope = next((name for prefix, name in _SCOPES.items() if path.startswith(prefix)), "")
    described: Json = {
        "operationId": operation.name + scope,
        "summary": operation.summary,
        "parameters": list(_parameters(operation, path)),
        "responses": {str(operation.status): _success(operation), **_refusals(operation.codes(path))},
    }
    if operation.permission is None:
        described["security"] = []
    else:
        described["description"] = f"Needs a token with the permission {operation.permission}."
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        content = {name: {"schema": schema} for name in ("application/json", "application/vnd.api+json")}
        described["requestBody"] = {"required": not operation.body_optional, "content": content}
    return described


def _parameters(operation: ManagementOperation, path: str) -> Iterator[Json]:
    for name, (text, schema) in _PLACES.items():
        if f"{{{name}}}" in path:
            yield {"name": name, "in": "path", "required": True, "description": text, "schema": schema}
    for parameter in operation.parameters:
        yield {
            "name": parameter.name,
            "in": "query",
            "description": parameter.description,
            "schema": dict(parameter.schema),
        }


def _success(operation: ManagementOperation) -> Json:
    answer: Json = {"description": operation.summary, "content": _json(operation.answer)}
    if operation.name == "createEndpoint":
        answer["headers"] = {
            "Location": {
                "description": "The endpoint's path.",
                "required": True,
                "schema": {"type": "string"},
            }
        }
    return answer


def _refusals(codes: Sequence[ErrorCode]) -> Json:
    refused: Json = {}
    for status in sorted({one.status for one in codes}):
        if status in _NAMES:
            refused[str(status)] = {"$ref": f"#/components/responses/{_NAMES[status]}"}
        else:
            refused[str(status)] = _error(status, [one for one in codes if one.status == status])
    return refused


def _error(status: int, codes: Sequence[ErrorCode]) -> Json:
    code = {"properties": {"error": {"properties": {"code": {"enum": [one.code for one in codes]}}}}}
    answer: Json = {
        "description": "\n".join(f"- `{one.code}`: {one.meaning}" for one in codes),
        "content": _json({"allOf": [{"$ref": "#/components/schemas/error"}, code]}),
    }
    headers = _HEADERS.get(status, {})
    if headers:
        answer["headers"] = {
            name: {"description": text, "required": True, "schema": schema}
            for name, (text, schema) in headers.items()
        }
    return answer


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}
