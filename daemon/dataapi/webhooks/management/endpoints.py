"""Operations on endpoints and event types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataapi.webhooks.catalogue import ALL_EVENT_TYPES, Catalogue, pointer, sample_payload, sample_type
from dataapi.webhooks.delivery.headers import InvalidSecret, check_secret, header_issues
from dataapi.webhooks.management import listing, resources
from dataapi.webhooks.management.authorization import AuthorizedRequest, OperationResult
from dataapi.webhooks.management.errors import (
    ErrorCode,
    Issue,
    IssueCode,
    ManagementError,
    invalid,
    require,
    require_accepted,
)
from dataapi.webhooks.management.operations import READ, WRITE, ManagementOperation, OperationContext
from dataapi.webhooks.management.portal import check_secrets, shows_header_values
from dataapi.webhooks.management.resources import ATTRIBUTES
from dataapi.webhooks.model import Endpoint, NewEndpoint
from dataapi.webhooks.store.endpoints import NoScope, TooManyEndpoints

ENDPOINTS = "/endpoints"
ENDPOINT = "/endpoints/{endpoint_id}"

_URL_ERRORS = (ErrorCode.URL_INVALID, ErrorCode.URL_RESERVED, ErrorCode.URL_UNRESOLVABLE)


@ManagementOperation(
    "GET", ENDPOINTS, "List endpoints, oldest first", READ, 200,
    resources.many("endpoint", linked=True), parameters=listing.OFFSETS,
)  # fmt: skip
async def list_endpoints(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    limit, offset = listing.offsets(request.values)
    endpoints, total = await context.store.endpoints.page(request.scope, limit, offset)
    links = listing.offset_links(request.path, limit, offset, total)
    values = shows_header_values(request.token)
    return OperationResult(
        [resources.endpoint(endpoint, header_values=values) for endpoint in endpoints], links
    )


@ManagementOperation(
    "POST", ENDPOINTS, "Create an endpoint", WRITE, 201, resources.one("endpoint"),
    body=resources.new_endpoint, returns_location=True, errors=(*_URL_ERRORS, ErrorCode.TOO_MANY_ENDPOINTS),
)  # fmt: skip
async def create_endpoint(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    check_secrets(request)
    attributes = await _validated(context, request.attributes)
    try:
        created = await context.store.endpoints.create(
            request.scope, NewEndpoint(**attributes, created_by=str(request.token.id))
        )
    except TooManyEndpoints as error:
        raise ManagementError(ErrorCode.TOO_MANY_ENDPOINTS, str(error)) from None
    except NoScope:
        raise ManagementError(ErrorCode.PERMISSION_DENIED) from None
    return OperationResult(resources.endpoint(created), location=request.child_path(created.id))


@ManagementOperation(
    "DELETE", ENDPOINTS, "Delete all endpoints, with their events and deliveries", WRITE, 200,
    resources.many("endpoint", linked=False),
)  # fmt: skip
async def delete_endpoints(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    deleted = await context.store.endpoints.delete_all(request.scope)
    return OperationResult([resources.endpoint(endpoint) for endpoint in deleted])


@ManagementOperation(
    "GET", ENDPOINT, "Read an endpoint", READ, 200, resources.one("endpoint"),
    errors=(ErrorCode.NO_ENDPOINT,),
)  # fmt: skip
async def read_endpoint(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    endpoint = await existing_endpoint(context, request)
    return OperationResult(resources.endpoint(endpoint, header_values=shows_header_values(request.token)))


@ManagementOperation(
    "PATCH", ENDPOINT, "Change an endpoint. Absent members are not changed", WRITE, 200,
    resources.one("endpoint"), body=resources.endpoint_change, errors=(*_URL_ERRORS, ErrorCode.NO_ENDPOINT),
)  # fmt: skip
async def change_endpoint(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    check_secrets(request)
    change: Any = await _validated(context, request.attributes)
    if not change:
        endpoint = await existing_endpoint(context, request)
        values = shows_header_values(request.token)
        return OperationResult(resources.endpoint(endpoint, header_values=values))
    changed = await context.store.endpoints.change(request.scope, request.endpoint_id, change)
    return OperationResult(resources.endpoint(require(changed, ErrorCode.NO_ENDPOINT)))


@ManagementOperation(
    "DELETE", ENDPOINT, "Delete an endpoint, with its events and deliveries", WRITE, 200,
    resources.one("endpoint"), errors=(ErrorCode.NO_ENDPOINT,),
)  # fmt: skip
async def delete_endpoint(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    deleted = await context.store.endpoints.delete(request.scope, request.endpoint_id)
    return OperationResult(resources.endpoint(require(deleted, ErrorCode.NO_ENDPOINT)))


@ManagementOperation(
    "POST", f"{ENDPOINT}/test", "Send a test event", WRITE, 201, resources.one("queued"),
    body=resources.test_event, body_optional=True,
    errors=(
        ErrorCode.NO_ENDPOINT, ErrorCode.TEST_DISABLED, ErrorCode.TEST_WRONG_TYPE,
        ErrorCode.TOO_MANY_REQUESTS,
    ),
)  # fmt: skip
async def test_endpoint(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    endpoint, scope = await existing_endpoint(context, request), request.scope
    if not endpoint.enabled:
        raise ManagementError(ErrorCode.TEST_DISABLED)
    name = _type_to_test(context.catalogue, endpoint, request.attributes.get("type"))
    payload = sample_payload(context.catalogue.types[name], scope.organization, scope.project)
    result = await context.store.manual_deliveries.test(scope, endpoint.id, name, payload)
    sent = require_accepted(result, ErrorCode.TEST_DISABLED, ErrorCode.NO_ENDPOINT)
    return OperationResult(resources.queued(sent))


@ManagementOperation(
    "GET", "/event-types", "List the event types, with JSON Schemas and examples", READ, 200,
    resources.many("event_type", linked=False),
)  # fmt: skip
async def list_event_types(context: OperationContext, _request: AuthorizedRequest) -> OperationResult:
    return OperationResult(
        [resources.event_type(event_type) for event_type in context.catalogue.types.values()]
    )


@ManagementOperation(
    "POST", "/url-check", "Check whether a URL is allowed for an endpoint", WRITE, 200,
    resources.one("url_check"), body=resources.new_url_check,
)  # fmt: skip
async def check_url(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    try:
        await context.url_check.check(request.attributes["url"])
    except ManagementError as error:
        return OperationResult(resources.checked_url((error.code, error.message)))
    return OperationResult(resources.checked_url(None))


async def existing_endpoint(context: OperationContext, request: AuthorizedRequest) -> Endpoint:
    endpoint = await context.store.endpoints.read(request.scope, request.endpoint_id)
    return require(endpoint, ErrorCode.NO_ENDPOINT)


def _type_to_test(catalogue: Catalogue, endpoint: Endpoint, requested: str | None) -> str:
    if requested is not None:
        if ALL_EVENT_TYPES not in endpoint.event_types and requested not in endpoint.event_types:
            raise ManagementError(ErrorCode.TEST_WRONG_TYPE)
        return requested
    types = [name for name in endpoint.event_types if catalogue.may_subscribe(name)]
    if not types:
        raise ManagementError(ErrorCode.TEST_WRONG_TYPE)
    return sample_type(types, project=endpoint.scope.project is not None)


async def _validated(context: OperationContext, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes for the store, after checks that the schema cannot express."""
    attributes = dict(document)
    issues = []
    if "signing_secret" in attributes:
        try:
            check_secret(attributes["signing_secret"])
        except InvalidSecret as error:
            issues.append(Issue(IssueCode.FORMAT, str(error), f"{ATTRIBUTES}/signing_secret"))
    if "custom_headers" in attributes:
        attributes["custom_headers"] = attributes["custom_headers"] or {}
        for issue in header_issues(attributes["custom_headers"]):
            location = f"{ATTRIBUTES}/custom_headers" + (pointer(issue.name) if issue.name else "")
            issues.append(Issue(IssueCode.HEADER, issue.message, location))
    if issues:
        raise invalid(*issues)
    if "event_types" in attributes:
        attributes["event_types"] = tuple(
            dict.fromkeys(subscription["type"] for subscription in attributes["event_types"])
        )
    if "url" in attributes:
        await context.url_check.check(attributes["url"])
    return attributes
