"""The queue of attempts, which are claimed with a lease (docs/reference/webhooks.md, Queue).

Each claim has a fencing token, so that the outcome of a claim whose lease has ended is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from dataapi.http import strict_json
from dataapi.http.errors import DatabaseError
from dataapi.http.headers import parse_traceparent
from dataapi.webhooks import identifiers
from dataapi.webhooks.delivery.response import storable
from dataapi.webhooks.model import (
    Claim,
    ClaimResult,
    DueWork,
    FinishedAttempt,
    QueueStatistics,
    Status,
    Trigger,
)
from dataapi.webhooks.secrets import CannotOpen, Cipher, open_headers, open_secret
from dataapi.webhooks.store.history import Maintenance
from dataapi.webhooks.store.statements import SqlRunner, load_statements

MAX_CACHED_SECRETS = 1024
"""Maximum number of endpoints whose decrypted secrets are cached."""

UNREADABLE_DELAY = 60.0
"""Delay in seconds before an attempt is claimed again if its secrets could not be decrypted."""

ROWS_SAMPLED = 200_000
"""Number of rows to read for statistics. Reading them takes less than 0.1 seconds."""

SESSION_GRACE = 2.0
"""Seconds from the loss of a dispatcher's session until other dispatchers end its leases."""

_SQL = load_statements("queue.sql")
_NO_PARTITION = "23514"


