"""The values of webhooks: scopes, tokens, endpoints, events, deliveries, and the work that the queue holds.

The names are those of docs/reference/webhooks.md.  Every time is an aware ``datetime`` in UTC and every
identifier a ``UUID``, unless a field says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any, TypedDict
from uuid import UUID


class Permission(StrEnum):
    """What a personal access token permits."""

    READ = "webhooks:read"
    WRITE = "webhooks:write"
    PUBLISH = "events:publish"


class Status(StrEnum):
    """The state of a delivery (docs/reference/webhooks.md, Delivery states)."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


class Trigger(StrEnum):
    """What caused a delivery; only ``automatic`` ones are retried."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Scope:
    """What an endpoint belongs to: an organization, or one of its projects by its reference."""

    organization: str
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Organization:
    """An organization; webhooks are refused to those without early access."""

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
    """How the page for customers looks, and what it lets them do (docs/reference/webhooks.md, Portal links).

    :ivar name: its title, "" for the organization's slug.
    :ivar color: as ``#rrggbb``, "" for the page's own.
    :ivar signing_secrets: whether endpoints can be created and secrets changed, which shows them.
    """

    name: str = ""
    color: str = ""
    signing_secrets: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A personal access token, without its secret, which only its holder has.

    :ivar organization: whose it is; None for an operator's, which reaches all of them.
    :ivar project: the only scope that a portal link reaches, None for all of the organization.
    :ivar portal: None for what is no portal link.
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
        """Whether it is an operator's."""
        return self.organization is None

    def usable(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class TokenAccess:
    """What a token gives access to.

    :ivar early_access: its organization's; an operator's token needs none.
    :ivar known: whether there is the organization that was looked up.
    :ivar projects: those that were looked up and are its organization's, or any of an operator's, each with
        the organization that it belongs to.
    """

    token: Token
    early_access: bool
    known: bool
    projects: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DailyStatistics:
    """How the attempts of one day (UTC) ended.

    :ivar endpoint_id: None for all endpoints together.
    :ivar median_ms: of the attempts that were made, None without one; ``slowest_ms`` is what 95 % of them
        took at most.
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
    """An endpoint to create; its values have been checked."""

    url: str
    event_types: tuple[str, ...]
    signing_secret: str = field(repr=False)
    custom_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    description: str | None = None
    enabled: bool = True
    created_by: str | None = None
    max_per_second: int | None = None


class EndpointChange(TypedDict, total=False):
    """A change of an endpoint, which leaves alone what is absent.

    For ``grace_seconds`` after a new ``signing_secret``, deliveries are signed with the old one too.
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
    """An endpoint, without its signing secret.

    :ivar max_per_second: attempts a second, None for as many as there are.
    :ivar disabled_since: when the service disabled it, None if its owner did or it is enabled.
    :ivar failing_since: since when every automatic attempt failed, None if the last one succeeded.
    :ivar previous_secret_until: until when deliveries are also signed with the secret before the last one.
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
        """Why the service disabled it, None if it did not."""
        return None if self.disabled_since is None else "failing"


@dataclass(frozen=True, slots=True)
class Event:
    """One endpoint's copy of an event; receivers deduplicate by its ``id``.

    :ivar payload: None once it was deleted.
    :ivar rendered_from: the newer type that ``payload`` belongs to, until this older version is rendered.
    """

    id: UUID
    type: str
    timestamp: datetime
    payload: Mapping[str, Any] | None
    rendered_from: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The record of one attempt, made or pending.

    :ivar response_code: 0 without a response.
    :ivar error: an ``AttemptError`` without a complete response, or the ``SkipReason`` of a skipped one.
    :ivar attempt_timestamp: when the attempt was signed; None before that, and if it was skipped.
    :ivar next_attempt_at: when a pending attempt is due, or a failed one is retried.
    :ivar endpoint_scope: ``organization`` or ``project``.  A project's history has its events' deliveries to
        endpoints of the organization, too, without what these responded.
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
    """Which deliveries to list: ``since`` is inclusive, ``until`` is not, and None restricts nothing."""

    status: Status | None = None
    event_id: UUID | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a page of deliveries, newest first.

    :ivar size: the maximum number of records.
    :ivar after: the page has the records that are next older than this one.
    :ivar before: the page has the records that are next newer than this one.
    """

    size: int = 20
    after: UUID | None = None
    before: UUID | None = None


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """A page of deliveries, newest first, and whether there are newer and older ones."""

    deliveries: tuple[Delivery, ...]
    newer: bool
    older: bool


class RefusalReason(StrEnum):
    """Why a test, retry or recovery was refused."""

    NOT_FOUND = "not_found"
    DISABLED = "disabled"
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused test, retry or recovery; after ``retry_after`` seconds the limit allows another one."""

    reason: RefusalReason
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted test or retry: the event's copy and its delivery, which is now pending."""

    event_id: UUID
    delivery_id: UUID


@dataclass(frozen=True, slots=True)
class Recovery:
    """An accepted recovery, by which ``matched`` events are sent again."""

    id: UUID
    matched: int


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to publish.

    :ivar idempotency_key: the same key within 24 hours publishes nothing and returns the first identifier.
    :ivar timestamp: when it happened; None for now.
    """

    type: str
    scope: Scope
    payload: Mapping[str, Any]
    idempotency_key: str
    timestamp: datetime | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to make one attempt, until its lease ends or somebody else takes it over."""

    delivery_id: UUID
    fence: int


@dataclass(frozen=True, slots=True)
class DueWork:
    """An attempt to make now, with everything that it needs.

    :ivar organization: the slug of the endpoint's organization.
    :ivar attempt_number: from 1.
    :ivar waited: seconds, by the database's clock, from when the attempt was planned until it was claimed;
        a first one is planned when the event is published, or the test or retry is requested.
    :ivar body: the bytes to sign and send; None for an older version of an event that is not yet rendered.
        Then it is rendered from ``rendered_from`` and ``payload``, and stored by ``Queue.rendered``.
    :ivar event_type: the type that is sent.
    :ivar rendered_from: the newer type that ``payload`` belongs to.
    :ivar payload: JSON.
    :ivar previous_secret: the secret before a rotation whose grace has not ended.
    :ivar traceparent: of the trace of the request that published the event, "" without one.
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
    """The result of a claim.

    :ivar settled: how many rows were skipped or dropped instead of being claimed.
    :ivar unreadable: endpoints whose secrets no configured key opens; their work is postponed.
    """

    work: tuple[DueWork, ...]
    settled: int = 0
    unreadable: tuple[UUID, ...] = ()


class AttemptError(StrEnum):
    """Why there was no complete response (docs/reference/webhooks.md, Attempts).

    ``CONNECT``: the connection could not be made, or was lost before a response began.  ``PROTOCOL``: the
    response is not HTTP, breaks off, or has too many headers.  ``INTERNAL``: the service failed; see its log.
    """

    TIMEOUT = "timeout"
    DNS = "dns"
    REFUSED_ADDRESS = "refused_address"
    CONNECT = "connect"
    TLS = "tls"
    PROTOCOL = "protocol"
    INTERNAL = "internal"


class SkipReason(StrEnum):
    """Why nothing was sent, where it was not the endpoint's owner who disabled it."""

    ENDPOINT_FAILING = "endpoint_failing"
    PAYLOAD_DELETED = "payload_deleted"


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How one attempt ended.

    :ivar success: whether there was a 2xx response in time.
    :ivar response_code: 0 without a response.
    :ivar error: None after a complete response.
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
    """An attempt's outcome, and the seconds from now to the next attempt if there is one."""

    claim: Claim
    outcome: AttemptOutcome
    retry_in: float | None = None


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The state of the queue, for metrics; an estimate if the queue is long.

    :ivar waiting: all rows, those of later attempts included.
    :ivar ready: rows that can be claimed now.
    :ivar leased: rows that a daemon has claimed.
    :ivar oldest_due: seconds since the earliest unfinished attempt was due; 0 when none is.
    :ivar failing: endpoints for which a delivery failed for good and no attempt succeeded since.
    """

    waiting: int
    ready: int
    leased: int
    oldest_due: float
    failing: int = 0
