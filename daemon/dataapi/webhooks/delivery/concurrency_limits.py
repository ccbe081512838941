"""Concurrency limits: how many attempts may be in flight in all, to each host, endpoint and organization.

The rules are those of docs/reference/webhooks.md, Fairness.  Claimed work beyond the limits waits in a queue
for each endpoint, so that the next attempt begins without asking the database.  The faster an endpoint
responds, the more may wait for it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import TypeAlias
from uuid import UUID

from dataapi.webhooks.delivery.destinations import host_of
from dataapi.webhooks.model import Claim, DueWork

AHEAD = 0.1
"""Seconds of an endpoint's work that may wait: longer than a claim takes."""

MAX_AHEAD = 256
"""Attempts that may wait for one endpoint, and for all endpoints together."""

UNKNOWN = 2
"""The limit of a new endpoint that is alone at its host; that of another one is 1."""

PROMPT = 1.0
"""Seconds within which an endpoint responds that is not restricted for its neighbours' sake."""

REMEMBERED = 3600.0
"""Seconds for which an endpoint without work is remembered."""

MAX_REMEMBERED = 10_000
"""Endpoints without work that are remembered."""

UNANSWERED = 0.25
"""Seconds from which a new endpoint that has not answered counts as slow for its organization."""

_QUICK_SHARE = 20
"""How many times the free attempts an organization may have in flight."""

_OTHER_SHARE = 4
"""How many times the free attempts may be in flight to endpoints that are not known to be quick."""

_RESERVE = 8
"""The part of a host's limit that is reserved for endpoints that have nothing in flight."""

_IDLE = 1.0
"""Attempts per second below which an idle endpoint is without work."""

_Key: TypeAlias = tuple[UUID, str]
"""An endpoint and its host, which a new URL may change."""


@dataclass(frozen=True, slots=True)
class ClaimedAttempt:
    """Claimed work that has not begun; its lease began at ``since``, in seconds of the caller's clock."""

    work: DueWork
    since: float


@dataclass(slots=True, eq=False)
class _Host:
    """A host and what is known of its endpoints.

    :ivar endpoints: those that are remembered.
    :ivar active: those of them with attempts in flight.
    :ivar blocked: those of them whose waiting attempts wait for another one to end.
    """

    name: str
    running: int = 0
    waiting: int = 0
    endpoints: dict[UUID, _Endpoint] = field(default_factory=dict)
    active: dict[UUID, _Endpoint] = field(default_factory=dict)
    blocked: dict[UUID, _Endpoint] = field(default_factory=dict)


class _Pace(Enum):
    """How an endpoint responds.

    QUICK and SLOW: by its last attempt that ended.  NEW: none has ended; it is SLOW once that takes too long.
    """

    NEW = auto()
    QUICK = auto()
    SLOW = auto()


@dataclass(slots=True)
class _Share:
    """An organization's attempts to endpoints of one pace.

    :ivar ready: the endpoints whose waiting attempts may begin; the first one's turn is next.
    """

    running: int = 0
    waiting: int = 0
    ready: OrderedDict[_Endpoint, None] = field(default_factory=OrderedDict)


@dataclass(slots=True, eq=False)
class _Organization:
    """An organization's attempts.

    :ivar endpoints: those that are remembered.
    """

    name: str
    shares: dict[_Pace, _Share] = field(default_factory=lambda: {pace: _Share() for pace in _Pace})
    endpoints: dict[_Key, _Endpoint] = field(default_factory=dict)

    @property
    def others(self) -> int:
        """Attempts in flight to endpoints that are not quick."""
        return self.shares[_Pace.NEW].running + self.shares[_Pace.SLOW].running


@dataclass(slots=True, eq=False)
class _Endpoint:
    """An endpoint at its host: its limit, how it responds, and its attempts.

    :ivar limit: how many attempts it may have in flight.
    :ivar last: seconds that its last attempt took; before the first one ended, as if it were not prompt.
    :ivar pace: the share of its organization that its attempts count to.
    :ivar slow: whether its last attempt was slow.
    :ivar rate: attempts that end per second.
    :ivar ended: how many ended since ``rate`` was updated.
    :ivar begun: when those in flight began, oldest first.
    :ivar more: whether the database may have more due work for it.
    :ivar refused: whether the current claim returned more than may wait.
    """

    identifier: UUID
    organization: _Organization
    host: _Host
    limit: int
    last: float
    pace: _Pace = _Pace.NEW
    slow: bool = False
    rate: float = 0.0
    ended: int = 0
    begun: dict[Claim, float] = field(default_factory=dict)
    waiting: deque[ClaimedAttempt] = field(default_factory=deque)
    more: bool = False
    refused: bool = False

    @property
    def share(self) -> _Share:
        """The share of the organization that the endpoint's attempts belong to."""
        return self.organization.shares[self.pace]

    @property
    def running(self) -> int:
        return len(self.begun)

    def seconds(self, now: float) -> float:
        """Return what its last attempt took, or its oldest one in flight has taken if that is more."""
        return max(self.last, now - next(iter(self.begun.values()), now))


