"""Limits for attempts in flight: in total, and for each host, endpoint and organization.

The rules are in docs/reference/webhooks.md, Fairness. Claimed work that cannot begin yet waits in the queue
of its endpoint, so that the next attempt needs no query.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias
from uuid import UUID

from dataapi.webhooks.delivery.destinations import host_of
from dataapi.webhooks.model import Claim, DueWork

AHEAD = 0.1
"""Seconds of work to claim in advance for a fast endpoint. A claim takes less time."""

MAX_AHEAD = 256
"""Maximum number of attempts that are claimed before they can begin, per endpoint and in total."""

DEFAULT_LIMIT = 1
"""Number of attempts to claim for an idle endpoint, and its initial limit of attempts in flight."""

MAX_IDLE_ENDPOINTS = 10_000
"""Maximum number of idle endpoints whose limits and pace are kept. The least recently used are dropped."""

_Key: TypeAlias = tuple[UUID, str]
"""Key of a queue: endpoint and host, because an endpoint's host may change."""


class _Pace(Enum):
    """Whether an endpoint is new, slow or fast. An organization's attempts begin in this order."""

    NEW = auto()
    SLOW = auto()
    FAST = auto()


@dataclass(frozen=True, slots=True)
class ClaimedAttempt:
    """Claimed work that has not begun. ``since`` is the start of its lease, by the caller's clock."""

    work: DueWork
    since: float


@dataclass(slots=True)
class _Share:
    """A limit on attempts in flight.

    :ivar reserve: number of slots that are reserved for organizations with few attempts. An organization may
        use a reserved slot only if more slots are free than it already uses.
    """

    limit: int
    reserve: int
    running: int = 0
    organizations: Counter[str] = field(default_factory=Counter)

    def has_room(self, organization: str) -> bool:
        free = self.limit - self.running
        return free > self.reserve or free > self.organizations[organization]


_Shares: TypeAlias = Mapping[_Pace, tuple[_Share, ...]]
"""The limits that apply to an attempt, by the pace of its endpoint when the attempt begins."""


