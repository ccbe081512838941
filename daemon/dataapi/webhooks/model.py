"""Data classes of webhooks, named as in docs/reference/webhooks.md.

Times are aware ``datetime`` values in UTC, and identifiers are ``UUID`` values, unless noted otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any, TypedDict
from uuid import UUID


class Permission(StrEnum):
    """Permissions of a personal access token."""

    READ = "webhooks:read"
    WRITE = "webhooks:write"
    PUBLISH = "events:publish"


class Status(StrEnum):
    """States of a delivery (docs/reference/webhooks.md, Delivery states)."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


class Trigger(StrEnum):
    """Causes of a delivery. Only ``automatic`` deliveries are retried."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of an endpoint: an organization, or one of its projects."""

    organization: str
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Organization:
    """An organization. Webhooks require early access."""

    slug: str
    early_access: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ProjectRecord:
    """A project and the slug of its organization."""

    ref: str
    organization: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Portal:
    """Appearance and permissions of the customer portal (docs/reference/webhooks.md, Portal links).

    :ivar name: title, or "" for the organization's slug.
    :ivar color: accent color as ``#rrggbb``, or "" for the default.
    :ivar signing_secrets: whether customers may create endpoints and change signing secrets.
    """

    name: str = ""
    color: str = ""
    signing_secrets: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A personal access token without its secret.

    :ivar organization: slug of the owner, or None for an operator's token, which has access to all
        organizations.
    :ivar project: the only project that a portal link gives access to, or None.
    :ivar portal: settings of a portal link, or None for other tokens.
    """

    id: UUID
    organization: str | None
    permissions: frozenset[Permission]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    project: str | None = None
    portal: Portal | None = None

    @property
    def operator(self) -> bool:
        return self.organization is None

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class TokenAccess:
    """The access that a token grants to the requested organization and projects.

    :ivar early_access: whether the organization has early access. True for an operator's token.
    :ivar projects: organization of each requested project that the token may access.
    """

    token: Token
    early_access: bool
    organization_exists: bool
    projects: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DailyStatistics:
    """Numbers of attempts by outcome, for a day (UTC) and an endpoint, or all endpoints (None).

    ``slowest_ms`` is the 95th percentile of durations. Durations are None if no attempt was made.
    """

    day: date
    endpoint_id: UUID | None
    success: int
    failed: int
    skipped: int
    median_ms: int | None
    slowest_ms: int | None


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """A validated endpoint to create."""

    url: str
    event_types: tuple[str, ...]
    signing_secret: str = field(repr=False)
    custom_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    description: str | None = None
    enabled: bool = True
    created_by: str | None = None
    max_per_second: int | None = None


class EndpointChange(TypedDict, total=False):
    """Changes to an endpoint. Absent members are not changed.

    After ``signing_secret`` has changed, deliveries are also signed with the old secret for
    ``grace_seconds``.
    """

    url: str
    event_types: tuple[str, ...]
    signing_secret: str
    grace_seconds: int
    custom_headers: Mapping[str, str]
    description: str | None
    enabled: bool
    max_per_second: int | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint without its signing secret.

    :ivar max_per_second: maximum attempts per second, or None for no limit.
    :ivar disabled_since: time when the service disabled it. None if it is enabled or its owner disabled it.
    :ivar failing_since: start of a period in which every automatic attempt failed, or None.
    :ivar previous_secret_until: end of the period in which deliveries are also signed with the previous
        secret.
    """

    id: UUID
    scope: Scope
    url: str
    event_types: tuple[str, ...]
    custom_headers: Mapping[str, str] = field(repr=False)
    description: str | None
    enabled: bool
    created_by: str | None
    created_at: datetime
    updated_at: datetime
    max_per_second: int | None = None
    disabled_since: datetime | None = None
    failing_since: datetime | None = None
    previous_secret_until: datetime | None = None

    @property
    def disabled_reason(self) -> str | None:
        return None if self.disabled_since is None else "failing"