class Queue:
    """The queue in a database. Maintenance creates missing partitions of the history.

    After ``disable_after`` days of failed attempts, an endpoint is disabled (default: 0, never).
    """

    def __init__(
        self, database: SqlRunner, cipher: Cipher, maintenance: Maintenance, disable_after: int = 0
    ) -> None:
        self._database = database
        self._maintenance = maintenance
        self._disable_after = disable_after
        self._last_endpoint = identifiers.EARLIEST
        # Cached, because all deliveries of an endpoint use the same secrets and headers.
        self._open_secret = lru_cache(MAX_CACHED_SECRETS)(partial(open_secret, cipher))
        self._open_headers = lru_cache(MAX_CACHED_SECRETS)(partial(open_headers, cipher))

    async def claim(
        self,
        maximum: int,
        lease: float,
        *,
        per_endpoint: int = 16,
        limits: Mapping[UUID, int] | None = None,
        full: Collection[str] = (),
        holder: int | None = None,
    ) -> ClaimResult:
        """Claim due attempts, round-robin by endpoint.

        Attempts for disabled endpoints, and retries that a manual delivery made unnecessary, are recorded as
        skipped. Attempts for deleted endpoints are deleted. Skipped and deleted attempts count as settled:
        claim again if there were any.

        :param maximum: maximum number of attempts.
        :param lease: duration of the lease in seconds.
        :param per_endpoint: maximum number of attempts for each endpoint.
        :param limits: maximum number of attempts by endpoint, instead of ``per_endpoint``. 0 excludes an
            endpoint.
        :param full: organizations whose endpoints are excluded, except the endpoints in ``limits``.
        :param holder: number of the caller's dispatcher if its session has run ``join_statement``.
        """
        limits = limits or {}
        limited = [str(identifier) for identifier in limits]
        last, rooms = str(self._last_endpoint), list(limits.values())
        values = (maximum, lease, per_endpoint, last, limited, rooms, list(full), holder)
        rows = await self._record(_SQL["claim"], values)
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
            self._last_endpoint = max(attempt.endpoint_id for attempt in work)
        if unreadable:
            await self.release([claim for claim, _ in unreadable], UNREADABLE_DELAY)
        return ClaimResult(tuple(work), settled, tuple(dict.fromkeys(endpoint for _, endpoint in unreadable)))

    async def finish(self, finished: Sequence[FinishedAttempt]) -> frozenset[UUID]:
        """Record outcomes and schedule the next attempts in one transaction.

        :return: the recorded deliveries. The others lost their leases, or their endpoints were deleted.
        """
        document = json.dumps([_outcome(attempt) for attempt in finished])
        rows = await self._record(
            _SQL["finish"], (document, self._maintenance.retention_days, self._disable_after)
        )
        return frozenset(UUID(identifier) for (identifier,) in rows)

    async def release(self, claims: Iterable[Claim], seconds: float = 0.0) -> int:
        """Release claims, and return how many were still valid. ``seconds`` delays their next claim."""
        released = list(claims)
        delivery_ids, fences = (
            [str(claim.delivery_id) for claim in released],
            [claim.fence for claim in released],
        )
        return len(await self._database.fetch(_SQL["release"], (delivery_ids, fences, seconds)))

    async def leave(self, number: int) -> None:
        """Unregister a dispatcher that lost its session. Its leases then end at their normal time."""
        await self._database.fetch(_SQL["leave"], (number,))

    async def end_lost_leases(self, number: int) -> int:
        """End the leases of dispatchers whose sessions have been lost for ``SESSION_GRACE`` seconds.

        Skip the caller's own dispatcher. Return the number of attempts that can be claimed now.
        """
        [(released,)] = await self._database.fetch(_SQL["take_over"], (number, SESSION_GRACE))
        return int(released)

    async def next_due(self, excluded: Iterable[UUID] = (), full: Collection[str] = ()) -> float | None:
        """Return the seconds until an attempt can be claimed (0 or less: now), or None if there is none."""
        endpoint_ids = [str(identifier) for identifier in excluded]
        [(seconds,)] = await self._database.fetch(_SQL["next_due"], (endpoint_ids, list(full)))
        result: float | None = seconds
        return result

    async def rendered(self, event: UUID, payload: Mapping[str, Any]) -> bytes:
        """Store a payload that was converted to an older version of its type. Return the body to send.

        A payload that is already stored is not replaced.

        :raises LookupError: the event was deleted.
        """
        rows = await self._database.fetch(_SQL["rendered"], (str(event), strict_json.encode(dict(payload))))
        if not rows:
            raise LookupError(f"no event {event}")
        body: str = rows[0][0]
        return body.encode()

    async def statistics(self) -> QueueStatistics:
        [row] = await self._database.fetch(_SQL["statistics"], (ROWS_SAMPLED,))
        return QueueStatistics(*row)

    async def _record(self, text: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Run SQL that writes history, and create a missing partition, for example after a clock change."""
        try:
            return await self._database.fetch(text, values)
        except DatabaseError as error:
            if error.code != _NO_PARTITION:
                raise
        await self._maintenance.create_partitions()
        return await self._database.fetch(text, values)

    def _work(self, claim: Claim, row: tuple[Any, ...]) -> DueWork:
        event, endpoint, organization, attempt, trigger, waited, url, secret, previous, headers, *rest = row
        event_type, body, rendered_from, payload, traceparent = rest
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
            previous_secret=None if previous is None else self._open_secret(endpoint_id, bytes(previous)),
            custom_headers=self._open_headers(endpoint_id, bytes(headers)),
            event_type=event_type,
            body=None if body is None else body.encode(),
            rendered_from=rendered_from,
            payload=payload,
            traceparent=parse_traceparent(traceparent or ""),
        )


def join_statement(number: int) -> str:
    """Return SQL that registers a dispatcher for the duration of its session.

    The session holds a shared advisory lock. An exclusive lock would wait until an earlier session of the
    dispatcher times out.
    """
    return (
        f"select pg_catalog.pg_advisory_lock_shared(723614825, {number:d});"
        f" insert into webhooks.dispatcher (number) values ({number:d})"
        " on conflict (number) do update set missing_since = null"
    )


def _outcome(finished: FinishedAttempt) -> dict[str, Any]:
    outcome = finished.outcome
    return {
        "delivery_id": str(finished.claim.delivery_id),
        "fence": finished.claim.fence,
        "wait": finished.retry_in,
        "status": Status.SUCCESS if outcome.success else Status.FAILED,
        # The status code of a response may be any number.
        "response_code": outcome.response_code if 0 <= outcome.response_code <= 999 else 0,
        "response_headers": _headers(outcome.response_headers) if outcome.response_code else None,
        "response_body": None if outcome.response_body is None else storable(outcome.response_body),
        "error": outcome.error,
        "duration_ms": outcome.duration_ms,
        "signed_at": outcome.signed_at.isoformat(),
    }


def _headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for pair in pairs:
        name, value = map(storable, pair)
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
