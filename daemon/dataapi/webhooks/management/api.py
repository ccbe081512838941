"""The management API: checks each request, in a fixed order, and runs the handler of its operation."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from twisted.internet.defer import Deferred, TimeoutError  # noqa: A004 - Twisted's own
from twisted.logger import Logger

from dataapi.http import strict_json
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Reply, Request
from dataapi.telemetry.version import installed_version
from dataapi.webhooks.catalogue import (
    ALL_EVENT_TYPES,
    Catalogue,
    CompiledSchema,
    pointer,
    sample_payload,
    sample_type,
)
from dataapi.webhooks.delivery import destinations
from dataapi.webhooks.delivery.headers import SecretRefused, check_secret, header_issues
from dataapi.webhooks.delivery.resolver import AddressCheck, AddressRefused, Unresolvable
from dataapi.webhooks.management import body, listing, operations, resources
from dataapi.webhooks.management.authorization import (
    AuthorizedRequest,
    OperationResult,
    RequestedScope,
    authorize,
)
from dataapi.webhooks.management.errors import (
    ErrorCode,
    Issue,
    IssueCode,
    ManagementError,
    existing,
    invalid,
)
from dataapi.webhooks.management.idempotency import RepeatableRequests, keyed
from dataapi.webhooks.management.operations import ManagementOperation
from dataapi.webhooks.management.organizations import OrganizationOperations
from dataapi.webhooks.management.portal import PortalLinks, check_secrets, shows_header_values
from dataapi.webhooks.management.publishing import EventPublishing
from dataapi.webhooks.management.resources import ATTRIBUTES
from dataapi.webhooks.model import (
    Endpoint,
    Event,
    NewEndpoint,
    Permission,
    RefusalReason,
    Refused,
)
from dataapi.webhooks.secrets import CannotOpen, NoEncryptionKey
from dataapi.webhooks.store import Store
from dataapi.webhooks.store.endpoints import NoScope, TooManyEndpoints

_log = Logger(namespace="dataapi.webhooks")

_JSON = ("Content-Type", "application/json; charset=utf-8")

T = TypeVar("T")

RESOLVE_SECONDS = 5.0
"""Seconds to resolve the host name of an endpoint's URL."""


class EndpointUrlCheck:
    """Checks the URLs of new and changed endpoints."""

    def __init__(self, reactor: Any, address_check: AddressCheck, *, require_https: bool) -> None:
        self._reactor = reactor
        self._address_check = address_check
        self._require_https = require_https

    async def check(self, url: str) -> None:
        """Raise ``ManagementError`` unless the URL is valid and resolves in time to public addresses."""
        try:
            destination = destinations.parse(
                url, require_https=self._require_https, allowed=self._address_check.allowed
            )
        except destinations.UrlRefused as refused:
            raise _bad_url(ErrorCode.URL_INVALID, IssueCode.INVALID, str(refused)) from None
        resolved = Deferred.fromCoroutine(self._address_check.addresses(destination))
        try:
            await resolved.addTimeout(RESOLVE_SECONDS, self._reactor)
        except (Unresolvable, TimeoutError):
            message = f"{destination.host} has no address"
            raise _bad_url(ErrorCode.URL_UNRESOLVABLE, IssueCode.UNRESOLVABLE, message) from None
        except AddressRefused:
            message = f"An address of {destination.host} is reserved"
            raise _bad_url(ErrorCode.URL_RESERVED, IssueCode.RESERVED_ADDRESS, message) from None


def _bad_url(code: ErrorCode, issue: IssueCode, message: str) -> ManagementError:
    return ManagementError(code, message, issues=(Issue(issue, message, f"{ATTRIBUTES}/url"),))


Reason: TypeAlias = Callable[[], str | None]
"""Returns why webhooks do not work now, None when they do."""


