"""Delivery history, with one record per attempt, and maintenance of the tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from twisted.internet.defer import DeferredLock

from dataapi.webhooks import identifiers
from dataapi.webhooks.catalogue import read_payload
from dataapi.webhooks.model import (
    Cursor,
    DailyStatistics,
    Delivery,
    DeliveryFilter,
    DeliveryPage,
    Event,
    Scope,
    Status,
    Trigger,
)
from dataapi.webhooks.store.statements import SqlRunner, fetch_with_retries, load_statements

DAYS_AHEAD = 7
"""Number of future days with partitions. Maintenance may fail for this long without harm."""

BATCH = 5_000
"""Maximum number of rows that one statement deletes."""

_SQL = load_statements("history.sql")
_OLDER_FIRST = _SQL["list"].replace(" desc", " asc")


class History:
    """Deliveries within the retention period."""

    def __init__(self, database: SqlRunner, retention_days: int) -> None:
        self._database = database
        self._retention_days = retention_days
        self._statistics_lock = DeferredLock()

    async def page(
        self, scope: Scope, endpoint: UUID | None, filters: DeliveryFilter, cursor: Cursor
    ) -> DeliveryPage:
        low, high = _bounds(filters, cursor)
        values = (
            scope.organization,
            scope.project,
            None if endpoint is None else str(endpoint),
            str(low),
            str(high),
            self._retention_days,
            filters.status,
            None if filters.event_id is None else str(filters.event_id),
            filters.event_type,
            cursor.size + 1,
        )
        older_first = cursor.before is not None
        rows = await self._database.fetch(_OLDER_FIRST if older_first else _SQL["list"], values)
        deliveries = [_delivery(row) for row in rows[: cursor.size]]
        more = len(rows) > cursor.size
        if older_first:
            return DeliveryPage(tuple(reversed(deliveries)), newer=more, older=True)
        return DeliveryPage(tuple(deliveries), newer=cursor.after is not None, older=more)

    async def read(self, scope: Scope, identifier: UUID) -> tuple[Delivery, Event] | None:
        values = (scope.organization, scope.project, str(identifier), self._retention_days)
        rows = await self._database.fetch(_SQL["read"], values)
        if not rows:
            return None
        *record, event_type, happened_at, payload, rendered_from = rows[0]
        delivery = _delivery(tuple(record))
        return delivery, Event(delivery.event_id, event_type, happened_at, _payload(payload), rendered_from)

    async def statistics(
        self, scope: Scope, since: datetime | None, until: datetime | None
    ) -> tuple[DailyStatistics, ...]:
        """Return daily statistics of each endpoint in the scope and of all endpoints together.

        Reads all attempts of the period. Only one call runs at a time, so that connections remain for other
        requests.
        """
        low, high = _bounds(DeliveryFilter(since=since, until=until), Cursor(0))
        values = (scope.organization, scope.project, str(low), str(high), self._retention_days)
        await self._statistics_lock.acquire()
        try:
            rows = await self._database.fetch(_SQL["statistics"], values)
        finally:
            self._statistics_lock.release()
        return tuple(
            DailyStatistics(day, None if endpoint is None else UUID(endpoint), *figures)
            for day, endpoint, *figures in rows
        )


def _payload(payload: str | None) -> dict[str, Any] | None:
    try:
        return None if payload is None else read_payload(payload)
    except RecursionError:
        return {}  # too deeply nested for a response


def _bounds(filters: DeliveryFilter, cursor: Cursor) -> tuple[UUID, UUID]:
    """Return the inclusive lower and exclusive upper bound of the identifiers to list."""
    low = [identifiers.EARLIEST]
    high = [identifiers.LATEST]
    if filters.since is not None:
        low.append(identifiers.uuid_floor(filters.since))
    if filters.until is not None:
        high.append(identifiers.uuid_floor(filters.until))
    if cursor.before is not None:
        low.append(identifiers.next_identifier(cursor.before))
    if cursor.after is not None:
        high.append(cursor.after)
    return max(low), min(high)


def _delivery(row: tuple[Any, ...]) -> Delivery:
    identifier, event, endpoint, event_type, status, attempt, trigger, code, headers, *rest = row
    return Delivery(
        UUID(identifier), UUID(event), UUID(endpoint), event_type, Status(status), attempt, Trigger(trigger),
        code, None if headers is None else json.loads(headers), *rest,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """Numbers of created and dropped partitions, and of deleted events and idempotency keys.

    ``removed`` is the number of rows of the queue and history that belonged to deleted endpoints.
    """

    created: int
    dropped: int
    events: int
    keys: int
    removed: int


class Maintenance:
    """Creates and drops partitions and deletes expired rows. Several daemons may run it concurrently."""

    def __init__(self, database: SqlRunner, retention_days: int, *, batch_size: int = BATCH) -> None:
        self._database = database
        self._batch_size = batch_size
        self.retention_days = retention_days

    async def run(self) -> MaintenanceResult:
        created, dropped = await self.create_partitions(), await self._drop_partitions()
        removed = await self._remove_rows()
        await self._database.fetch(_SQL["keep_events"], (self.retention_days,))
        events = await self._purge("purge_events", self.retention_days)
        keys = await self._purge("purge_keys") + await self._purge("purge_stored_responses")
        await self._purge("purge_links")
        await self._database.fetch(_SQL["purge_endpoints"])
        await self._database.fetch(_SQL["purge_requests"])
        return MaintenanceResult(created, dropped, events, keys, removed)

    async def create_partitions(self) -> int:
        [(created,)] = await self._database.fetch(_SQL["make_partitions"], (DAYS_AHEAD,))
        return int(created)

    async def _drop_partitions(self) -> int:
        dropped = 0
        while await self._database.fetch(_SQL["drop_partition"], (self.retention_days,)) == [(True,)]:
            dropped += 1
        return dropped

    async def _remove_rows(self) -> int:
        removed = 0
        while rows := await fetch_with_retries(self._database, _SQL["remove_rows"], (self._batch_size,)):
            removed += rows[0][0]
        return removed

    async def _purge(self, name: str, *values: object) -> int:
        deleted = 0
        while True:
            rows = await self._database.fetch(_SQL[name], (*values, self._batch_size))
            deleted += len(rows)
            if len(rows) < self._batch_size:
                return deleted
