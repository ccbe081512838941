"""The table of operations: routes, checks and the OpenAPI document are all made of it.

The numbers are those of reference/webhooks.md section 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.management import listing, schemas
from dataapi.webhooks.management.codes import SURROUNDING, ErrorCode
from dataapi.webhooks.management.listing import Parameter
from dataapi.webhooks.management.schemas import Schema
from dataapi.webhooks.model import Permission

ORGANIZATION = "/v2/organizations/{organization_slug}/webhooks"
PROJECT = "/v2/projects/{project_ref}/webhooks"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    :ivar name: what it is called by, in the document too.
    :ivar path: below both scopes' paths; whole when ``scoped`` is False.
    :ivar permission: what the token must allow; None where no token is needed.
    :ivar body: makes the schema of the body; None when none is read.
    :ivar body_optional: whether an empty body is like ``{}``.
    :ivar status: of a success, and ``answer`` its schema.
    :ivar own: codes of refusals beyond those that all operations of its kind have.
    """

    name: str
    method: str
    path: str
    summary: str
    permission: Permission | None
    status: int
    answer: Schema
    scoped: bool = True
    parameters: tuple[Parameter, ...] = ()
    body: Callable[[Catalogue], Schema] | None = None
    body_optional: bool = False
    own: tuple[ErrorCode, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths it is found at."""
        return (ORGANIZATION + self.path, PROJECT + self.path) if self.scoped else (self.path,)

    def codes(self, path: str) -> tuple[ErrorCode, ...]:
        """Return the codes of whatever may be refused at one of its paths."""
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
    Operation(
        "listEndpoints", "GET", _ENDPOINTS, "List endpoints, oldest first", _READ, 200,
        schemas.many("endpoint", linked=True), parameters=listing.OFFSETS,
    ),
    Operation(
        "createEndpoint", "POST", _ENDPOINTS, "Create an endpoint", _WRITE, 201, schemas.one("endpoint"),
        body=schemas.new_endpoint, own=(*_URL, ErrorCode.TOO_MANY_ENDPOINTS),
    ),
    Operation(
        "deleteEndpoints", "DELETE", _ENDPOINTS, "Delete all endpoints, with their events and deliveries",
        _WRITE, 200, schemas.many("endpoint", linked=False),
    ),
    Operation(
        "readEndpoint", "GET", _ENDPOINT, "Read an endpoint", _READ, 200, schemas.one("endpoint"),
        own=(_ABSENT,),
    ),
    Operation(
        "changeEndpoint", "PATCH", _ENDPOINT, "Change an endpoint; what is absent stays as it is", _WRITE,
        200, schemas.one("endpoint"), body=schemas.endpoint_change,
        own=(*_URL, _ABSENT),
    ),
    Operation(
        "deleteEndpoint", "DELETE", _ENDPOINT, "Delete an endpoint, with its events and deliveries", _WRITE,
        200, schemas.one("endpoint"), own=(_ABSENT,),
    ),
    Operation(
        "testEndpoint", "POST", f"{_ENDPOINT}/test", "Send a test event", _WRITE, 201, schemas.one("queued"),
        body=schemas.test_event, body_optional=True,
        own=(_ABSENT, ErrorCode.TEST_DISABLED, ErrorCode.TEST_WRONG_TYPE, ErrorCode.TOO_MANY_REQUESTS),
    ),
    Operation(
        "listEndpointDeliveries", "GET", f"{_ENDPOINT}/deliveries",
        "List the deliveries to an endpoint, newest first", _READ, 200,
        schemas.many("delivery", linked=True), parameters=listing.DELIVERIES, own=(_ABSENT,),
    ),
    Operation(
        "listDeliveries", "GET", _DELIVERIES, "List the deliveries to all endpoints, newest first", _READ,
        200, schemas.many("delivery", linked=True), parameters=listing.DELIVERIES,
    ),
    Operation(
        "readDelivery", "GET", _DELIVERY, "Read a delivery and its event", _READ, 200,
        schemas.one("delivery_with_event"), own=(ErrorCode.NO_DELIVERY,),
    ),
    Operation(
        "retryDelivery", "POST", f"{_DELIVERY}/retry", "Deliver once more: one attempt", _WRITE, 201,
        schemas.one("queued"),
        own=(ErrorCode.NO_DELIVERY, ErrorCode.RETRY_DISABLED, ErrorCode.TOO_MANY_REQUESTS),
    ),
    Operation(
        "recoverEndpoint", "POST", f"{_ENDPOINT}/recover",
        "Deliver once more all that finally failed in a range of time", _WRITE, 202, schemas.one("recovery"),
        body=schemas.new_recovery, own=(_ABSENT, ErrorCode.RETRY_DISABLED),
    ),
    Operation(
        "listEventTypes", "GET", "/event-types", "List the event types, with JSON Schemas and examples",
        _READ, 200, schemas.many("event_type", linked=False),
    ),
    Operation(
        "publishEvent", "POST", "/v1/webhooks/events", "Publish an event", _PUBLISH, 201,
        schemas.one("ingress"), scoped=False, body=schemas.new_event,
    ),
    Operation(
        "describe", "GET", "/v2/openapi.json", "Describe this interface", None, 200, {"type": "object"},
        scoped=False,
    ),
)  # fmt: skip


def by_path() -> Mapping[str, Mapping[str, Operation]]:
    """Return the operations of each path by their methods."""
    found: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        for path in operation.paths:
            found.setdefault(path, {})[operation.method] = operation
    return MappingProxyType(found)


def allowed(methods: Mapping[str, Operation]) -> str:
    """Return the value of ``Allow`` of a path."""
    head = ("HEAD",) if "GET" in methods else ()
    return ", ".join((*methods, *head, "OPTIONS"))