class ManagementApi:
    """Responds to every operation of the table."""

    on = True
    portal_origins: Sequence[str] = ()

    def __init__(
        self, store: Store, catalogue: Catalogue, url_check: EndpointUrlCheck, reason: Reason
    ) -> None:
        self._directory = store.directory
        self._catalogue = catalogue
        self._reason = reason
        self._by_path = operations.by_path()
        self._publishing = EventPublishing(store, catalogue)
        handlers = _Handlers(store, catalogue, url_check)
        self._run: Mapping[str, Callable[[AuthorizedRequest], Awaitable[OperationResult]]] = {
            "listEndpoints": handlers.list_endpoints,
            "createEndpoint": handlers.create_endpoint,
            "deleteEndpoints": handlers.delete_endpoints,
            "readEndpoint": handlers.read_endpoint,
            "changeEndpoint": handlers.change_endpoint,
            "deleteEndpoint": handlers.delete_endpoint,
            "testEndpoint": handlers.test_endpoint,
            "listEndpointDeliveries": handlers.list_endpoint_deliveries,
            "listDeliveries": handlers.list_deliveries,
            "readDelivery": handlers.read_delivery,
            "retryDelivery": handlers.retry_delivery,
            "deletePayload": handlers.delete_payload,
            "recoverEndpoint": handlers.recover_endpoint,
            "listEventTypes": handlers.list_event_types,
            "readStatistics": handlers.read_statistics,
            "checkUrl": handlers.check_url,
            **OrganizationOperations(store.directory).by_name,
            "createPortalLink": PortalLinks(store.directory).create,
        }
        self._repeatable = RepeatableRequests(store.answers)
        self._run_unscoped: Mapping[str, Callable[[Request], Awaitable[OperationResult]]] = {
            "publishEvent": self._publishing.publish,
            "readAccess": self._read_access,
        }

    async def answer(self, request: Request, path: str, places: Mapping[str, str]) -> Reply:
        """Respond to a request.

        :param path: its path in the table.
        :param places: the variable parts of its path.
        :raises ApiError: the request is refused or fails.
        """
        methods = self._by_path[path]
        operation = methods.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            allow = (("Allow", operations.allowed(methods)),)
            if request.method == "OPTIONS":
                return Reply(204, allow, b"")
            message = f"The method {request.method[:20]} is not allowed here"
            raise ManagementError(ErrorCode.WRONG_METHOD, message, headers=allow)
        if operation.permission is None:
            return Reply(operation.status, (_JSON,), self._description)
        if self._reason() is not None:
            message = "Webhooks do not work now"
            raise ManagementError(ErrorCode.UNAVAILABLE, message, headers=(("Retry-After", "5"),))
        try:
            run = self._run.get(operation.name)
            if run is None:
                return _reply(operation, await self._run_unscoped[operation.name](request))
            # Everything is checked here but existence.
            requested = RequestedScope(places.get("organization_slug"), places.get("project_ref"))
            access, scope = await authorize(
                self._directory,
                request,
                operation.permission,
                requested,
                operator=operation.operator,
                or_operator=operation.or_operator,
            )
            document = _document(operation, request)
            if operation.body is not None:
                body.check(self._schemas[operation.name], document)
            values = listing.values(operation.parameters, request.query)
            authorized = AuthorizedRequest(
                access.token, scope, request.path, request.query, places, values, document
            )

            async def reply() -> Reply:
                missing = requested.missing(access)
                if missing is not None:
                    raise ManagementError(missing)
                return _reply(operation, await run(authorized))

            repeated = keyed(request, access.token, document) if operation.repeatable else None
            return await (reply() if repeated is None else self._repeatable.answer(repeated, reply))
        except NoEncryptionKey as error:
            _log.error("{operation} is refused: {reason}", operation=operation.name, reason=str(error))
            message = "Webhooks are not set up completely; the service's log says what is missing"
            raise ManagementError(ErrorCode.UNAVAILABLE, message) from error
        except DatabaseError as error:
            _log.failure("{operation} failed in the database", operation=operation.name)
            raise ManagementError(ErrorCode.INTERNAL, "Internal server error") from error

    async def _read_access(self, request: Request) -> OperationResult:
        """Read the organization, projects and permissions of the request's token."""
        access, scope = await authorize(self._directory, request, Permission.READ)
        body.check_length(request)
        listing.values((), request.query)
        if access.token.project is not None:
            return OperationResult(resources.access(access.token, [access.token.project]))
        projects = await self._directory.projects_of(scope.organization)
        return OperationResult(resources.access(access.token, [project.ref for project in projects]))

    @cached_property
    def _schemas(self) -> Mapping[str, CompiledSchema]:
        return {
            operation.name: CompiledSchema(operation.body(self._catalogue))
            for operation in operations.OPERATIONS
            if operation.name in self._run and operation.body is not None
        }

    @cached_property
    def _description(self) -> bytes:
        description = operations.description(self._catalogue, installed_version())
        return json.dumps(description, separators=(",", ":")).encode()


def _document(operation: ManagementOperation, request: Request) -> Any:
    if operation.body is None or (operation.body_optional and not request.body):
        body.check_length(request)
        return {}
    return body.document(request)


def _reply(operation: ManagementOperation, result: OperationResult) -> Reply:
    members = {"data": result.data} if result.links is None else {"data": result.data, "links": result.links}
    headers = (_JSON,) if result.location is None else (_JSON, ("Location", result.location))
    text = strict_json.encode(members, ensure_ascii=False)
    # A lone surrogate, which a receiver's response may hold, cannot be encoded as UTF-8.
    return Reply(operation.status, headers, text.encode("utf-8", "replace"))


