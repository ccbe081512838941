"""The table of operations, from which routes and checks are made, and its OpenAPI 3.1 document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.event_types import ORGANIZATION as SLUG
from dataapi.webhooks.event_types import PROJECT as REF
from dataapi.webhooks.management import listing, received, resources
from dataapi.webhooks.management.errors import SURROUNDING, ErrorCode
from dataapi.webhooks.management.listing import QueryParameter
from dataapi.webhooks.management.resources import Schema
from dataapi.webhooks.model import Permission

ORGANIZATIONS = "/v2/organizations"
ONE_ORGANIZATION = f"{ORGANIZATIONS}/{{organization_slug}}"
ORGANIZATION = f"{ONE_ORGANIZATION}/webhooks"
PROJECT = "/v2/projects/{project_ref}/webhooks"


@dataclass(frozen=True, slots=True)
class ManagementOperation:
    """One operation.

    :ivar name: its name, also in the OpenAPI document.
    :ivar path: below the paths of both scopes; the whole path when ``scoped`` is False.
    :ivar permission: what the token must permit; None when no token is needed.
    :ivar operator: whether only operators' tokens will do; ``or_operator`` whether they do without it, too.
    :ivar located: whether the answer has ``Location``, the path of what was created.
    :ivar body: makes the schema of the body; None when it has none.
    :ivar body_optional: whether an empty body means ``{}``.
    :ivar status: of a success.
    :ivar response: the schema of a success.
    :ivar errors: codes beyond those that all operations of its kind have.
    """

    name: str
    method: str
    path: str
    summary: str
    permission: Permission | None
    status: int
    response: Schema
    scoped: bool = True
    operator: bool = False
    or_operator: bool = False
    located: bool = False
    parameters: tuple[QueryParameter, ...] = ()
    body: Callable[[Catalogue], Schema] | None = None
    body_optional: bool = False
    errors: tuple[ErrorCode, ...] = ()

    @property
    def repeatable(self) -> bool:
        """Whether it takes an idempotency key."""
        return (self.operator or self.or_operator) and self.method != "GET"

    @property
    def paths(self) -> tuple[str, ...]:
        return (ORGANIZATION + self.path, PROJECT + self.path) if self.scoped else (self.path,)

    def codes(self, path: str) -> tuple[ErrorCode, ...]:
        """Return the codes of all errors at one of its paths."""
        found = {*SURROUNDING, *self.errors} - {ErrorCode.NOT_FOUND}
        if self.body is None:
            found.remove(ErrorCode.WRONG_MEDIA_TYPE)
        if self.permission is not None:
            found |= {ErrorCode.UNAUTHORIZED, ErrorCode.PERMISSION_DENIED, ErrorCode.VALIDATION}
            if not self.operator:
                found.add(ErrorCode.ACCESS_DISABLED)
            for place, code, absent in _SCOPE_CODES:
                if place in path:
                    found.add(code)
                    # Other operations are no operator's.
                    found |= {absent} if self.or_operator or self.permission is Permission.READ else set()
        if self.repeatable:
            found |= {ErrorCode.KEY_USED, ErrorCode.KEY_UNANSWERED}
        return tuple(code for code in ErrorCode if code in found)


_SCOPE_CODES = (
    ("{organization_slug}", ErrorCode.INVALID_SLUG, ErrorCode.NO_ORGANIZATION),
    ("{project_ref}", ErrorCode.INVALID_REF, ErrorCode.NO_PROJECT),
)
"""The errors of a path's variable parts."""

_READ, _WRITE, _PUBLISH = Permission.READ, Permission.WRITE, Permission.PUBLISH
_ENDPOINTS = "/endpoints"
_ENDPOINT = "/endpoints/{endpoint_id}"
_DELIVERIES = "/deliveries"
_DELIVERY = "/deliveries/{delivery_id}"
_URL = (ErrorCode.URL_INVALID, ErrorCode.URL_RESERVED, ErrorCode.URL_UNRESOLVABLE)
_ABSENT = ErrorCode.NO_ENDPOINT

_PROJECTS = f"{ONE_ORGANIZATION}/projects"
_ONE_PROJECT = f"{_PROJECTS}/{{project_ref}}"
_TOKENS = f"{ONE_ORGANIZATION}/tokens"
_TOKEN = f"{_TOKENS}/{{token_id}}"


_operators = partial(ManagementOperation, permission=_READ, scoped=False, operator=True)

