"""Operations on deliveries: history, retries, recoveries and statistics."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from uuid import UUID

from twisted.logger import Logger

from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.management import listing, resources
from dataapi.webhooks.management.authorization import AuthorizedRequest, OperationResult
from dataapi.webhooks.management.endpoints import ENDPOINT, existing_endpoint
from dataapi.webhooks.management.errors import ErrorCode, ManagementError, require, require_accepted
from dataapi.webhooks.management.operations import READ, WRITE, ManagementOperation, OperationContext
from dataapi.webhooks.model import Event
from dataapi.webhooks.secrets import CannotOpen

DELIVERIES = "/deliveries"
DELIVERY = "/deliveries/{delivery_id}"

_log = Logger(namespace="dataapi.webhooks")


@ManagementOperation(
    "GET", f"{ENDPOINT}/deliveries", "List the deliveries to an endpoint, newest first", READ, 200,
    resources.many("delivery", linked=True), parameters=listing.DELIVERIES, errors=(ErrorCode.NO_ENDPOINT,),
)  # fmt: skip
async def list_endpoint_deliveries(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    # Deliveries are listed even if no key decrypts the endpoint's headers.
    with suppress(CannotOpen):
        await existing_endpoint(context, request)
    return await _page(context, request, request.endpoint_id)


@ManagementOperation(
    "GET", DELIVERIES, "List the deliveries to all endpoints, newest first", READ, 200,
    resources.many("delivery", linked=True), parameters=listing.DELIVERIES,
)  # fmt: skip
async def list_deliveries(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    return await _page(context, request, None)


@ManagementOperation(
    "GET", DELIVERY, "Read a delivery and its event", READ, 200, resources.one("delivery_with_event"),
    errors=(ErrorCode.NO_DELIVERY,),
)  # fmt: skip
async def read_delivery(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    record = await context.store.history.read(request.scope, request.delivery_id)
    delivery, event = require(record, ErrorCode.NO_DELIVERY)
    return OperationResult(resources.delivery(delivery, _rendered(context.catalogue, event)))


@ManagementOperation(
    "POST", f"{DELIVERY}/retry", "Retry a delivery once", WRITE, 201, resources.one("queued"),
    errors=(ErrorCode.NO_DELIVERY, ErrorCode.RETRY_DISABLED, ErrorCode.TOO_MANY_REQUESTS),
)  # fmt: skip
async def retry_delivery(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    result = await context.store.manual_deliveries.retry(request.scope, request.delivery_id)
    queued = require_accepted(result, ErrorCode.RETRY_DISABLED, ErrorCode.NO_DELIVERY)
    return OperationResult(resources.queued(queued))


@ManagementOperation(
    "POST", f"{ENDPOINT}/recover", "Retry all undelivered events in a time range", WRITE, 202,
    resources.one("recovery"), body=resources.new_recovery,
    errors=(ErrorCode.NO_ENDPOINT, ErrorCode.RETRY_DISABLED),
)  # fmt: skip
async def recover_endpoint(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    attributes = request.attributes
    span = [resources.timestamp(attributes, name) for name in ("since", "until") if name in attributes]
    result = await context.store.manual_deliveries.recover(request.scope, request.endpoint_id, *span)
    recovery = require_accepted(result, ErrorCode.RETRY_DISABLED, ErrorCode.NO_ENDPOINT)
    return OperationResult(resources.recovery(recovery))


@ManagementOperation(
    "DELETE", "/events/{event_id}/payload",
    "Delete an event's payload from the history, and skip its pending deliveries", WRITE, 200,
    resources.one("deleted_payload"), errors=(ErrorCode.NO_EVENT,),
)  # fmt: skip
async def delete_payload(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    copies = await context.store.endpoints.delete_payload(request.scope, request.event_id)
    if copies == 0:
        raise ManagementError(ErrorCode.NO_EVENT)
    return OperationResult(resources.deleted_payload(request.event_id, copies))


@ManagementOperation(
    "GET", "/statistics", "Count attempts by day and outcome, in total and for each endpoint",
    READ, 200, resources.many("statistics", linked=False), parameters=listing.PERIOD,
)  # fmt: skip
async def read_statistics(context: OperationContext, request: AuthorizedRequest) -> OperationResult:
    filters = listing.delivery_filter(request.values)
    days = await context.store.history.statistics(request.scope, filters.since, filters.until)
    return OperationResult([resources.statistics(day) for day in days])


async def _page(
    context: OperationContext, request: AuthorizedRequest, endpoint: UUID | None
) -> OperationResult:
    cursor, filters = listing.cursor(request.values), listing.delivery_filter(request.values)
    page = await context.store.history.page(request.scope, endpoint, filters, cursor)
    links = listing.delivery_links(request.path, request.query, cursor, page)
    return OperationResult([resources.delivery(delivery) for delivery in page.deliveries], links)


def _rendered(catalogue: Catalogue, event: Event) -> Event:
    """Return an event with its payload converted to the event's type, or an empty payload on failure."""
    if event.rendered_from is None or event.payload is None:
        return event
    try:
        payload = catalogue.render(event.rendered_from, event.type, event.payload)
    except Exception:
        _log.failure("event {event} cannot be rendered", event=str(event.id))
        payload = {}
    return replace(event, payload=payload)
