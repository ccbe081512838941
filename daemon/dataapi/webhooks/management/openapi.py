"""The OpenAPI 3.1 document of the management API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from dataapi.http.messages import Reply, Request
from dataapi.telemetry.version import installed_version
from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.event_types import ORGANIZATION as SLUG
from dataapi.webhooks.event_types import PROJECT as REF
from dataapi.webhooks.management import received, resources
from dataapi.webhooks.management.errors import ErrorCode
from dataapi.webhooks.management.operations import (
    IDEMPOTENCY_KEY,
    JSON,
    ORGANIZATION,
    PROJECT,
    ManagementOperation,
    OperationContext,
    by_path,
)
from dataapi.webhooks.management.resources import Schema

Headers: TypeAlias = Mapping[str, tuple[str, Schema]]

_SHARED_RESPONSES = {
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
_CREATED: Headers = {"Location": ("Path of the created resource.", {"type": "string"})}
_HEADERS: Mapping[int, Headers] = {
    401: {"WWW-Authenticate": ("How to authenticate.", {"type": "string"})},
    405: {"Allow": ("Supported methods.", {"type": "string"})},
    429: {"Retry-After": ("Seconds to wait before retrying.", {"type": "integer", "minimum": 1})},
}
_PATH_PARAMETERS: Mapping[str, tuple[str, Schema]] = {
    "organization_slug": ("The organization.", {**SLUG, "minLength": 1}),
    "project_ref": ("The project.", dict(REF)),
    "endpoint_id": ("The endpoint.", resources.IDENTIFIER),
    "delivery_id": ("The delivery.", resources.IDENTIFIER),
    "event_id": (
        "Identifier returned to the publisher, or the webhook-id of one endpoint's copy of the event.",
        resources.IDENTIFIER,
    ),
    "token_id": ("The token.", resources.IDENTIFIER),
}
_KEY: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": resources.MAX_KEY_LENGTH,
    "pattern": "^[ -~]+$",
}
_SCOPES = {ORGANIZATION: "OfOrganization", PROJECT: "OfProject"}


def description(operations: Iterable[ManagementOperation], catalogue: Catalogue, version: str) -> Schema:
    paths = by_path(operations)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Webhook management",
            "version": version,
            "description": "Endpoints that receive events, and their deliveries.",
        },
        "security": [{"token": []}],
        "webhooks": received.webhooks(catalogue),
        "paths": {
            path: {name.lower(): _operation(operation, path) for name, operation in methods.items()}
            for path, methods in paths.items()
        },
        "components": {
            "schemas": {**resources.SCHEMAS, **_bodies(operations, catalogue), **received.schemas(catalogue)},
            "responses": {name: _error(status, ErrorCode) for status, name in _SHARED_RESPONSES.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _bodies(operations: Iterable[ManagementOperation], catalogue: Catalogue) -> Schema:
    bodies = {operation.body for operation in operations if operation.body is not None}
    return {make.__name__: make(catalogue) for make in sorted(bodies, key=lambda make: make.__name__)}


def _operation(operation: ManagementOperation, path: str) -> Schema:
    scope = next((name for prefix, name in _SCOPES.items() if path.startswith(prefix)), "")
    described: Schema = {
        "operationId": operation.name + scope,
        "summary": operation.summary,
        "parameters": list(_parameters(operation, path)),
        "responses": {str(operation.status): _success(operation), **_error_responses(operation.codes(path))},
    }
    if operation.permission is None:
        described["security"] = []
    elif operation.operator:
        described["description"] = "Requires an operator's token."
    else:
        others = ", or an operator's token" if operation.allows_operator else ""
        described["description"] = f"Requires a token with the permission {operation.permission}{others}."
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        content = {name: {"schema": schema} for name in ("application/json", "application/vnd.api+json")}
        described["requestBody"] = {"required": not operation.body_optional, "content": content}
    return described


def _parameters(operation: ManagementOperation, path: str) -> Iterator[Schema]:
    for name, (text, schema) in _PATH_PARAMETERS.items():
        if f"{{{name}}}" in path:
            yield {"name": name, "in": "path", "required": True, "description": text, "schema": schema}
    for parameter in operation.parameters:
        text, schema = parameter.description, dict(parameter.schema)
        yield {"name": parameter.name, "in": "query", "description": text, "schema": schema}
    if operation.repeatable:
        text = "Key that makes repeated requests return the first response, for 24 hours."
        yield {"name": IDEMPOTENCY_KEY, "in": "header", "description": text, "schema": _KEY}


def _success(operation: ManagementOperation) -> Schema:
    headers = _CREATED if operation.returns_location else {}
    return _response(operation.summary, operation.response, headers)


def _error_responses(codes: Sequence[ErrorCode]) -> Schema:
    responses: Schema = {}
    for status in sorted({code.status for code in codes}):
        if status in _SHARED_RESPONSES:
            responses[str(status)] = {"$ref": f"#/components/responses/{_SHARED_RESPONSES[status]}"}
        else:
            responses[str(status)] = _error(status, codes)
    return responses


def _error(status: int, codes: Iterable[ErrorCode]) -> Schema:
    codes = [code for code in codes if code.status == status]
    text = "\n".join(f"- `{code.code}`: {code.meaning}" for code in codes)
    schema = {"properties": {"error": {"properties": {"code": {"enum": [code.code for code in codes]}}}}}
    return _response(
        text, {"allOf": [{"$ref": "#/components/schemas/error"}, schema]}, _HEADERS.get(status, {})
    )


def _response(description: str, schema: Schema, headers: Headers) -> Schema:
    response: Schema = {"description": description, "content": {"application/json": {"schema": schema}}}
    if headers:
        response["headers"] = {
            name: {"description": text, "required": True, "schema": schema}
            for name, (text, schema) in headers.items()
        }
    return response


@ManagementOperation(
    "GET", "/v2/openapi.json", "Return the OpenAPI document of this API", None, 200, {"type": "object"},
    scoped=False, custom_checks=True,
)  # fmt: skip
async def describe(context: OperationContext, _request: Request) -> Reply:
    if context.description is None:
        document = description(context.operations, context.catalogue, installed_version())
        context.description = json.dumps(document, separators=(",", ":")).encode()
    return Reply(200, (JSON,), context.description)
