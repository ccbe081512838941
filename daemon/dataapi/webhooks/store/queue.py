"""The queue of attempts: claimed under a lease, finished in batches (docs/reference/webhooks.md, Queue).

Any number of daemons claim from one queue.  Each claim of an attempt has a fence; once the lease has ended,
another daemon may claim the attempt with a new fence, and the outcome of the first one is rejected.  A lease
ends early when the session of the process that holds it is gone, and does not come back.
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
from dataapi.webhooks.store.history import Upkeep
from dataapi.webhooks.store.statements import SqlRunner, statements

MAX_OPENED = 1024
"""Endpoints whose opened secrets are cached."""

POSTPONED = 60.0
"""Seconds until work can be claimed again whose secrets could not be opened."""

ROWS_SAMPLED = 200_000
"""Rows that are read for statistics, which takes PostgreSQL less than a tenth of a second."""

MISSING = 2.0
"""Seconds for which a dispatcher may be without its session until others take over from it."""

_SQL = statements("queue.sql")
_NO_PARTITION = "23514"


class Queue:
    """The queue in a database.

    :param upkeep: makes missing partitions of the history.
    :param disable_after: days after which an endpoint is disabled whose every attempt failed; 0 for never.
    """

    def __init__(self, database: SqlRunner, cipher: Cipher, upkeep: Upkeep, disable_after: int = 0) -> None:
        self._database = database
        self._upkeep = upkeep
        self._disable_after = disable_after
        self._last_endpoint = identifiers.EARLIEST
        # The deliveries of an endpoint share its secrets.
        self._open_secret = lru_cache(MAX_OPENED)(partial(open_secret, cipher))
        self._open_headers = lru_cache(MAX_OPENED)(partial(open_headers, cipher))

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
        """Claim due attempts, by turns of endpoints.

        Work of endpoints that were disabled is recorded as skipped, and so are retries of what a manual one
        has delivered; work of deleted endpoints is dropped.  All of these count as settled: claim again
        while any were.

        :param maximum: the maximum number of attempts.
        :param lease: seconds after which others may claim them.
        :param per_endpoint: the maximum for each endpoint.
        :param limits: other maxima for some endpoints; 0 excludes one.
        :param full: organizations whose endpoints without a limit of their own are excluded.
        :param holder: the number of the caller's dispatcher while its session has joined (``joining``).
        """
        limits = limits or {}
        limited = [str(identifier) for identifier in limits]
        last, rooms = str(self._last_endpoint), list(limits.values())
        values = (maximum, lease, per_endpoint, last, limited, rooms, list(full), holder)
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
            await self.release([claim for claim, _ in unreadable], POSTPONED)
        return ClaimResult(tuple(work), settled, tuple(dict.fromkeys(endpoint for _, endpoint in unreadable)))

    async def finish(self, finished: Sequence[FinishedAttempt]) -> frozenset[UUID]:
        """Record outcomes and plan the next attempts, in one transaction.

        After a manual retry that succeeded there is no next attempt.

        :return: the recorded deliveries; the leases of the others were lost, or their endpoints deleted.
        """
        document = json.dumps([_outcome(one) for one in finished])
        rows = await self._recording(
            _SQL["finish"], (document, self._upkeep.retention_days, self._disable_after)
        )
        return frozenset(UUID(identifier) for (identifier,) in rows)

    async def release(self, claims: Iterable[Claim], seconds: float = 0.0) -> int:
        """Release claims, to be claimable after some seconds; return how many were still held."""
        held = list(claims)
        identifiers_, fences = [str(claim.delivery_id) for claim in held], [claim.fence for claim in held]
        return len(await self._database.fetch(_SQL["release"], (identifiers_, fences, seconds)))

    async def leave(self, number: int) -> None:
        """Watch a dispatcher that lost its session no more: its claims end with their leases alone."""
        await self._database.fetch(_SQL["leave"], (number,))

    async def take_over(self, number: int) -> int:
        """End the leases of dispatchers whose sessions have been gone for ``MISSING`` seconds.

        :param number: the caller's own dispatcher, which is not looked at.
        :return: how many attempts can be claimed now.
        """
        [(released,)] = await self._database.fetch(_SQL["take_over"], (number, MISSING))
        return int(released)

    async def next_due(self, without: Iterable[UUID] = (), full: Collection[str] = ()) -> float | None:
        """Return seconds until work not excluded can be claimed, at most 0 for now; None without any."""
        excluded = [str(identifier) for identifier in without]
        [(seconds,)] = await self._database.fetch(_SQL["next_due"], (excluded, list(full)))
        found: float | None = seconds
        return found

    async def rendered(self, event: UUID, payload: Mapping[str, Any]) -> bytes:
        """Store the rendered payload of an event's older version, and return the body to send.

        If it was rendered before, the first one counts.

        :raises LookupError: the event was deleted.
        """
        rows = await self._database.fetch(_SQL["rendered"], (str(event), strict_json.encode(dict(payload))))
        if not rows:
            raise LookupError(f"there is no event {event}")
        body: str = rows[0][0]
        return body.encode()

    async def statistics(self) -> QueueStatistics:
        """Count the rows of the queue; a long one is estimated from about ``ROWS_SAMPLED`` rows."""
        [row] = await self._database.fetch(_SQL["statistics"], (ROWS_SAMPLED,))
        return QueueStatistics(*row)

    async def _recording(self, text: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Run SQL that writes history; if the clock jumped to a day without a partition, make it first."""
        try:
            return await self._database.fetch(text, values)
        except DatabaseError as error:
            if error.code != _NO_PARTITION:
                raise
        await self._upkeep.make_partitions()
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


def joining(number: int) -> str:
    """Return SQL by which a session says that a dispatcher lives, for as long as the session does.

    The lock is shared, so that it is not kept waiting by an earlier session whose end was not noticed yet.
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
        # A hostile receiver may send any number.
        "response_code": outcome.response_code if 0 <= outcome.response_code <= 999 else 0,
        "response_headers": _headers(outcome.response_headers) if outcome.response_code else None,
        "response_body": None if outcome.response_body is None else storable(outcome.response_body),
        "error": outcome.error,
        "duration_ms": outcome.duration_ms,
        "signed_at": outcome.signed_at.isoformat(),
    }


def _headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name; the values of repeated ones are joined."""
    headers: dict[str, str] = {}
    for pair in pairs:
        name, value = map(storable, pair)
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
