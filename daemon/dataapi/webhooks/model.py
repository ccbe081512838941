"""What webhooks are about, as frozen values: scopes, tokens, endpoints, events and deliveries.

Names and meanings are those of reference/webhooks.md section 1.  Every time is an aware
``datetime`` in UTC and every identifier a ``UUID``, unless a field says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID


class Permission(StrEnum):
    """What a personal access token may be used for."""

    READ = "webhooks:read"
    WRITE = "webhooks:write"
    PUBLISH = "events:publish"


class Status(StrEnum):
    """How a delivery stands."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


class Trigger(StrEnum):
    """What asked for a delivery; only ``automatic`` ones are tried again."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"
    TEST = "test"


class Unchanged(Enum):
    """The value of a field that a change leaves as it is, where None is a value of its own."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED


@dataclass(frozen=True, slots=True)
class Scope:
    """What an endpoint belongs to and is visible under: an organization, or one of its projects.

    :ivar project: the project's reference; None for the organization itself.
    """

    organization: str
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Organization:
    """An organization.

    :ivar early_access: whether it is on the allowlist without which webhooks are refused.
    """

    slug: str
    early_access: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Project:
    """A project and its organization's place on the allowlist."""

    ref: str
    organization: str
    early_access: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Token:
    """A personal access token as it is kept: the secret itself is known to its holder alone."""

    id: UUID
    organization: str
    permissions: frozenset[Permission]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    def usable(self, now: datetime) -> bool:
        """Whether the token is good at ``now``."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """An endpoint to be created; every value has been judged by who makes it."""

    url: str
    event_types: tuple[str, ...]
    signing_secret: str = field(repr=False)
    custom_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    description: str | None = None
    enabled: bool = True
    created_by: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """What to change of an endpoint."""

    url: str | Unchanged = UNCHANGED
    event_types: tuple[str, ...] | Unchanged = UNCHANGED
    signing_secret: str | Unchanged = field(default=UNCHANGED, repr=False)
    custom_headers: Mapping[str, str] | Unchanged = field(default=UNCHANGED, repr=False)
    description: str | Unchanged | None = UNCHANGED
    enabled: bool | Unchanged = UNCHANGED


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint as it is shown: its signing secret never is."""

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


@dataclass(frozen=True, slots=True)
class Event:
    """One endpoint's copy of an event; ``id`` is what receivers deduplicate by.

    :ivar rendered_from: the newer type whose payload ``payload`` is, until this older one is rendered of it.
    """

    id: UUID
    type: str
    timestamp: datetime
    payload: Mapping[str, Any]
    rendered_from: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The record of one attempt, made or still to be made.

    :ivar response_code: 0 when no response came.
    :ivar error: a stable word when no response came, such as ``timeout``.
    :ivar attempt_timestamp: when the attempt was signed; None before that, and when it was skipped.
    :ivar next_attempt_at: of a pending record when it is due, of a failed one when it is tried again.
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


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Which deliveries are listed; None leaves a member out of account.

    :ivar since: the earliest time of creation, itself included.
    :ivar until: the time of creation before which records are listed.
    """

    status: Status | None = None
    event_id: UUID | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """From where a page of deliveries, newest first, is read.

    :ivar size: the most records.
    :ivar after: list what is older than this record.
    :ivar before: list what is newer than this record, those next to it.
    """

    size: int = 20
    after: UUID | None = None
    before: UUID | None = None


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """A page of deliveries, newest first.

    :ivar newer: whether there are records before the first one.
    :ivar older: whether there are records after the last one.
    """

    deliveries: tuple[Delivery, ...]
    newer: bool
    older: bool


class Refusal(StrEnum):
    """Why a test, retry or recovery was not taken on."""

    NOT_FOUND = "not_found"
    DISABLED = "disabled"
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True)
class Refused:
    """A test, retry or recovery that was not taken on.

    :ivar retry_after: seconds after which there is room again, when there were too many.
    """

    reason: Refusal
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """A test or retry that was taken on: the event's copy and the delivery that is now pending."""

    event_id: UUID
    delivery_id: UUID


@dataclass(frozen=True, slots=True)
class Recovery:
    """A recovery that was taken on.

    :ivar matched: how many events are tried again.
    """

    id: UUID
    matched: int


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be published.

    :ivar idempotency_key: the same key within 24 hours raises nothing and returns the first identifier.
    :ivar timestamp: when it happened; None for now.
    """

    type: str
    scope: Scope
    payload: Mapping[str, Any]
    idempotency_key: str
    timestamp: datetime | None = None
