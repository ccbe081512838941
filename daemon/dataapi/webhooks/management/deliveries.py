"""Operations on deliveries: list, read, retry, recover."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from twisted.logger import Logger

from dataapi.webhooks.catalogue import Catalogue, pointer
from dataapi.webhooks.management import listing, records, refusals
from dataapi.webhooks.management.codes import IssueCode
from dataapi.webhooks.management.moments import read_moment
from dataapi.webhooks.management.refusals import Issue
from dataapi.webhooks.management.task import Done, Task
from dataapi.webhooks.model import Event, Refusal, Refused
from dataapi.webhooks.secrets import CannotOpen
from dataapi.webhooks.store import Store

_log = Logger(namespace="dataapi.webhooks")


class DeliveryOperations:
    """What may be done with deliveries to endpoints of a scope."""

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue

    async def page(self, task: Task) -> Done:
        """List a page of the deliveries to all endpoints."""
        return await self._page(task, None)

    async def page_of_endpoint(self, task: Task) -> Done:
        """List a page of the deliveries to one endpoint."""
        identifier = task.identifier("endpoint_id", refusals.no_endpoint())
        try:
            found = await self._store.endpoints.read(task.scope, identifier)
        except CannotOpen:
            pass  # its deliveries can be read without its headers
        else:
            if found is None:
                raise refusals.no_endpoint()
        return await self._page(task, identifier)

    async def read(self, task: Task) -> Done:
        """Read a delivery and its event."""
        identifier = task.identifier("delivery_id", refusals.no_delivery())
        found = await self._store.history.read(task.scope, identifier)
        if found is None:
            raise refusals.no_delivery()
        delivery, event = found
        return Done(records.delivery(delivery, self._rendered(event)))

    def _rendered(self, event: Event) -> Event:
        """Return an event as it is sent: an older version is rendered when the first attempt is made only.

        Nothing is shown of one that cannot be rendered, which is not sent either.
        """
        if event.rendered_from is None:
            return event
        try:
            payload = self._catalogue.render(event.rendered_from, event.type, event.payload)
        except Exception:
            _log.failure("event {event} cannot be rendered", event=str(event.id))
            payload = {}
        return replace(event, payload=payload)

    async def retry(self, task: Task) -> Done:
        """Deliver once more."""
        identifier = task.identifier("delivery_id", refusals.no_delivery())
        taken = await self._store.requests.retry(task.scope, identifier)
        if not isinstance(taken, Refused):
            return Done(records.queued(taken))
        if taken.reason is Refusal.TOO_MANY:
            raise refusals.too_many_requests(taken.retry_after)
        raise refusals.retry_disabled() if taken.reason is Refusal.DISABLED else refusals.no_delivery()

    async def recover(self, task: Task) -> Done:
        """Deliver once more all that finally failed in a range."""
        since, until = task.attributes["since"], task.attributes.get("until")
        span = _moment("since", since), None if until is None else _moment("until", until)
        identifier = task.identifier("endpoint_id", refusals.no_endpoint())
        taken = await self._store.requests.recover(task.scope, identifier, *span)
        if not isinstance(taken, Refused):
            return Done(records.recovery(taken))
        raise refusals.retry_disabled() if taken.reason is Refusal.DISABLED else refusals.no_endpoint()

    async def _page(self, task: Task, endpoint: UUID | None) -> Done:
        cursor = listing.cursor(task.values)
        wanted = listing.delivery_filter(task.values)
        page = await self._store.history.page(task.scope, endpoint, wanted, cursor)
        links = listing.delivery_links(task.path, task.query, cursor, page)
        return Done([records.delivery(one) for one in page.deliveries], links)


def _moment(member: str, text: Any) -> datetime:
    found = read_moment(text)
    if found is None:
        place = pointer("data", "attributes", member)
        raise refusals.invalid(Issue(IssueCode.FORMAT, "Expected a time such as 2026-01-31T12:00:00Z", place))
    return found
