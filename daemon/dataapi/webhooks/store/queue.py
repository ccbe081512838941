"""The queue of attempts to be made: claimed under a lease, finished in batches.

Any number of daemons claim from one queue.  Who claims gets a fence with each attempt; once the lease
has ended somebody else may claim it and gets another, and what the first one says is not taken any more.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from dataapi.errors import DatabaseError
from dataapi.webhooks import identifiers
from dataapi.webhooks.migrate import Fetches
from dataapi.webhooks.model import Status, Trigger
from dataapi.webhooks.response import storable
from dataapi.webhooks.secrets import CannotOpen, Cipher
from dataapi.webhooks.store.sealed import open_headers, open_secret
from dataapi.webhooks.store.statements import statements
from dataapi.webhooks.store.upkeep import Upkeep
from dataapi.webhooks.work import Claim, Claimed, DueWork, Finished, QueueFigures

OPENED_KEPT = 1024
"""Endpoints whose secrets are remembered as they are in the clear."""

PUT_OFF = 60.0
"""Seconds after which work is looked at again that could not be read."""

FIGURES_READ = 200_000
"""Rows that are read to say how the queue stands: so many take PostgreSQL less than a tenth of a second."""

_SQL = statements("queue.sql")
_NO_PARTITION = "23514"


class Queue:
    """The due work in a database.

    :param upkeep: makes the history's partitions when one is missing.
    """

    def __init__(self, database: Fetches, cipher: Cipher, upkeep: Upkeep) -> None:
        self._database = database
        self._upkeep = upkeep
        self._last_endpoint = identifiers.EARLIEST
        # A busy endpoint has the same secrets for each of its deliveries.
        self._open_secret = lru_cache(OPENED_KEPT)(partial(open_secret, cipher))
        self._open_headers = lru_cache(OPENED_KEPT)(partial(open_headers, cipher))

    async def claim(
        self,
        most: int,
        lease: float,
        *,
        per_endpoint: int = 16,
        limits: Mapping[UUID, int] | None = None,
        full: Collection[str] = (),
    ) -> Claimed:
        """Take attempts that are due, the endpoints in turn.

        What is due for an endpoint that was disabled since is recorded as skipped, and for one that was
        deleted is dropped: both are counted as settled, so ask again while any were.

        :param most: how many at most.
        :param lease: seconds after which others may take them.
        :param per_endpoint: how many of one endpoint at most.
        :param limits: how many of some endpoints instead; of one with as many in flight as it may have, 0.
        :param full: organizations of whose other endpoints nothing is taken.
        """
        limits = limits or {}
        limited = [str(identifier) for identifier in limits]
        last, rooms = str(self._last_endpoint), list(limits.values())
        values = (most, lease, per_endpoint, last, limited, rooms, list(full))
        rows = await self._recording(_SQL["claim"], values)
        settled = rows[0][0]
        work, unreadable = [], []
        for row in rows:
            if row[1] is None:
                continue
            claim = Claim(UUID(row[1]), row[2])
            try:
                work.append(self._work(claim, row[3:]))
            except CannotOpen:
                unreadable.append((claim, UUID(row[4])))
        if work:
            self._last_endpoint = max(one.endpoint_id for one in work)
        if unreadable:
            await self.release([claim for claim, _ in unreadable], PUT_OFF)
        return Claimed(tuple(work), settled, tuple(dict.fromkeys(endpoint for _, endpoint in unreadable)))

    async def finish(self, finished: Sequence[Finished]) -> frozenset[UUID]:
        """Record how attempts ended and plan the next ones, all at once.

        :return: the deliveries that were recorded; of the others the lease was lost, or the endpoint deleted.
        """
        document = json.dumps([_outcome(one) for one in finished])
        rows = await self._recording(_SQL["finish"], (document, self._upkeep.retention_days))
        return frozenset(UUID(identifier) for (identifier,) in rows)

    async def release(self, claims: Iterable[Claim], seconds: float = 0.0) -> int:
        """Give claims back, to be taken after some seconds; return how many were still held."""
        held = list(claims)
        identifiers_, fences = [str(claim.delivery_id) for claim in held], [claim.fence for claim in held]
        return len(await self._database.fetch(_SQL["release"], (identifiers_, fences, seconds)))

    async def next_due(self, without: Iterable[UUID] = (), full: Collection[str] = ()) -> float | None:
        """Return in how many seconds something can be claimed, negative when it can be; None without any.

        :param without: endpoints to be left out of account.
        :param full: organizations whose endpoints all are.
        """
        excluded = [str(identifier) for identifier in without]
        [(seconds,)] = await self._database.fetch(_SQL["next_due"], (excluded, list(full)))
        found: float | None = seconds
        return found

    async def rendered(self, event: UUID, payload: Mapping[str, Any]) -> bytes:
        """Keep the payload that an event's older version has, and return the body to send.

        Rendered twice, the first one counts.

        :raises LookupError: the event is gone.
        """
        rows = await self._database.fetch(_SQL["rendered"], (str(event), json.dumps(dict(payload))))
        if not rows:
            raise LookupError(f"there is no event {event}")
        body: str = rows[0][0]
        return body.encode()

    async def figures(self) -> QueueFigures:
        """Count what is in the queue; of a long one, ``FIGURES_READ`` rows or so are counted for all."""
        [row] = await self._database.fetch(_SQL["figures"], (FIGURES_READ,))
        return QueueFigures(*row)

    async def _recording(self, text: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Run what writes history; when the clock stepped to a day without partition, make it first."""
        try:
            return await self._database.fetch(text, values)
        except DatabaseError as error:
            if error.code != _NO_PARTITION:
                raise
        await self._upkeep.make_partitions()
        return await self._database.fetch(text, values)

    def _work(self, claim: Claim, row: tuple[Any, ...]) -> DueWork:
        event, endpoint, organization, attempt, trigger, waited, url, secret, headers, *rest = row
        event_type, body, rendered_from, payload = rest
        endpoint_id = UUID(endpoint)
        return DueWork(
            claim=claim,
            event_id=UUID(event),
            endpoint_id=endpoint_id,
            organization=organization,
            attempt_number=attempt,
            trigger=Trigger(trigger),
            waited=waited,
            url=url,
            signing_secret=self._open_secret(endpoint_id, bytes(secret)),
            custom_headers=self._open_headers(endpoint_id, bytes(headers)),
            event_type=event_type,
            body=None if body is None else body.encode(),
            rendered_from=rendered_from,
            payload=payload,
        )


def _outcome(finished: Finished) -> dict[str, Any]:
    outcome = finished.outcome
    return {
        "delivery_id": str(finished.claim.delivery_id),
        "fence": finished.claim.fence,
        "retry_in": finished.retry_in,
        "status": Status.SUCCESS if outcome.success else Status.FAILED,
        # A hostile receiver may answer with any number.
        "response_code": outcome.response_code if 0 <= outcome.response_code <= 999 else 0,
        "response_headers": _headers(outcome.response_headers) if outcome.response_code else None,
        "response_body": None if outcome.response_body is None else storable(outcome.response_body),
        "error": outcome.error,
        "duration_ms": outcome.duration_ms,
        "signed_at": outcome.signed_at.isoformat(),
    }


def _headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name; the values of one that came several times are joined."""
    headers: dict[str, str] = {}
    for pair in pairs:
        name, value = map(storable, pair)
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
