"""What the owner of an endpoint asks for by hand: a test event, a retry, the recovery of all that failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from dataapi.webhooks import identifiers
from dataapi.webhooks.migrate import Fetches
from dataapi.webhooks.model import Accepted, Recovery, Refusal, Refused, Scope
from dataapi.webhooks.store.statements import persistently, statements

MOST_A_MINUTE = 10
"""How many tests and retries an endpoint may have in 60 seconds (reference/webhooks.md 1, errors)."""

_SQL = statements("requests.sql")


class Requests:
    """Takes on tests, retries and recoveries in a database."""

    def __init__(self, database: Fetches, retention_days: int, *, most: int = MOST_A_MINUTE) -> None:
        self._database = database
        self._retention_days = retention_days
        self._most = most

    async def test(
        self, scope: Scope, endpoint: UUID, event_type: str, payload: Mapping[str, Any]
    ) -> Accepted | Refused:
        """Enqueue a test event: one attempt.

        :param payload: of the event; ``is_test`` and the scope's members are written into it.
        """
        document = json.dumps(dict(payload))
        values = (scope.organization, scope.project, str(endpoint), event_type, document, self._most)
        return _verdict(await self._database.fetch(_SQL["test"], values))

    async def retry(self, scope: Scope, delivery: UUID) -> Accepted | Refused:
        """Enqueue a new delivery of the same event: one attempt, listed for a retention of its own."""
        values = (scope.organization, scope.project, str(delivery), self._retention_days, self._most)
        return _verdict(await self._database.fetch(_SQL["retry"], values))

    async def recover(
        self, scope: Scope, endpoint: UUID, since: datetime, until: datetime | None = None
    ) -> Recovery | Refused:
        """Enqueue a retry of each event that finally failed in a time range and was not delivered since."""
        high = identifiers.LATEST if until is None else identifiers.uuid_floor(until)
        span = (str(identifiers.uuid_floor(since)), str(high))
        values = (scope.organization, scope.project, str(endpoint), *span, self._retention_days)
        rows = await persistently(self._database, _SQL["recover"], values)
        if not rows:
            return Refused(Refusal.NOT_FOUND)
        enabled, identifier, matched, _ = rows[0]
        return Recovery(UUID(identifier), matched) if enabled else Refused(Refusal.DISABLED)


def _verdict(rows: list[tuple[Any, ...]]) -> Accepted | Refused:
    if not rows:
        return Refused(Refusal.NOT_FOUND)
    enabled, seconds, event, delivery = rows[0]
    if not enabled:
        return Refused(Refusal.DISABLED)
    if delivery is None:
        return Refused(Refusal.TOO_MANY, max(1, seconds))
    return Accepted(UUID(event), UUID(delivery))
