"""One delivery attempt: render the payload, resolve the host, connect, sign, send and log.

An attempt sends one POST request. A single deadline covers name resolution, the request and the response body
(docs/reference/webhooks.md, Attempts).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.client import HostnameCachingHTTPSPolicy

from dataapi.http.errors import ApiError, DatabaseError
from dataapi.http.outgoing_tls import OutgoingTls
from dataapi.telemetry.metrics import Histogram, RunningHistogram, Snapshot
from dataapi.telemetry.tracing import Tracing
from dataapi.webhooks.catalogue import read_payload
from dataapi.webhooks.delivery import destinations
from dataapi.webhooks.delivery.headers import constant_head, header_lines, signed_headers
from dataapi.webhooks.delivery.http_client import (
    DIRECT,
    OutgoingRoute,
    ReceiverConnection,
    ReceiverConnections,
    attempt_error,
)
from dataapi.webhooks.delivery.organization_metrics import OrganizationAttempts
from dataapi.webhooks.delivery.resolver import AddressCheck
from dataapi.webhooks.delivery.response import Response, body_text, header_texts
from dataapi.webhooks.model import AttemptError, AttemptOutcome, DueWork, QueueStatistics

MAX_CACHED_URLS = 4096
"""Number of parsed URLs to cache."""

_DATA_EXCEPTION = "22"
"""SQLSTATE class of data exceptions."""

Render: TypeAlias = Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]
"""Converts a payload to an older version. Arguments: published type, older type, published payload."""


class DeliveryCounters:
    """Delivery metrics of a process. At most ``organizations`` organizations have their own labels."""

    def __init__(self, organizations: int = 0) -> None:
        self._organizations = OrganizationAttempts(organizations)
        self._attempts: Counter[str] = Counter()
        self._durations: defaultdict[str, RunningHistogram] = defaultdict(RunningHistogram)
        self._waited = RunningHistogram()
        self.settled = 0
        self.lost = 0

    def began(self, waited: float) -> None:
        """Count a first attempt, made ``waited`` seconds after its event was published."""
        self._waited.add(max(0.0, waited))

    def ended(self, organization: str, outcome: AttemptOutcome) -> None:
        label = outcome_label(outcome)
        self._organizations.ended(organization, label)
        self._attempts[label] += 1
        self._durations[label].add(outcome.duration_ms / 1000)

    def snapshot(self, in_flight: int, queue: QueueStatistics | None) -> Snapshot:
        own: dict[str, dict[tuple[str, ...], float | Histogram]] = {
            "dataapi_webhooks_in_flight": {(): float(in_flight)},
            "dataapi_webhooks_attempts_total": {
                (outcome,): float(count) for outcome, count in self._attempts.items()
            },
            "dataapi_webhooks_attempt_seconds": {
                (outcome,): durations.counts() for outcome, durations in self._durations.items()
            },
            "dataapi_webhooks_organization_attempts_total": dict(self._organizations.counts()),
            "dataapi_webhooks_settled_total": {(): float(self.settled)},
            "dataapi_webhooks_lost_outcomes_total": {(): float(self.lost)},
            "dataapi_webhooks_first_attempt_seconds": {(): self._waited.counts()},
        }
        if queue is not None:
            own["dataapi_webhooks_due"] = {
                ("waiting",): float(max(0, queue.waiting - queue.ready - queue.leased)),
                ("ready",): float(queue.ready),
                ("leased",): float(queue.leased),
            }
            own["dataapi_webhooks_oldest_due_seconds"] = {(): queue.oldest_due}
            own["dataapi_webhooks_failing_endpoints"] = {(): float(queue.failing)}
        return own


def outcome_label(outcome: AttemptOutcome) -> str:
    if outcome.success:
        return "success"
    return str(outcome.error) if outcome.error is not None else "refused"


class RenderedPayloadStore(Protocol):
    """Stores rendered payloads. Implemented by ``store.queue.Queue``."""

    async def rendered(self, event: UUID, payload: Mapping[str, Any]) -> bytes:
        """Store a payload and return the request body. Raises ``LookupError`` if the event was deleted."""


class Sender(Protocol):
    """Sends attempts. Implemented by ``AttemptSender``."""

    async def send(self, attempt: Attempt) -> AttemptOutcome: ...


class DeliveryRunner:
    """Renders, sends, counts and logs attempts."""

    _log = Logger(namespace="dataapi.webhooks")

    def __init__(
        self,
        queue: RenderedPayloadStore,
        sender: Sender,
        render: Render,
        counters: DeliveryCounters,
        tracing: Tracing | None = None,
    ) -> None:
        self._queue = queue
        self._sender = sender
        self._render = render
        self._counters = counters
        self._tracing = tracing

    async def deliver(self, work: DueWork, since_claim: float) -> AttemptOutcome | None:
        """Make an attempt and return its outcome, or None if it was cancelled or postponed."""
        began = datetime.now(UTC)
        try:
            body = work.body if work.body is not None else await self._body(work)
            if work.attempt_number == 1:
                self._counters.began(work.waited + since_claim)
            headers = tuple(work.custom_headers.items())
            attempt = Attempt(
                work.url,
                work.signing_secret,
                str(work.event_id),
                body,
                headers,
                work.traceparent,
                work.previous_secret,
            )
            outcome = await self._send(work, attempt)
        except CancelledError:
            return None
        except (ApiError, _EventDeleted) as error:
            delivery, reason = str(work.claim.delivery_id), str(error)
            self._log.warn("delivery {delivery} is postponed: {reason}", delivery=delivery, reason=reason)
            return None
        except Exception:
            self._log.failure(
                "delivery {delivery} failed with an internal error", delivery=str(work.claim.delivery_id)
            )
            outcome = AttemptOutcome(False, began, 0, error=AttemptError.INTERNAL)
        self._counters.ended(work.organization, outcome)
        self._log_attempt(work, outcome)
        return outcome

    async def _send(self, work: DueWork, attempt: Attempt) -> AttemptOutcome:
        if self._tracing is None:
            return await self._sender.send(attempt)
        span, traceparent = self._tracing.attempt(work.traceparent, work.event_type)
        attributes: dict[str, str | int | None] = {
            "messaging.message.id": str(work.event_id),
            "dataapi.attempt": work.attempt_number,
        }
        try:
            outcome = await self._sender.send(replace(attempt, traceparent=traceparent))
            attributes["dataapi.outcome"] = outcome_label(outcome)
            attributes["http.response.status_code"] = outcome.response_code
            return outcome
        finally:
            self._tracing.end(span, attributes)

    async def _body(self, work: DueWork) -> bytes:
        """Convert the payload to the older version ``work.event_type``.

        The result is stored, so that all attempts send the same bytes.
        """
        published = read_payload(work.payload or "{}")
        payload = self._render(work.rendered_from or work.event_type, work.event_type, published)
        try:
            return await self._queue.rendered(work.event_id, payload)
        except LookupError as error:
            raise _EventDeleted("the event was deleted") from error
        except DatabaseError as error:
            if error.code.startswith(_DATA_EXCEPTION):  # retrying would not help
                raise ValueError(error.message) from error
            raise

    def _log_attempt(self, work: DueWork, outcome: AttemptOutcome) -> None:
        traced = {"trace_id": work.traceparent[3:35]} if work.traceparent else {}
        self._log.info(
            "delivery {delivery}, attempt {attempt}: {outcome}",
            delivery=str(work.claim.delivery_id),
            event=str(work.event_id),
            endpoint=str(work.endpoint_id),
            type=work.event_type,
            trigger=str(work.trigger),
            attempt=work.attempt_number,
            outcome=outcome_label(outcome),
            response_code=outcome.response_code,
            duration_ms=outcome.duration_ms,
            **traced,
        )


class _EventDeleted(Exception):
    pass


class _DeadlineExceeded(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Attempt:
    """The request to send.

    :ivar event_id: value of ``webhook-id``, the same for all attempts.
    :ivar custom_headers: checked names and values.
    :ivar traceparent: value of the header, or "" to omit it.
    :ivar previous_secret: previous secret for a second signature, or None.
    """

    url: str
    secret: str = field(repr=False)
    event_id: str
    body: bytes = field(repr=False)
    custom_headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    traceparent: str = ""
    previous_secret: str | None = field(default=None, repr=False)


class AttemptSender:
    """Makes attempts: resolves the host, checks its addresses, connects, and sends one signed POST request.

    :param address_check: resolves and checks the addresses of receivers.
    :param now: wall clock, for ``webhook-timestamp``.
    :param timeout: seconds from name resolution to the last byte of the response.
    :param tls: verifies receivers' certificates (default: the system's certificate authorities).
    """

    def __init__(
        self,
        reactor: IReactorTime,
        address_check: AddressCheck,
        now: Callable[[], float],
        *,
        timeout: float = 20.0,
        require_https: bool = False,
        clock: IReactorTime | None = None,
        tls: OutgoingTls | None = None,
        route: OutgoingRoute = DIRECT,
    ) -> None:
        self._address_check = address_check
        self._now = now
        self._timeout = timeout
        # Many deliveries have the same URL.
        self._parse_url = lru_cache(MAX_CACHED_URLS)(
            partial(destinations.parse, require_https=require_https, allowed=address_check.allowed)
        )
        self._clock = clock or reactor
        # Cached, because loading the system's certificate authorities takes milliseconds.
        policy = HostnameCachingHTTPSPolicy(tls or OutgoingTls(), cacheSize=64)
        self._connections = ReceiverConnections(reactor, policy, route=route)

    async def send(self, attempt: Attempt) -> AttemptOutcome:
        """Make an attempt. Cancelling it closes the connection.

        The attempt succeeds if a complete 2xx response arrives before the deadline. A body is read only up to
        ``response.MAX_BODY`` bytes. If the connection is lost before that, the outcome contains the partial
        response and an error.
        """
        exchange = _Exchange(self._now())
        started = self._clock.seconds()
        work: Deferred[None] = Deferred.fromCoroutine(
            self._exchange(attempt, exchange, started + self._timeout)
        )
        error: AttemptError | None = None
        if not work.called:
            work.addTimeout(self._timeout, self._clock, _raise_timeout)
        try:
            await work
        except _DeadlineExceeded:
            error = AttemptError.TIMEOUT
        except Exception as problem:
            error = attempt_error(problem)
        finally:
            if exchange.connection is not None:
                exchange.connection.finish()
        response = exchange.response
        return AttemptOutcome(
            success=error is None and 200 <= response.code < 300,
            signed_at=datetime.fromtimestamp(exchange.signed_at, UTC),
            # Not negative, even if the clock was set back.
            duration_ms=max(0, round((self._clock.seconds() - started) * 1000)),
            response_code=response.code,
            response_headers=header_texts(response.headers.items()),
            response_body=body_text(response.body) if response.code else None,
            error=error,
        )

    async def _exchange(self, attempt: Attempt, exchange: _Exchange, deadline: float) -> None:
        destination = self._parse_url(attempt.url)
        addresses = await self._address_check.addresses(destination)
        connection = await self._connections.get(destination, addresses)
        if self._clock.seconds() >= deadline:
            # If the process was suspended, this code can run before the overdue timeout. Another daemon may
            # already have claimed the attempt.
            connection.drop()
            raise _DeadlineExceeded
        exchange.connection, exchange.signed_at = connection, self._now()
        signed = signed_headers(
            attempt.secret,
            attempt.event_id,
            int(exchange.signed_at),
            attempt.body,
            attempt.previous_secret,
        )
        traced = (("traceparent", attempt.traceparent),) if attempt.traceparent else ()
        head = constant_head(destination, attempt.custom_headers) + header_lines(
            (*signed, *traced, ("content-length", str(len(attempt.body))))
        )
        # An attempt never repeats its request, because the receiver may have received the event.
        await connection.post(head + b"\r\n" + attempt.body, exchange.response)

    def close(self) -> None:
        self._connections.close()


class _Exchange:
    """State of an attempt.

    Until the request is signed, ``signed_at`` is the start of the attempt.
    """

    __slots__ = ("connection", "response", "signed_at")

    def __init__(self, started_at: float) -> None:
        self.signed_at = started_at
        self.response = Response()
        self.connection: ReceiverConnection | None = None


def _raise_timeout(outcome: Failure | None, _limit: float) -> None:
    if isinstance(outcome, Failure):
        raise _DeadlineExceeded
