"""The handlers of the operations on endpoints and on deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from twisted.internet.defer import Deferred, TimeoutError  # noqa: A004 - Twisted's own
from twisted.logger import Logger

from dataapi.webhooks.catalogue import ALL_EVENT_TYPES, Catalogue, pointer, sample_payload, sample_type
from dataapi.webhooks.delivery import destinations
from dataapi.webhooks.delivery.headers import SecretRefused, check_secret, header_issues
from dataapi.webhooks.delivery.resolver import AddressCheck, AddressRefused, Unresolvable
from dataapi.webhooks.management import listing, resources
from dataapi.webhooks.management.authorization import AuthorizedRequest, OperationResult
from dataapi.webhooks.management.errors import ErrorCode, Issue, IssueCode, ManagementError, bad_url, invalid
from dataapi.webhooks.management.resources import parse_timestamp
from dataapi.webhooks.model import (
    Endpoint,
    EndpointChange,
    Event,
    NewEndpoint,
    RefusalReason,
    Refused,
)
from dataapi.webhooks.secrets import CannotOpen
from dataapi.webhooks.store import Store
from dataapi.webhooks.store.endpoints import NoScope, TooManyEndpoints

_log = Logger(namespace="dataapi.webhooks")

RESOLVE_SECONDS = 5.0
"""Seconds to resolve the host name of an endpoint's URL."""


class EndpointUrlCheck:
    """Checks the URLs of new and changed endpoints.

    :param address_check: resolves and checks addresses.
    """

    def __init__(self, reactor: Any, address_check: AddressCheck, *, require_https: bool) -> None:
        self._reactor = reactor
        self._address_check = address_check
        self._require_https = require_https

    async def check(self, url: str) -> None:
        """Return if deliveries may be sent to the URL.

        :raises ManagementError: it is invalid, does not resolve in time, or has a reserved address.
        """
        try:
            destination = destinations.parse(
                url, require_https=self._require_https, allowed=self._address_check.allowed
            )
        except destinations.UrlRefused as refused:
            raise bad_url(ErrorCode.URL_INVALID, IssueCode.INVALID, str(refused)) from None
        resolved = Deferred.fromCoroutine(self._address_check.addresses(destination))
        try:
            await resolved.addTimeout(RESOLVE_SECONDS, self._reactor)
        except (Unresolvable, TimeoutError):
            message = f"{destination.host} has no address"
            raise bad_url(ErrorCode.URL_UNRESOLVABLE, IssueCode.UNRESOLVABLE, message) from None
        except AddressRefused:
            message = f"An address of {destination.host} is reserved"
            raise bad_url(ErrorCode.URL_RESERVED, IssueCode.RESERVED_ADDRESS, message) from None


