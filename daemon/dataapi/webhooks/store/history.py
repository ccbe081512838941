"""The history of deliveries, with those that are pending: one record per attempt, newest first."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from dataapi.webhooks import identifiers
from dataapi.webhooks.migrate import Fetches
from dataapi.webhooks.model import (
    Cursor,
    Delivery,
    DeliveryFilter,
    DeliveryPage,
    Event,
    Scope,
    Status,
    Trigger,
)
from dataapi.webhooks.payloads import read_payload
from dataapi.webhooks.store.statements import statements

_SQL = statements("history.sql")
_OLDER_FIRST = _SQL["list"].replace(" desc", " asc")


class History:
    """Deliveries in a database; none that is past retention is ever shown."""

    def __init__(self, database: Fetches, retention_days: int) -> None:
        self._database = database
        self._retention_days = retention_days

    async def page(
        self, scope: Scope, endpoint: UUID | None, wanted: DeliveryFilter, cursor: Cursor
    ) -> DeliveryPage:
        """Return a page of deliveries.

        :param endpoint: of which endpoint of the scope; None for all of them.
        """
        low, high = _bounds(wanted, cursor)
        values = (
            scope.organization,
            scope.project,
            None if endpoint is None else str(endpoint),
            str(low),
            str(high),
            self._retention_days,
            wanted.status,
            None if wanted.event_id is None else str(wanted.event_id),
            wanted.event_type,
            cursor.size + 1,
        )
        towards_newer = cursor.before is not None
        rows = await self._database.fetch(_OLDER_FIRST if towards_newer else _SQL["list"], values)
        found = [_delivery(row) for row in rows[: cursor.size]]
        more = len(rows) > cursor.size
        if towards_newer:
            return DeliveryPage(tuple(reversed(found)), newer=more, older=True)
        return DeliveryPage(tuple(found), newer=cursor.after is not None, older=more)

    async def read(self, scope: Scope, identifier: UUID) -> tuple[Delivery, Event] | None:
        """Return a delivery and its event; None when the scope has none, or it is past retention."""
        values = (scope.organization, scope.project, str(identifier), self._retention_days)
        rows = await self._database.fetch(_SQL["read"], values)
        if not rows:
            return None
        *record, event_type, happened_at, payload, rendered_from = rows[0]
        delivery = _delivery(tuple(record))
        return delivery, Event(delivery.event_id, event_type, happened_at, _shown(payload), rendered_from)


def _shown(payload: str) -> dict[str, Any]:
    """Return a payload; nothing of one that is nested deeper than an answer can be."""
    try:
        return read_payload(payload)
    except RecursionError:
        return {}


def _bounds(wanted: DeliveryFilter, cursor: Cursor) -> tuple[UUID, UUID]:
    """Return the first identifier that may be listed and the one before which all are."""
    low = [identifiers.EARLIEST]
    high = [identifiers.LATEST]
    if wanted.since is not None:
        low.append(identifiers.uuid_floor(wanted.since))
    if wanted.until is not None:
        high.append(identifiers.uuid_floor(wanted.until))
    if cursor.before is not None:
        low.append(identifiers.following(cursor.before))
    if cursor.after is not None:
        high.append(cursor.after)
    return max(low), min(high)


def _delivery(row: tuple[Any, ...]) -> Delivery:
    identifier, event, endpoint, event_type, status, attempt, trigger, code, headers, *rest = row
    return Delivery(
        UUID(identifier), UUID(event), UUID(endpoint), event_type, Status(status), attempt, Trigger(trigger),
        code, None if headers is None else json.loads(headers), *rest,
    )  # fmt: skip
