"""The OpenAPI 3.1 document of the management API, made of the table of operations.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.event_types import ORGANIZATION as SLUG
from dataapi.webhooks.event_types import PROJECT as REF
from dataapi.webhooks.management import schemas
from dataapi.webhooks.management.operations import ORGANIZATION, PROJECT, Operation, by_path

Json = dict[str, Any]

_ERRORS = {
    400: ("BadRequest", "A part of the request is not valid."),
    401: ("Unauthorized", "There is no token that is known and good now."),
    403: ("Forbidden", "The token does not allow it, or the organization lacks early access."),
    404: ("NotFound", "There is none in this scope."),
    405: ("MethodNotAllowed", "The path does not take the method."),
    409: ("Conflict", "The scope has as many endpoints as it may have."),
    413: ("ContentTooLarge", "The body is longer than 64 KiB."),
    415: ("UnsupportedMediaType", "The body is not JSON."),
    429: ("TooManyRequests", "The endpoint had too many tests and retries within a minute."),
    500: ("InternalServerError", "Something failed inside."),
    503: ("ServiceUnavailable", "The database is away."),
    504: ("GatewayTimeout", "No connection to the database became free in time."),
}
_HEADERS: Mapping[int, Mapping[str, tuple[str, Json]]] = {
    401: {"WWW-Authenticate": ("How to authenticate.", {"type": "string"})},
    405: {"Allow": ("The methods that are taken.", {"type": "string"})},
    429: {"Retry-After": ("Seconds after which there is room again.", {"type": "integer", "minimum": 1})},
}
_PLACES: Mapping[str, tuple[str, Json]] = {
    "organization_slug": ("The organization.", {**SLUG, "minLength": 1}),
    "project_ref": ("The project.", dict(REF)),
    "endpoint_id": ("The endpoint.", schemas.IDENTIFIER),
    "delivery_id": ("The delivery.", schemas.IDENTIFIER),
}
_RECORDS = {
    "endpoint": schemas.ENDPOINT,
    "delivery": schemas.DELIVERY,
    "delivery_with_event": schemas.DELIVERY_WITH_EVENT,
    "ingress": schemas.INGRESS,
    "queued": schemas.QUEUED,
    "recovery": schemas.RECOVERY,
    "event_type": schemas.EVENT_TYPE_RECORD,
    "links": schemas.LINKS,
    "error": schemas.ERROR,
}
_SCOPES = {ORGANIZATION: "OfOrganization", PROJECT: "OfProject"}


def description(catalogue: Catalogue, version: str) -> Json:
    """Return the document.

    :param catalogue: whose types may be subscribed to and published.
    :param version: of the product.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Webhook management",
            "version": version,
            "description": "Endpoints that are told of events, and what was delivered to them.",
        },
        "security": [{"token": []}],
        "paths": {
            path: {name.lower(): _operation(one, path) for name, one in methods.items()}
            for path, methods in by_path().items()
        },
        "components": {
            "schemas": {**_RECORDS, **_bodies(catalogue)},
            "responses": {name: _error(status) for status, (name, _) in _ERRORS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _bodies(catalogue: Catalogue) -> Json:
    found = {one.body for methods in by_path().values() for one in methods.values() if one.body}
    return {make.__name__: make(catalogue) for make in sorted(found, key=lambda make: make.__name__)}


def _operation(operation: Operation, path: str) -> Json:
    scope = next((name for prefix, name in _SCOPES.items() if path.startswith(prefix)), "")
    described: Json = {
        "operationId": operation.name + scope,
        "summary": operation.summary,
        "parameters": list(_parameters(operation, path)),
        "responses": {str(operation.status): _success(operation), **_refusals(operation)},
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


def _parameters(operation: Operation, path: str) -> Iterator[Json]:
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


def _success(operation: Operation) -> Json:
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


def _refusals(operation: Operation) -> Json:
    statuses = {405, *operation.errors}
    if operation.permission is not None:
        statuses |= {400, 401, 403, 500, 503, 504}
    if operation.body is not None:
        statuses |= {413, 415}
    return {
        str(status): {"$ref": f"#/components/responses/{_ERRORS[status][0]}"} for status in sorted(statuses)
    }


def _error(status: int) -> Json:
    answer: Json = {
        "description": _ERRORS[status][1],
        "content": _json({"$ref": "#/components/schemas/error"}),
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