@dataclass(frozen=True, slots=True)
class Event:
    """An endpoint's copy of an event. Receivers deduplicate events by ``id``.

    :ivar payload: None if it was deleted.
    :ivar rendered_from: type of ``payload`` if it must still be converted to ``type``, an older version.
    """

    id: UUID
    type: str
    timestamp: datetime
    payload: Mapping[str, Any] | None
    rendered_from: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The record of a pending or finished attempt.

    :ivar response_code: status code, or 0 if there was no response.
    :ivar error: an ``AttemptError``, or the ``SkipReason`` of a skipped delivery.
    :ivar attempt_timestamp: time of the signature. None if the attempt is pending or was skipped.
    :ivar next_attempt_at: due time of a pending attempt, or of a failed attempt's retry.
    :ivar endpoint_scope: ``organization`` or ``project``. A project's history includes deliveries to
        endpoints of the organization, without their responses.
    """

    id: UUID
    event_id: UUID
    endpoint_id: UUID
    event_type: str
    status: Status
    attempt_number: int
    trigger: Trigger
    response_code: int
    response_headers: Mapping[str, str] | None
    response_body: str | None
    error: str | None
    duration_ms: int | None
    attempt_timestamp: datetime | None
    next_attempt_at: datetime | None
    expires_at: datetime
    created_at: datetime
    endpoint_scope: str


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Filters for deliveries. None disables a filter. ``since`` is inclusive, ``until`` is exclusive."""

    status: Status | None = None
    event_id: UUID | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position of a page of at most ``size`` deliveries, newest first.

    The page contains the next deliveries older than ``after``, or newer than ``before``.
    """

    size: int = 20
    after: UUID | None = None
    before: UUID | None = None


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """A page of deliveries, newest first, and whether newer and older ones exist."""

    deliveries: tuple[Delivery, ...]
    newer: bool
    older: bool


class RefusalReason(StrEnum):
    """Reasons to refuse a test, retry or recovery."""

    NOT_FOUND = "not_found"
    DISABLED = "disabled"
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused test, retry or recovery, and the seconds to wait before retrying."""

    reason: RefusalReason
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted test or retry: its event and its pending delivery."""

    event_id: UUID
    delivery_id: UUID


@dataclass(frozen=True, slots=True)
class Recovery:
    """An accepted recovery, and the number of events that it sends again."""

    id: UUID
    matched: int


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to publish. ``timestamp`` is None for the current time.

    Publishing again with the same idempotency key within 24 hours only returns the first event's identifier.
    """

    type: str
    scope: Scope
    payload: Mapping[str, Any]
    idempotency_key: str
    timestamp: datetime | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to make an attempt until the lease ends. ``fence`` detects later claims."""

    delivery_id: UUID
    fence: int


@dataclass(frozen=True, slots=True)
class DueWork:
    """A claimed attempt.

    :ivar attempt_number: number of the attempt, starting with 1.
    :ivar waited: seconds between scheduling and claim, by the database's clock. A first attempt is scheduled
        when the event is published, or the test or retry is requested.
    :ivar body: bytes to sign and send. None if ``payload`` must first be converted to ``event_type`` and
        stored with ``Queue.rendered``.
    :ivar rendered_from: type of ``payload`` if ``event_type`` is an older version of it.
    :ivar previous_secret: previous signing secret during the grace period of a rotation.
    :ivar traceparent: trace context of the request that published the event, or "".
    """

    claim: Claim
    event_id: UUID
    endpoint_id: UUID
    organization: str
    attempt_number: int
    trigger: Trigger
    waited: float
    url: str
    signing_secret: str = field(repr=False)
    custom_headers: Mapping[str, str] = field(repr=False)
    event_type: str
    body: bytes | None = field(repr=False)
    rendered_from: str | None = None
    payload: str | None = field(default=None, repr=False)
    traceparent: str = ""
    previous_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """Result of a claim. ``settled`` is the number of rows that were skipped or deleted instead of claimed.

    ``unreadable`` are endpoints whose secrets cannot be decrypted. Their attempts are postponed.
    """

    work: tuple[DueWork, ...]
    settled: int = 0
    unreadable: tuple[UUID, ...] = ()


class AttemptError(StrEnum):
    """Reasons why there was no complete response (docs/reference/webhooks.md, Attempts).

    ``CONNECT``: the connection failed, or was lost before the response began. ``PROTOCOL``: the response is
    invalid, incomplete, or has too many headers. ``INTERNAL``: the service failed and logged the error.
    """

    TIMEOUT = "timeout"
    DNS = "dns"
    REFUSED_ADDRESS = "refused_address"
    CONNECT = "connect"
    TLS = "tls"
    PROTOCOL = "protocol"
    INTERNAL = "internal"


class SkipReason(StrEnum):
    """Reasons to skip a delivery, other than a disabled endpoint."""

    ENDPOINT_FAILING = "endpoint_failing"
    PAYLOAD_DELETED = "payload_deleted"


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """Outcome of an attempt. The attempt succeeds if a 2xx response arrives in time.

    The code is 0 if there was no response. The error is None if the response is complete.
    """

    success: bool
    signed_at: datetime
    duration_ms: int
    response_code: int = 0
    response_headers: tuple[tuple[str, str], ...] = ()
    response_body: str | None = field(default=None, repr=False)
    error: AttemptError | None = None


@dataclass(frozen=True, slots=True)
class FinishedAttempt:
    """A finished attempt, and the seconds until its retry, if any."""

    claim: Claim
    outcome: AttemptOutcome
    retry_in: float | None = None


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """State of the queue, for metrics. Estimated if the queue is long.

    :ivar waiting: number of rows, including attempts that are not due yet.
    :ivar ready: number of rows that can be claimed now.
    :ivar oldest_due: seconds since the oldest unfinished attempt was due, or 0.
    :ivar failing: number of endpoints with a permanently failed delivery and no later successful attempt.
    """

    waiting: int
    ready: int
    leased: int
    oldest_due: float
    failing: int = 0
