"""The history of deliveries, one record per attempt, and the upkeep that ends it after the retention."""

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
from dataapi.webhooks.store.statements import SqlRunner, persistently, statements

DAYS_AHEAD = 7
"""Days after today that partitions are made for: upkeep may fail that long without harm."""

BATCH = 5_000
"""Rows that one statement deletes, so that none takes long."""

_SQL = statements("history.sql")
_OLDER_FIRST = _SQL["list"].replace(" desc", " asc")


class History:
    """The deliveries in a database that are within retention."""

    def __init__(self, database: SqlRunner, retention_days: int) -> None:
        self._database = database
        self._retention_days = retention_days
        self._counting = DeferredLock()

    async def page(
        self, scope: Scope, endpoint: UUID | None, chosen: DeliveryFilter, cursor: Cursor
    ) -> DeliveryPage:
        """Return a page of the deliveries to an endpoint of the scope, or to all of them."""
        low, high = _bounds(chosen, cursor)
        values = (
            scope.organization,
            scope.project,
            None if endpoint is None else str(endpoint),
            str(low),
            str(high),
            self._retention_days,
            chosen.status,
            None if chosen.event_id is None else str(chosen.event_id),
            chosen.event_type,
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
        """Return a delivery and its event, None when the scope does not have it or it is past retention."""
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
        """Return how attempts ended, by day, for all endpoints of the scope together and for each of them.

        It reads every attempt of the period.  Only one call does at a time, so that deliveries keep the other
        connections.
        """
        low, high = _bounds(DeliveryFilter(since=since, until=until), Cursor(0))
        values = (scope.organization, scope.project, str(low), str(high), self._retention_days)
        await self._counting.acquire()
        try:
            rows = await self._database.fetch(_SQL["statistics"], values)
        finally:
            self._counting.release()
        return tuple(
            DailyStatistics(day, None if endpoint is None else UUID(endpoint), *figures)
            for day, endpoint, *figures in rows
        )


def _payload(payload: str | None) -> dict[str, Any] | None:
    """Parse a payload, None if it was deleted; an empty one if it is nested too deeply for a response."""
    try:
        return None if payload is None else read_payload(payload)
    except RecursionError:
        return {}


def _bounds(chosen: DeliveryFilter, cursor: Cursor) -> tuple[UUID, UUID]:
    """Return the least identifier to list, and the one that all are less than."""
    low = [identifiers.EARLIEST]
    high = [identifiers.LATEST]
    if chosen.since is not None:
        low.append(identifiers.uuid_floor(chosen.since))
    if chosen.until is not None:
        high.append(identifiers.uuid_floor(chosen.until))
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
class UpkeepResult:
    """How many partitions were made and dropped, and how many events and idempotency keys deleted.

    :ivar removed: due rows and deliveries of deleted endpoints.
    """

    made: int
    dropped: int
    events: int
    keys: int
    removed: int


class Upkeep:
    """Keeps the tables of a database in shape; several daemons may do so at once."""

    def __init__(self, database: SqlRunner, retention_days: int, *, batch_size: int = BATCH) -> None:
        self._database = database
        self._batch_size = batch_size
        self.retention_days = retention_days

    async def run(self) -> UpkeepResult:
        """Do everything; call it at start and every hour."""
        made, dropped = await self.make_partitions(), await self._drop_partitions()
        removed = await self._remove_rows()
        await self._database.fetch(_SQL["keep_events"], (self.retention_days,))
        events = await self._purge("purge_events", self.retention_days)
        keys = await self._purge("purge_keys") + await self._purge("purge_stored_responses")
        await self._purge("purge_links")
        await self._database.fetch(_SQL["purge_endpoints"])
        await self._database.fetch(_SQL["purge_requests"])
        return UpkeepResult(made, dropped, events, keys, removed)

    async def make_partitions(self) -> int:
        """Make the missing partitions of the history; return how many."""
        [(made,)] = await self._database.fetch(_SQL["make_partitions"], (DAYS_AHEAD,))
        return int(made)

    async def _drop_partitions(self) -> int:
        """Drop partitions past retention, each in a transaction of its own; return how many."""
        dropped = 0
        while await self._database.fetch(_SQL["drop_partition"], (self.retention_days,)) == [(True,)]:
            dropped += 1
        return dropped

    async def _remove_rows(self) -> int:
        """Remove what is left of deleted endpoints, in pieces; return how many rows."""
        removed = 0
        while rows := await persistently(self._database, _SQL["remove_rows"], (self._batch_size,)):
            removed += rows[0][0]
        return removed

    async def _purge(self, name: str, *values: object) -> int:
        gone = 0
        while True:
            rows = await self._database.fetch(_SQL[name], (*values, self._batch_size))
            gone += len(rows)
            if len(rows) < self._batch_size:
                return gone