def _shares(slow: int, slow_and_new: int, every: int, reserve: int) -> _Shares:
    slow_share, mixed, total = (_Share(limit, limit // reserve) for limit in (slow, slow_and_new, every))
    return {_Pace.SLOW: (slow_share, mixed, total), _Pace.NEW: (mixed, total), _Pace.FAST: (total,)}


def _has_room(shares: Iterable[_Share], organization: str) -> bool:
    return all(share.has_room(organization) for share in shares)


def _count(shares: Iterable[_Share], organization: str, change: int) -> None:
    for share in shares:
        share.running += change
        share.organizations[organization] += change
        if not share.organizations[organization]:
            del share.organizations[organization]


@dataclass(slots=True, eq=False)
class _HostQueue:
    """A host that receives attempts.

    :ivar endpoints: number of busy and recently used endpoints on the host.
    :ivar waiting: number of claimed attempts that have not begun, by their endpoint's pace.
    :ivar blocked: endpoints that wait until another attempt to the host ends.
    """

    name: str
    shares: _Shares
    endpoints: int = 0
    waiting: Counter[_Pace] = field(default_factory=Counter)
    blocked: dict[_EndpointQueue, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _OrganizationQueue:
    """An organization with attempts.

    :ivar waiting: number of claimed attempts that have not begun, by their endpoint's pace.
    :ivar endpoints: busy and recently used endpoints.
    :ivar ready: endpoints that take turns beginning attempts.
    """

    name: str
    waiting: Counter[_Pace] = field(default_factory=Counter)
    endpoints: dict[_Key, _EndpointQueue] = field(default_factory=dict)
    ready: Mapping[_Pace, OrderedDict[_EndpointQueue, None]] = field(
        default_factory=lambda: {pace: OrderedDict() for pace in _Pace}
    )


@dataclass(slots=True, eq=False)
class _EndpointQueue:
    """An endpoint's attempts that are sent to one host.

    :ivar last: duration of the last ended attempt, or the age of the oldest attempt in flight if greater.
    :ivar in_flight: start and limits of each attempt in flight, oldest first.
    :ivar more: whether the database may have more due work.
    """

    identifier: UUID
    organization: _OrganizationQueue
    host: _HostQueue
    cap: int = DEFAULT_LIMIT
    pace: _Pace = _Pace.NEW
    last: float = 0.0
    in_flight: dict[Claim, tuple[float, tuple[_Share, ...]]] = field(default_factory=dict)
    waiting: deque[ClaimedAttempt] = field(default_factory=deque)
    more: bool = False

    @property
    def pace_at_host(self) -> _Pace:
        """Pace that selects the host's limits. A host's only endpoint counts as fast: it slows no others."""
        return self.pace if self.host.endpoints > 1 else _Pace.FAST

    @property
    def ahead(self) -> int:
        """Number of attempts to claim in advance, because they should begin before the next claim."""
        if self.pace is not _Pace.FAST:
            return 0
        growth = min(self.cap, self.host.shares[_Pace.FAST][0].limit - self.cap)
        running = len(self.in_flight) if self.waiting else self.cap
        return growth + int(min(MAX_AHEAD, running * AHEAD / max(self.last, 0.001)))

    @property
    def room(self) -> int:
        return max(0, self.cap + self.ahead - len(self.in_flight) - len(self.waiting))


class ConcurrencyLimits:
    """Decides how much to claim and which attempt begins next.

    :param per_host: maximum number of attempts in flight to one host.
    :param slow: minimum duration of a slow attempt, in seconds.
    :ivar waiting: number of claimed attempts that have not begun.
    """

    def __init__(self, maximum: int, per_host: int, slow: float) -> None:
        self._maximum = maximum
        self._per_host = min(per_host, maximum)
        self._slow = slow
        self._shares = _shares(maximum - maximum // 2, maximum - maximum // 8, maximum, reserve=16)
        self._hosts: dict[str, _HostQueue] = {}
        self._organizations: dict[str, _OrganizationQueue] = {}
        # Endpoints with work, and idle endpoints, least recently used first.
        self._busy: dict[_Key, _EndpointQueue] = {}
        self._idle: dict[_Key, _EndpointQueue] = {}
        # Organizations with a ready endpoint, in order of their turns.
        self._turns: OrderedDict[_OrganizationQueue, None] = OrderedDict()
        # Whether the last claim left due work in the database.
        self._more = False
        self.waiting = 0

    @property
    def running(self) -> int:
        return self._shares[_Pace.FAST][0].running

    @property
    def _vacant(self) -> int:
        return self._maximum + MAX_AHEAD - self.running - self.waiting

    def room(self) -> int:
        if self.running >= self._maximum or self._vacant <= 0:
            self._more = True
            return 0
        return (self._vacant + 1) // 2

    def limits(self, now: float) -> tuple[dict[UUID, int], frozenset[str]]:
        """Return the number of attempts to claim, by endpoint, and the organizations to exclude.

        The number for unlisted endpoints is 0 if their organization is excluded, and otherwise
        ``DEFAULT_LIMIT``.
        """
        for endpoint in self._busy.values():
            if endpoint.pace is not _Pace.NEW:
                self._update_pace(endpoint, now)
        listed, full = dict(self._busy), set[str]()
        for organization in {endpoint.organization for endpoint in self._busy.values()}:
            excluded = self._excluded(organization)
            if excluded:
                listed |= organization.endpoints
            if _Pace.NEW in excluded:
                full.add(organization.name)
        return {endpoint.identifier: self._room(endpoint) for endpoint in listed.values()}, frozenset(full)

    def _room(self, endpoint: _EndpointQueue) -> int:
        return 0 if endpoint.pace in self._excluded(endpoint.organization) else endpoint.room

    def _excluded(self, organization: _OrganizationQueue) -> list[_Pace]:
        return [pace for pace, waiting in organization.waiting.items() if waiting > self._vacant]

    def add(self, claimed: ClaimedAttempt) -> bool:
        """Add claimed work. Return False if it exceeds the limits and must be released."""
        endpoint = self._busy_endpoint(claimed.work)
        pace, waiting = endpoint.pace, endpoint.host.waiting
        if pace is not _Pace.FAST and (not endpoint.room or waiting[pace] >= self._per_host):
            return False
        endpoint.waiting.append(claimed)
        self._count_waiting(endpoint, 1)
        if len(endpoint.waiting) == 1:
            self._make_ready(endpoint)
        return True

    def _busy_endpoint(self, work: DueWork) -> _EndpointQueue:
        key = identifier, name = work.endpoint_id, host_of(work.url)
        endpoint = self._busy.get(key) or self._idle.pop(key, None)
        if endpoint is None:
            if name not in self._hosts:
                limit = self._per_host
                shares = _shares(limit - limit * 3 // 4, limit - limit // 2, limit, reserve=8)
                self._hosts[name] = _HostQueue(name, shares)
            host, slug = self._hosts[name], work.organization
            organization = self._organizations.setdefault(slug, _OrganizationQueue(slug))
            endpoint = _EndpointQueue(identifier, organization, host)
            host.endpoints += 1
            organization.endpoints[key] = endpoint
        self._busy[key] = endpoint
        return endpoint

    def claimed(self, counts: Mapping[UUID, int], limits: Mapping[UUID, int], *, complete: bool) -> None:
        """Record which endpoints may have more due work in the database. Called after ``add``.

        ``complete`` is true if the claim returned all due work within its limits.
        """
        self._more = not complete
        for key, endpoint in list(self._busy.items()):
            identifier = endpoint.identifier
            endpoint.more = counts.get(identifier, 0) >= limits.get(identifier, DEFAULT_LIMIT)
            if not (endpoint.in_flight or endpoint.waiting or endpoint.more):
                self._idle[key] = self._busy.pop(key)
        while len(self._idle) > MAX_IDLE_ENDPOINTS:
            self._forget(next(iter(self._idle)))

    def _forget(self, key: _Key) -> None:
        endpoint = self._idle.pop(key)
        host, organization = endpoint.host, endpoint.organization
        host.endpoints -= 1
        if not host.endpoints:
            del self._hosts[host.name]
        del organization.endpoints[key]
        if not organization.endpoints:
            del self._organizations[organization.name]

    def next(self, now: float) -> ClaimedAttempt | None:
        if self.running >= self._maximum:
            return None
        for _ in range(len(self._turns)):
            organization, _ = self._turns.popitem(last=False)
            endpoint = self._next_endpoint(organization)
            if any(organization.ready.values()):
                self._turns[organization] = None
            if endpoint is not None:
                return self._begin(endpoint, now)
        return None

    def _next_endpoint(self, organization: _OrganizationQueue) -> _EndpointQueue | None:
        for pace, ready in organization.ready.items():
            while ready and _has_room(self._shares[pace], organization.name):
                endpoint, _ = ready.popitem(last=False)
                host_shares = endpoint.host.shares[endpoint.pace_at_host]
                if len(endpoint.in_flight) < endpoint.cap and _has_room(host_shares, organization.name):
                    return endpoint
                endpoint.host.blocked[endpoint] = None
        return None

    def _begin(self, endpoint: _EndpointQueue, now: float) -> ClaimedAttempt:
        attempt = endpoint.waiting.popleft()
        self._count_waiting(endpoint, -1)
        shares = (*self._shares[endpoint.pace], *endpoint.host.shares[endpoint.pace_at_host])
        endpoint.in_flight[attempt.work.claim] = now, shares
        _count(shares, endpoint.organization.name, 1)
        if endpoint.waiting:
            self._make_ready(endpoint)
        return attempt

    def _count_waiting(self, endpoint: _EndpointQueue, change: int) -> None:
        endpoint.host.waiting[endpoint.pace] += change
        endpoint.organization.waiting[endpoint.pace] += change
        self.waiting += change

    def _make_ready(self, endpoint: _EndpointQueue) -> None:
        endpoint.organization.ready[endpoint.pace][endpoint] = None
        self._turns.setdefault(endpoint.organization)

    def ended(self, work: DueWork, now: float, *, responded: bool | None = None) -> bool:
        """Record the end of an attempt. Return True to claim more.

        :param responded: whether there was a response, or None if the attempt did not reach the endpoint.
        """
        endpoint = self._busy[work.endpoint_id, host_of(work.url)]
        started, shares = endpoint.in_flight.pop(work.claim)
        _count(shares, endpoint.organization.name, -1)
        if responded is not None:
            endpoint.last = now - started
            fails = endpoint.last >= self._slow and not responded
            endpoint.cap = max(1, endpoint.cap // 2) if fails else min(self._per_host, endpoint.cap + 1)
            self._update_pace(endpoint, now)
        # Blocked endpoints take turns in the order in which they were blocked.
        for blocked in endpoint.host.blocked:
            self._make_ready(blocked)
        endpoint.host.blocked.clear()
        return self._more or self._wants_more(endpoint)

    def _update_pace(self, endpoint: _EndpointQueue, now: float) -> None:
        started, _ = next(iter(endpoint.in_flight.values()), (now, ()))
        endpoint.last = max(endpoint.last, now - started)
        pace = _Pace.SLOW if endpoint.last >= self._slow else _Pace.FAST
        if endpoint.pace is pace:
            return
        waiting, ready = len(endpoint.waiting), endpoint.organization.ready
        self._count_waiting(endpoint, -waiting)
        if endpoint in ready[endpoint.pace]:
            del ready[endpoint.pace][endpoint]
            ready[pace][endpoint] = None
        endpoint.pace = pace
        self._count_waiting(endpoint, waiting)

    def wants_more(self) -> bool:
        return self.running < self._maximum and (
            (self._more and self._vacant > 0) or any(map(self._wants_more, self._busy.values()))
        )

    def _wants_more(self, endpoint: _EndpointQueue) -> bool:
        enough = len(endpoint.waiting) * 2 > endpoint.ahead
        return endpoint.more and not enough and self._room(endpoint) > 0

    def drop(self, is_obsolete: Callable[[ClaimedAttempt], bool]) -> list[Claim]:
        dropped: list[Claim] = []
        for endpoint in self._busy.values():
            obsolete = [attempt.work.claim for attempt in endpoint.waiting if is_obsolete(attempt)]
            if obsolete:
                endpoint.waiting = deque(attempt for attempt in endpoint.waiting if not is_obsolete(attempt))
                self._count_waiting(endpoint, -len(obsolete))
                dropped += obsolete
            if not endpoint.waiting:
                endpoint.organization.ready[endpoint.pace].pop(endpoint, None)
                endpoint.host.blocked.pop(endpoint, None)
        return dropped
