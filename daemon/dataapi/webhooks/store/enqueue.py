"""Additions to the queue: published events, test events, retries and recoveries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from dataapi.http import strict_json
from dataapi.http.errors import DatabaseError
from dataapi.webhooks import identifiers
from dataapi.webhooks.model import Accepted, NewEvent, Recovery, RefusalReason, Refused, Scope
from dataapi.webhooks.store.directory import digest
from dataapi.webhooks.store.statements import SqlRunner, fetch_with_retries, load_statements

_SQL = load_statements("enqueue.sql")

MAX_PER_MINUTE = 10
"""Maximum number of tests and retries per endpoint in 60 seconds (docs/reference/webhooks.md, Limits)."""


class PublishProblem(StrEnum):
    """Reasons why an event cannot be published. The values are SQLSTATEs of ``webhooks.publish``."""

    MALFORMED = "22023"
    NO_ORGANIZATION = "WH001"
    NO_PROJECT = "WH002"
    OTHER_ORGANIZATION = "WH003"
    NOT_ALLOWED = "WH004"
    RESERVED_NAME = "WH005"


class CannotPublish(Exception):
    """Raised when an event is rejected. ``index`` is the event's position in the list."""

    def __init__(self, problem: PublishProblem, text: str, index: int = 0) -> None:
        super().__init__(text)
        self.problem = problem
        self.index = index


class Publisher:
    """Publishes events in separate transactions. Other programs call ``webhooks.publish`` in SQL.

    Publishing again with the same idempotency key within 24 hours only returns the first event's identifier.
    """

    def __init__(self, database: SqlRunner, on_enqueued: Callable[[], None]) -> None:
        self._database = database
        self._on_enqueued = on_enqueued

    async def publish(self, event: NewEvent) -> UUID:
        [identifier] = await self._publish(_SQL["publish"], event.scope.organization, [event])
        return identifier

    async def publish_as(
        self, token: str, organization: str, events: Sequence[NewEvent], traceparent: str = ""
    ) -> list[UUID] | None:
        """Publish events of one organization in one transaction.

        :return: the identifiers in order, or None if the token does not permit publishing the events.
        :raises CannotPublish: an event, the organization or a project is rejected.
        """
        headers = json.dumps({"traceparent": traceparent}) if traceparent else ""
        return await self._publish(_SQL["publish_as"], organization, events, digest(token), headers) or None

    async def _publish(
        self, statement: str, organization: str, events: Sequence[NewEvent], *values: object
    ) -> list[UUID]:
        document = strict_json.encode([_document(event) for event in events])
        try:
            # Transactions that publish the same idempotency keys in different orders may deadlock.
            rows = await fetch_with_retries(self._database, statement, (organization, document, *values))
        except DatabaseError as error:
            if error.code in set(PublishProblem):
                index = int(error.details) if isinstance(error.details, str) else 0
                raise CannotPublish(PublishProblem(error.code), error.message, index) from error
            raise
        self._on_enqueued()
        return [UUID(identifier) for (identifiers,) in rows for identifier in identifiers]

    async def sync_event_types(
        self, versions: Mapping[str, Iterable[str]], types: Iterable[str] = ()
    ) -> None:
        """Replace the stored event types, and the older versions of each type."""
        pairs = sorted({(newer, older) for newer, all_older in versions.items() for older in all_older})
        values = ([newer for newer, _ in pairs], [older for _, older in pairs], list(types))
        await self._database.fetch(_SQL["replace_event_types"], values)


class ManualDeliveries:
    """Enqueues test events, retries and recoveries on request."""

    def __init__(self, database: SqlRunner, retention_days: int, on_enqueued: Callable[[], None]) -> None:
        self._database = database
        self._retention_days = retention_days
        self._on_enqueued = on_enqueued

    async def test(
        self, scope: Scope, endpoint: UUID, event_type: str, payload: Mapping[str, Any]
    ) -> Accepted | Refused:
        """Enqueue a test event with one attempt."""
        document = json.dumps(dict(payload))
        values = (scope.organization, scope.project, str(endpoint), event_type, document, MAX_PER_MINUTE)
        return self._accepted_or_refused(await self._database.fetch(_SQL["test"], values))

    async def retry(self, scope: Scope, delivery: UUID) -> Accepted | Refused:
        """Enqueue a new delivery of the same event, with one attempt and its own retention period."""
        values = (scope.organization, scope.project, str(delivery), self._retention_days, MAX_PER_MINUTE)
        return self._accepted_or_refused(await self._database.fetch(_SQL["retry"], values))

    async def recover(
        self, scope: Scope, endpoint: UUID, since: datetime, until: datetime | None = None
    ) -> Recovery | Refused:
        """Enqueue a retry of each undelivered event in a time range."""
        high = identifiers.LATEST if until is None else identifiers.uuid_floor(until)
        span = (str(identifiers.uuid_floor(since)), str(high))
        values = (scope.organization, scope.project, str(endpoint), *span, self._retention_days)
        rows = await fetch_with_retries(self._database, _SQL["recover"], values)
        if not rows:
            return Refused(RefusalReason.NOT_FOUND)
        enabled, identifier, matched, _ = rows[0]
        self._on_enqueued()
        return Recovery(UUID(identifier), matched) if enabled else Refused(RefusalReason.DISABLED)

    def _accepted_or_refused(self, rows: list[tuple[Any, ...]]) -> Accepted | Refused:
        if not rows:
            return Refused(RefusalReason.NOT_FOUND)
        enabled, seconds, event, delivery = rows[0]
        if not enabled:
            return Refused(RefusalReason.DISABLED)
        if delivery is None:
            return Refused(RefusalReason.TOO_MANY, max(1, seconds))
        self._on_enqueued()
        return Accepted(UUID(event), UUID(delivery))


def _document(event: NewEvent) -> dict[str, Any]:
    return {
        "type": event.type,
        "project_ref": event.scope.project,
        "payload": dict(event.payload),
        "key": event.idempotency_key,
        "timestamp": event.timestamp and event.timestamp.isoformat(),
    }