_DIRECTORY = (
    _operators(
        "listOrganizations", "GET", ORGANIZATIONS, "List organizations, by slug", status=200,
        response=resources.many("organization", linked=True), parameters=listing.OFFSETS,
    ),
    _operators(
        "createOrganization", "POST", ORGANIZATIONS, "Create an organization", status=201,
        response=resources.one("organization"), body=resources.new_organization, located=True,
        errors=(ErrorCode.ORGANIZATION_EXISTS,),
    ),
    _operators(
        "readOrganization", "GET", ONE_ORGANIZATION, "Read an organization", status=200,
        response=resources.one("organization"),
    ),
    _operators(
        "changeOrganization", "PATCH", ONE_ORGANIZATION,
        "Put an organization on the early access allowlist, or take it off", status=200,
        response=resources.one("organization"), body=resources.organization_change,
    ),
    _operators(
        "deleteOrganization", "DELETE", ONE_ORGANIZATION,
        "Delete an organization, with its projects, tokens, endpoints, events and deliveries", status=200,
        response=resources.one("organization"),
    ),
    _operators(
        "listProjects", "GET", _PROJECTS, "List an organization's projects, by reference", status=200,
        response=resources.many("project", linked=True), parameters=listing.OFFSETS,
    ),
    _operators(
        "createProject", "POST", _PROJECTS, "Create a project", status=201,
        response=resources.one("project"), body=resources.new_project, located=True,
        errors=(ErrorCode.PROJECT_EXISTS,),
    ),
    _operators(
        "readProject", "GET", _ONE_PROJECT, "Read a project", status=200, response=resources.one("project"),
    ),
    _operators(
        "deleteProject", "DELETE", _ONE_PROJECT,
        "Delete a project, with its endpoints, events and deliveries", status=200,
        response=resources.one("project"),
    ),
    _operators(
        "listTokens", "GET", _TOKENS, "List an organization's tokens, oldest first", status=200,
        response=resources.many("token", linked=True), parameters=listing.OFFSETS,
    ),
    _operators(
        "createToken", "POST", _TOKENS, "Create a token, whose secret the answer has, this once", status=201,
        response=resources.one("token_with_secret"), body=resources.new_token, located=True,
    ),
    _operators(
        "readToken", "GET", _TOKEN, "Read a token", status=200, response=resources.one("token"),
        errors=(ErrorCode.NO_TOKEN,),
    ),
    _operators(
        "deleteToken", "DELETE", _TOKEN, "Revoke a token", status=200, response=resources.one("token"),
        errors=(ErrorCode.NO_TOKEN,),
    ),
    _operators(
        "rotateToken", "POST", f"{_TOKEN}/rotate", "Put another token in a token's place", status=201,
        response=resources.one("token_with_secret"), body=resources.token_rotation, body_optional=True,
        located=True, errors=(ErrorCode.NO_TOKEN,),
    ),
    ManagementOperation(
        "createPortalLink", "POST", f"{ONE_ORGANIZATION}/portal-links",
        "Create a link to the page for customers", _WRITE, 201, resources.one("portal_link"), scoped=False,
        or_operator=True, body=resources.new_portal_link, body_optional=True,
        errors=(ErrorCode.NO_PROJECT,),
    ),
)  # fmt: skip

