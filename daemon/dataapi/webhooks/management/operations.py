"""The table of operations, from which routes, checks and the OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.management import listing, resources
from dataapi.webhooks.management.errors import SURROUNDING, ErrorCode
from dataapi.webhooks.management.listing import QueryParameter
from dataapi.webhooks.management.resources import Schema
from dataapi.webhooks.model import Permission

ORGANIZATION = "/v2/organizations/{organization_slug}/webhooks"
PROJECT = "/v2/projects/{project_ref}/webhooks"


@dataclass(frozen=True, slots=True)
class ManagementOperation:
    """One operation.

    :ivar name: its name, also in the OpenAPI document.
    :ivar path: below the paths of both scopes; the whole path when ``scoped`` is False.
    :ivar permission: what the token must permit; None when no token is needed.
    :ivar body: makes the schema of the body; None when it has none.
    :ivar body_optional: whether an empty body means ``{}``.
    :ivar status: of a success.
    :ivar answer: the schema of a success.
    :ivar own: codes of errors beyond those that all operations of its kind have.
    """

    name: str
    method: str
    path: str
    summary: str
    permission: Permission | None
    status: int
    answer: Schema
    scoped: bool = True
    parameters: tuple[QueryParameter, ...] = ()
    body: Callable[[Catalogue], Schema] | None = None
    body_optional: bool = False
    own: tuple[ErrorCode, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Its paths."""
        return (ORGANIZATION + self.path, PROJECT + self.path) if self.scoped else (self.path,)

    def codes(self, path: str) -> tuple[ErrorCode, ...]:
        """Return the codes of all errors at one of its paths."""
        found = {*SURROUNDING, *self.own} - {ErrorCode.NOT_FOUND}
        if self.body is None:
            found.remove(ErrorCode.WRONG_MEDIA_TYPE)
        if self.permission is not None:
            found |= {
                ErrorCode.UNAUTHORIZED,
                ErrorCode.PERMISSION_DENIED,
                ErrorCode.ACCESS_DISABLED,
                ErrorCode.VALIDATION,
            }
            if not path.startswith(PROJECT):
                found.add(ErrorCode.INVALID_SLUG)
            if not path.startswith(ORGANIZATION):
                found.add(ErrorCode.INVALID_REF)
        return tuple(code for code in ErrorCode if code in found)


_READ, _WRITE, _PUBLISH = Permission.READ, Permission.WRITE, Permission.PUBLISH
_ENDPOINTS = "/endpoints"
_ENDPOINT = "/endpoints/{endpoint_id}"
_DELIVERIES = "/deliveries"
_DELIVERY = "/deliveries/{delivery_id}"
_URL = (ErrorCode.URL_INVALID, ErrorCode.URL_RESERVED, ErrorCode.URL_UNRESOLVABLE)
_ABSENT = ErrorCode.NO_ENDPOINT

OPERATIONS = (
    ManagementOperation(
        "listEndpoints", "GET", _ENDPOINTS, "List endpoints, oldest first", _READ, 200,
        resources.many("endpoint", linked=True), parameters=listing.OFFSETS,
    ),
    ManagementOperation(
        "createEndpoint", "POST", _ENDPOINTS, "Create an endpoint", _WRITE, 201, resources.one("endpoint"),
        body=resources.new_endpoint, own=(*_URL, ErrorCode.TOO_MANY_ENDPOINTS),
    ),
    ManagementOperation(
        "deleteEndpoints", "DELETE", _ENDPOINTS, "Delete all endpoints, with their events and deliveries",
        _WRITE, 200, resources.many("endpoint", linked=False),
    ),
    ManagementOperation(
        "readEndpoint", "GET", _ENDPOINT, "Read an endpoint", _READ, 200, resources.one("endpoint"),
        own=(_ABSENT,),
    ),
    ManagementOperation(
        "changeEndpoint", "PATCH", _ENDPOINT, "Change an endpoint; what is absent stays as it is", _WRITE,
        200, resources.one("endpoint"), body=resources.endpoint_change,
        own=(*_URL, _ABSENT),
    ),
    ManagementOperation(
        "deleteEndpoint", "DELETE", _ENDPOINT, "Delete an endpoint, with its events and deliveries", _WRITE,
        200, resources.one("endpoint"), own=(_ABSENT,),
    ),
    ManagementOperation(
        "testEndpoint", "POST", f"{_ENDPOINT}/test", "Send a test event", _WRITE, 201,
        resources.one("queued"), body=resources.test_event, body_optional=True,
        own=(_ABSENT, ErrorCode.TEST_DISABLED, ErrorCode.TEST_WRONG_TYPE, ErrorCode.TOO_MANY_REQUESTS),
    ),
    ManagementOperation(
        "listEndpointDeliveries", "GET", f"{_ENDPOINT}/deliveries",
        "List the deliveries to an endpoint, newest first", _READ, 200,
        resources.many("delivery", linked=True), parameters=listing.DELIVERIES, own=(_ABSENT,),
    ),
    ManagementOperation(
        "listDeliveries", "GET", _DELIVERIES, "List the deliveries to all endpoints, newest first", _READ,
        200, resources.many("delivery", linked=True), parameters=listing.DELIVERIES,
    ),
    ManagementOperation(
        "readDelivery", "GET", _DELIVERY, "Read a delivery and its event", _READ, 200,
        resources.one("delivery_with_event"), own=(ErrorCode.NO_DELIVERY,),
    ),
    ManagementOperation(
        "retryDelivery", "POST", f"{_DELIVERY}/retry", "Deliver once more: one attempt", _WRITE, 201,
        resources.one("queued"),
        own=(ErrorCode.NO_DELIVERY, ErrorCode.RETRY_DISABLED, ErrorCode.TOO_MANY_REQUESTS),
    ),
    ManagementOperation(
        "recoverEndpoint", "POST", f"{_ENDPOINT}/recover",
        "Deliver once more all that finally failed in a range of time", _WRITE, 202,
        resources.one("recovery"), body=resources.new_recovery, own=(_ABSENT, ErrorCode.RETRY_DISABLED),
    ),
    ManagementOperation(
        "listEventTypes", "GET", "/event-types", "List the event types, with JSON Schemas and examples",
        _READ, 200, resources.many("event_type", linked=False),
    ),
    ManagementOperation(
        "publishEvent", "POST", "/v1/webhooks/events", "Publish an event, or a list of them, all or none",
        _PUBLISH, 201, resources.one_or_many("ingress"), scoped=False, body=resources.new_events,
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
