"""Concurrency limits: how many attempts may be in flight in all, to each host, endpoint and organization.

The rules are those of docs/reference/webhooks.md, Fairness.  Claimed work that may not begin yet waits in a
queue for each endpoint, so that its next attempt begins without a query.
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
"""Seconds of a prompt endpoint's work that may wait: longer than a claim takes."""

MAX_AHEAD = 256
"""Attempts that may wait for one endpoint, and for all endpoints together."""

DEFAULT_LIMIT = 1
"""Attempts to claim of an endpoint without work, and the cap of a new one."""

MAX_IDLE_ENDPOINTS = 10_000
"""Maximum number of idle endpoints to remember. The least recently busy ones are forgotten."""

_Key: TypeAlias = tuple[UUID, str]
"""An endpoint and its host, which a new URL may change."""


class _Pace(Enum):
    """How an endpoint responds, in the order in which those of an organization take turns."""

    NEW = auto()
    SLOW = auto()
    PROMPT = auto()


@dataclass(frozen=True, slots=True)
class ClaimedAttempt:
    """Claimed work that has not begun; its lease began at ``since``, in seconds of the caller's clock."""

    work: DueWork
    since: float


@dataclass(slots=True)
class _Share:
    """Attempts in flight that are limited together.

    :ivar reserve: the last places, of which an organization leaves free as many as it has in the share.
    """

    limit: int
    reserve: int
    running: int = 0
    organizations: Counter[str] = field(default_factory=Counter)

    def has_place(self, organization: str) -> bool:
        """Whether the organization may have another attempt in flight."""
        free = self.limit - self.running
        return free > self.reserve or free > self.organizations[organization]


_Shares: TypeAlias = Mapping[_Pace, tuple[_Share, ...]]
"""The shares of a limit in which attempts count, by the pace of their endpoint when they began."""