class EndpointHandlers:
    """The operations on endpoints."""

    def __init__(self, store: Store, catalogue: Catalogue, url_check: EndpointUrlCheck) -> None:
        self._store = store
        self._catalogue = catalogue
        self._url_check = url_check

    async def page(self, request: AuthorizedRequest) -> OperationResult:
        """List a page of endpoints."""
        limit, offset = request.values.get("page[limit]", listing.PAGE), request.values.get("page[offset]", 0)
        endpoints, total = await self._store.endpoints.page(request.scope, limit, offset)
        links = listing.offset_links(request.path, limit, offset, total)
        return OperationResult([resources.endpoint(one) for one in endpoints], links)

    async def create(self, request: AuthorizedRequest) -> OperationResult:
        """Create an endpoint."""
        attributes = await self._validated(request.attributes)
        try:
            created = await self._store.endpoints.create(
                request.scope, NewEndpoint(**attributes, created_by=str(request.token.id))
            )
        except TooManyEndpoints as error:
            raise ManagementError(ErrorCode.TOO_MANY_ENDPOINTS, str(error)) from None
        except NoScope:
            raise ManagementError(ErrorCode.PERMISSION_DENIED) from None
        return OperationResult(
            resources.endpoint(created), location=f"{request.path.rstrip('/')}/{created.id}"
        )

    async def read(self, request: AuthorizedRequest) -> OperationResult:
        """Read an endpoint."""
        return OperationResult(resources.endpoint(await self._endpoint(request)))

    async def change(self, request: AuthorizedRequest) -> OperationResult:
        """Change an endpoint."""
        attributes = await self._validated(request.attributes)
        if not attributes:
            return await self.read(request)
        identifier = request.identifier("endpoint_id", ErrorCode.NO_ENDPOINT)
        changed = await self._store.endpoints.change(request.scope, identifier, EndpointChange(**attributes))
        return OperationResult(resources.endpoint(_existing(changed)))

    async def delete(self, request: AuthorizedRequest) -> OperationResult:
        """Delete an endpoint and return it."""
        identifier = request.identifier("endpoint_id", ErrorCode.NO_ENDPOINT)
        return OperationResult(
            resources.endpoint(_existing(await self._store.endpoints.delete(request.scope, identifier)))
        )

    async def delete_all(self, request: AuthorizedRequest) -> OperationResult:
        """Delete all endpoints of the scope and return them."""
        deleted = await self._store.endpoints.delete_all(request.scope)
        return OperationResult([resources.endpoint(one) for one in deleted])

    async def test(self, request: AuthorizedRequest) -> OperationResult:
        """Send a test event."""
        endpoint = await self._endpoint(request)
        if not endpoint.enabled:
            raise ManagementError(ErrorCode.TEST_DISABLED)
        event_type = self._catalogue.types[self._type_to_test(endpoint, request.attributes.get("type"))]
        payload = sample_payload(event_type, request.scope.organization, request.scope.project)
        result = await self._store.manual_deliveries.test(
            request.scope, endpoint.id, event_type.type, payload
        )
        if isinstance(result, Refused):
            raise _refused(result, ErrorCode.TEST_DISABLED, ErrorCode.NO_ENDPOINT)
        return OperationResult(resources.queued(result))

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
        identifier = request.identifier("endpoint_id", ErrorCode.NO_ENDPOINT)
        return _existing(await self._store.endpoints.read(request.scope, identifier))

    async def _validated(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes as the store expects them, checked by the rules beyond the schema."""
        attributes = dict(document)
        issues = []
        if "signing_secret" in attributes:
            try:
                check_secret(attributes["signing_secret"])
            except SecretRefused as error:
                issues.append(
                    Issue(IssueCode.FORMAT, str(error), pointer("data", "attributes", "signing_secret"))
                )
        if "custom_headers" in attributes:
            attributes["custom_headers"] = attributes["custom_headers"] or {}
            for issue in header_issues(attributes["custom_headers"]):
                place = ("data", "attributes", "custom_headers", *([issue.name] if issue.name else []))
                issues.append(Issue(IssueCode.HEADER, issue.message, pointer(*place)))
        if issues:
            raise invalid(*issues)
        if "event_types" in attributes:
            attributes["event_types"] = tuple(dict.fromkeys(one["type"] for one in attributes["event_types"]))
        if "url" in attributes:
            await self._url_check.check(attributes["url"])
        return attributes


def _existing(found: Endpoint | None) -> Endpoint:
    if found is None:
        raise ManagementError(ErrorCode.NO_ENDPOINT)
    return found


class DeliveryHandlers:
    """The operations on deliveries."""

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue

    async def page(self, request: AuthorizedRequest) -> OperationResult:
        """List a page of the deliveries to all endpoints."""
        return await self._page(request, None)

    async def page_of_endpoint(self, request: AuthorizedRequest) -> OperationResult:
        """List a page of the deliveries to one endpoint."""
        identifier = request.identifier("endpoint_id", ErrorCode.NO_ENDPOINT)
        try:
            found = await self._store.endpoints.read(request.scope, identifier)
        except CannotOpen:
            pass  # its deliveries can be listed without its headers
        else:
            if found is None:
                raise ManagementError(ErrorCode.NO_ENDPOINT)
        return await self._page(request, identifier)

    async def read(self, request: AuthorizedRequest) -> OperationResult:
        """Read a delivery and its event."""
        identifier = request.identifier("delivery_id", ErrorCode.NO_DELIVERY)
        found = await self._store.history.read(request.scope, identifier)
        if found is None:
            raise ManagementError(ErrorCode.NO_DELIVERY)
        delivery, event = found
        return OperationResult(resources.delivery(delivery, self._rendered(event)))

    def _rendered(self, event: Event) -> Event:
        """Return an event as it is sent: older versions are only rendered by their first attempts.

        The payload is empty if it cannot be rendered; then it is not sent either.
        """
        if event.rendered_from is None:
            return event
        try:
            payload = self._catalogue.render(event.rendered_from, event.type, event.payload)
        except Exception:
            _log.failure("event {event} cannot be rendered", event=str(event.id))
            payload = {}
        return replace(event, payload=payload)

    async def retry(self, request: AuthorizedRequest) -> OperationResult:
        """Send a delivery again."""
        identifier = request.identifier("delivery_id", ErrorCode.NO_DELIVERY)
        result = await self._store.manual_deliveries.retry(request.scope, identifier)
        if isinstance(result, Refused):
            raise _refused(result, ErrorCode.RETRY_DISABLED, ErrorCode.NO_DELIVERY)
        return OperationResult(resources.queued(result))

    async def recover(self, request: AuthorizedRequest) -> OperationResult:
        """Send again what failed for good in a time range."""
        since, until = request.attributes["since"], request.attributes.get("until")
        span = _timestamp("since", since), None if until is None else _timestamp("until", until)
        identifier = request.identifier("endpoint_id", ErrorCode.NO_ENDPOINT)
        result = await self._store.manual_deliveries.recover(request.scope, identifier, *span)
        if isinstance(result, Refused):
            raise _refused(result, ErrorCode.RETRY_DISABLED, ErrorCode.NO_ENDPOINT)
        return OperationResult(resources.recovery(result))

    async def _page(self, request: AuthorizedRequest, endpoint: UUID | None) -> OperationResult:
        cursor = listing.cursor(request.values)
        chosen = listing.delivery_filter(request.values)
        page = await self._store.history.page(request.scope, endpoint, chosen, cursor)
        links = listing.delivery_links(request.path, request.query, cursor, page)
        return OperationResult([resources.delivery(one) for one in page.deliveries], links)


def _refused(refused: Refused, disabled: ErrorCode, absent: ErrorCode) -> ManagementError:
    """Return the error for a refused test, retry or recovery."""
    if refused.reason is RefusalReason.TOO_MANY:
        wait = (("Retry-After", str(refused.retry_after)),)
        return ManagementError(ErrorCode.TOO_MANY_REQUESTS, headers=wait)
    return ManagementError(disabled if refused.reason is RefusalReason.DISABLED else absent)


def _timestamp(member: str, text: str) -> datetime:
    found = parse_timestamp(text)
    if found is None:
        raise invalid(resources.bad_timestamp(pointer("data", "attributes", member)))
    return found