class ConcurrencyLimits:
    """Decides how much to claim and which attempt begins next.

    :param maximum: attempts in flight at once.
    :param per_host: of these, to one host.
    :param slow: seconds from which an attempt is slow.
    :ivar usual_limit: how many attempts to claim of an endpoint that ``limits`` does not have.
    :ivar running: attempts in flight.
    :ivar waiting: claimed attempts that have not begun.
    """

    def __init__(self, maximum: int, per_host: int, slow: float = inf) -> None:
        self._maximum = maximum
        self._per_host = min(per_host, maximum)
        self._slow = slow
        self._prompt = min(PROMPT, slow / 2)
        self.usual_limit = min(self._per_host, 2 * UNKNOWN)
        self._hosts: dict[str, _Host] = {}
        self._organizations: dict[str, _Organization] = {}
        self._endpoints: dict[_Key, _Endpoint] = {}
        # Those of them with work.
        self._busy: dict[_Key, _Endpoint] = {}
        self._slow_and_busy = 0
        # Attempts in flight to endpoints that are not quick.
        self._others = 0
        # When the others became idle, in that order.
        self._idle: OrderedDict[_Key, float] = OrderedDict()
        # Organizations with a ready endpoint; the first one's turn is next.
        self._turns: OrderedDict[str, _Organization] = OrderedDict()
        # Organizations whose new endpoints the last claim left out.
        self._left_out: frozenset[str] = frozenset()
        self._rates_at = 0.0
        # Whether the database may have more for idle and new endpoints.
        self._more = False
        self.running = 0
        self.waiting = 0

    @property
    def _vacant(self) -> int:
        """How many more attempts may be in flight or waiting."""
        return self._maximum + MAX_AHEAD - self.running - self.waiting

    @property
    def _open(self) -> bool:
        """Whether to claim at all."""
        return self.running < self._maximum and self._vacant > 0

    def room(self) -> int:
        """Return how many attempts to claim: half of the vacancy, so that no claim takes all of it."""
        if not self._open:
            self._more = True
            return 0
        return (self._vacant + 1) // 2

    def limits(self) -> dict[UUID, int]:
        """Return how many attempts to claim of busy endpoints, and of others whose organization is busy."""
        limits = {endpoint.identifier: self._room(endpoint) for endpoint in self._busy.values()}
        for organization in self._busy_organizations():
            new_wait = self._waits_long(organization.shares[_Pace.NEW], 2)
            slow_wait = self._waits_long(organization.shares[_Pace.SLOW], 2)
            if not new_wait and not slow_wait:
                continue
            for endpoint in organization.endpoints.values():
                if endpoint.pace is _Pace.SLOW and slow_wait:
                    limits.setdefault(endpoint.identifier, 0)
                elif endpoint.pace is not _Pace.NEW and new_wait:
                    limits.setdefault(endpoint.identifier, self.usual_limit)
        return limits

    def full(self) -> frozenset[str]:
        """Return the organizations whose new endpoints are excluded from a claim."""
        organizations = self._busy_organizations()
        return frozenset(one.name for one in organizations if self._waits_long(one.shares[_Pace.NEW], 2))

    def _busy_organizations(self) -> set[_Organization]:
        return {endpoint.organization for endpoint in self._busy.values()}

    def saturated(self) -> tuple[UUID, ...]:
        """Return the endpoints that are excluded from a claim."""
        return tuple(endpoint for endpoint, room in self.limits().items() if room == 0)

    def _waits_long(self, share: _Share, times: int) -> bool:
        """Whether so many times the waiting attempts exceed the vacancy."""
        return share.waiting * times > self._vacant

    def _room(self, endpoint: _Endpoint) -> int:
        """Return how many attempts to claim for an endpoint."""
        if self._waits_long(endpoint.share, 1 if endpoint.pace is _Pace.QUICK else 2):
            return 0
        return self._space(endpoint, min(self._per_host, 2 * endpoint.limit))

    def _space(self, endpoint: _Endpoint, at_once: int) -> int:
        """Return how many more attempts an endpoint may take.

        :param at_once: how many it may have in flight or about to begin, unless it is slow.
        """
        host, held = endpoint.host, endpoint.running + len(endpoint.waiting)
        if endpoint.pace is _Pace.QUICK:
            space = at_once + min(MAX_AHEAD, int(endpoint.rate * AHEAD)) - held
            return max(0 if held else 1, space)
        # What waits for those that may hang waits long: those that are slow leave half of that to new ones.
        if not held and host.waiting >= self._per_host * (1 if endpoint.slow else 2):
            return 0
        if endpoint.slow:
            space = min(endpoint.limit, max(1, self._maximum // 2 // self._slow_and_busy)) - held
        elif endpoint.pace is _Pace.SLOW:
            space = 0
        else:
            space = at_once - host.running - host.waiting
        return max(0 if held else 1, space)

    def update(self, now: float) -> list[Claim]:
        """Update how endpoints respond, and forget idle ones; call it before each claim.

        :return: the waiting attempts of new endpoints that have not answered in time, which are removed.
        """
        dropped: list[Claim] = []
        for endpoint in self._busy.values():
            since = next(iter(endpoint.begun.values()), now)
            if endpoint.pace is _Pace.NEW and now - since >= UNANSWERED:
                self._move(endpoint, _Pace.SLOW)
                dropped += self._drop(endpoint, lambda _: True)
        self._update_rates(now)
        return dropped

    def _update_rates(self, now: float) -> None:
        seconds = now - self._rates_at
        if seconds <= 0:
            return
        self._rates_at = now
        weight = seconds / (seconds + AHEAD)
        for key, endpoint in list(self._busy.items()):
            endpoint.rate += weight * (endpoint.ended / seconds - endpoint.rate)
            endpoint.ended = 0
            if not (endpoint.begun or endpoint.waiting or endpoint.more or endpoint.rate >= _IDLE):
                del self._busy[key]
                self._slow_and_busy -= endpoint.slow
                self._idle[key] = now
        while self._idle:
            key, since = next(iter(self._idle.items()))
            if len(self._idle) <= MAX_REMEMBERED and now - since <= REMEMBERED:
                break
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        """Forget an idle endpoint, and its host and organization with the last of theirs."""
        del self._idle[key]
        endpoint = self._endpoints.pop(key)
        del endpoint.host.endpoints[endpoint.identifier], endpoint.organization.endpoints[key]
        if not endpoint.host.endpoints:
            del self._hosts[endpoint.host.name]
        if not endpoint.organization.endpoints:
            del self._organizations[endpoint.organization.name]

    def add(self, claimed: ClaimedAttempt) -> bool:
        """Add claimed work; False when the limits do not allow it and it must be released."""
        endpoint = self._busy_endpoint(claimed.work)
        if self._space(endpoint, self._per_host) == 0:
            endpoint.refused = True
            return False
        endpoint.waiting.append(claimed)
        self._count(endpoint, waiting=1)
        if len(endpoint.waiting) == 1:
            self._offer(endpoint)
        return True

    def _busy_endpoint(self, work: DueWork) -> _Endpoint:
        """Return the endpoint of claimed work, which is busy from now on."""
        key = work.endpoint_id, host_of(work.url)
        endpoint = self._busy.get(key)
        if endpoint is not None:
            return endpoint
        endpoint = self._endpoints.get(key) or self._new_endpoint(work.organization, key)
        if self._idle.pop(key, None) is not None:
            self._slow_and_busy += endpoint.slow
        self._busy[key] = endpoint
        return endpoint

    def _new_endpoint(self, slug: str, key: _Key) -> _Endpoint:
        identifier, name = key
        host = self._hosts.setdefault(name, _Host(name))
        organization = self._organizations.setdefault(slug, _Organization(slug))
        limit = 1 if host.endpoints else min(UNKNOWN, self._per_host)
        endpoint = _Endpoint(identifier, organization, host, limit, last=self._prompt)
        self._endpoints[key] = host.endpoints[identifier] = organization.endpoints[key] = endpoint
        return endpoint

    def claimed(
        self,
        counts: Mapping[UUID, int],
        limits: Mapping[UUID, int],
        full: Collection[str] = (),
        *,
        all_of_them: bool,
    ) -> None:
        """Record of which endpoints the database may have more, after a claim's work was added.

        :param counts: how many attempts were claimed, by endpoint.
        :param limits: what ``limits`` returned for the claim.
        :param full: what ``full`` returned for the claim.
        :param all_of_them: whether the claim returned all due work, not only as much as was requested.
        """
        self._more = not all_of_them
        self._left_out = frozenset(full)
        for endpoint in self._busy.values():
            limit = limits.get(endpoint.identifier, self.usual_limit)
            endpoint.more = endpoint.refused or counts.get(endpoint.identifier, 0) >= limit
            endpoint.refused = False

    def next(self, now: float) -> ClaimedAttempt | None:
        """Return the attempt that begins now, by turns of organizations and of their endpoints, if any."""
        if self.running >= self._maximum:
            return None
        for _ in range(len(self._turns)):
            slug, organization = self._turns.popitem(last=False)
            endpoint = self._next_endpoint(organization, now)
            if any(share.ready for share in organization.shares.values()):
                self._turns[slug] = organization
            if endpoint is not None:
                attempt = endpoint.waiting.popleft()
                endpoint.begun[attempt.work.claim] = now
                endpoint.host.active[endpoint.identifier] = endpoint
                self._count(endpoint, running=1, waiting=-1)
                if endpoint.waiting:
                    self._offer(endpoint)
                return attempt
        return None

    def _next_endpoint(self, organization: _Organization, now: float) -> _Endpoint | None:
        """Return the organization's endpoint whose turn it is, None when its share is used up."""
        free = self._maximum - self.running
        shares = organization.shares
        new, quick, slow = shares[_Pace.NEW], shares[_Pace.QUICK], shares[_Pace.SLOW]
        others = organization.others
        endpoint = None
        if new.running <= free and (others <= free or self._others <= _OTHER_SHARE * free):
            endpoint = self._first(new, now)
        if endpoint is None and 2 * slow.running <= free:
            endpoint = self._first(slow, now)
        if endpoint is None and others + quick.running <= _QUICK_SHARE * free:
            endpoint = self._first(quick, now)
        return endpoint

    def _first(self, share: _Share, now: float) -> _Endpoint | None:
        """Remove and return the first endpoint that may have another attempt at its host."""
        while share.ready:
            endpoint, _ = share.ready.popitem(last=False)
            if self._may_begin(endpoint, now):
                return endpoint
            endpoint.host.blocked[endpoint.identifier] = endpoint
        return None

    def _may_begin(self, endpoint: _Endpoint, now: float) -> bool:
        """Whether its own limit and its part of the host's allow an endpoint another attempt."""
        host = endpoint.host
        free = self._per_host - host.running
        if free <= 0 or endpoint.running >= endpoint.limit:
            return False
        if endpoint.pace is _Pace.NEW and endpoint.begun and self._others_come_first(endpoint):
            return False
        reserve = self._per_host // _RESERVE
        if free <= reserve and endpoint.begun:
            return False
        active = host.active.values()
        if free <= reserve // 2 and any(one.organization is endpoint.organization for one in active):
            return False
        return len(host.endpoints) == 1 or self._is_fair(endpoint, free, now)

    def _others_come_first(self, endpoint: _Endpoint) -> bool:
        """Whether its organization may need what is free for the first attempts to other new endpoints."""
        return 3 * (endpoint.organization.others - endpoint.running) > self._maximum - self.running

    def _is_fair(self, endpoint: _Endpoint, free: int, now: float) -> bool:
        """Whether an endpoint that is not prompt leaves enough of the host's limit free for its neighbours.

        :param free: how many attempts the host may have more.
        """
        seconds, organization = endpoint.seconds(now), endpoint.organization
        if seconds < self._prompt:
            return True
        all_of_them = slow = own = 0
        for one in endpoint.host.active.values():
            taken = one.seconds(now)
            if taken >= self._prompt:
                all_of_them += one.running
                slow += one.running if taken >= self._slow else 0
                own += one.running if one.organization is organization else 0
        is_alone = all(one.organization is organization for one in endpoint.host.endpoints.values())
        return (
            all_of_them <= free
            and (seconds < self._slow or 3 * slow <= free)
            and (is_alone or 2 * own <= free)
        )

    def _count(self, endpoint: _Endpoint, running: int = 0, waiting: int = 0) -> None:
        """Count attempts of an endpoint in its organization's share, at its host and in all."""
        share, host = endpoint.share, endpoint.host
        if endpoint.pace is not _Pace.QUICK:
            self._others += running
        share.running += running
        share.waiting += waiting
        host.running += running
        host.waiting += waiting
        self.running += running
        self.waiting += waiting

    def _offer(self, endpoint: _Endpoint) -> None:
        """Put an endpoint for which attempts wait at the end of the ready ones."""
        endpoint.share.ready[endpoint] = None
        self._turns.setdefault(endpoint.organization.name, endpoint.organization)

    def ended(self, work: DueWork, seconds: float | None = None, *, answered: bool = True) -> bool:
        """Record that an attempt ended; True when it is time to claim more.

        :param seconds: how long it took; None when that says nothing about the endpoint.
        :param answered: whether there was a response.
        """
        endpoint = self._busy[work.endpoint_id, host_of(work.url)]
        host = endpoint.host
        del endpoint.begun[work.claim]
        if not endpoint.begun:
            del host.active[endpoint.identifier]
        self._count(endpoint, running=-1)
        if seconds is not None:
            endpoint.ended += 1
            self._learn(endpoint, seconds, answered=answered)
        # In the order in which they were blocked, so that they take turns.
        for blocked in host.blocked.values():
            self._offer(blocked)
        host.blocked.clear()
        return (
            self._more or self._endpoint_wants_more(endpoint) or self._may_claim_again(endpoint.organization)
        )

    def _learn(self, endpoint: _Endpoint, seconds: float, *, answered: bool) -> None:
        """Adjust an endpoint's limit after an attempt."""
        endpoint.last = seconds
        slow = seconds >= self._slow
        if slow and not answered:
            endpoint.limit = max(1, endpoint.limit // 2)
        else:
            endpoint.limit = min(self._per_host, endpoint.limit + 1)
        self._slow_and_busy += slow - endpoint.slow
        endpoint.slow = slow
        self._move(endpoint, _Pace.SLOW if slow else _Pace.QUICK)

    def _move(self, endpoint: _Endpoint, pace: _Pace) -> None:
        """Move an endpoint's attempts to the share of another pace."""
        if endpoint.pace is pace:
            return
        running, waiting = endpoint.running, len(endpoint.waiting)
        ready = endpoint.share.ready.pop(endpoint, self) is None
        self._count(endpoint, running=-running, waiting=-waiting)
        endpoint.pace = pace
        self._count(endpoint, running=running, waiting=waiting)
        if ready:
            self._offer(endpoint)

    def wants_more(self) -> bool:
        """Whether it is time to claim more."""
        return self._open and (
            self._more
            or any(map(self._endpoint_wants_more, self._busy.values()))
            or any(self._may_claim_again(one) for one in map(self._organizations.get, self._left_out) if one)
        )

    def _endpoint_wants_more(self, endpoint: _Endpoint) -> bool:
        enough = len(endpoint.waiting) * 2 > endpoint.rate * AHEAD
        return endpoint.more and not enough and self._room(endpoint) > 0

    def _may_claim_again(self, organization: _Organization) -> bool:
        """Whether an organization that a claim excluded has worked off half of what it had waiting."""
        return organization.name in self._left_out and not self._waits_long(organization.shares[_Pace.NEW], 4)

    def drop(self, is_obsolete: Callable[[ClaimedAttempt], bool]) -> list[Claim]:
        """Remove waiting attempts that are obsolete, and return their claims."""
        return [claim for endpoint in self._busy.values() for claim in self._drop(endpoint, is_obsolete)]

    def _drop(self, endpoint: _Endpoint, is_obsolete: Callable[[ClaimedAttempt], bool]) -> list[Claim]:
        waiting = list(endpoint.waiting)
        endpoint.waiting = deque(attempt for attempt in waiting if not is_obsolete(attempt))
        self._count(endpoint, waiting=len(endpoint.waiting) - len(waiting))
        if not endpoint.waiting:
            endpoint.share.ready.pop(endpoint, None)
            endpoint.host.blocked.pop(endpoint.identifier, None)
        return [attempt.work.claim for attempt in waiting if is_obsolete(attempt)]