def _shares(slow: int, slow_and_new: int, every: int, reserve: int) -> _Shares:
    """Return the shares of a limit, each of which reserves a fraction."""
    of_slow, of_both, of_all = (_Share(limit, limit // reserve) for limit in (slow, slow_and_new, every))
    return {_Pace.SLOW: (of_slow, of_both, of_all), _Pace.NEW: (of_both, of_all), _Pace.PROMPT: (of_all,)}


def _has_place(shares: Iterable[_Share], organization: str) -> bool:
    return all(share.has_place(organization) for share in shares)


def _count(shares: Iterable[_Share], organization: str, change: int) -> None:
    for share in shares:
        share.running += change
        share.organizations[organization] += change
        if not share.organizations[organization]:
            del share.organizations[organization]


@dataclass(slots=True, eq=False)
class _HostQueue:
    """A host.

    :ivar endpoints: number of its endpoints that are remembered.
    :ivar waiting: number of waiting attempts, by the pace of their endpoint.
    :ivar blocked: endpoints whose waiting attempts wait for another attempt at the host to end.
    """

    name: str
    shares: _Shares
    endpoints: int = 0
    waiting: Counter[_Pace] = field(default_factory=Counter)
    blocked: dict[_EndpointQueue, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _OrganizationQueue:
    """An organization and its endpoints that are remembered.

    :ivar waiting: number of waiting attempts, by the pace of their endpoint.
    :ivar ready: endpoints whose waiting attempts may begin; the first one's turn is next.
    """

    name: str
    waiting: Counter[_Pace] = field(default_factory=Counter)
    endpoints: dict[_Key, _EndpointQueue] = field(default_factory=dict)
    ready: Mapping[_Pace, OrderedDict[_EndpointQueue, None]] = field(
        default_factory=lambda: {pace: OrderedDict() for pace in _Pace}
    )


@dataclass(slots=True, eq=False)
class _EndpointQueue:
    """An endpoint at its host.

    :ivar cap: maximum number of attempts in flight.
    :ivar last: seconds that its last attempt took, or its oldest one in flight has taken if that is more.
    :ivar begun: attempts in flight, oldest first: when they began, and the shares in which they count.
    :ivar more: whether the database may have more due work for it.
    """

    identifier: UUID
    organization: _OrganizationQueue
    host: _HostQueue
    cap: int = DEFAULT_LIMIT
    pace: _Pace = _Pace.NEW
    last: float = 0.0
    begun: dict[Claim, tuple[float, tuple[_Share, ...]]] = field(default_factory=dict)
    waiting: deque[ClaimedAttempt] = field(default_factory=deque)
    more: bool = False

    @property
    def pace_at_host(self) -> _Pace:
        """The pace by which its host's limit is shared: one that is alone there may be slow."""
        return self.pace if self.host.endpoints > 1 else _Pace.PROMPT

    @property
    def ahead(self) -> int:
        """How many attempts may wait: as many as its cap can grow, and as begin until the next claim."""
        if self.pace is not _Pace.PROMPT:
            return 0
        growth = min(self.cap, self.host.shares[_Pace.PROMPT][0].limit - self.cap)
        running = len(self.begun) if self.waiting else self.cap
        return growth + int(min(MAX_AHEAD, running * AHEAD / max(self.last, 0.001)))

    @property
    def room(self) -> int:
        """How many more attempts it may have in flight or waiting."""
        return max(0, self.cap + self.ahead - len(self.begun) - len(self.waiting))


class ConcurrencyLimits:
    """Decides how much to claim and which attempt begins next.

    :param maximum: attempts in flight at once.
    :param per_host: of these, to one host.
    :param slow: seconds from which an attempt is slow.
    :ivar waiting: claimed attempts that have not begun.
    """

    def __init__(self, maximum: int, per_host: int, slow: float) -> None:
        self._maximum = maximum
        self._per_host = min(per_host, maximum)
        self._slow = slow
        self._shares = _shares(maximum - maximum // 2, maximum - maximum // 8, maximum, reserve=16)
        self._hosts: dict[str, _HostQueue] = {}
        self._organizations: dict[str, _OrganizationQueue] = {}
        # Endpoints with work, and those without, longest first.
        self._busy: dict[_Key, _EndpointQueue] = {}
        self._idle: dict[_Key, _EndpointQueue] = {}
        # Organizations with a ready endpoint; the first one's turn is next.
        self._turns: OrderedDict[_OrganizationQueue, None] = OrderedDict()
        # Whether the last claim left due work of other endpoints.
        self._more = False
        self.waiting = 0

    @property
    def running(self) -> int:
        """Attempts in flight."""
        return self._shares[_Pace.PROMPT][0].running

    @property
    def _vacant(self) -> int:
        """How many more attempts may be in flight or waiting."""
        return self._maximum + MAX_AHEAD - self.running - self.waiting

    def room(self) -> int:
        """Return how many attempts to claim: half of the vacancy, so that no claim takes all of it."""
        if self.running >= self._maximum or self._vacant <= 0:
            self._more = True
            return 0
        return (self._vacant + 1) // 2

    def limits(self, now: float) -> tuple[dict[UUID, int], frozenset[str]]:
        """Return how many attempts to claim of some endpoints, and organizations whose others are excluded.

        ``USUAL_LIMIT`` is claimed of every other endpoint.
        """
        for endpoint in self._busy.values():
            if endpoint.pace is not _Pace.NEW:
                self._judge(endpoint, now)
        listed, full = dict(self._busy), set[str]()
        for organization in {endpoint.organization for endpoint in self._busy.values()}:
            excluded = self._excluded(organization)
            if excluded:
                listed |= organization.endpoints
            if _Pace.NEW in excluded:
                full.add(organization.name)
        return {endpoint.identifier: self._room(endpoint) for endpoint in listed.values()}, frozenset(full)

    def _room(self, endpoint: _EndpointQueue) -> int:
        """Return how many attempts to claim of an endpoint."""
        return 0 if endpoint.pace in self._excluded(endpoint.organization) else endpoint.room

    def _excluded(self, organization: _OrganizationQueue) -> list[_Pace]:
        """Return the paces of which more of the organization's attempts wait than is vacant."""
        return [pace for pace, waiting in organization.waiting.items() if waiting > self._vacant]

    def add(self, claimed: ClaimedAttempt) -> bool:
        """Add claimed work; False when the limits do not allow it and it must be released."""
        endpoint = self._busy_endpoint(claimed.work)
        pace, waiting = endpoint.pace, endpoint.host.waiting
        if pace is not _Pace.PROMPT and (not endpoint.room or waiting[pace] >= self._per_host):
            return False
        endpoint.waiting.append(claimed)
        self._count_waiting(endpoint, 1)
        if len(endpoint.waiting) == 1:
            self._offer(endpoint)
        return True

    def _busy_endpoint(self, work: DueWork) -> _EndpointQueue:
        """Return the endpoint of claimed work, which is busy from now on."""
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
        """Record of which endpoints the database may have more, after a claim's work was added.

        :param counts: how many attempts were claimed, by endpoint.
        :param limits: what ``limits`` returned for the claim.
        :param complete: whether the claim returned all work that these allowed.
        """
        self._more = not complete
        for key, endpoint in list(self._busy.items()):
            identifier = endpoint.identifier
            endpoint.more = counts.get(identifier, 0) >= limits.get(identifier, DEFAULT_LIMIT)
            if not (endpoint.begun or endpoint.waiting or endpoint.more):
                self._idle[key] = self._busy.pop(key)
        while len(self._idle) > MAX_IDLE_ENDPOINTS:
            self._forget(next(iter(self._idle)))

    def _forget(self, key: _Key) -> None:
        """Forget an idle endpoint, and its host and organization with the last of theirs."""
        endpoint = self._idle.pop(key)
        host, organization = endpoint.host, endpoint.organization
        host.endpoints -= 1
        if not host.endpoints:
            del self._hosts[host.name]
        del organization.endpoints[key]
        if not organization.endpoints:
            del self._organizations[organization.name]

    def next(self, now: float) -> ClaimedAttempt | None:
        """Return the attempt that begins now, by turns of organizations and of their endpoints, if any."""
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
        """Remove and return the organization's first endpoint that may have another attempt in flight."""
        for pace, ready in organization.ready.items():
            while ready and _has_place(self._shares[pace], organization.name):
                endpoint, _ = ready.popitem(last=False)
                host_shares = endpoint.host.shares[endpoint.pace_at_host]
                if len(endpoint.begun) < endpoint.cap and _has_place(host_shares, organization.name):
                    return endpoint
                endpoint.host.blocked[endpoint] = None
        return None

    def _begin(self, endpoint: _EndpointQueue, now: float) -> ClaimedAttempt:
        attempt = endpoint.waiting.popleft()
        self._count_waiting(endpoint, -1)
        shares = (*self._shares[endpoint.pace], *endpoint.host.shares[endpoint.pace_at_host])
        endpoint.begun[attempt.work.claim] = now, shares
        _count(shares, endpoint.organization.name, 1)
        if endpoint.waiting:
            self._offer(endpoint)
        return attempt

    def _count_waiting(self, endpoint: _EndpointQueue, change: int) -> None:
        endpoint.host.waiting[endpoint.pace] += change
        endpoint.organization.waiting[endpoint.pace] += change
        self.waiting += change

    def _offer(self, endpoint: _EndpointQueue) -> None:
        """Put an endpoint for which attempts wait at the end of the ready ones."""
        endpoint.organization.ready[endpoint.pace][endpoint] = None
        self._turns.setdefault(endpoint.organization)

    def ended(self, work: DueWork, now: float, *, answered: bool | None = None) -> bool:
        """Record that an attempt ended; True when it is time to claim more.

        :param answered: whether there was a response; None when the end says nothing about the endpoint.
        """
        endpoint = self._busy[work.endpoint_id, host_of(work.url)]
        began, shares = endpoint.begun.pop(work.claim)
        _count(shares, endpoint.organization.name, -1)
        if answered is not None:
            endpoint.last = now - began
            fails = endpoint.last >= self._slow and not answered
            endpoint.cap = max(1, endpoint.cap // 2) if fails else min(self._per_host, endpoint.cap + 1)
            self._judge(endpoint, now)
        # In the order in which they were blocked, so that they take turns.
        for blocked in endpoint.host.blocked:
            self._offer(blocked)
        endpoint.host.blocked.clear()
        return self._more or self._wants_more(endpoint)

    def _judge(self, endpoint: _EndpointQueue, now: float) -> None:
        """Find out how an endpoint responds of which an attempt has ended."""
        began, _ = next(iter(endpoint.begun.values()), (now, ()))
        endpoint.last = max(endpoint.last, now - began)
        pace = _Pace.SLOW if endpoint.last >= self._slow else _Pace.PROMPT
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
        """Whether it is time to claim more."""
        return self.running < self._maximum and (
            (self._more and self._vacant > 0) or any(map(self._wants_more, self._busy.values()))
        )

    def _wants_more(self, endpoint: _EndpointQueue) -> bool:
        enough = len(endpoint.waiting) * 2 > endpoint.ahead
        return endpoint.more and not enough and self._room(endpoint) > 0

    def drop(self, is_obsolete: Callable[[ClaimedAttempt], bool]) -> list[Claim]:
        """Remove waiting attempts that are obsolete, and return their claims."""
        dropped: list[Claim] = []
        for endpoint in self._busy.values():
            obsolete = [attempt.work.claim for attempt in endpoint.waiting if is_obsolete(attempt)]
            if obsolete:
                endpoint.waiting = deque(one for one in endpoint.waiting if not is_obsolete(one))
                self._count_waiting(endpoint, -len(obsolete))
                dropped += obsolete
            if not endpoint.waiting:
                endpoint.organization.ready[endpoint.pace].pop(endpoint, None)
                endpoint.host.blocked.pop(endpoint, None)
        return dropped