class _Handlers:
    """The operations of a scope, on endpoints, deliveries and event types, by the names in the table."""

    def __init__(self, store: Store, catalogue: Catalogue, url_check: EndpointUrlCheck) -> None:
        self._store = store
        self._catalogue = catalogue
        self._url_check = url_check

    async def list_endpoints(self, request: AuthorizedRequest) -> OperationResult:
        limit, offset = listing.offsets(request.values)
        endpoints, total = await self._store.endpoints.page(request.scope, limit, offset)
        links = listing.offset_links(request.path, limit, offset, total)
        values = shows_header_values(request.token)
        return OperationResult([resources.endpoint(one, header_values=values) for one in endpoints], links)

    async def create_endpoint(self, request: AuthorizedRequest) -> OperationResult:
        check_secrets(request)
        attributes = await self._validated(request.attributes)
        try:
            created = await self._store.endpoints.create(
                request.scope, NewEndpoint(**attributes, created_by=str(request.token.id))
            )
        except TooManyEndpoints as error:
            raise ManagementError(ErrorCode.TOO_MANY_ENDPOINTS, str(error)) from None
        except NoScope:
            raise ManagementError(ErrorCode.PERMISSION_DENIED) from None
        location = f"{request.path.rstrip('/')}/{created.id}"
        return OperationResult(resources.endpoint(created), location=location)

    async def read_endpoint(self, request: AuthorizedRequest) -> OperationResult:
        endpoint = await self._endpoint(request)
        return OperationResult(resources.endpoint(endpoint, header_values=shows_header_values(request.token)))

    async def change_endpoint(self, request: AuthorizedRequest) -> OperationResult:
        check_secrets(request)
        change: Any = await self._validated(request.attributes)
        if not change:
            return await self.read_endpoint(request)
        changed = await self._store.endpoints.change(request.scope, request.endpoint_id, change)
        return OperationResult(resources.endpoint(existing(changed, ErrorCode.NO_ENDPOINT)))

    async def delete_endpoint(self, request: AuthorizedRequest) -> OperationResult:
        deleted = await self._store.endpoints.delete(request.scope, request.endpoint_id)
        return OperationResult(resources.endpoint(existing(deleted, ErrorCode.NO_ENDPOINT)))

    async def delete_endpoints(self, request: AuthorizedRequest) -> OperationResult:
        """Delete all endpoints of the scope and return them."""
        deleted = await self._store.endpoints.delete_all(request.scope)
        return OperationResult([resources.endpoint(one) for one in deleted])

    async def test_endpoint(self, request: AuthorizedRequest) -> OperationResult:
        endpoint = await self._endpoint(request)
        if not endpoint.enabled:
            raise ManagementError(ErrorCode.TEST_DISABLED)
        scope = request.scope
        event_type = self._catalogue.types[self._type_to_test(endpoint, request.attributes.get("type"))]
        payload = sample_payload(event_type, scope.organization, scope.project)
        result = await self._store.manual_deliveries.test(scope, endpoint.id, event_type.type, payload)
        accepted = _accepted(result, ErrorCode.TEST_DISABLED, ErrorCode.NO_ENDPOINT)
        return OperationResult(resources.queued(accepted))

    def _type_to_test(self, endpoint: Endpoint, requested: str | None) -> str:
        """Return a type that the endpoint subscribes to and the catalogue still has."""
        if requested is not None:
            if ALL_EVENT_TYPES not in endpoint.event_types and requested not in endpoint.event_types:
                raise ManagementError(ErrorCode.TEST_WRONG_TYPE)
            return requested
        types = [name for name in endpoint.event_types if self._catalogue.may_subscribe(name)]
        if not types:
            raise ManagementError(ErrorCode.TEST_WRONG_TYPE)
        return sample_type(types, project=endpoint.scope.project is not None)

    async def _endpoint(self, request: AuthorizedRequest) -> Endpoint:
        found = await self._store.endpoints.read(request.scope, request.endpoint_id)
        return existing(found, ErrorCode.NO_ENDPOINT)

    async def _validated(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes as the store expects them, checked by the rules beyond the schema."""
        attributes = dict(document)
        issues = []
        if "signing_secret" in attributes:
            try:
                check_secret(attributes["signing_secret"])
            except SecretRefused as error:
                issues.append(Issue(IssueCode.FORMAT, str(error), f"{ATTRIBUTES}/signing_secret"))
        if "custom_headers" in attributes:
            attributes["custom_headers"] = attributes["custom_headers"] or {}
            for issue in header_issues(attributes["custom_headers"]):
                place = f"{ATTRIBUTES}/custom_headers" + (pointer(issue.name) if issue.name else "")
                issues.append(Issue(IssueCode.HEADER, issue.message, place))
        if issues:
            raise invalid(*issues)
        if "event_types" in attributes:
            attributes["event_types"] = tuple(dict.fromkeys(one["type"] for one in attributes["event_types"]))
        if "url" in attributes:
            await self._url_check.check(attributes["url"])
        return attributes

    async def list_deliveries(self, request: AuthorizedRequest) -> OperationResult:
        """List a page of the deliveries to all endpoints."""
        return await self._deliveries(request, None)

    async def list_endpoint_deliveries(self, request: AuthorizedRequest) -> OperationResult:
        """List a page of the deliveries to one endpoint."""
        # They can be listed without its headers, which no key may open.
        with suppress(CannotOpen):
            await self._endpoint(request)
        return await self._deliveries(request, request.endpoint_id)

    async def _deliveries(self, request: AuthorizedRequest, endpoint: UUID | None) -> OperationResult:
        cursor = listing.cursor(request.values)
        chosen = listing.delivery_filter(request.values)
        page = await self._store.history.page(request.scope, endpoint, chosen, cursor)
        links = listing.delivery_links(request.path, request.query, cursor, page)
        return OperationResult([resources.delivery(one) for one in page.deliveries], links)

    async def read_delivery(self, request: AuthorizedRequest) -> OperationResult:
        found = await self._store.history.read(request.scope, request.delivery_id)
        delivery, event = existing(found, ErrorCode.NO_DELIVERY)
        return OperationResult(resources.delivery(delivery, self._rendered(event)))

    def _rendered(self, event: Event) -> Event:
        """Return an event as its first attempt sends it; its payload is empty if it cannot be rendered."""
        if event.rendered_from is None or event.payload is None:
            return event
        try:
            payload = self._catalogue.render(event.rendered_from, event.type, event.payload)
        except Exception:
            _log.failure("event {event} cannot be rendered", event=str(event.id))
            payload = {}
        return replace(event, payload=payload)

    async def retry_delivery(self, request: AuthorizedRequest) -> OperationResult:
        result = await self._store.manual_deliveries.retry(request.scope, request.delivery_id)
        accepted = _accepted(result, ErrorCode.RETRY_DISABLED, ErrorCode.NO_DELIVERY)
        return OperationResult(resources.queued(accepted))

    async def delete_payload(self, request: AuthorizedRequest) -> OperationResult:
        copies = await self._store.endpoints.delete_payload(request.scope, request.event_id)
        if copies == 0:
            raise ManagementError(ErrorCode.NO_EVENT)
        return OperationResult(resources.deleted_payload(request.event_id, copies))

    async def recover_endpoint(self, request: AuthorizedRequest) -> OperationResult:
        """Send again what failed for good or was skipped in a time range."""
        span = [_timestamp(request, name) for name in ("since", "until") if name in request.attributes]
        result = await self._store.manual_deliveries.recover(request.scope, request.endpoint_id, *span)
        accepted = _accepted(result, ErrorCode.RETRY_DISABLED, ErrorCode.NO_ENDPOINT)
        return OperationResult(resources.recovery(accepted))

    async def read_statistics(self, request: AuthorizedRequest) -> OperationResult:
        """Count attempts by day and outcome."""
        chosen = listing.delivery_filter(request.values)
        found = await self._store.history.statistics(request.scope, chosen.since, chosen.until)
        return OperationResult([resources.statistics(one) for one in found])

    async def check_url(self, request: AuthorizedRequest) -> OperationResult:
        """Say whether an endpoint may have a URL, as creating one would."""
        try:
            await self._url_check.check(request.attributes["url"])
        except ManagementError as refused:
            return OperationResult(resources.checked_url((refused.code, refused.message)))
        return OperationResult(resources.checked_url(None))

    async def list_event_types(self, _request: AuthorizedRequest) -> OperationResult:
        return OperationResult([resources.event_type(one) for one in self._catalogue.types.values()])


def _accepted(result: T | Refused, disabled: ErrorCode, absent: ErrorCode) -> T:
    """Return the result of a test, retry or recovery unless it was refused."""
    if not isinstance(result, Refused):
        return result
    if result.reason is RefusalReason.TOO_MANY:
        wait = (("Retry-After", str(result.retry_after)),)
        raise ManagementError(ErrorCode.TOO_MANY_REQUESTS, headers=wait)
    raise ManagementError(disabled if result.reason is RefusalReason.DISABLED else absent)


def _timestamp(request: AuthorizedRequest, name: str) -> datetime:
    found = resources.parse_timestamp(request.attributes[name])
    if found is None:
        raise invalid(resources.bad_timestamp(f"{ATTRIBUTES}/{name}"))
    return found