OPERATIONS = (
    ManagementOperation(
        "listEndpoints", "GET", _ENDPOINTS, "List endpoints, oldest first", _READ, 200,
        resources.many("endpoint", linked=True), parameters=listing.OFFSETS,
    ),
    ManagementOperation(
        "createEndpoint", "POST", _ENDPOINTS, "Create an endpoint", _WRITE, 201, resources.one("endpoint"),
        body=resources.new_endpoint, located=True, errors=(*_URL, ErrorCode.TOO_MANY_ENDPOINTS),
    ),
    ManagementOperation(
        "deleteEndpoints", "DELETE", _ENDPOINTS, "Delete all endpoints, with their events and deliveries",
        _WRITE, 200, resources.many("endpoint", linked=False),
    ),
    ManagementOperation(
        "readEndpoint", "GET", _ENDPOINT, "Read an endpoint", _READ, 200, resources.one("endpoint"),
        errors=(_ABSENT,),
    ),
    ManagementOperation(
        "changeEndpoint", "PATCH", _ENDPOINT, "Change an endpoint; what is absent stays as it is", _WRITE,
        200, resources.one("endpoint"), body=resources.endpoint_change,
        errors=(*_URL, _ABSENT),
    ),
    ManagementOperation(
        "deleteEndpoint", "DELETE", _ENDPOINT, "Delete an endpoint, with its events and deliveries", _WRITE,
        200, resources.one("endpoint"), errors=(_ABSENT,),
    ),
    ManagementOperation(
        "testEndpoint", "POST", f"{_ENDPOINT}/test", "Send a test event", _WRITE, 201,
        resources.one("queued"), body=resources.test_event, body_optional=True,
        errors=(_ABSENT, ErrorCode.TEST_DISABLED, ErrorCode.TEST_WRONG_TYPE, ErrorCode.TOO_MANY_REQUESTS),
    ),
    ManagementOperation(
        "listEndpointDeliveries", "GET", f"{_ENDPOINT}/deliveries",
        "List the deliveries to an endpoint, newest first", _READ, 200,
        resources.many("delivery", linked=True), parameters=listing.DELIVERIES, errors=(_ABSENT,),
    ),
    ManagementOperation(
        "listDeliveries", "GET", _DELIVERIES, "List the deliveries to all endpoints, newest first", _READ,
        200, resources.many("delivery", linked=True), parameters=listing.DELIVERIES,
    ),
    ManagementOperation(
        "readDelivery", "GET", _DELIVERY, "Read a delivery and its event", _READ, 200,
        resources.one("delivery_with_event"), errors=(ErrorCode.NO_DELIVERY,),
    ),
    ManagementOperation(
        "retryDelivery", "POST", f"{_DELIVERY}/retry", "Deliver once more: one attempt", _WRITE, 201,
        resources.one("queued"),
        errors=(ErrorCode.NO_DELIVERY, ErrorCode.RETRY_DISABLED, ErrorCode.TOO_MANY_REQUESTS),
    ),
    ManagementOperation(
        "recoverEndpoint", "POST", f"{_ENDPOINT}/recover",
        "Deliver once more all that finally failed in a range of time", _WRITE, 202,
        resources.one("recovery"), body=resources.new_recovery, errors=(_ABSENT, ErrorCode.RETRY_DISABLED),
    ),
    ManagementOperation(
        "deletePayload", "DELETE", "/events/{event_id}/payload",
        "Delete an event's payload from the history; what is still to be sent of it is skipped", _WRITE, 200,
        resources.one("deleted_payload"), errors=(ErrorCode.NO_EVENT,),
    ),
    ManagementOperation(
        "listEventTypes", "GET", "/event-types", "List the event types, with JSON Schemas and examples",
        _READ, 200, resources.many("event_type", linked=False),
    ),
    ManagementOperation(
        "readStatistics", "GET", "/statistics",
        "Count attempts by day and outcome, for all endpoints together and for each", _READ, 200,
        resources.many("statistics", linked=False), parameters=listing.PERIOD,
    ),
    ManagementOperation(
        "checkUrl", "POST", "/url-check", "Find out whether an endpoint may have a URL", _WRITE, 200,
        resources.one("url_check"), body=resources.new_url_check,
    ),
    *_DIRECTORY,
    ManagementOperation(
        "readAccess", "GET", "/v2/access", "Read what the token gives access to", _READ, 200,
        resources.one("access"), scoped=False,
    ),
    ManagementOperation(
        "publishEvent", "POST", "/v1/webhooks/events", "Publish an event, or a list of them, all or none",
        _PUBLISH, 201, resources.one_or_many("ingress"), scoped=False, body=resources.new_events,
        errors=(ErrorCode.INVALID_SLUG, ErrorCode.INVALID_REF),
    ),
    ManagementOperation(
        "describe", "GET", "/v2/openapi.json", "Describe this interface", None, 200, {"type": "object"},
        scoped=False,
    ),
)  # fmt: skip


def by_path() -> Mapping[str, Mapping[str, ManagementOperation]]:
    """Return the operations of each path by method."""
    found: dict[str, dict[str, ManagementOperation]] = {}
    for operation in OPERATIONS:
        for path in operation.paths:
            found.setdefault(path, {})[operation.method] = operation
    return MappingProxyType(found)


def allowed(methods: Mapping[str, ManagementOperation]) -> str:
    """Return the value of ``Allow`` of a path."""
    head = ("HEAD",) if "GET" in methods else ()
    return ", ".join((*methods, *head, "OPTIONS"))


