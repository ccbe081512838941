"""The work of delivering, as frozen values: what is claimed, how an attempt ended, and how the queue stands.

Every time is an aware ``datetime`` in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from dataapi.webhooks.model import Trigger


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to make one attempt, until its lease ends or somebody else took it over."""

    delivery_id: UUID
    fence: int


@dataclass(frozen=True, slots=True)
class DueWork:
    """An attempt to be made now, with everything that it takes.

    :ivar organization: the slug of the endpoint's organization.
    :ivar attempt_number: from 1.
    :ivar waited: seconds, by the database's clock, from when the attempt was planned until it was claimed;
        a first one is planned when the event is raised, the test sent or the retry asked for.
    :ivar body: the bytes to sign and send; None while an older version of an event is not yet
        rendered: then ``rendered_from`` and ``payload``, which is JSON, say from what, and
        ``Queue.rendered`` keeps the outcome.
    :ivar event_type: the type that the receiver is told.
    :ivar rendered_from: the newer type whose payload ``payload`` is.
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


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim found.

    :ivar work: attempts to make.
    :ivar settled: how many rows were skipped or dropped, as their endpoint is disabled or gone.
    :ivar unreadable: endpoints whose secrets no configured key opens; their work was put off.
    """

    work: tuple[DueWork, ...]
    settled: int = 0
    unreadable: tuple[UUID, ...] = ()


class ErrorWord(StrEnum):
    """Why no complete answer came (reference/webhooks.md 1).

    ``CONNECT`` is a connection that could not be made, or was lost before anything came back; ``PROTOCOL`` is
    an answer that is not HTTP, breaks off, or has more headers than are taken; ``INTERNAL`` is a failure
    on our side, of which the log says more.
    """

    TIMEOUT = "timeout"
    DNS = "dns"
    REFUSED_ADDRESS = "refused_address"
    CONNECT = "connect"
    TLS = "tls"
    PROTOCOL = "protocol"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended.

    :ivar success: whether a 2xx response came in time.
    :ivar signed_at: when the attempt was signed.
    :ivar response_code: 0 when no response came.
    :ivar error: None when a complete response came.
    """

    success: bool
    signed_at: datetime
    duration_ms: int
    response_code: int = 0
    response_headers: tuple[tuple[str, str], ...] = ()
    response_body: str | None = field(default=None, repr=False)
    error: ErrorWord | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """An attempt's outcome and what follows from it.

    :ivar retry_in: seconds from now until the next attempt; None when there is none.
    """

    claim: Claim
    outcome: Outcome
    retry_in: float | None = None


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The queue at one moment, for metrics; of a long queue an estimate.

    :ivar waiting: rows in all, those waiting for a later attempt included.
    :ivar ready: rows that could be claimed now.
    :ivar leased: rows that a daemon holds.
    :ivar oldest_due: seconds since the earliest unfinished attempt was due; 0 when none is due.
    """

    waiting: int
    ready: int
    leased: int
    oldest_due: float