Headers: TypeAlias = Mapping[str, tuple[str, Schema]]
"""The description and schema of headers by name."""

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
_CREATED: Headers = {"Location": ("The path of what was created.", {"type": "string"})}
_HEADERS: Mapping[int, Headers] = {
    401: {"WWW-Authenticate": ("How to authenticate.", {"type": "string"})},
    405: {"Allow": ("The methods that are taken.", {"type": "string"})},
    429: {"Retry-After": ("Seconds after which there is room again.", {"type": "integer", "minimum": 1})},
}
_PLACES: Mapping[str, tuple[str, Schema]] = {
    "organization_slug": ("The organization.", {**SLUG, "minLength": 1}),
    "project_ref": ("The project.", dict(REF)),
    "endpoint_id": ("The endpoint.", resources.IDENTIFIER),
    "delivery_id": ("The delivery.", resources.IDENTIFIER),
    "event_id": (
        "The event, by the identifier that publishing returned, or by that of one endpoint's copy.",
        resources.IDENTIFIER,
    ),
    "token_id": ("The token.", resources.IDENTIFIER),
}
IDEMPOTENCY_KEY = "Idempotency-Key"
"""The header that has a request's idempotency key."""
_KEY: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": resources.MAX_KEY_LENGTH,
    "pattern": "^[ -~]+$",
}
_SCOPES = {ORGANIZATION: "OfOrganization", PROJECT: "OfProject"}


def description(catalogue: Catalogue, version: str) -> Schema:
    """Return the OpenAPI document for a catalogue and a version of the product."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Webhook management",
            "version": version,
            "description": "Endpoints that receive events, and what was delivered to them.",
        },
        "security": [{"token": []}],
        "webhooks": received.webhooks(catalogue),
        "paths": {
            path: {name.lower(): _operation(one, path) for name, one in methods.items()}
            for path, methods in by_path().items()
        },
        "components": {
            "schemas": {**resources.SCHEMAS, **_bodies(catalogue), **received.schemas(catalogue)},
            "responses": {name: _error(status, ErrorCode) for status, name in _NAMES.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _bodies(catalogue: Catalogue) -> Schema:
    found = {one.body for methods in by_path().values() for one in methods.values() if one.body}
    return {make.__name__: make(catalogue) for make in sorted(found, key=lambda make: make.__name__)}


def _operation(operation: ManagementOperation, path: str) -> Schema:
    scope = next((name for prefix, name in _SCOPES.items() if path.startswith(prefix)), "")
    described: Schema = {
        "operationId": operation.name + scope,
        "summary": operation.summary,
        "parameters": list(_parameters(operation, path)),
        "responses": {str(operation.status): _success(operation), **_refusals(operation.codes(path))},
    }
    if operation.permission is None:
        described["security"] = []
    elif operation.operator:
        described["description"] = "Needs an operator's token."
    else:
        others = ", or an operator's" if operation.or_operator else ""
        described["description"] = f"Needs a token with the permission {operation.permission}{others}."
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        content = {name: {"schema": schema} for name in ("application/json", "application/vnd.api+json")}
        described["requestBody"] = {"required": not operation.body_optional, "content": content}
    return described


def _parameters(operation: ManagementOperation, path: str) -> Iterator[Schema]:
    for name, (text, schema) in _PLACES.items():
        if f"{{{name}}}" in path:
            yield {"name": name, "in": "path", "required": True, "description": text, "schema": schema}
    for parameter in operation.parameters:
        text, schema = parameter.description, dict(parameter.schema)
        yield {"name": parameter.name, "in": "query", "description": text, "schema": schema}
    if operation.repeatable:
        text = "Has the same request change nothing again within 24 hours: it gets the first one's answer."
        yield {"name": IDEMPOTENCY_KEY, "in": "header", "description": text, "schema": _KEY}


def _success(operation: ManagementOperation) -> Schema:
    headers = _CREATED if operation.located else {}
    return _response(operation.summary, operation.response, headers)


def _refusals(codes: Sequence[ErrorCode]) -> Schema:
    refused: Schema = {}
    for status in sorted({one.status for one in codes}):
        if status in _NAMES:
            refused[str(status)] = {"$ref": f"#/components/responses/{_NAMES[status]}"}
        else:
            refused[str(status)] = _error(status, codes)
    return refused


def _error(status: int, codes: Iterable[ErrorCode]) -> Schema:
    """Describe the response with those of the codes that have a status."""
    codes = [one for one in codes if one.status == status]
    text = "\n".join(f"- `{one.code}`: {one.meaning}" for one in codes)
    code = {"properties": {"error": {"properties": {"code": {"enum": [one.code for one in codes]}}}}}
    return _response(
        text, {"allOf": [{"$ref": "#/components/schemas/error"}, code]}, _HEADERS.get(status, {})
    )


def _response(description: str, schema: Schema, headers: Headers) -> Schema:
    response: Schema = {"description": description, "content": {"application/json": {"schema": schema}}}
    if headers:
        response["headers"] = {
            name: {"description": text, "required": True, "schema": schema}
            for name, (text, schema) in headers.items()
        }
    return response
